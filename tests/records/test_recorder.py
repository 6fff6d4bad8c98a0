"""A new run folder: begun once, never over something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from orlomo.clusters.cluster import cluster
from orlomo.config import RunConfig
from orlomo.errors import RunFolderError
from orlomo.methods.registry import method
from orlomo.records.recorder import create_folder
from orlomo.records.tables import MetricColumn

CONFIG = RunConfig(task="quadratic", method=method("asgd"), cluster=cluster("homogeneous"))
MEASURED = [MetricColumn("train_loss", "training loss", "loss", "loss", better="lower")]


def test_a_folder_that_a_killed_process_has_half_made_is_used(tmp_path: Path) -> None:
    create_folder(tmp_path, CONFIG, MEASURED)
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "config.toml").unlink()  # it is written last
    create_folder(tmp_path, CONFIG, MEASURED)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == whole


@pytest.mark.parametrize("name", ["metrics.json", "notes.txt"])
def test_a_folder_with_other_files_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"loss": 1.0}')
    with pytest.raises(RunFolderError, match="exists and is not a run"):
        create_folder(tmp_path, CONFIG, MEASURED)
