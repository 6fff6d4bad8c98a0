"""The processes engine in trouble: workers killed, stopped, raising, hanging; the disk full."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import faulty
import orlomo
from orlomo.engines.live import crew
from orlomo.records import recorder as recording
from orlomo.tasks.task import classification_loss
from small import small_disk
from troublemaker import KINDS, make_trouble

Act = Callable[[int], None]


class Script(orlomo.Callback):
    """Does things when so many reports are in."""

    def __init__(self, acts: dict[int, Act]):
        self.acts = dict(acts)

    def event(self, row: dict[str, Any]) -> None:
        done = row["reports"]
        for at in [at for at in self.acts if at <= done]:
            self.acts.pop(at)(done)


class Trial:
    """A run of the faulty task with things happening to it."""

    def __init__(self, home: Path, **more: Any):
        self.home, self.faults, self.folder = home, home / "faults", home / "run"
        self.task = faulty.task(self.faults)
        self.warnings: list[str] = []
        self.warn: Callable[[str], None] = self.warnings.append
        self.settings: dict[str, Any] = {"workers": 3, "epochs": 20, **more}

    def train(self, acts: dict[int, Act], method: str = "orlomo") -> orlomo.Run:
        steps = {} if method in ("asgd", "ormo-da") else {"local_steps": 4}
        return orlomo.train(
            self.task,
            orlomo.method(method, learning_rate=0.02, **steps),
            engine="processes",
            out=self.folder,
            callbacks=[Script(acts)],
            warn=self.warn,
            **self.settings,
        )

    def victim(self) -> int:
        return faulty.trainers(self.faults)[0]

    def check(self, run: orlomo.Run) -> None:
        """It came to its end, learnt, and the record is the whole truth."""
        assert run.finished
        assert run.metric_columns["test_accuracy"][-1] > 0.95
        events = run.event_columns
        reported = events["kind"] == "report"
        pairs = list(zip(events["worker"][reported].tolist(), events["round"][reported].tolist(), strict=True))
        assert len(set(pairs)) == len(pairs) >= self.settings["epochs"] * 640 / (8 * run.config.method.local_steps)
        assert orlomo.replay(run.folder, task=self.task, jobs=1).agrees
        assert not faulty.trainers(self.faults)

    def kinds(self, run: orlomo.Run) -> list[str]:
        return [kind for kind in run.event_columns["kind"].tolist() if kind != "report"]


@pytest.mark.parametrize("method", ["orlomo", "prsgdm"])
def test_a_killed_worker_is_replaced_under_a_new_id(method: str, tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    run = trial.train({30: lambda done: os.kill(trial.victim(), signal.SIGKILL)}, method)
    trial.check(run)
    assert trial.kinds(run) == ["crash", "join"]
    lost, joined = run.event_columns["worker"][run.event_columns["kind"] != "report"].tolist()
    assert lost in (0, 1, 2)
    assert joined == 3
    assert [text.split(": ")[1] for text in trial.warnings] == ["killed by SIGKILL"]
    assert f"worker {lost} is lost: killed by SIGKILL" in (run.folder / "log.txt").read_text()


def test_a_worker_that_raises_is_replaced_and_its_traceback_kept(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    run = trial.train({30: lambda done: faulty.request(trial.faults, trial.victim(), "raise")})
    trial.check(run)
    assert trial.kinds(run) == ["crash", "join"]
    assert trial.warnings[0].endswith("is lost: ValueError: this worker was made to fail")
    assert "in fail\n" in (run.folder / "log.txt").read_text()


def test_a_worker_that_hangs_is_given_up_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "PATIENCE_SECONDS", 1.0)
    trial = Trial(tmp_path, epochs=60)
    run = trial.train({60: lambda done: faulty.request(trial.faults, trial.victim(), "hang")})
    trial.check(run)
    assert trial.kinds(run) == ["crash", "join"]
    assert "no sign of life for" in trial.warnings[0]


def test_a_stopped_worker_is_only_late(tmp_path: Path) -> None:
    trial = Trial(tmp_path, epochs=50)
    stopped: list[int] = []

    def stop(done: int) -> None:
        stopped.append(trial.victim())
        os.kill(stopped[0], signal.SIGSTOP)

    run = trial.train({30: stop, 300: lambda done: os.kill(stopped[0], signal.SIGCONT)})
    trial.check(run)
    assert trial.kinds(run) == []
    assert run.event_columns["delay"].max() > 200
    late = run.event_columns["delay"].argmax()
    assert (
        run.event_columns["eta"][late] < run.event_columns["eta"][0]
    )  # folded in with the weight that its delay deserves


def test_a_report_that_is_not_finite_is_refused_and_computed_again(tmp_path: Path) -> None:
    for method in ("orlomo", "prsgdm"):
        trial = Trial(tmp_path / method)
        run = trial.train({30: lambda done, t=trial: faulty.request(t.faults, t.victim(), "nan")}, method)
        trial.check(run)
        assert trial.kinds(run) == []
        assert len(trial.warnings) == 1
        assert "report refused" in trial.warnings[0]
        assert "is not finite" in trial.warnings[0]
        assert run.checkpoint is not None
        membership = run.checkpoint.values["membership"]
        assert (membership["lost"], membership["refused"]) == (0, 1)


def test_a_worker_whose_reports_are_refused_again_and_again_is_replaced(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    sick: list[int] = []

    def infect(done: int) -> None:
        sick[:] = sick or [trial.victim()]
        faulty.request(trial.faults, sick[0], "nan")

    # Of the rounds to come, one report at a time: the fault is asked for again as soon as it has been taken.
    stop = threading.Event()

    def keep_sick() -> None:
        while not stop.is_set():
            if sick and faulty.alive(sick[0]):
                faulty.request(trial.faults, sick[0], "nan")
            time.sleep(0.0005)

    keeper = threading.Thread(target=keep_sick)
    keeper.start()
    try:
        run = trial.train({30: infect})
    finally:
        stop.set()
        keeper.join()
    trial.check(run)
    assert "crash" in trial.kinds(run)
    assert any("reports in a row refused" in text for text in trial.warnings)


def test_all_workers_failing_the_same_way_end_the_run_with_their_error(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    with pytest.raises(
        orlomo.OrlomoError, match=r"every worker failed: ValueError: this worker was made to fail .*log.txt"
    ):
        trial.train({30: lambda done: faulty.every_process(trial.faults, "raise")})
    log = (trial.folder / "log.txt").read_text()
    assert "the run ends: every worker failed" in log
    assert "Traceback" in log
    assert not faulty.trainers(trial.faults)
    stopped = orlomo.load(trial.folder)
    assert stopped.checkpoint is not None
    assert stopped.checkpoint.values["reports"] >= 30  # nothing that was reported is lost
    (trial.faults / "raise-every-process").unlink()
    trial.check(orlomo.resume(trial.folder, task=trial.task, warn=trial.warn))


def test_a_task_that_fails_from_the_start_leaves_nothing(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    faulty.every_process(trial.faults, "raise")
    with pytest.raises(ValueError, match="this worker was made to fail"):
        trial.train({})
    assert not trial.folder.exists()


def test_a_task_that_fails_in_workers_alone_leaves_its_traceback(tmp_path: Path) -> None:
    trial, here = Trial(tmp_path), os.getpid()

    def elsewhere(model: nn.Module, batch: Any) -> torch.Tensor:
        assert os.getpid() == here, "this is a worker"
        return classification_loss(model, batch)

    trial.task = dataclasses.replace(trial.task, loss=elsewhere)
    with pytest.raises(orlomo.OrlomoError, match="failed: AssertionError: this is a worker"):
        trial.train({})
    assert "Traceback" in (trial.folder / "log.txt").read_text()


def test_an_end_of_file_in_the_tasks_own_code_is_told_as_such(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    with pytest.raises(orlomo.OrlomoError, match="every worker failed: EOFError: Ran out of input"):
        trial.train({30: lambda done: faulty.every_process(trial.faults, "eof")})


def test_trouble_in_one_rank_is_not_the_end(tmp_path: Path) -> None:
    """Its new workers fail alike, more often than there are workers; the others are well, and slow to report."""
    trial = Trial(tmp_path, epochs=10, pace=(1, 30, 30))

    def kill(done: int) -> None:
        # The evaluation's process has started by then: it would take one of the bad starts that are meant for workers.
        until = time.monotonic() + 240
        while not set(trial.faults.glob("evaluated-*")) - {trial.faults / f"evaluated-{os.getpid()}"}:  # not the trial
            assert time.monotonic() < until, "the first evaluation does not begin"
            time.sleep(0.05)
        faulty.bad_starts(trial.faults, 5)
        os.kill(trial.victim(), signal.SIGKILL)

    run = trial.train({20: kill})
    trial.check(run)
    assert trial.kinds(run).count("crash") == 6
    assert sum("made not to start" in text for text in trial.warnings) == 5


def test_a_worker_killed_by_a_signal_without_a_name(tmp_path: Path) -> None:
    trial = Trial(tmp_path, epochs=10)
    trial.check(trial.train({20: lambda done: os.kill(trial.victim(), signal.SIGRTMIN + 6)}))
    assert "killed by signal 40" in trial.warnings[0]


def test_a_failing_evaluation_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    trial, here = Trial(tmp_path), os.getpid()

    def wrong(model: object, batch: object) -> float:
        if os.getpid() == here:  # where it is tried before the run
            return 0.0
        raise KeyError("accuracy")

    trial.task = dataclasses.replace(trial.task, metrics=[orlomo.Metric.mean("own", wrong)])
    with pytest.raises(orlomo.OrlomoError, match="evaluation failed: KeyError: 'accuracy'"):
        trial.train({})
    assert "in wrong\n" in (trial.folder / "log.txt").read_text()
    assert not faulty.trainers(trial.faults)


def test_a_signal_while_the_last_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = recording.RunRecorder.model

    def interrupted(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        write(*arguments)

    monkeypatch.setattr(recording.RunRecorder, "model", interrupted)
    trial = Trial(tmp_path, epochs=10)
    with pytest.raises(orlomo.Interrupted, match="the run was complete, and is saved"):
        trial.train({})
    trial.check(orlomo.load(trial.folder))


def test_an_absent_server_does_not_blame_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-Z and fg."""
    monkeypatch.setattr(crew, "PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(crew, "PATIENCE_FACTOR", 1.0)
    monkeypatch.setattr(crew, "ABSENCE_SECONDS", 0.4)
    trial = Trial(tmp_path, epochs=10)
    run = trial.train({20: lambda done: time.sleep(3.0)})
    trial.check(run)
    assert trial.kinds(run) == []


def test_the_number_of_workers_may_change_on_resume(tmp_path: Path) -> None:
    for method, workers in (("orlomo", 1), ("orlomo", 5), ("prsgdm", 1)):
        trial = Trial(tmp_path / f"{method}-{workers}", epochs=10)
        with pytest.raises(orlomo.Interrupted):
            trial.train({50: lambda done: os.kill(os.getpid(), signal.SIGTERM)}, method)
        run = orlomo.resume(trial.folder, task=trial.task, workers=workers, warn=trial.warnings.append)
        trial.check(run)
        assert sorted(trial.kinds(run)) == (["leave"] * 2 if workers == 1 else ["join"] * 2)
        last = run.event_columns["worker"][-20:].tolist()
        assert set(last) <= ({0} if workers == 1 else {0, 1, 2, 3, 4})


def test_a_full_disk_does_not_stop_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real file system of 1.5 MB, filled in the middle of the run and freed again."""
    monkeypatch.setattr(recording, "DISK_RETRY_SECONDS", 0.2)
    monkeypatch.setattr("orlomo.engines.live.loop.DISK_RETRY_SECONDS", 0.2)
    with small_disk(tmp_path / "small-disk", "1500k") as disk:
        trial = Trial(tmp_path, epochs=40, checkpoint_seconds=0.05)
        trial.folder = disk / "run"
        filler = disk / "filler"

        def warned(text: str) -> None:
            trial.warnings.append(text)
            if text.startswith("THE RESULT IS NOT SAVED"):
                filler.unlink()

        trial.warn = warned

        def fill(done: int) -> None:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(b"x" * 4096):
                    pass

        run = trial.train({100: fill, 400: lambda done: filler.unlink(), 700: fill})
        assert any(text.startswith("NO CHECKPOINT: cannot write to") for text in trial.warnings)
        assert trial.warnings[-1].startswith("THE RESULT IS NOT SAVED: cannot write to")
        assert not any("orlomo resume" in text for text in trial.warnings)
        trial.check(run)


def test_faults_of_all_kinds(tmp_path: Path) -> None:
    """The short version of benchmarks/faults.py."""
    outcome = make_trouble(tmp_path, faults=25, seed=1)
    assert sum(outcome.faults.values()) == 25
    assert set(outcome.faults) == set(KINDS)
    assert outcome.accuracy >= 0.95
    assert outcome.agrees
    assert outcome.lost > 0
    assert outcome.refused > 0
    assert not outcome.left_behind
