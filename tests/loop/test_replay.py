"""Runs of users' own loops computed again from their record."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import orlomo
from orlomo.errors import Interrupted
from orlomo.methods.method import Method
from orlomo.records.audit import audit
from orlomo.records.run import Run
from small_loops import loop, restless, steps_alone, unseeded, with_a_kill

METHODS = {
    "loop": (loop, orlomo.OrLoMo(local_steps=4), None),
    "steps_alone": (steps_alone, orlomo.LocalOrMoDA(local_steps=4), 400),
}


def launch(function: Callable[[orlomo.Worker], None], out: Path, method: Method, **settings: object) -> Run:
    chosen = {"workers": 2, "engine": "processes", "warn": lambda text: None, **settings}
    return orlomo.launch(function, method, out=out, **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", METHODS)
def test_a_run_on_processes_in_which_a_worker_is_killed(name: str, tmp_path: Path) -> None:
    function, method, steps = METHODS[name]
    program = partial(with_a_kill, function, tmp_path / "marker")
    run = launch(program, tmp_path / "run", method, steps=steps, threads=1)
    assert "crash" in run.event_columns["kind"]
    again = orlomo.replay(run.folder, task=program)
    assert again.agrees, again
    assert again.events == len(run.event_columns["kind"])


def test_a_loop_that_is_not_deterministic_is_named_with_worker_and_round(tmp_path: Path) -> None:
    run = launch(restless, tmp_path / "run", METHODS["loop"][1], engine="simulated")
    again = orlomo.replay(run.folder, task=restless)
    assert not again.agrees
    found = re.search(r"worker (\d), round (\d+): same parameters and samples in, another report out", str(again))
    assert found is not None, again
    events = run.event_columns
    assert (int(events["worker"][again.events]), int(events["round"][again.events])) == (int(found[1]), int(found[2]))
    assert found[2] == "1"


def test_a_program_that_begins_at_other_parameters(tmp_path: Path) -> None:
    run = launch(unseeded, tmp_path / "run", METHODS["loop"][1], workers=1)
    again = orlomo.replay(run.folder, task=unseeded)
    assert "the program does not begin at the same parameters: seed it" in str(again)
    assert not again.agrees


class StopAt(orlomo.Callback):
    """Ctrl-C after so many reports."""

    def __init__(self, reports: int):
        self.reports = reports

    def event(self, event: orlomo.Event) -> None:
        if event["reports"] == self.reports:
            self.reports = -1
            signal.raise_signal(signal.SIGINT)


def test_a_run_that_was_stopped_within_a_barrier(tmp_path: Path) -> None:
    method, settings = orlomo.LocalSGD(local_steps=4), {"workers": 3, "threads": 1, "pace": (3.0, 1.0, 1.0)}
    with pytest.raises(Interrupted):
        launch(loop, tmp_path / "run", method, callbacks=[StopAt(5)], **settings)
    run = orlomo.resume(tmp_path / "run", task=loop, warn=lambda text: None)
    assert list(run.event_columns["kind"]).count("crash") == 3
    assert audit(run).ok
    again = orlomo.replay(run.folder, task=loop)
    assert again.agrees, again
