"""A run that is continued with other epochs or another learning rate: recorded, followed by every resume and replay."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orlomo
from orlomo.engines.session import checksum
from small import NAMES, classification, settings


class StopAt(orlomo.Callback):
    """Ctrl-C after so many events."""

    def __init__(self, events: int):
        self.left = events

    def event(self, row: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


class Enough(orlomo.Callback):
    """Stops the run after so many reports."""

    def started(self, run: orlomo.RunHandle) -> None:
        self.run = run

    def event(self, row: dict[str, Any]) -> None:
        if row["reports"] >= 7:
            self.run.stop("enough")


def train(folder: Path, name: str = "orlomo", events: int | None = None, **more: Any) -> orlomo.Run:
    """Two epochs of three workers; interrupted after so many events."""
    usual: dict[str, Any] = {"workers": 1 if name == "msgd" else 3, "epochs": 2, "cluster": "heterogeneous", "jobs": 1}
    callbacks = [] if events is None else [StopAt(events)]
    method = settings(name, learning_rate=0.05)
    try:
        return orlomo.train(classification(), method, out=folder, **{**usual, "callbacks": callbacks, **more})
    except orlomo.Interrupted:
        return orlomo.load(folder)


def resume(folder: Path, events: int | None = None, **more: Any) -> orlomo.Run:
    callbacks = [] if events is None else [StopAt(events)]
    usual: dict[str, Any] = {"task": classification(), "jobs": 1, "callbacks": callbacks}
    try:
        return orlomo.resume(folder, **{**usual, **more})
    except orlomo.Interrupted:
        return orlomo.load(folder)


def rates(run: orlomo.Run) -> list[float]:
    """The learning rates of the reports, in the order in which they came."""
    return run.event_columns["learning_rate"][run.event_columns["kind"] == "report"].tolist()


def replays(folder: Path) -> bool:
    return orlomo.replay(folder, task=classification(), jobs=1).agrees


@pytest.mark.parametrize("name", NAMES)
def test_a_run_resumed_twice_with_other_rates_replays_bit_for_bit(name: str, tmp_path: Path) -> None:
    run = train(tmp_path / "run", name, events=5)
    assert not run.finished
    before = run.event_columns
    run = resume(tmp_path / "run", learning_rate=0.02, events=6)
    assert [change.events for change in run.changes] == [5]
    run = resume(tmp_path / "run", epochs=4, learning_rate=0.01)
    assert run.finished
    assert [(change.epochs, change.learning_rate) for change in run.changes] == [(None, 0.02), (4.0, 0.01)]
    assert (run.config.epochs, run.config.method.learning_rate) == (4.0, 0.01)
    for column, values in before.items():  # what had happened stays
        np.testing.assert_array_equal(run.event_columns[column][: len(values)], values)
    assert sorted(set(rates(run)), reverse=True) == [0.05, 0.02, 0.01]
    assert rates(run)[-1] == 0.01
    assert float(run.metric_columns["epoch"][-1]) >= 4
    assert replays(tmp_path / "run")


@pytest.mark.parametrize("name", ["orlomo", "prsgdm"])
def test_more_epochs_alone_are_as_if_it_had_been_longer_from_the_start(name: str, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", name, epochs=5)
    train(tmp_path / "run", name)
    run = resume(tmp_path / "run", epochs=5)
    assert checksum(run.params) == checksum(whole.params)
    assert (run.folder / "events.csv").read_bytes() == (whole.folder / "events.csv").read_bytes()


def test_the_same_change_gives_the_same_bits_on_any_number_of_jobs(tmp_path: Path) -> None:
    train(tmp_path / "one", events=9)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    runs = [resume(tmp_path / name, epochs=3, learning_rate=0.2, jobs=jobs) for name, jobs in (("one", 1), ("two", 2))]
    assert checksum(runs[0].params) == checksum(runs[1].params)
    assert (runs[0].folder / "events.csv").read_bytes() == (runs[1].folder / "events.csv").read_bytes()


def test_rounds_under_way_keep_their_learning_rate(tmp_path: Path) -> None:
    train(tmp_path / "run")
    run = resume(tmp_path / "run", epochs=4, learning_rate=0.01)
    [change] = run.changes
    assert rates(run)[: change.events + 3] == [0.05] * (change.events + 3)  # three workers had begun
    assert set(rates(run)[change.events + 3 :]) == {0.01}


class Kill(orlomo.Callback):
    """Killed when the change is written and nothing has happened yet."""

    def started(self, run: orlomo.RunHandle) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def killed_after_the_change(folder: Path) -> None:
    resume(folder, epochs=4, learning_rate=0.01, callbacks=[Kill()])


@pytest.mark.parametrize("events", [None, 5])
def test_killed_between_the_change_and_its_first_event(events: int | None, tmp_path: Path) -> None:
    train(tmp_path / "whole", events=events)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    whole = resume(tmp_path / "whole", epochs=4, learning_rate=0.01)
    process = multiprocessing.get_context("fork").Process(target=killed_after_the_change, args=(tmp_path / "killed",))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    run = orlomo.load(tmp_path / "killed")
    assert not run.finished
    assert run.state == "stopped"
    run = resume(tmp_path / "killed", **({} if events else {"epochs": 4, "learning_rate": 0.01}))
    assert len(run.changes) == 1  # the same flags once more are no further change
    assert checksum(run.params) == checksum(whole.params)
    assert replays(tmp_path / "killed")


def test_killed_before_the_first_event_it_begins_with_the_change(tmp_path: Path) -> None:
    run = train(tmp_path / "run", checkpoint_seconds=1e9)
    for path in [*(run.folder / "checkpoints").iterdir(), run.folder / "model.safetensors"]:
        path.unlink()
    run = resume(run.folder, learning_rate=0.01)
    assert set(rates(run)) == {0.01}
    assert [change.events for change in run.changes] == [0]
    assert replays(run.folder)


def test_a_lost_checkpoint_after_a_change_is_computed_again_with_the_change_where_it_was(tmp_path: Path) -> None:
    train(tmp_path / "run", checkpoint_seconds=0.0)
    run = resume(tmp_path / "run", epochs=3, learning_rate=0.01)
    expected = checksum(run.params)
    [change] = run.changes
    checkpoints = sorted((run.folder / "checkpoints").glob("*.json"))
    for path in (run.folder / "checkpoints").iterdir():
        if int(path.stem) >= change.events:
            path.unlink()
    assert len(checkpoints) == 3
    run = resume(tmp_path / "run")
    assert checksum(run.params) == expected
    assert replays(tmp_path / "run")


def test_a_stopped_run_goes_on_only_when_epochs_are_given(tmp_path: Path) -> None:
    run = train(tmp_path / "run", callbacks=[Enough()])
    assert run.stopped == "enough"
    said: list[str] = []
    assert resume(run.folder, warn=said.append).stopped == "enough"
    assert "was stopped and is not continued" in said[0]
    with pytest.raises(orlomo.OrlomoError, match="another learning rate needs more epochs"):
        resume(run.folder, learning_rate=0.01)
    run = resume(run.folder, epochs=2)
    assert run.finished
    assert run.stopped is None
    assert float(run.metric_columns["epoch"][-1]) >= 2
    assert replays(run.folder)


@pytest.mark.parametrize("name", ["orlomo", "prsgdm", "delayed-nesterov"])
def test_on_processes(name: str, tmp_path: Path) -> None:
    usual: dict[str, Any] = {"engine": "processes", "cluster": "homogeneous", "threads": 1}
    train(tmp_path / "run", name, **usual)
    run = resume(tmp_path / "run", epochs=3, learning_rate=0.02)
    assert run.finished
    run = resume(tmp_path / "run", epochs=6, learning_rate=0.01, events=8)
    run = resume(tmp_path / "run")
    assert run.finished
    assert float(run.metric_columns["epoch"][-1]) >= 6
    assert len(run.changes) == 2
    assert set(rates(run)) == {0.05, 0.02, 0.01}
    assert replays(tmp_path / "run")


def test_with_faults_it_replays_wherever_the_change_is(tmp_path: Path) -> None:
    """Also between a report and the departure that follows it."""
    faults = tuple(
        orlomo.Fault(time=time, worker=worker, kind=kind)
        for time, worker, kind in [(3, 0, "crash"), (4, 7, "join"), (5, 0, "return"), (6, 1, "leave")]
    )
    where = orlomo.Cluster(faults=faults)
    for name in ("orlomo", "prsgdm"):
        whole = train(tmp_path / name, name, epochs=4, cluster=where)
        leave = whole.event_columns["kind"].tolist().index("leave")
        for events in (leave - 1, leave, leave + 1):
            folder = tmp_path / f"{name}-{events}"
            train(folder, name, epochs=4, cluster=where, events=events)
            assert resume(folder, learning_rate=0.01).finished
            assert replays(folder)


def test_the_record_is_readable_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from orlomo.commands.main import main
    from orlomo.report.web.page import page_content

    folder = tmp_path / "run"
    assert main(["train", "quadratic", "--workers", "2", "--epochs", "0.1", "--quiet", "--out", str(folder)]) == 0
    began = (folder / "config.toml").read_bytes()
    flags = ["--epochs", "0.2", "--learning-rate", "0.01", "--quiet"]
    assert main(["resume", str(folder), *flags]) == 0
    assert "changed from epoch 0.1" in capsys.readouterr().out
    assert (folder / "config.toml").read_bytes() == began
    [row] = json.loads((folder / "changes.json").read_text())
    assert (row["epochs"], row["learning_rate"]) == (0.2, 0.01)
    [note] = page_content([orlomo.load(folder)])["notes"]
    assert "epochs 0.2, learning rate 0.01" in note
    assert main(["replay", str(folder), "--quiet"]) == 0
    path = folder / "changes.json"
    path.write_text(path.read_text().replace("0.01", "0.02"))
    with pytest.raises(orlomo.OrlomoError, match=r"changes.json was changed by hand"):
        resume(folder, task=None)


def test_a_cosine_that_has_ended_is_said(tmp_path: Path) -> None:
    method = orlomo.OrLoMo(learning_rate=0.05, local_steps=2, schedule="cosine:2")
    orlomo.train(classification(), method, workers=2, epochs=2, jobs=1, out=tmp_path / "run")
    said: list[str] = []
    run = resume(tmp_path / "run", epochs=3, warn=said.append)
    assert "the learning rate is 0 from epoch 2 on" in said[0]
    assert rates(run)[-1] == 0
