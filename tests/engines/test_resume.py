"""kill -9 at any moment, Ctrl-C, a full disk: the run continues from its checkpoint and ends with the same bits."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orlomo
from orlomo.engines.session import checksum
from small import NAMES, classification, settings, small_disk

KILLS = 8  # for each method and number of jobs


def train(name: str, folder: Path, jobs: int, **more: Any) -> None:
    workers = 1 if name == "msgd" else 4
    orlomo.train(
        classification(),
        settings(name, learning_rate=0.05),
        workers=workers,
        epochs=20,
        cluster="heterogeneous",
        out=folder,
        jobs=jobs,
        checkpoint_seconds=0.0,
        **more,
    )


def start_or_resume(name: str, folder: Path, jobs: int) -> None:
    """What a killed user does: start, or resume if there is something to resume."""
    if (folder / "config.toml").exists():
        orlomo.resume(folder, task=classification(), jobs=jobs, warn=lambda text: None)
    else:
        train(name, folder, jobs)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_random_moments_it_ends_the_same(name: str, jobs: int, tmp_path: Path) -> None:
    began = time.monotonic()
    train(name, tmp_path / "whole", jobs)
    duration = time.monotonic() - began
    whole = orlomo.load(tmp_path / "whole")
    source = random.Random(f"{name} {jobs}")
    context = multiprocessing.get_context("fork")
    folder, kills, finished = tmp_path / "killed-0", 0, 0
    while kills < KILLS:
        process = context.Process(target=start_or_resume, args=(name, folder, jobs))
        process.start()
        process.join(source.uniform(0.02, duration))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.join()
        if process.exitcode == 0:  # done between two kills: compare, and begin another
            assert_same(whole, orlomo.load(folder))
            finished += 1
            folder = tmp_path / f"killed-{finished}"
    start_or_resume(name, folder, jobs)
    assert_same(whole, orlomo.load(folder))


def assert_same(whole: orlomo.Run, other: orlomo.Run) -> None:
    assert other.finished
    assert checksum(other.params) == checksum(whole.params)
    assert (other.folder / "events.csv").read_bytes() == (whole.folder / "events.csv").read_bytes()
    for name, column in whole.metric_columns.items():
        if name != "real_seconds":
            np.testing.assert_array_equal(other.metric_columns[name], column)  # NaN equals NaN


def test_a_damaged_newest_checkpoint_costs_a_warning_and_nothing_else(tmp_path: Path) -> None:
    train("orlomo", tmp_path / "whole", jobs=1)
    expected = checksum(orlomo.load(tmp_path / "whole").params)
    checkpoints = sorted((tmp_path / "whole" / "checkpoints").glob("*.safetensors"))
    assert len(checkpoints) > 1
    content = bytearray(checkpoints[-1].read_bytes())
    content[-1] ^= 0xFF
    checkpoints[-1].write_bytes(content)
    damaged = orlomo.load(tmp_path / "whole")
    warnings: list[str] = []
    run = orlomo.resume(damaged.folder, task=classification(), jobs=1, warn=warnings.append)
    assert checksum(run.params) == expected
    assert len(warnings) == 1
    assert "damaged" in warnings[0]
    assert "using the one before it" in warnings[0]


def test_a_changed_config_is_not_resumed(tmp_path: Path) -> None:
    train("orlomo", tmp_path / "run", jobs=1)
    for path in sorted((tmp_path / "run" / "checkpoints").iterdir())[-2:]:
        path.unlink()
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 1"))
    with pytest.raises(orlomo.OrlomoError, match=r"config.toml was changed after the run began"):
        orlomo.resume(tmp_path / "run", task=classification(), jobs=1)


def test_a_task_that_only_python_has_must_be_given_again(tmp_path: Path) -> None:
    train("orlomo", tmp_path / "run", jobs=1)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(orlomo.OrlomoError, match=r"give it, as in orlomo.resume"):
        orlomo.resume(tmp_path / "run")


@pytest.mark.parametrize("name", NAMES)
def test_replay_agrees(name: str, tmp_path: Path) -> None:
    train(name, tmp_path / "run", jobs=2)
    result = orlomo.replay(tmp_path / "run", task=classification(), jobs=1)
    assert result.agrees
    assert "bit for bit" in str(result)


def test_replay_of_a_run_with_faults_agrees(tmp_path: Path) -> None:
    faults = tuple(
        orlomo.Fault(time=time, worker=worker, kind=kind)
        for time, worker, kind in [(3, 0, "crash"), (5, 7, "join"), (8, 0, "return"), (11, 1, "leave")]
    )
    task = classification()
    for name in ("orlomo", "prsgdm"):
        orlomo.train(
            task, settings(name), workers=3, epochs=20, cluster=orlomo.Cluster(faults=faults), out=tmp_path / name
        )
        assert orlomo.replay(tmp_path / name, task=task).agrees


def test_replay_says_where_a_run_parts_from_its_record(tmp_path: Path) -> None:
    train("orlomo", tmp_path / "run", jobs=1)
    path = tmp_path / "run" / "events.csv"
    lines = path.read_text().splitlines(keepends=True)
    fields = lines[11].rstrip().split(",")
    fields[-1] = fields[-1][:-3] + ("111" if fields[-1][-3:] != "111" else "222")  # of the same length
    path.write_text("".join([*lines[:11], ",".join(fields) + "\n", *lines[12:]]))
    warnings: list[str] = []
    result = orlomo.replay(tmp_path / "run", task=classification(), jobs=1, warn=warnings.append)
    assert "events.csv is not what the run wrote" in warnings[0]
    assert not result.agrees
    assert result.first_difference == 10
    assert "the parameters agree, but the record of iteration 10 is not what was computed" in str(result)


def test_replay_notices_other_parameters_and_an_impossible_trace(tmp_path: Path) -> None:
    train("orlomo", tmp_path / "run", jobs=1)
    other = classification(train_data=tuple(part.flip(0) for part in classification().train_data))
    result = orlomo.replay(tmp_path / "run", task=other, jobs=1)
    assert not result.agrees
    assert result.first_difference == 0
    assert "the parameters differ, first at iteration 0" in str(result)
    path = tmp_path / "run" / "events.csv"
    lines = path.read_text().splitlines(keepends=True)
    lines[5], lines[6] = lines[6], lines[5]
    path.write_text("".join(lines))
    warnings: list[str] = []
    with pytest.raises(orlomo.OrlomoError, match="the trace and the method disagree"):
        orlomo.replay(tmp_path / "run", task=classification(), jobs=1, warn=warnings.append)
    assert len(warnings) == 1
    assert "events.csv is not what the run wrote, first in lines" in warnings[0]
    path.write_text(lines[0])
    with pytest.raises(orlomo.OrlomoError, match="there is nothing to replay"):
        orlomo.replay(tmp_path / "run", task=classification(), jobs=1, warn=lambda text: None)


class FillDisk(orlomo.Callback):
    """Fills the run's disk when so many reports are in."""

    def __init__(self, at: int):
        self.at = at

    def started(self, run: orlomo.RunHandle) -> None:
        self.filler = run.folder.parent / "filler"

    def event(self, row: dict[str, Any]) -> None:
        if row["reports"] == self.at:
            with contextlib.suppress(OSError), self.filler.open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 512)


