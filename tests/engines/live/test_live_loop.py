"""The loop of a live run, on worker processes: what a resumed run does with its workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import orlomo
from orlomo.engines.processes.crew import ProcessCrew
from orlomo.engines.processes.engine import Processes
from small import classification, settings


class StopAt(orlomo.Callback):
    """Stops the run by a signal when so many reports are in."""

    def __init__(self, report: int):
        self.at = report

    def event(self, row: dict[str, Any]) -> None:
        if row["reports"] == self.at:
            os.kill(os.getpid(), signal.SIGTERM)


def stopped(name: str, folder: Path) -> Path:
    with pytest.raises(orlomo.Interrupted):
        orlomo.train(
            classification(),
            settings(name, learning_rate=0.05),
            workers=1 if name == "msgd" else 3,
            epochs=10,
            engine="processes",
            out=folder,
            callbacks=[StopAt(11)],
        )
    return folder


def changes(run: orlomo.Run) -> list[tuple[str, int]]:
    events = run.event_columns
    rows = zip(events["kind"].tolist(), events["worker"].tolist(), strict=True)
    return [(kind, worker) for kind, worker in rows if kind != "report"]


@pytest.mark.parametrize("name", ["orlomo", "prsgdm", "msgd", "delayed-nesterov"])
def test_workers_that_keep_state_are_new_ones_after_a_resume(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delayed Nesterov really keeps some; of the others, with their ledgers, it is pretended."""
    folder = stopped(name, tmp_path / "run")
    if name != "delayed-nesterov":
        monkeypatch.setattr(orlomo.Method, "keeps_worker_state", True)
    run = orlomo.resume(folder, task=classification())
    assert run.finished
    before = [0] if name == "msgd" else [0, 1, 2]
    seen = changes(run)
    assert sorted(worker for kind, worker in seen if kind == "crash") == before
    assert sorted(worker for kind, worker in seen if kind == "join") == [len(before) + worker for worker in before]
    assert not set(run.event_columns["worker"][-9:].tolist()) & set(before)
    assert orlomo.replay(folder, task=classification(), jobs=1).agrees


@pytest.mark.parametrize("name", ["orlomo", "prsgdm"])
def test_workers_that_keep_no_state_continue_under_their_ids(name: str, tmp_path: Path) -> None:
    run = orlomo.resume(stopped(name, tmp_path / "run"), task=classification())
    assert run.finished
    assert changes(run) == []
    assert set(run.event_columns["worker"].tolist()) <= {0, 1, 2}  # on a busy machine one may never get to report


def test_a_resume_that_fails_half_way_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a Ray cluster is gone: one worker is started, with the next one the engine fails."""
    folder = stopped("prsgdm", tmp_path / "run")
    start = ProcessCrew.start

    def fail(self: ProcessCrew, worker: int, rank: int) -> bool:
        if worker == 1:
            raise RuntimeError("the cluster is gone")
        return start(self, worker, rank)

    with monkeypatch.context() as patch:
        patch.setattr(Processes, "failures", (RuntimeError,))
        patch.setattr(ProcessCrew, "start", fail)
        with pytest.raises(orlomo.OrlomoError, match=r"RuntimeError: the cluster is gone .*orlomo.resume"):
            orlomo.resume(folder, task=classification())
    run = orlomo.resume(folder, task=classification())
    assert run.finished
    assert changes(run) == []
    assert orlomo.replay(folder, task=classification(), jobs=1).agrees
