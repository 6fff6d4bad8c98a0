"""Runs that exist: continue one, compute it again, read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from orlomo.config import RunConfig, to_table
from orlomo.engines import compiling
from orlomo.engines.callbacks import Callback, Callbacks
from orlomo.engines.engine import job_count
from orlomo.engines.ray.connection import RayOptions
from orlomo.engines.registry import engine_class
from orlomo.engines.simulated import replay as replaying
from orlomo.engines.simulated.pool import on_threads
from orlomo.engines.trial.surroundings import only_run
from orlomo.engines.work import planned_samples
from orlomo.errors import ConfigError, require
from orlomo.files import short, writing_to
from orlomo.launching import replay_loop, resume_loop
from orlomo.loading import hold_no_code
from orlomo.locks import lock
from orlomo.loop.program import Function
from orlomo.methods import rates
from orlomo.methods.method import Method
from orlomo.printing import quoted, say
from orlomo.records.best import BEST, READABLE
from orlomo.records.changes import Change, changed, stages, write_changes
from orlomo.records.folders import MODEL
from orlomo.records.leftovers import check_begun, has_rows
from orlomo.records.recorder import tidy
from orlomo.records.run import Run
from orlomo.records.shapes import restoring
from orlomo.report.export import summary_writer, writes_in
from orlomo.tasks.metrics import measured
from orlomo.tasks.registry import task_of
from orlomo.tasks.shares import Stream
from orlomo.tasks.task import Task
from orlomo.training import Warn, check_options, execute
from orlomo.trust import Code, code_in, require_trust, untrusted
from orlomo.values import convert, path_of, whole


def resume(
    folder: Path | str,
    *,
    task: Task | Function | None = None,
    method: Method | None = None,
    epochs: float | None = None,
    learning_rate: float | None = None,
    workers: int | None = None,
    trust: bool = False,
    jobs: int | None = None,
    ray: RayOptions | None = None,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] | Callback | None = (),
    warn: Warn = say,
) -> Run:
    """Continue a run from its newest whole checkpoint; one that is finished, or was stopped, is returned as it is.

    Args:
        task, method: only if they exist only in Python; the method as it was when the run started. For a run of
            `orlomo.launch`, the function.
        epochs: the new total number of epochs. A run that is finished, or was stopped, is then continued.
        learning_rate: replaces the learning rate from here on; the schedule's factors still apply. Both changes are
            recorded in `run.changes`, and every later resume or replay follows them.
        workers: continue with this many workers (not in the simulator).
        trust: run the code that the folder names even if you did not make the run (see SECURITY.md).

    >>> import orlomo
    >>> run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> resume(run.folder).finished
    True
    """
    listening = Callbacks(callbacks, warn)
    check_options(jobs, ray, tensorboard)
    workers = None if workers is None else whole(workers, "workers")
    require(workers is None or workers >= 1, f"workers must be at least 1, not {workers}")
    epochs = cast("float | None", convert(epochs, float | None, "epochs"))
    learning_rate = cast("float | None", convert(learning_rate, float | None, "learning_rate"))
    check_begun(path_of(folder, "the run's folder").absolute())
    run = Run(folder, warn)
    if tensorboard:
        summary_writer()  # where it is missing, say so before anything is changed
    _ = run.resumable  # an error where the record is damaged
    damaged = [one for one in run.findings(MODEL) if one.file == MODEL] if run.finished else []
    for finding in damaged:
        warn(f"{run.folder}/{finding}; it is written again")
    for finding in run.findings(BEST):
        if finding.file in (BEST, READABLE):
            warn(f"{run.folder}/{finding}")
    if run.finished and not damaged and not _continues(run, epochs, learning_rate):
        if run.stopped is not None:
            warn(f"{run.folder} was stopped and is not continued: {run.stopped}")
        if tensorboard and not writes_in(run.folder / "tensorboard"):
            command = f"orlomo export {quoted(str(run.folder))} --format tensorboard"
            warn(f"{run.folder} is finished; for TensorBoard: `{command}`")
        tidy(run)
        return run
    real = run.config.clock == "real"
    require(workers is None or real, "a run on virtual time continues with the workers it has: leave workers out")
    engine_class(run.config.engine, run.config.is_loop).check(run.config)
    if real:
        # Taken and given back at once: an error, before anything else is said, if another process writes to the folder.
        lock(run.folder).close()
        _say_what_is_lost(run, warn)
    _check_trust(run, task, method, trust)
    began = run.runnable_config(method)
    if run.config.is_loop:
        require(epochs is None and learning_rate is None, "a run of a loop continues as its program says: it has both")
        function = _function_of(run, task)
        if run.changed_code(began):
            warn(f"the script of {run.folder} has changed since it began: it continues with the script as it is now")
        return resume_loop(run, began, function, jobs, ray, tensorboard, listening, workers)
    for what in run.changed_code(began):
        warn(f"the file of the {what} has changed since {run.folder} began: it continues with the file as it is now")
    made = _task_of(run, task, warn)
    own = made.optimizer is not None and learning_rate is not None
    require(not own, "the task's optimizer has the learning rate: leave learning_rate out")
    _say_what_is_measured(run, made, warn)
    if isinstance(made.train_data, Stream) and not made.train_data.opens_anywhere and run.checkpoint is not None:
        warn(
            "the stream of training data cannot be opened at a position: each worker reads it from its beginning again"
        )
    run = _with_change(run, stages(began, run.changes)[-1].config, made, epochs, learning_rate)
    _say_where_the_rate_is_zero(stages(began, run.changes)[-1].config, warn)
    return execute(run, began, made, jobs, ray, tensorboard, listening, workers)


def replay(
    folder: Path | str,
    *,
    task: Task | Function | None = None,
    method: Method | None = None,
    trust: bool = False,
    jobs: int | None = None,
    callbacks: Sequence[Callback] | Callback | None = (),
    warn: Warn = say,
) -> replaying.Replay:
    """Repeat a run from its trace, up to its newest checkpoint, and compare everything it recorded, bit for bit.

    This includes the order of its reports, parameters, losses and metrics, and for a simulated run also the times.

    A task or method that only exists in Python must be passed; for a run of `orlomo.launch`, the function. Of
    callbacks, only `started`, `event` and `finished` are called. `trust`: as for `resume`.

    Your own loop runs again in processes of this machine, as far as its rounds are in the trace; files that it writes
    within a round are written again. If a report differs, the replay ends and names the worker and the round.

    >>> import orlomo
    >>> run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> print(str(replay(run.folder, jobs=1))[:86])
    103 of 103 reports, 2 of 2 evaluations: order, times, samples, parameters, losses and
    """
    listening = Callbacks(callbacks, warn)
    count = job_count(jobs)
    run = Run(folder, warn)
    _check_trust(run, task, method, trust, "replay")
    config = run.runnable_config(method, "replay")
    other_code = run.changed_code(config)
    for what in other_code:
        warn(
            f"the file of the {what} has changed since {run.folder} was made: it is replayed with the file as it is now"
        )
    if config.is_loop:
        result = replay_loop(run, config, _function_of(run, task), jobs=count, callbacks=listening)
        return dataclasses.replace(result, changed_code=tuple(other_code))
    made = _task_of(run, task, warn, "replay")
    with only_run(), on_threads(1):
        every = stages(config, run.changes)
        result = replaying.replay(run, every, made, jobs=count, callbacks=listening)
    return dataclasses.replace(result, changed_code=tuple(other_code))


def load(folder: Path | str) -> Run:
    """A run from its folder, finished or not.

    >>> import orlomo
    >>> folder = getfixture("tmp_path") / "run"
    >>> run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=folder)
    >>> load(folder).params.equal(run.params)
    True
    """
    return Run(folder)


def untrusted_code(run: Run, task: Task | Function | None = None, method: Method | None = None) -> list[Code]:
    """The code of a run folder, without what is given, that this user neither made the run with nor said yes to."""
    hold_no_code(run.folder)
    given = (*(("task",) if task is not None else ()), *(("method", "schedule") if method is not None else ()))
    return untrusted(code_in(to_table(run.config), given), run.folder / "config.toml")


def _check_trust(
    run: Run, task: Task | Function | None, method: Method | None, trust: bool, call: str = "resume"
) -> None:
    trusted = bool(convert(trust, bool, "trust"))
    way_out = f"orlomo.{call}({short(run.folder)!r}, trust=True)"
    require_trust(untrusted_code(run, task, method), run.folder, way_out, trusted=trusted)


def _continues(run: Run, epochs: float | None, learning_rate: float | None) -> bool:
    """Whether a finished run is to be continued: with more epochs, or if it was stopped, with epochs given at all."""
    done = run.config.epochs
    if epochs is not None and run.stopped is None:
        require(epochs >= done, f"{run.folder} is finished with {done:g} epochs: give more than that, not {epochs:g}")
    if epochs is not None and (run.stopped is not None or epochs > done):
        return True
    same = learning_rate is None or learning_rate == run.config.method.learning_rate
    require(same, f"{run.folder} is finished: another learning rate needs more epochs, as in epochs={2 * done:g}")
    return False


def _with_change(run: Run, config: RunConfig, task: Task, epochs: float | None, learning_rate: float | None) -> Run:
    """The run with what is to be another from its checkpoint on written down; what is as it was is no change."""
    saved = run.resumable
    position = 0 if saved is None else saved.position
    with restoring(position):
        samples, ended = (0, False) if saved is None else (saved.values["ledger"]["samples"], saved.values["finished"])
    done = samples / task.size
    known = list(run.changes)
    if run.config.clock == "real":  # the events behind a lost checkpoint are gone, and with them where a change was
        known = [dataclasses.replace(one, events=min(one.events, position)) for one in known]
    epochs = None if epochs == config.epochs and run.stopped is None else epochs
    learning_rate = None if learning_rate == config.method.learning_rate else learning_rate
    if epochs is not None or learning_rate is not None:
        now = changed(config, epochs, learning_rate)
        enough = planned_samples(now, task) > samples - (not ended)
        require(enough, f"{run.folder} has done {done:.4g} epochs: give more than that, not {now.epochs:g}")
        time = datetime.now(UTC).isoformat(timespec="seconds")
        known.append(Change(events=position, epoch=done, time=time, epochs=epochs, learning_rate=learning_rate))
    if known == list(run.changes):
        return run
    with closing(lock(run.folder)), writing_to(run.folder):
        write_changes(run.folder, known)
    return Run(run.folder)


def _say_where_the_rate_is_zero(config: RunConfig, warn: Warn) -> None:
    end = rates.last_epoch(config.method.schedule)
    if end is not None and end < config.epochs:
        warn(
            f"the learning rate is 0 from epoch {end:g} on, by the schedule {config.method.schedule!r}: "
            f"the epochs up to {config.epochs:g} will change nothing"
        )


def _say_what_is_lost(run: Run, warn: Warn) -> None:
    """The work since the last checkpoint, which is computed again."""
    if not has_rows(run.folder / "events.csv"):  # killed before the first row: nothing was done
        return
    saved, events = run.checkpoint, run.some_events("kind", "finish")
    reports = int((events["kind"][saved.position if saved else 0 :] == "report").sum())
    if reports:
        seconds = float(events["finish"][-1]) - (saved.values.get("real_seconds", 0.0) if saved else 0.0)
        since = "the last checkpoint" if saved else "the beginning (there is no checkpoint yet)"
        warn(f"lost: the work since {since}, {reports} reports in {seconds:.1f} s; it is computed again")


def _say_what_is_measured(run: Run, task: Task, warn: Warn) -> None:
    """A run's table has the columns with which it began, whatever the task declares now."""
    before, now = {one.column for one in run.measured}, {one.column for one in measured(task)}
    for names, text in ((now - before, "is new and not recorded"), (before - now, "is no longer measured")):
        if names:
            warn(f"the task's metrics have changed since {run.folder} began: {', '.join(sorted(names))} {text}")


def _function_of(run: Run, given: Task | Function | None) -> Function | None:
    if isinstance(given, Task):
        raise ConfigError(f"{run.folder} was made by your own loop, not by a Task: give its function")
    return given


def _task_of(run: Run, given: Task | Function | None, warn: Warn, call: str = "resume") -> Task:
    require(given is None or isinstance(given, Task), f"task must be an orlomo.Task, not {given!r}")
    assert given is None or isinstance(given, Task)
    if given is None and run.config.task == "custom":
        raise ConfigError(
            f"{run.folder} trains a Task that only Python has: "
            f"give it, as in orlomo.{call}({str(run.folder)!r}, task=...)"
        )
    made = task_of(run.config, given)
    compiles = compiling.decide(run.config.compile, made, 0, run.config.device, warn)  # here may be no compiler
    return dataclasses.replace(made, compile=compiles == "on")
