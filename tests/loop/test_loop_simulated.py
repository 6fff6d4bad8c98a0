"""The user's own loop on virtual time."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

import orlomo
from orlomo.clusters.cluster import Cluster, Fault
from orlomo.errors import ConfigError, Interrupted, OrlomoError
from orlomo.methods.method import Method
from orlomo.records.audit import audit
from orlomo.records.run import Run
from small_loops import failing, loop


def orlomo_method() -> Method:
    return orlomo.OrLoMo(local_steps=4)


def simulate(out: Path, method: Method | None = None, **settings: object) -> Run:
    chosen = {"workers": 3, "jobs": 2, "engine": "simulated", "warn": lambda text: None, **settings}
    return orlomo.launch(loop, method or orlomo_method(), out=out, **chosen)  # type: ignore[arg-type]


def kinds(run: Run) -> set[str]:
    return set(run.event_columns["kind"])


def test_the_clock_decides_and_not_the_number_of_jobs(tmp_path: Path) -> None:
    runs = [simulate(tmp_path / f"{jobs}", cluster="heterogeneous:4", jobs=jobs, workers=4) for jobs in (1, 4)]
    assert runs[0].params.equal(runs[1].params)
    assert (tmp_path / "1" / "events.csv").read_text() == (tmp_path / "4" / "events.csv").read_text()
    assert (tmp_path / "1" / "rounds.csv").read_text() == (tmp_path / "4" / "rounds.csv").read_text()
    events = runs[0].event_columns
    assert np.all(np.diff(events["finish"]) >= 0)
    reports = np.bincount(events["worker"])
    assert reports[3] < reports[:3].min()
    found = audit(runs[0])
    assert found.ok, found.text
    again = orlomo.replay(runs[0].folder, task=loop)
    assert again.agrees
    assert "12 of 12 reports: order, times, samples and parameters agree, bit for bit" in str(again)


def test_synchronous_workers_without_samples_leave_the_barrier(tmp_path: Path) -> None:
    run = simulate(tmp_path / "run", orlomo.LocalSGD(local_steps=7), workers=3)
    assert len(run.round_columns["event"]) % 3
    assert "leave" in kinds(run)
    assert audit(run).ok
    assert orlomo.replay(run.folder, task=loop).agrees


def test_faults_of_the_cluster(tmp_path: Path) -> None:
    faults = (
        Fault(time=6.0, worker=1, kind="crash"),
        Fault(time=9.0, worker=3, kind="join"),
        Fault(time=14.0, worker=1, kind="return"),
        Fault(time=15.0, worker=0, kind="leave"),
    )
    run = simulate(tmp_path / "run", cluster=Cluster(faults=faults))
    assert kinds(run) == {"report", "crash", "join", "return", "leave"}
    assert audit(run).ok
    again = orlomo.replay(run.folder, task=loop)
    assert again.agrees, again


def test_impossible_faults_are_refused(tmp_path: Path) -> None:
    faults = (Fault(time=6.0, worker=5, kind="crash"),)
    with pytest.raises(ConfigError, match="crash at time 6: worker 5 is not present"):
        simulate(tmp_path / "run", cluster=Cluster(faults=faults))


class Interrupt(orlomo.Callback):
    def event(self, event: orlomo.Event) -> None:
        if event["reports"] == 5:
            signal.raise_signal(signal.SIGINT)


def test_an_interrupted_run_continues_with_new_processes(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        simulate(tmp_path / "run", callbacks=[Interrupt()])
    stopped = float(Run(tmp_path / "run").event_columns["finish"][-1])
    run = orlomo.resume(tmp_path / "run", task=loop, warn=lambda text: None)
    assert run.finished
    events = run.event_columns
    changes = events["kind"] != "report"
    assert list(events["kind"][changes]) == ["crash"] * 3 + ["return"] * 3
    assert set(events["finish"][changes]) == {stopped}
    assert audit(run).ok
    again = orlomo.replay(run.folder, task=loop)
    assert again.agrees, again


def test_a_program_that_raises_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(OrlomoError, match="failed in its round 2: ValueError: no such file") as caught:
        orlomo.launch(failing, orlomo_method(), workers=2, engine="simulated", out=tmp_path / "run")
    assert any("before_step(step)" in note for note in caught.value.__notes__)
    run = Run(tmp_path / "run")
    assert run.checkpoint is not None
    assert run.checkpoint.position == len(run.event_columns["kind"]) > 0
