"""Training from beginning to end: config -> task, method, cluster -> engine -> run folder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orlomo.clusters.cluster import Cluster
from orlomo.clusters.cluster import cluster as cluster_by_name
from orlomo.config import RunConfig, check_reads_back
from orlomo.engines import compiling
from orlomo.engines.callbacks import Callback, Callbacks, RunHandle
from orlomo.engines.engine import Engine, Setup, job_count
from orlomo.engines.ray.connection import RayOptions
from orlomo.engines.registry import engine_class
from orlomo.engines.session import planned_reports
from orlomo.engines.signals import Signals
from orlomo.engines.simulated import replay as replaying
from orlomo.engines.simulated.pool import on_threads
from orlomo.errors import ConfigError, Interrupted, RunFolderError, require
from orlomo.files import lock
from orlomo.methods.method import Method
from orlomo.methods.registry import method as method_by_name
from orlomo.records.recorder import DISK_RETRY_SECONDS, RunRecorder, create_folder, forget_if_empty, free_folder
from orlomo.records.run import Run, resume_command
from orlomo.report.export import TensorBoardWriter, summary_writer, writes_in
from orlomo.tasks.metrics import measured
from orlomo.tasks.registry import task_of
from orlomo.tasks.task import Task
from orlomo.values import documented

Warn = Callable[[str], None]


@documented(RunConfig, skip=("task", "method"))
def train(
    task: Task | str,
    method: Method | str = "orlomo",
    *,
    workers: int = 16,
    epochs: float = 10.0,
    engine: str = "simulated",
    cluster: Cluster | str = "homogeneous",
    seed: int = 0,
    jobs: int | None = None,
    out: Path | str | None = None,
    device: str = "cpu",
    devices: Sequence[str] | None = None,
    threads: int | None = None,
    pace: Sequence[float] | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    ray: RayOptions | None = None,
    batch_size: int | None = None,
    samples: int | None = None,
    held_out: float = 0.0,
    compile: str = "auto",
    evaluate_every: float = 1.0,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
    warn: Warn = print,
) -> Run:
    """Train a task with a method on a cluster, and record the run in a folder.

    Args:
        task: a `Task`, or the name of a built-in one.
        method: a method, or its name for its default hyperparameters.
        {settings}
        jobs: processes that compute rounds in the simulated engine; None: one per core. Does not change the result.
        out: the run folder; None: a new one under `runs/`.
        ray: which Ray cluster, and what it brings to the workers; None: RAY_ADDRESS, else a private one.
        tensorboard: write scalars and delay histograms for TensorBoard into the run's folder, too.
        callbacks: objects of subclasses of `orlomo.Callback`, called while the run is under way, in this order.
        warn: called with what the user should know: a worker lost, a disk full.

    Returns:
        The run: `run.params`, `run.events`, `run.metrics`, `run.folder`.

    >>> run = train("quadratic", "asgd", workers=4, epochs=0.25, jobs=1, out=getfixture("tmp_path") / "run")
    >>> bool(run.metrics["train_loss"].min() < 0.5 * run.metrics["train_loss"].max())
    True
    """
    config = RunConfig(
        task=task if isinstance(task, str) else "custom",
        method=_method(method),
        cluster=cluster_by_name(cluster),
        workers=workers,
        epochs=float(epochs),
        engine=engine,
        seed=seed,
        device=device,
        devices=None if devices is None else tuple(devices),
        threads=threads,
        pace=None if pace is None else tuple(map(float, pace)),
        resources=None if resources is None else {name: float(amount) for name, amount in resources.items()},
        labels=labels,
        batch_size=batch_size,
        samples=samples,
        held_out=float(held_out),
        compile=compile,
        evaluate_every=float(evaluate_every),
        checkpoint_seconds=float(checkpoint_seconds),
    )
    given = None if isinstance(task, str) else task
    return start(config, out, task=given, jobs=jobs, ray=ray, tensorboard=tensorboard, callbacks=callbacks, warn=warn)


def start(
    config: RunConfig,
    out: Path | str | None = None,
    *,
    task: Task | None = None,
    jobs: int | None = None,
    ray: RayOptions | None = None,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
    warn: Warn = print,
) -> Run:
    """Begin a new run of this config in a new folder."""
    listening = Callbacks(callbacks, warn)
    made = task_of(config, task)
    job_count(jobs)
    config = engine_class(config.engine).check(config)  # before there is a folder: a mistake leaves nothing behind
    config = _decide_compile(config, made, warn)
    made = dataclasses.replace(made, compile=config.compile == "on")
    check_reads_back(config)
    if tensorboard:
        summary_writer()  # where it is missing, say so before there is a folder
    folder = Path(out) if out is not None else free_folder(config, made.name)
    create_folder(folder, config, [one.described() for one in measured(made)])
    try:
        return _execute(Run(folder), config, made, jobs, ray, tensorboard, listening)
    except BaseException:
        forget_if_empty(folder)
        raise


def resume(
    folder: Path | str,
    *,
    task: Task | None = None,
    method: Method | None = None,
    workers: int | None = None,
    jobs: int | None = None,
    ray: RayOptions | None = None,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
    warn: Warn = print,
) -> Run:
    """Continue a run from its newest whole checkpoint; one that is finished, or was stopped, is returned as it is.

    Args:
        task, method: where the run has one that only Python has.
        workers: continue with so many, which only engines on real time can.

    >>> run = train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> resume(run.folder).finished
    True
    """
    listening = Callbacks(callbacks, warn)
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
    return _execute(run, config, made, jobs, ray, tensorboard, listening, workers)


def replay(
    folder: Path | str,
    *,
    task: Task | None = None,
    method: Method | None = None,
    jobs: int | None = None,
    callbacks: Sequence[Callback] = (),
    warn: Warn = print,
) -> replaying.Replay:
    """Compute a run again from its trace alone and say whether the parameters agree, bit for bit.

    A task or method that only Python has must be given. Nothing is evaluated: `callbacks` are called with `started`,
    `event` and `finished` only.

    >>> run = train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> replay(run.folder, jobs=1).agrees
    True
    """
    listening = Callbacks(callbacks, warn)
    run = Run(folder, warn)
    config = run.runnable_config(method)
    changed = run.changed_code(config)
    for what in changed:
        warn(
            f"the file of the {what} has changed since {run.folder} was made: it is replayed with the file as it is now"
        )
    made = _task_of(run, task, warn)
    with on_threads(1):
        result = replaying.replay(run, config, made, jobs=job_count(jobs), callbacks=listening)
    return dataclasses.replace(result, changed_code=tuple(changed))


def load(folder: Path | str) -> Run:
    """A run from its folder, finished or not.

    >>> folder = getfixture("tmp_path") / "run"
    >>> run = train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=folder)
    >>> load(folder).params.equal(run.params)
    True
    """
    return Run(folder)


def _execute(
    run: Run,
    config: RunConfig,
    task: Task,
    jobs: int | None,
    ray: RayOptions | None,
    tensorboard: bool,
    callbacks: Callbacks,
    workers: int | None = None,
) -> Run:
    saved, kind = run.checkpoint, engine_class(config.engine)
    with on_threads(1), Signals() as signals:  # the server's arithmetic: same bits on any number of cores
        warn = callbacks.warning if kind.waits_for_disk else None
        recorder = RunRecorder(run.folder, config.checkpoint_seconds, saved, warn)
        try:
            setup = Setup(config, task, recorder, run.folder, callbacks, saved, workers, job_count(jobs), ray)
            engine = kind(setup)
            kept = None if saved is None else Run(run.folder)
            # A checkpoint is as large as the server's state, so it is not kept in memory twice during the run.
            saved = run.checkpoint = None
            del setup
            if tensorboard:
                callbacks.add(_tensorboard(run.folder / "tensorboard", callbacks.warning))
            count, total = workers or config.workers, engine.session.total
            # After the engine is made: it may refuse the checkpoint, and then no callback has been started.
            callbacks.started(RunHandle(run.folder, config, count, total, run.measured, kept, callbacks))
            engine.run(signals)
            _finish(engine, recorder, signals, warn)
        except Interrupted as stop:
            command = resume_command(run.folder) + engine.resume_flags
            raise Interrupted(f"{stop}; saved. Continue with: {command}", stop.signal_number) from None
        except signals.Stop as stop:  # while the last files were written
            raise signals.interrupted(stop, "the run was complete, and is saved") from None
        finally:
            recorder.close()
            callbacks.finished(Run(run.folder))
        callbacks.check()
    return Run(run.folder)


def _tensorboard(folder: Path, warn: Warn) -> TensorBoardWriter:
    """TensorBoard's files of this run; those of a run that is continued are written again."""
    for path in writes_in(folder):
        path.unlink()
    return TensorBoardWriter(folder, warn)


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


