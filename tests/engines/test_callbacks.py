"""Callbacks: what they see, stopping a run, keeping its best model, and what becomes of a run whose callback raises."""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.nn.utils import parameters_to_vector

import faulty
import orlomo
from orlomo.comparing import compare
from orlomo.config import RunConfig
from orlomo.engines.session import checksum
from orlomo.records import best as best_model
from small import call_cli, classification, settings

ENGINES = ("simulated", "processes")


class Seen(orlomo.Callback):
    """Notes everything."""

    def __init__(self) -> None:
        self.handles: list[orlomo.RunHandle] = []
        self.events: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.ends: list[orlomo.Run] = []

    def started(self, run: orlomo.RunHandle) -> None:
        self.handles.append(run)

    def event(self, row: dict[str, Any]) -> None:
        self.events.append(row)

    def evaluation(self, row: dict[str, Any]) -> None:
        self.evaluations.append(row)

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def finished(self, run: orlomo.Run) -> None:
        self.ends.append(run)


class At(Seen):
    """Does something with the run when so many reports are in, or at the evaluation that has so many."""

    def __init__(self, reports: int, act: Any, method: str = "event"):
        super().__init__()
        self.reports, self.act, self.method = reports, act, method

    def event(self, row: dict[str, Any]) -> None:
        super().event(row)
        if self.method == "event" and row["reports"] == self.reports:
            self.act(self.handles[-1])

    def evaluation(self, row: dict[str, Any]) -> None:
        super().evaluation(row)
        if self.method == "evaluation" and row["reports"] >= self.reports:
            self.act(self.handles[-1])


def train(engine: str, folder: Path, *callbacks: orlomo.Callback, name: str = "orlomo", **more: Any) -> orlomo.Run:
    values = {"workers": 3, "epochs": 20, "out": folder, "engine": engine, **more}
    return orlomo.train(classification(), settings(name, learning_rate=0.05), callbacks=callbacks, **values)


def assert_rows(rows: list[dict[str, Any]], columns: dict[str, np.ndarray]) -> None:
    """The rows that a callback saw are the rows of the file."""
    for name, column in columns.items():
        seen = [row[name] for row in rows]
        assert len(seen) == len(column)
        for one, other in zip(seen, column.tolist(), strict=True):
            assert one == other or (math.isnan(one) and math.isnan(other)), name


@pytest.mark.parametrize("engine", ENGINES)
def test_a_callback_sees_all_that_the_folder_records(engine: str, tmp_path: Path) -> None:
    seen = Seen()
    run = train(engine, tmp_path / "run", seen)
    [handle], [end] = seen.handles, seen.ends
    assert (handle.folder, handle.workers, handle.kept) == (run.folder, 3, None)
    assert handle.config == run.config
    assert handle.total == int((run.event_columns["kind"] == "report").sum())
    assert_rows(seen.events, run.event_columns)
    assert_rows(seen.evaluations, run.metric_columns)
    assert [row["reports"] for row in seen.events] == list(range(1, handle.total + 1))
    assert seen.events[-1]["samples"] == run.metric_columns["samples"][-1]
    assert end.finished
    assert end.state == "finished"  # the folder is free already
    assert end.stopped is None


def test_workers_that_come_and_go_are_events_and_warnings(tmp_path: Path) -> None:
    faults = tmp_path / "faults"
    task = faulty.task(faults)
    said: list[str] = []
    seen = At(20, lambda run: os.kill(faulty.trainers(faults)[0], signal.SIGKILL))
    more: dict[str, Any] = {"workers": 3, "epochs": 20, "engine": "processes", "out": tmp_path / "run"}
    method = orlomo.OrLoMo(learning_rate=0.02, local_steps=4)
    run = orlomo.train(task, method, **more, callbacks=[seen], warn=said.append)
    assert_rows(seen.events, run.event_columns)
    assert [row["kind"] for row in seen.events if row["kind"] != "report"] == ["crash", "join"]
    [text] = seen.warnings
    assert "is lost" in text
    assert said == seen.warnings