def test_a_full_disk_is_one_clear_error_and_nothing_is_lost(tmp_path: Path) -> None:
    """On a real file system of 300 kB."""
    with small_disk(tmp_path / "small-disk", "300k") as disk:
        message = r"No space left on device; free some space and .orlomo resume"
        with pytest.raises(orlomo.OrlomoError, match=message):
            train("orlomo", disk / "run", jobs=1, callbacks=[FillDisk(at=10)])
        (disk / "filler").unlink()
        run = orlomo.resume(disk / "run", task=classification(), jobs=1)
        train("orlomo", tmp_path / "whole", jobs=1)
        assert_same(orlomo.load(tmp_path / "whole"), run)


def test_a_run_that_is_being_written_is_not_resumed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=orlomo.train, args=("quadratic",), kwargs={"epochs": 500, "out": tmp_path / "run"})
    process.start()
    while not (tmp_path / "run" / ".lock").exists():
        time.sleep(0.01)
    time.sleep(0.2)
    try:
        with pytest.raises(orlomo.OrlomoError, match="is being written by another process"):
            orlomo.resume(tmp_path / "run")
    finally:
        process.terminate()
        process.join()


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_finished_run_that_lost_its_model_is_made_whole(damage: str, tmp_path: Path) -> None:
    train("orlomo", tmp_path / "whole", jobs=1)
    train("orlomo", tmp_path / "run", jobs=1)
    path, warnings = tmp_path / "run" / "model.safetensors", list[str]()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    if damage == "gone":
        path.unlink()
    run = orlomo.resume(tmp_path / "run", task=classification(), jobs=1, warn=warnings.append)
    assert_same(orlomo.load(tmp_path / "whole"), run)
    assert path.read_bytes() == content
    assert len(warnings) == (damage == "changed")


@pytest.mark.parametrize("name", ["events.csv", "metrics.csv", "metrics.json"])
def test_a_run_that_lost_a_file_is_refused_and_left_as_it_is(name: str, tmp_path: Path) -> None:
    train("orlomo", tmp_path / "run", jobs=1)
    (tmp_path / "run" / name).unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(orlomo.OrlomoError, match=rf"{name} is missing .*none of its checkpoints fits: restore it"):
        orlomo.resume(tmp_path / "run", task=classification(), jobs=1, warn=lambda text: None)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_mistakes_leave_no_folder_behind(tmp_path: Path) -> None:
    gone = orlomo.Cluster(faults=(orlomo.Fault(time=0, worker=0, kind="crash"),))
    cases = [
        {"jobs": 0},
        {"device": "cudaa"},
        {"cluster": gone},
        {"workers": 1.0},
        {"seed": True},
        {"batch_size": 0},
    ]
    for case in cases:
        with pytest.raises(orlomo.OrlomoError):
            orlomo.train(classification(), settings("orlomo"), **{"workers": 1, "out": tmp_path / "run", **case})
        assert not (tmp_path / "run").exists()
    task = classification(loss=lambda model, batch: model(batch[0]))
    with pytest.raises(orlomo.OrlomoError, match="must give a scalar"):
        orlomo.train(task, settings("orlomo"), workers=1, out=tmp_path / "run", jobs=2)
    assert not (tmp_path / "run").exists()


def test_a_runs_own_batch_size_goes_over_the_tasks(tmp_path: Path) -> None:
    run = orlomo.train(
        classification(), settings("orlomo"), workers=1, epochs=1, batch_size=4, out=tmp_path / "a", jobs=1
    )
    assert run.config.batch_size == 4
    assert run.metric_columns["samples"][-1] / run.metric_columns["reports"][-1] == 8
