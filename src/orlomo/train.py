"""The whole way on one page: config -> task, method, cluster -> engine -> run folder."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from orlomo import compiling, tasks
from orlomo.cluster import Cluster, Schedule, cluster
from orlomo.config import RunConfig
from orlomo.engines import replay as replaying
from orlomo.engines.execute import Execution
from orlomo.engines.pool import one_thread
from orlomo.engines.session import Progress
from orlomo.engines.simulated import plan
from orlomo.errors import ConfigError, Interrupted, RunFolderError, require
from orlomo.methods import Method, method
from orlomo.records.run import Run, RunRecorder, create_folder, resume_command
from orlomo.tasks import Task
from orlomo.tasks.evaluation import load_trained
from orlomo.tasks.task import subset

Warn = Callable[[str], None]


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
    batch_size: int | None = None,
    samples: int | None = None,
    held_out: float = 0.0,
    compile: str = "auto",
    evaluate_every: float = 1.0,
    checkpoint_seconds: float = 30.0,
    progress: Progress | None = None,
) -> Run:
    """Train a task with a method on a cluster, and record the run in a folder.

    Args:
        task: a `Task`, or the name of a built-in one.
        method: a method, or its name for its default hyperparameters.
        workers: K.
        epochs: passes over the training data, all workers together.
        engine: `simulated`.
        cluster: a `Cluster`, or a preset's name: `homogeneous`, `heterogeneous`, `slow-worker:10`.
        seed: the same seed gives the same bits.
        jobs: processes that compute rounds; None: one a core. Does not change the result.
        out: the run folder; None: a new one under `runs/`.
        device: where the models are.
        batch_size: in place of the task's own.
        samples: use only this many training samples.
        held_out: test on this share of the training samples instead of the test data: for choosing settings.
        compile: `on`, `off` or `auto`: compile the model (torch.compile) where it pays for itself.
        evaluate_every: epochs between evaluations.
        checkpoint_seconds: real seconds between checkpoints.
        progress: told about reports and evaluations as they come.

    Returns:
        The run: `run.params`, `run.events`, `run.metrics`, `run.folder`.

    >>> run = train("quadratic", "asgd", workers=4, epochs=0.25, jobs=1, out=getfixture("tmp_path") / "run")
    >>> bool(run.metrics["train_loss"][-1] < run.metrics["train_loss"][0])
    True
    """
    config = RunConfig(
        task=task if isinstance(task, str) else "custom",
        method=_method(method),
        cluster=_cluster(cluster),
        workers=workers,
        epochs=float(epochs),
        engine=engine,
        seed=seed,
        device=device,
        batch_size=batch_size,
        samples=samples,
        held_out=float(held_out),
        compile=compile,
        evaluate_every=float(evaluate_every),
        checkpoint_seconds=float(checkpoint_seconds),
    )
    return start(config, out, task=None if isinstance(task, str) else task, jobs=jobs, progress=progress)


def start(
    config: RunConfig,
    out: Path | str | None = None,
    *,
    task: Task | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    warn: Warn = print,
) -> Run:
    """Begin a new run of this config in a new folder."""
    made = _task(config, task)
    _check_device(config.device)
    schedule = _plan(config, made)  # before there is a folder: a mistake leaves nothing behind
    config, made = _decide_compile(config, made, schedule, warn)
    cores = job_count(jobs)
    folder = Path(out) if out is not None else _free_folder(config, made)
    create_folder(folder, config)
    try:
        return _execute(Run(folder), made, schedule, cores, progress)
    except BaseException:
        _forget_if_empty(folder)
        raise


def resume(
    folder: Path | str,
    *,
    task: Task | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    warn: Warn = print,
) -> Run:
    """Go on with a run from its newest whole checkpoint; a finished run is returned as it is."""
    run = Run(folder, warn)
    if run.finished:
        return run
    _check_device(run.config.device)
    made = _task_of(run, task)
    schedule = _plan(run.config, made)
    _, made = _decide_compile(run.config, made, schedule, warn)
    return _execute(run, made, schedule, job_count(jobs), progress)


def replay(
    folder: Path | str,
    *,
    task: Task | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    warn: Warn = print,
) -> replaying.Replay:
    """Compute a run again from its trace alone and say whether the parameters agree, bit for bit."""
    run = Run(folder, warn)
    made = _task_of(run, task)
    _, made = _decide_compile(run.config, made, None, warn)
    with one_thread():
        return replaying.replay(run, made, jobs=job_count(jobs), progress=progress)


def load(folder: Path | str) -> Run:
    """A run from its folder, finished or not."""
    return Run(folder)


def _execute(run: Run, task: Task, schedule: Schedule, jobs: int, progress: Progress | None) -> Run:
    config, saved = run.config, run.checkpoint
    with one_thread():  # the server's arithmetic: same bits on any number of cores
        recorder = RunRecorder(run.folder, config.checkpoint_seconds, saved)
        try:
            execution = Execution(config, task, schedule, recorder, jobs=jobs, progress=progress, resumed=saved)
            saved = run.checkpoint = None  # the execution has what it needs of it
            execution.run()
            _write_model(execution, recorder, task)
            execution.save()  # last: a run is finished when all its files are there
        except Interrupted as stop:
            command = resume_command(run.folder)
            raise Interrupted(f"{stop}; saved. Go on with: {command}", stop.signal_number) from None
        finally:
            recorder.close()
    return Run(run.folder)


def _write_model(execution: Execution, recorder: RunRecorder, task: Task) -> None:
    """The trained model as a state dict, with running statistics as in an evaluation."""
    seed, device = execution.config.seed, execution.config.device
    flat = task.build(seed, device)
    load_trained(task, flat, execution.server.params, seed, execution.session.average_buffers())
    recorder.model(flat.module.state_dict())


def _method(chosen: Method | str) -> Method:
    return method(chosen) if isinstance(chosen, str) else chosen


def _cluster(chosen: Cluster | str) -> Cluster:
    return cluster(chosen) if isinstance(chosen, str) else chosen


def _task_of(run: Run, given: Task | None) -> Task:
    if given is None and run.config.task == "custom":
        raise ConfigError(
            f"{run.folder} trains a Task that only Python has: "
            f"give it, as in orlomo.resume({str(run.folder)!r}, task=...)"
        )
    return _task(run.config, given)


def _task(config: RunConfig, given: Task | None) -> Task:
    made = tasks.task(config.task) if given is None else given
    if config.batch_size is not None:
        made = dataclasses.replace(made, batch_size=config.batch_size)
    return subset(made, config.samples, config.held_out)


def _decide_compile(config: RunConfig, task: Task, schedule: Schedule | None, warn: Warn) -> tuple[RunConfig, Task]:
    """The config and the task with compiling decided on; `auto` needs the schedule for the run's length."""
    steps = 0 if schedule is None else int(schedule.reports.sum()) * config.method.local_steps
    choice = compiling.decide(config.compile, task, steps, config.device, warn)
    return dataclasses.replace(config, compile=choice), dataclasses.replace(task, compile=choice == "on")


def _plan(config: RunConfig, task: Task) -> Schedule:
    with one_thread():
        return plan(config, task, task.initial_params(config.seed))


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {device!r} cannot be used here: {reason}") from None


def _forget_if_empty(folder: Path) -> None:
    """Remove a run that ended before its first report: there is nothing in it to resume."""
    events = folder / "events.csv"
    if not (folder / "checkpoints").exists() and (not events.exists() or events.read_bytes().count(b"\n") <= 1):
        shutil.rmtree(folder, ignore_errors=True)


def job_count(jobs: int | None) -> int:
    """How many processes compute: as asked for, or one a core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    chosen = cores if jobs is None else jobs
    require(chosen >= 1, f"jobs must be at least 1, not {jobs}")
    return chosen


def _free_folder(config: RunConfig, task: Task) -> Path:
    name = f"{Path(task.name.partition(':')[0]).stem}-{config.method.name}-seed{config.seed}"
    for number in range(1, 10_000):
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not folder.exists():
            return folder
    raise RunFolderError("runs/ is full of runs of this name: give a folder with --out")
