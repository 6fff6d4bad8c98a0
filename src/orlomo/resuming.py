"""Runs that exist: continue one, compute it again, read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from orlomo.engines import compiling
from orlomo.engines.callbacks import Callback, Callbacks
from orlomo.engines.engine import job_count
from orlomo.engines.ray.connection import RayOptions
from orlomo.engines.registry import engine_class
from orlomo.engines.simulated import replay as replaying
from orlomo.engines.simulated.pool import on_threads
from orlomo.errors import ConfigError, require
from orlomo.files import lock
from orlomo.methods.method import Method
from orlomo.records.run import Run
from orlomo.report.export import summary_writer, writes_in
from orlomo.tasks.metrics import measured
from orlomo.tasks.registry import task_of
from orlomo.tasks.task import Task
from orlomo.training import Warn, check_options, execute
from orlomo.values import whole


def resume(
    folder: Path | str,
    *,
    task: Task | None = None,
    method: Method | None = None,
    workers: int | None = None,
    jobs: int | None = None,
    ray: RayOptions | None = None,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] | Callback | None = (),
    warn: Warn = print,
) -> Run:
    """Continue a run from its newest whole checkpoint; one that is finished, or was stopped, is returned as it is.

    Args:
        task, method: where the run has one that only Python has.
        workers: continue with so many, which only engines on real time can.

    >>> import orlomo
    >>> run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> resume(run.folder).finished
    True
    """
    listening = Callbacks(callbacks, warn)
    check_options(jobs, ray, tensorboard)
    workers = None if workers is None else whole(workers, "workers")
    require(workers is None or workers >= 1, f"workers must be at least 1, not {workers}")
    run = Run(folder, warn)
    if tensorboard:
        summary_writer()  # where it is missing, say so before anything is changed
    if run.finished:
        if run.stopped is not None:
            warn(f"{run.folder} was stopped and is not continued: {run.stopped}")
        if tensorboard and not writes_in(run.folder / "tensorboard"):
            warn(f"{run.folder} is finished; for TensorBoard: `orlomo export {run.folder} --format tensorboard`")
        return run
    real = run.config.clock == "real"
    require(workers is None or real, "a run on virtual time continues with the workers it has: leave workers out")
    engine_class(run.config.engine).check(run.config)
    if real:
        # Taken and given back at once: an error, before anything else is said, if another process writes to the folder.
        lock(run.folder).close()
        _say_what_is_lost(run, warn)
    config = run.runnable_config(method)
    for what in run.changed_code(config):
        warn(f"the file of the {what} has changed since {run.folder} began: it continues with the file as it is now")
    made = _task_of(run, task, warn)
    _say_what_is_measured(run, made, warn)
    return execute(run, config, made, jobs, ray, tensorboard, listening, workers)


def replay(
    folder: Path | str,
    *,
    task: Task | None = None,
    method: Method | None = None,
    jobs: int | None = None,
    callbacks: Sequence[Callback] | Callback | None = (),
    warn: Warn = print,
) -> replaying.Replay:
    """Compute a run again from its trace alone and say whether the parameters agree, bit for bit.

    A task or method that only Python has must be given. Nothing is evaluated: `callbacks` are called with `started`,
    `event` and `finished` only.

    >>> import orlomo
    >>> run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> replay(run.folder, jobs=1).agrees
    True
    """
    listening = Callbacks(callbacks, warn)
    count = job_count(jobs)
    run = Run(folder, warn)
    config = run.runnable_config(method)
    changed = run.changed_code(config)
    for what in changed:
        warn(
            f"the file of the {what} has changed since {run.folder} was made: it is replayed with the file as it is now"
        )
    made = _task_of(run, task, warn)
    with on_threads(1):
        result = replaying.replay(run, config, made, jobs=count, callbacks=listening)
    return dataclasses.replace(result, changed_code=tuple(changed))


def load(folder: Path | str) -> Run:
    """A run from its folder, finished or not.

    >>> import orlomo
    >>> folder = getfixture("tmp_path") / "run"
    >>> run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=folder)
    >>> load(folder).params.equal(run.params)
    True
    """
    return Run(folder)


def _say_what_is_lost(run: Run, warn: Warn) -> None:
    """The work since the last checkpoint, which is computed again."""
    events = run.folder / "events.csv"
    if not events.is_file() or events.stat().st_size == 0:  # killed before the first row: nothing was done
        return
    saved, lost = run.checkpoint, run.unsaved
    reports = int((lost["kind"] == "report").sum())
    if reports:
        seconds = float(lost["finish"][-1]) - (saved.values["real_seconds"] if saved else 0.0)
        since = "the last checkpoint" if saved else "the beginning (there is no checkpoint yet)"
        warn(f"lost: the work since {since}, {reports} reports in {seconds:.1f} s; it is computed again")


def _say_what_is_measured(run: Run, task: Task, warn: Warn) -> None:
    """A run's table has the columns with which it began, whatever the task declares now."""
    before, now = {one.column for one in run.measured}, {one.column for one in measured(task)}
    for changed, text in ((now - before, "is new and not recorded"), (before - now, "is no longer measured")):
        if changed:
            warn(f"the task's metrics have changed since {run.folder} began: {', '.join(sorted(changed))} {text}")


def _task_of(run: Run, given: Task | None, warn: Warn) -> Task:
    if given is None and run.config.task == "custom":
        raise ConfigError(
            f"{run.folder} trains a Task that only Python has: "
            f"give it, as in orlomo.resume({str(run.folder)!r}, task=...)"
        )
    made = task_of(run.config, given)
    compiles = compiling.decide(run.config.compile, made, 0, run.config.device, warn)  # here may be no compiler
    return dataclasses.replace(made, compile=compiles == "on")