def test_callbacks_are_called_in_order(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    class Named(orlomo.Callback):
        def __init__(self, name: str):
            self.name = name

        def started(self, run: orlomo.RunHandle) -> None:
            calls.append(("started", self.name))

        def evaluation(self, row: dict[str, Any]) -> None:
            calls.append(("evaluation", self.name))

        def finished(self, run: orlomo.Run) -> None:
            calls.append(("finished", self.name))

    train("simulated", tmp_path / "run", Named("a"), Named("b"), evaluate_every=100.0)
    assert calls == [(what, name) for what in ("started", "evaluation", "evaluation", "finished") for name in "ab"]


def test_replay_calls_with_events_only(tmp_path: Path) -> None:
    run = train("simulated", tmp_path / "run")
    seen = Seen()
    assert orlomo.replay(run.folder, task=classification(), jobs=1, callbacks=[seen]).agrees
    assert_rows(seen.events, run.event_columns)
    assert (len(seen.handles), len(seen.ends), seen.evaluations) == (1, 1, [])
    with pytest.raises(orlomo.OrlomoError, match="stopped, so that there is nothing to compare: enough"):
        orlomo.replay(run.folder, task=classification(), jobs=1, callbacks=[At(5, lambda run: run.stop("enough"))])


def test_compare_takes_callbacks(tmp_path: Path) -> None:
    names = ("orlomo", "prsgdm")
    cluster = orlomo.cluster("homogeneous")
    configs = {
        name: [RunConfig(task="quadratic", method=orlomo.method(name), cluster=cluster, workers=2, epochs=1.0)]
        for name in names
    }
    seen = Seen()
    found = compare(configs, tmp_path / "compared", jobs=1, callbacks=[seen])
    assert [handle.config.method.name for handle in seen.handles] == list(names)
    assert len(seen.events) == sum(len(runs[0].event_columns["kind"]) for runs in found.runs.values())


# Stopping


@pytest.mark.parametrize("method", ["event", "evaluation"])
@pytest.mark.parametrize("name", ["orlomo", "prsgdm"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_is_stopped_with_a_reason_that_its_folder_keeps(
    engine: str, name: str, method: str, tmp_path: Path
) -> None:
    seen = At(10, lambda run: run.stop("good\nenough"), method)
    run = train(engine, tmp_path / "run", seen, name=name)
    assert run.stopped == "good enough"
    assert run.finished
    assert repr(run).endswith("stopped: good enough)")
    reports = len(run.event_columns["kind"])
    assert 10 <= reports < seen.handles[0].total
    if name == "prsgdm":
        assert reports % 3 == 0  # no barrier is half full
    assert run.metric_columns["reports"][-1] == reports
    assert run.metric_columns["params_checksum"][-1] == checksum(run.params)
    assert checksum(parameters_to_vector(run.model(classification().model).parameters()).detach()) == checksum(
        run.params
    )
    assert orlomo.replay(run.folder, task=classification(), jobs=1).agrees
    said: list[str] = []
    again = orlomo.resume(run.folder, task=classification(), warn=said.append)
    assert said == [f"{run.folder} was stopped and is not continued: good enough"]
    assert len(again.event_columns["kind"]) == reports
    done = call_cli("resume", run.folder, folder=tmp_path)
    assert done.returncode == 0
    assert "was stopped and is not continued: good enough" in done.stderr
    assert "stopped: good enough\n" in done.stdout


def test_a_stop_at_the_end_is_the_end(tmp_path: Path) -> None:
    """All that was planned is done: nothing was stopped."""
    run = train("simulated", tmp_path / "run", At(80, lambda run: run.stop("late"), "evaluation"))
    assert run.metric_columns["reports"][-1] == 80
    assert run.finished
    assert run.stopped is None


def test_a_stop_falls_at_the_same_event_on_any_number_of_jobs(tmp_path: Path) -> None:
    runs = [
        train("simulated", tmp_path / f"{jobs}", At(20, lambda run: run.stop("enough"), "evaluation"), jobs=jobs)
        for jobs in (1, 3)
    ]
    one, three = (run.folder / "events.csv" for run in runs)
    assert one.read_bytes() == three.read_bytes()
    assert checksum(runs[0].params) == checksum(runs[1].params)


def test_early_stopping_counts_evaluations_without_an_improvement(tmp_path: Path) -> None:
    whole = train("simulated", tmp_path / "whole", epochs=60, evaluate_every=0.5)
    losses, patience = whole.metric_columns["test_loss"], 3
    without = list(itertools.accumulate(losses, min))
    stop = next(at for at in range(patience, len(losses)) if without[at - patience] == without[at])
    best = without[stop]
    stopping = orlomo.EarlyStopping("test_loss", patience)
    run = train("simulated", tmp_path / "run", stopping, epochs=60, evaluate_every=0.5)
    assert run.stopped == f"test_loss has not improved in {patience} evaluations: the best was {best:.4g}"
    np.testing.assert_array_equal(run.metric_columns["test_loss"], losses[: stop + 1])
    # Interrupted on the way and continued, what the run has kept counts.
    interrupt = At(int(run.metric_columns["reports"][stop - 2]) + 1, lambda run: signal.raise_signal(signal.SIGINT))
    with pytest.raises(orlomo.Interrupted):
        train("simulated", tmp_path / "cut", stopping, interrupt, epochs=60, evaluate_every=0.5)
    again = orlomo.resume(tmp_path / "cut", task=classification(), callbacks=[stopping])
    assert again.stopped == run.stopped
    assert checksum(again.params) == checksum(run.params)


# The best model


def assert_best(run: orlomo.Run, metric: str, pick: Any) -> None:
    """The best model is that of the best evaluation, by its checksum."""
    assert run.best is not None
    column = run.metric_columns[metric]
    at = int(pick(column))
    assert run.best.metrics == pytest.approx(run.metric_rows[at], nan_ok=True)
    vector = parameters_to_vector(run.best.model(classification().model).parameters()).detach()
    assert checksum(vector) == run.metric_columns["params_checksum"][at]
    assert f'"reports": {run.metric_columns["reports"][at]}' in (run.folder / "best.json").read_text()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_best_model_is_that_of_the_best_evaluation(engine: str, tmp_path: Path) -> None:
    run = train(engine, tmp_path / "run", orlomo.KeepBest("test_accuracy"))
    assert_best(run, "test_accuracy", np.argmax)  # the first of equals
    run = train(engine, tmp_path / "loss", orlomo.KeepBest("train_loss"))
    assert_best(run, "train_loss", np.argmin)  # of a loss the lowest is best, as its declaration says


class KillServer(orlomo.Callback):
    """Kills this process, the server's, when so many reports are in and a best model is in the folder."""

    def __init__(self, reports: int):
        self.reports = reports

    def started(self, run: orlomo.RunHandle) -> None:
        self.run = run

    def event(self, row: dict[str, Any]) -> None:
        if row["reports"] >= self.reports and (self.run.folder / "best.safetensors").exists():
            os.kill(os.getpid(), signal.SIGKILL)


LONG: dict[str, Any] = {"checkpoint_seconds": 0.0, "epochs": 200, "evaluate_every": 2.0}


def train_and_kill(engine: str, folder: str, reports: str) -> None:
    """Begin a run, or continue it, and be killed."""
    callbacks = [orlomo.KeepBest("test_loss"), KillServer(int(reports))]
    if Path(folder, "config.toml").exists():
        orlomo.resume(folder, task=classification(), callbacks=callbacks)
    else:
        train(engine, Path(folder), *callbacks, **LONG)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_best_model_survives_kills(engine: str, tmp_path: Path) -> None:
    folder, here = tmp_path / "run", Path(__file__).parent
    code = f"import sys; sys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]; import test_callbacks as module; "
    for reports in ("150", "400"):
        call = f"module.train_and_kill({engine!r}, {str(folder)!r}, {reports!r})"
        done = subprocess.run([sys.executable, "-c", code + call], capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
    best = orlomo.KeepBest("test_loss")
    run = orlomo.resume(folder, task=classification(), callbacks=[best], warn=lambda text: None)
    assert_best(run, "test_loss", np.argmin)
    if engine == "simulated":
        whole = train(engine, tmp_path / "whole", best, **LONG)
        assert checksum(whole.params) == checksum(run.params)
        assert whole.best.metrics["params_checksum"] == run.best.metrics["params_checksum"]


def test_a_new_best_model_counts_when_its_checkpoint_does(tmp_path: Path) -> None:
    """A kill after the new model was written: before the checkpoint it is forgotten, after it put in place."""
    run = train("simulated", tmp_path / "run")
    state = classification().model().state_dict()
    row = run.metric_rows[2]
    best_model.write_next(run.folder, state, {**row, "params_checksum": "of lost work"})
    best_model.settle(run.folder, run.metric_rows)
    assert run.best is None
    assert not list(run.folder.glob(".best*"))
    best_model.write_next(run.folder, state, row)
    best_model.settle(run.folder, run.metric_rows)
    assert run.best is not None
    assert run.best.metrics == row
    assert not list(run.folder.glob(".best*"))


def test_models_and_their_mistakes(tmp_path: Path) -> None:
    run = train("simulated", tmp_path / "run")
    model = run.model(classification().model)
    assert not model.training
    with pytest.raises(orlomo.OrlomoError, match="give it, or what makes its model"):
        run.model()
    with pytest.raises(orlomo.OrlomoError, match=r"is not of this module \(Sequential\): the file has no"):
        run.model(lambda: orlomo.task("digits").model())
    (run.folder / "model.safetensors").unlink()
    with pytest.raises(orlomo.OrlomoError, match="is not finished and has no model yet: `orlomo resume"):
        run.model(classification().model)


# Mistakes


@pytest.mark.parametrize("method", ["event", "evaluation"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_callback_that_raises_leaves_a_run_that_can_be_continued(engine: str, method: str, tmp_path: Path) -> None:
    def fail(run: orlomo.RunHandle) -> None:
        raise ZeroDivisionError("the callback's own")

    at, after = At(12, fail, method), Seen()
    with pytest.raises(ZeroDivisionError, match="the callback's own"):
        train(engine, tmp_path / "run", at, after)
    [end] = after.ends  # also those behind it see the end
    assert not end.finished
    cut = orlomo.load(tmp_path / "run")
    assert cut.checkpoint is not None
    assert cut.checkpoint.position == len(cut.event_columns["kind"]) >= 12  # nothing is lost
    assert orlomo.replay(cut.folder, task=classification(), jobs=1).agrees
    again = Seen()
    run = orlomo.resume(cut.folder, task=classification(), callbacks=[again])
    assert run.finished
    assert again.handles[0].kept is not None
    # Each sees a stretch of the trace without a gap; none is called with what is folded in until the next whole state.
    seen = [[row["iteration"] for row in one.events] for one in (at, again)]
    iterations = run.event_columns["iteration"].tolist()
    assert seen[0] == iterations[: len(seen[0])]
    assert seen[1] == iterations[cut.checkpoint.position :]
    assert orlomo.replay(run.folder, task=classification(), jobs=1).agrees
    if engine == "simulated":
        assert checksum(train(engine, tmp_path / "whole").params) == checksum(run.params)


def test_a_callback_that_exits_saves_the_run_too(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        train("simulated", tmp_path / "run", At(12, lambda run: exit(3)))
    assert orlomo.load(tmp_path / "run").checkpoint.position == 12


def test_raised_at_the_last_evaluation_a_stop_is_kept(tmp_path: Path) -> None:
    class Both(At):
        def evaluation(self, row: dict[str, Any]) -> None:
            assert row["reports"] < 10, "raised"

    with pytest.raises(AssertionError, match="raised"):
        train("simulated", tmp_path / "run", Both(10, lambda run: run.stop("enough")), evaluate_every=100.0)
    assert not orlomo.load(tmp_path / "run").finished
    run = orlomo.resume(tmp_path / "run", task=classification())
    assert run.finished
    assert run.stopped == "enough"
    assert len(run.event_columns["kind"]) == 10


def test_mistakes_are_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    for wrong in (Seen, lambda row: None):
        with pytest.raises(orlomo.OrlomoError, match=r"callbacks must be objects of subclasses of orlomo.Callback"):
            train("simulated", tmp_path / "run", wrong)
    assert not (tmp_path / "run").exists()
    with pytest.raises(orlomo.OrlomoError, match="patience must be at least 1, not 0"):
        orlomo.EarlyStopping("test_loss", 0)


def test_a_metric_that_is_not_there_is_named(tmp_path: Path) -> None:
    for metric, callback in (
        ("test_acuracy", orlomo.KeepBest("test_acuracy")),
        ("test_acuracy", orlomo.EarlyStopping("test_acuracy", 3)),
    ):
        with pytest.raises(orlomo.OrlomoError, match=f"unknown metric '{metric}': did you mean 'test_accuracy'"):
            train("simulated", tmp_path / type(callback).__name__, callback)
    best = orlomo.KeepBest("test_loss")
    with pytest.raises(orlomo.OrlomoError, match="unknown metric 'test_loss'"):
        orlomo.train(classification(test_data=None), workers=2, out=tmp_path / "none", callbacks=[best])
    nowhere = orlomo.Metric.mean("own", lambda model, batch: math.nan)
    best = orlomo.KeepBest("test_own")
    with pytest.raises(orlomo.OrlomoError, match="test_own is not a number in the first evaluation"):
        orlomo.train(classification(metrics=[nowhere]), workers=2, out=tmp_path / "nan", callbacks=[best])


def test_only_the_evaluation_at_hand_can_be_kept(tmp_path: Path) -> None:
    class Late(Seen):
        def event(self, row: dict[str, Any]) -> None:
            self.handles[0].keep_best(self.evaluations[0])

    with pytest.raises(orlomo.OrlomoError, match="keep_best takes the row that `evaluation` is being called with"):
        train("simulated", tmp_path / "run", Late())
    with pytest.raises(orlomo.OrlomoError, match="stop needs a reason"):
        train("simulated", tmp_path / "other", At(3, lambda run: run.stop(" ")))