def _finish(engine: Engine, recorder: RunRecorder, signals: Signals, patient: Warn | None) -> None:
    """Write the model and the last checkpoint; where the disk is full, a patient run waits for room."""
    session = engine.session
    while True:
        try:
            recorder.model(session.model_state(session.server.params, session.average_buffers()))
            engine.save()  # last: a run is finished when all its files are there
            break
        except RunFolderError as error:
            if patient is None:
                raise
            patient(f"THE RESULT IS NOT SAVED: {error}; free some space, next try in {DISK_RETRY_SECONDS:g} s")
            try:
                with signals.may_interrupt():
                    time.sleep(DISK_RETRY_SECONDS)
            except signals.Stop:
                raise error from None
    signals.obey()


def _decide_compile(config: RunConfig, task: Task, warn: Warn) -> RunConfig:
    """Whether to compile, by the steps that each process which compiles for itself will take."""
    processes = config.workers if config.clock == "real" else 1
    steps = planned_reports(config, task) * config.method.local_steps // processes
    return dataclasses.replace(config, compile=compiling.decide(config.compile, task, steps, config.device, warn))


def _method(given: Method | str) -> Method:
    if isinstance(given, type):
        raise ConfigError(f"method is the class {given.__name__}: give an object of it, as in {given.__name__}()")
    require(isinstance(given, (str, Method)), f"method must be a method or the name of one, not {given!r}")
    return method_by_name(given) if isinstance(given, str) else given


def _task_of(run: Run, given: Task | None, warn: Warn) -> Task:
    if given is None and run.config.task == "custom":
        raise ConfigError(
            f"{run.folder} trains a Task that only Python has: "
            f"give it, as in orlomo.resume({str(run.folder)!r}, task=...)"
        )
    made = task_of(run.config, given)
    compiles = compiling.decide(run.config.compile, made, 0, run.config.device, warn)  # here may be no compiler
    return dataclasses.replace(made, compile=compiles == "on")
