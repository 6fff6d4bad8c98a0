"""Training from beginning to end: config -> task, method, cluster -> engine -> run folder."""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from orlomo.clusters.cluster import Cluster
from orlomo.config import RunConfig, check_reads_back, make_cluster
from orlomo.engines import compiling
from orlomo.engines.callbacks import Callback, Callbacks, RunHandle
from orlomo.engines.engine import Engine, Setup, job_count
from orlomo.engines.ray.connection import RayOptions
from orlomo.engines.registry import engine_class
from orlomo.engines.signals import Signals
from orlomo.engines.simulated.pool import on_threads
from orlomo.engines.trial.numbers import say_numbers
from orlomo.engines.trial.step import try_task
from orlomo.engines.trial.surroundings import check_surroundings, jobs_for, only_run
from orlomo.engines.work import TaskWork, Work, planned_reports
from orlomo.errors import Interrupted, RunFolderError, require
from orlomo.files import remove, subfolder
from orlomo.methods.inner import check_no_rate
from orlomo.methods.method import Method
from orlomo.methods.registry import given_method
from orlomo.printing import say
from orlomo.records.folders import resume_command
from orlomo.records.leftovers import forget_if_empty
from orlomo.records.log import Log
from orlomo.records.recorder import DISK_RETRY_SECONDS, RunRecorder, create_folder, free_folder
from orlomo.records.run import Run
from orlomo.report.export import TensorBoardWriter, summary_writer, writes_in
from orlomo.tasks.metrics import measured
from orlomo.tasks.registry import given_task, task_of
from orlomo.tasks.shares import describe
from orlomo.tasks.task import Task
from orlomo.values import convert, documented, path_of

Warn = Callable[[str], None]


@documented(RunConfig, skip=("task", "method", "directory", "arguments", "steps", "group"))
def train(
    task: Task | str,
    method: Method | str = "orlomo",
    *,
    workers: int = 16,
    epochs: float = 10.0,
    engine: str = "simulated",
    cluster: Cluster | Path | str = "homogeneous",
    seed: int = 0,
    jobs: int | None = None,
    out: Path | str | None = None,
    device: str | torch.device = "cpu",
    devices: Sequence[str | torch.device] | str | None = None,
    threads: int | None = None,
    pace: Sequence[float] | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    ray: RayOptions | None = None,
    batch_size: int | None = None,
    samples: int | None = None,
    held_out: float = 0.0,
    compile: str | bool = "auto",
    evaluate_every: float = 1.0,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] | Callback | None = (),
    warn: Warn = say,
) -> Run:
    """Train a task with a method on a cluster, and record the run in a folder.

    Args:
        task: a `Task`, or the name of a built-in one.
        method: a method, or its name for its default hyperparameters.
        {settings}
        jobs: processes that compute rounds in the simulated engine; None: one per core. Does not change the result.
        out: the run folder; None: a new one under `runs/`.
        ray: which Ray cluster to use; None: RAY_ADDRESS, else a private one.
        tensorboard: also write scalars and delay histograms for TensorBoard into the run folder.
        callbacks: instances of subclasses of `orlomo.Callback`, called during the run, in this order.
        warn: called with messages for the user: a worker was lost, the disk is full.

    Returns:
        The run: `run.params`, `run.events`, `run.metrics`, `run.folder`.

    >>> run = train("quadratic", "asgd", workers=4, epochs=0.25, jobs=1, out=getfixture("tmp_path") / "run")
    >>> bool(run.metrics["train_loss"].min() < 0.5 * run.metrics["train_loss"].max())
    True
    """
    given, name = given_task(task)
    config = RunConfig(
        task=name,
        method=given_method(method),
        cluster=make_cluster(cluster, "train"),
        workers=workers,
        epochs=epochs,
        engine=engine,
        seed=seed,
        device=device,  # type: ignore[arg-type]
        devices=devices,  # type: ignore[arg-type]  # any sequence here: RunConfig makes it a tuple
        threads=threads,
        pace=pace,  # type: ignore[arg-type]
        resources=resources,
        labels=labels,
        batch_size=batch_size,
        samples=samples,
        held_out=held_out,
        compile=compile
        if isinstance(compile, str)
        else "on"
        if compile is True
        else "off"
        if compile is False
        else compile,
        evaluate_every=evaluate_every,
        checkpoint_seconds=checkpoint_seconds,
    )
    return start(config, out, task=given, jobs=jobs, ray=ray, tensorboard=tensorboard, callbacks=callbacks, warn=warn)


def start(
    config: RunConfig,
    out: Path | str | None = None,
    *,
    task: Task | None = None,
    jobs: int | None = None,
    ray: RayOptions | None = None,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] | Callback | None = (),
    warn: Warn = say,
) -> Run:
    """Begin a new run of this config in a new folder."""
    listening = Callbacks(callbacks, warn)
    check_options(jobs, ray, tensorboard)
    require(not config.is_loop, "directory is for your own loop, with `orlomo run`: leave it out")
    chosen = None if out is None else path_of(out, "out").absolute()  # a callback or task may change the directory
    made = task_of(config, task)
    if made.optimizer is not None:
        check_no_rate(config.method)
    config = engine_class(config.engine).check(config)  # before there is a folder: a mistake leaves nothing behind
    config = _decide_compile(config, made, warn)
    made = dataclasses.replace(made, compile=config.compile == "on")
    check_reads_back(config)
    if tensorboard:
        summary_writer()  # where it is missing, say so before there is a folder
    with only_run():
        check_surroundings(config, made)
        say_numbers(config, made, planned_reports(config, made), warn)
        try_task(config, made, warn)
        jobs = jobs_for(config, made, jobs, warn)
        folder = chosen or free_folder(config, made.name).absolute()
        columns = [one.described() for one in measured(made)]
        create_folder(folder, config, columns, describe(made, config.workers), warn)
        try:
            return run_engine(Run(folder), config, TaskWork(made), jobs, ray, tensorboard, listening)
        except BaseException:
            forget_if_empty(folder)
            raise


