"""Runs of users' own loops computed again from their record."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import orlomo
from orlomo.methods.method import Method
from orlomo.records.run import Run
from own_loops import loop, restless, steps_alone, unseeded, with_a_kill

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
