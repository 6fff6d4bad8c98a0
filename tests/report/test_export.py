"""A run for other tools: CSV, Parquet, TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orlomo
from orlomo.errors import ConfigError
from orlomo.report.export import TensorBoardWriter, writes_in
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
        assert [scalar.step for scalar in scalars] == run.metric_columns["samples"].tolist()
        assert [scalar.value for scalar in scalars] == pytest.approx(run.metric_columns[name].tolist(), rel=1e-6)
    counts = [int(one.histogram_value.num) for one in found.Histograms("delay")]
    assert np.cumsum(counts).tolist() == [reports for reports in run.metric_columns["reports"].tolist() if reports]
    delays = np.split(run.event_columns["delay"], np.cumsum(counts)[:-1])
    assert [scalar.value for scalar in found.Scalars("delay/mean")] == pytest.approx([part.mean() for part in delays])
    assert [scalar.value for scalar in found.Scalars("delay/max")] == [part.max() for part in delays]


def test_tensorboard_after_the_fact(run: orlomo.Run, tmp_path: Path) -> None:
    done = call_cli("export", run.folder, "--format", "tensorboard", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{run.folder / 'tensorboard'}\n")
    check_logged(logged(run.folder / "tensorboard"), run)
    again = call_cli("export", run.folder, "--format", "tensorboard", folder=tmp_path)
    assert again.returncode == 2
    assert "holds TensorBoard's files already" in again.stderr


def test_tensorboard_of_a_run_that_was_stopped(tmp_path: Path) -> None:
    """What came after the last checkpoint is computed again, and is there once."""

    class Stop(orlomo.Callback):
        def event(self, row: dict[str, Any]) -> None:
            if row["reports"] == 20:
                raise KeyboardInterrupt

    more = {"workers": 3, "epochs": 8, "jobs": 1, "checkpoint_seconds": 1e-6, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        orlomo.train(classification(), settings("orlomo"), **more, tensorboard=True, callbacks=[Stop()])
    for path in sorted((tmp_path / "run/checkpoints").glob("*.json"))[-1:]:
        path.unlink()
    run = orlomo.resume(tmp_path / "run", task=classification(), tensorboard=True)
    check_logged(logged(run.folder / "tensorboard"), run)


def test_a_resume_without_tensorboard_installed_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"workers": 3, "epochs": 3, "jobs": 1}
    run = orlomo.train(classification(), settings("orlomo"), **more, out=tmp_path / "without")
    said: list[str] = []
    orlomo.resume(run.folder, task=classification(), tensorboard=True, warn=said.append)
    assert said == [f"{run.folder} is finished; for TensorBoard: `orlomo export {run.folder} --format tensorboard`"]
    run = orlomo.train(classification(), settings("orlomo"), **more, tensorboard=True, out=tmp_path / "run")
    orlomo.resume(run.folder, task=classification(), tensorboard=True, warn=said.append)
    assert len(said) == 1  # its files are there
    (run.folder / "model.safetensors").unlink()
    before = writes_in(run.folder / "tensorboard")
    assert before
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match="not installed"):
        orlomo.resume(run.folder, task=classification(), tensorboard=True)
    assert writes_in(run.folder / "tensorboard") == before


def test_what_can_be_exported_is(run: orlomo.Run, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (run.folder / "events.csv").unlink()
    for kind, files in (("csv", 1), ("parquet", 1), ("tensorboard", 1)):
        done = call_cli("export", run.folder, "--format", kind, "-o", kind, folder=tmp_path)
        assert done.returncode == 0
        assert "events.csv" in done.stderr
        assert len(list((tmp_path / kind).iterdir())) == files
    (run.folder / "metrics.csv").unlink()
    wrong = call_cli("export", run.folder, "--format", "csv", folder=tmp_path)
    assert wrong.returncode == 2
    assert "has no table" in wrong.stderr


def test_a_full_disk_stops_tensorboard_and_not_the_run(run: orlomo.Run, tmp_path: Path) -> None:
    said: list[str] = []
    writer = TensorBoardWriter(tmp_path / "full", warn=said.append)

    def full(*details: object) -> None:
        raise OSError(28, "No space left on device")

    writer._writer.add_scalar = full
    writer.write_run(run)
    writer.close()
    [line] = said
    assert "No space left on device" in line


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
    for name, columns in (("events", run.event_columns), ("metrics", run.metric_columns)):
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
    assert "is a run, with tables of its own" in wrong.stderr
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for kind, needed in (("parquet", "orlomo[parquet]"), ("tensorboard", "orlomo[tensorboard]")):
        wrong = call_cli("export", run.folder, "--format", kind, folder=tmp_path)
        assert wrong.returncode == 2
        assert needed in wrong.stderr
    wrong = call_cli("train", "digits", "--tensorboard", "--out", "new", folder=tmp_path)
    assert wrong.returncode == 2
    assert not (tmp_path / "new").exists()