def execute(
    run: Run,
    config: RunConfig,
    task: Task,
    jobs: int | None,
    ray: RayOptions | None,
    tensorboard: bool,
    callbacks: Callbacks,
    workers: int | None = None,
) -> Run:
    """Run it, from its checkpoint if it has one, to its end; `config` is the one with which it began."""
    with only_run():
        check_surroundings(config, task)
        jobs = jobs_for(config, task, jobs, callbacks.warning)
        return run_engine(run, config, TaskWork(task), jobs, ray, tensorboard, callbacks, workers)


def run_engine(
    run: Run,
    config: RunConfig,
    work: Work,
    jobs: int,
    ray: RayOptions | None,
    tensorboard: bool,
    callbacks: Callbacks,
    workers: int | None = None,
) -> Run:
    """Run it, from its checkpoint if it has one, to its end, on its engine."""
    saved, kind = run.resumable, engine_class(config.engine, work.is_loop)
    with on_threads(1), Signals() as signals:  # the server's arithmetic: same bits on any number of cores
        warn = callbacks.warning if kind.waits_for_disk else None
        recorder = RunRecorder(run.folder, config.checkpoint_seconds, saved, warn)
        engine: Engine | None = None
        try:
            setup = Setup(config, work, recorder, run.folder, callbacks, saved, workers, jobs, ray, run.changes)
            config = setup.config
            engine = kind(setup)
            kept = None if saved is None else Run(run.folder)
            # A checkpoint is as large as the server's state, so it is not kept in memory twice during the run.
            saved = run.checkpoint = None
            del setup
            if tensorboard:
                callbacks.add(_tensorboard(subfolder(run.folder, "tensorboard"), callbacks.warning))
            count, total = workers or config.workers, engine.session.total
            # After the engine is made: it may refuse the checkpoint, and then no callback has been started.
            callbacks.started(RunHandle(run.folder, config, count, total, run.measured, kept, callbacks))
            engine.run(signals)
            _finish(engine, recorder, signals, warn)
        except Interrupted as stop:
            assert engine is not None
            command = resume_command(run.folder, config.task) + engine.resume_flags
            raise Interrupted(f"{stop}; saved. Continue with: {command}", stop.signal_number) from None
        except signals.Stop as stop:  # while the last files were written
            raise signals.interrupted(stop, "the run was complete, and is saved") from None
        except BaseException as error:
            if engine is not None:
                _leave_word(error, engine, run.folder, config)
            raise
        finally:
            recorder.close()
            callbacks.finished(Run(run.folder))
        callbacks.check()
    return Run(run.folder)


def _tensorboard(folder: Path, warn: Warn) -> TensorBoardWriter:
    """TensorBoard's files of this run; those of a run that is continued are written again."""
    for path in writes_in(folder):
        remove(path)
    return TensorBoardWriter(folder, warn)


def _leave_word(error: BaseException, engine: Engine, folder: Path, config: RunConfig) -> None:
    """What ended the run goes to its log, with the traceback; the error says where that is and how to continue."""
    session, log = engine.session, folder / "log.txt"
    if session.reports == 0 or str(log) in str(error):  # nothing to continue, or all said
        return
    text = " ".join(f"{type(error).__name__}: {error}".split())
    Log(folder, lambda text: None).note(f"the run ends: {text}", "".join(traceback.format_exception(error)))
    saved = "saved; " if session.saved_events == session.events else ""
    command = resume_command(folder, config.task) + engine.resume_flags
    error.add_note(f"{saved}more in {log}. When that is fixed, continue with: {command}")


def _finish(engine: Engine, recorder: RunRecorder, signals: Signals, patient: Warn | None) -> None:
    """Write the model and the last checkpoint; where the disk is full, a patient run waits for room."""
    session = engine.session
    while True:
        try:
            recorder.model(session.model_state(session.server.params, session.combined_buffers()))
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
        except Exception as error:  # the user's loss, when running statistics were recomputed
            session.failed = True
            session.save_after(error, engine.save)
            raise
    signals.obey()


def _decide_compile(config: RunConfig, task: Task, warn: Warn) -> RunConfig:
    """Whether to compile, by the steps that each process which compiles for itself will take."""
    processes = config.workers if config.clock == "real" else 1
    steps = planned_reports(config, task) * config.method.local_steps // processes
    return dataclasses.replace(config, compile=compiling.decide(config.compile, task, steps, config.device, warn))


def check_options(jobs: int | None, ray: RayOptions | None, tensorboard: bool) -> None:
    """Refuse wrong types of what decides no result and so is not in the config."""
    job_count(jobs)
    convert(tensorboard, bool, "tensorboard")
    good = ray is None or isinstance(ray, RayOptions)
    require(good, f"ray must be an orlomo.RayOptions, as in orlomo.RayOptions(address='auto'), not {ray!r}")
