"""A run for other tools: CSV, Parquet, TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orlomo
from small import call_cli, classification, settings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TensorBoard's own


@pytest.fixture
def run(tmp_path: Path) -> orlomo.Run:
    return orlomo.train(classification(), settings("orlomo"), workers=3, epochs=5, jobs=1, out=tmp_path / "run")


def logged(folder: Path) -> Any:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = events.EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    found.Reload()
    return found


def check_logged(found: Any, run: orlomo.Run) -> None:
    for name in ("test_accuracy", "train_loss"):
        scalars = found.Scalars(f"evaluation/{name}")
        assert [scalar.step for scalar in scalars] == run.metrics["samples"].tolist()
        assert [scalar.value for scalar in scalars] == pytest.approx(run.metrics[name].tolist(), rel=1e-6)
    histograms = found.Histograms("delay")
    assert sum(one.histogram_value.num for one in histograms) == len(run.events["delay"])
    assert max(one.histogram_value.max for one in histograms) == run.events["delay"].max()


def test_tensorboard_after_the_fact(run: orlomo.Run, tmp_path: Path) -> None:
    done = call_cli("export", run.folder, "--format", "tensorboard", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{run.folder / 'tensorboard'}\n")
    check_logged(logged(run.folder / "tensorboard"), run)


def test_tensorboard_while_it_runs(tmp_path: Path) -> None:
    words = [
        "train",
        "digits",
        "--workers",
        2,
        "--local-steps",
        8,
        "--epochs",
        3,
        "--tensorboard",
        "--out",
        "run",
        "--jobs",
        1,
    ]
    assert call_cli(*words, folder=tmp_path).returncode == 0
    check_logged(logged(tmp_path / "run/tensorboard"), orlomo.load(tmp_path / "run"))


def test_parquet_and_csv_hold_the_same_numbers(run: orlomo.Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for kind in ("parquet", "csv"):
        assert call_cli("export", run.folder, "--format", kind, "-o", "out", folder=tmp_path).returncode == 0
    for name, columns in (("events", run.events), ("metrics", run.metrics)):
        table = parquet.read_table(tmp_path / f"out/{name}.parquet").to_pydict()
        assert list(table) == list(columns)
        for key, column in columns.items():
            assert np.array_equal(np.array(table[key], column.dtype), column, equal_nan=column.dtype == np.float64)
        assert (tmp_path / f"out/{name}.csv").read_text() == (run.folder / f"{name}.csv").read_text()


def test_mistakes_are_one_line(run: orlomo.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = call_cli("export", run.folder, "--format", "parket", folder=tmp_path)
    assert wrong.returncode == 2
    assert "did you mean 'parquet'" in wrong.stderr
    wrong = call_cli("export", run.folder, "--format", "csv", "-o", run.folder, folder=tmp_path)
    assert wrong.returncode == 2
    assert "is the run itself" in wrong.stderr
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for kind, needed in (("parquet", "orlomo[parquet]"), ("tensorboard", "orlomo[tensorboard]")):
        wrong = call_cli("export", run.folder, "--format", kind, folder=tmp_path)
        assert wrong.returncode == 2
        assert needed in wrong.stderr
    wrong = call_cli("train", "digits", "--tensorboard", "--out", "new", folder=tmp_path)
    assert wrong.returncode == 2
    assert not (tmp_path / "new").exists()
