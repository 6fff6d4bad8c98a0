"""The whole way on one page: config -> task, method, cluster -> engine -> run folder."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orlomo.clusters.cluster import Cluster
from orlomo.clusters.cluster import cluster as cluster_by_name
from orlomo.clusters.schedule import Schedule
from orlomo.config import RunConfig, check_reads_back
from orlomo.deciding import Warn, check_devices, compiles, decide, job_count
from orlomo.engines.live.loop import Live
from orlomo.engines.processes.engine import Processes
from orlomo.engines.ray.connection import RayOptions, import_ray
from orlomo.engines.session import Progress
from orlomo.engines.signals import Signals
from orlomo.engines.simulated import replay as replaying
from orlomo.engines.simulated.execute import Execution
from orlomo.engines.simulated.plan import plan
from orlomo.engines.simulated.pool import on_threads
from orlomo.errors import ConfigError, Interrupted, RunFolderError, require
from orlomo.files import lock
from orlomo.methods.method import Method
from orlomo.methods.registry import method
from orlomo.records.run import DISK_RETRY_SECONDS, Run, RunRecorder, create_folder, resume_command
from orlomo.report.tensorboard import TensorBoardWriter, summary_writer, writes_in
from orlomo.tasks.evaluation import load_trained
from orlomo.tasks.registry import task_of
from orlomo.tasks.task import Task
from orlomo.values import documented


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
    progress: Progress | None = None,
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
        progress: told about reports and evaluations as they come.
        warn: told what a person should know: a worker lost, a disk full.

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
    return start(config, out, task=given, jobs=jobs, ray=ray, tensorboard=tensorboard, progress=progress, warn=warn)


def start(
    config: RunConfig,
    out: Path | str | None = None,
    *,
    task: Task | None = None,
    jobs: int | None = None,
    ray: RayOptions | None = None,
    tensorboard: bool = False,
    progress: Progress | None = None,
    warn: Warn = print,
) -> Run:
    """Begin a new run of this config in a new folder."""
    made = task_of(config, task)
    check_devices(config)
    config = decide(config, made, warn)  # before there is a folder: a mistake leaves nothing behind
    made = dataclasses.replace(made, compile=config.compile == "on")
    check_reads_back(config)
    cores = job_count(jobs)
    if tensorboard:
        summary_writer()  # where it is missing, say so before there is a folder
    folder = Path(out) if out is not None else _free_folder(config, made)
    create_folder(folder, config)
    try:
        return _execute(Run(folder), config, made, cores, ray, tensorboard, progress, warn)
    except BaseException:
        _forget_if_empty(folder)
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
    progress: Progress | None = None,
    warn: Warn = print,
) -> Run:
    """Continue a run from its newest whole checkpoint; a finished run is returned as it is.

    Args:
        task, method: where the run has one that only Python has.
        workers: continue with so many, which only real engines can.

    >>> run = train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> resume(run.folder).finished
    True
    """
    run = Run(folder, warn)
    if tensorboard:
        summary_writer()  # where it is missing, say so before anything is changed
    if run.finished:
        if tensorboard and not writes_in(run.folder / "tensorboard"):
            warn(f"{run.folder} is finished; for TensorBoard: `orlomo export {run.folder} --format tensorboard`")
        return run
    real = run.config.engine != "simulated"
    require(workers is None or real, "a simulated run goes on with the workers it has: leave workers out")
    check_devices(run.config)
    if real:
        lock(run.folder).close()  # not while another process writes to it
        _say_what_is_lost(run, warn)
    config = run.runnable_config(method)
    for what in run.changed_code(config):
        warn(f"the file of the {what} has changed since {run.folder} began: it continues with the file as it is now")
    made = _task_of(run, task, warn)
    return _execute(run, config, made, job_count(jobs), ray, tensorboard, progress, warn, workers)


def replay(
    folder: Path | str,
    *,
    task: Task | None = None,
    method: Method | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    warn: Warn = print,
) -> replaying.Replay:
    """Compute a run again from its trace alone and say whether the parameters agree, bit for bit.

    A task or method that only Python has must be given.

    >>> run = train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> replay(run.folder, jobs=1).agrees
    True
    """
    run = Run(folder, warn)
    config = run.runnable_config(method)
    changed = run.changed_code(config)
    for what in changed:
        warn(
            f"the file of the {what} has changed since {run.folder} was made: it is replayed with the file as it is now"
        )
    made = _task_of(run, task, warn)
    with on_threads(1):
        result = replaying.replay(run, config, made, jobs=job_count(jobs), progress=progress)
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
    jobs: int,
    ray: RayOptions | None,
    tensorboard: bool,
    progress: Progress | None,
    warn: Warn,
    workers: int | None = None,
) -> Run:
    saved = run.checkpoint
    real = config.engine != "simulated"
    schedule = None if real else _plan(config, task)
    with on_threads(1), Signals() as signals:  # the server's arithmetic: same bits on any number of cores
        recorder = RunRecorder(run.folder, config.checkpoint_seconds, saved, warn if real else None)
        written: TensorBoardWriter | None = None
        try:
            if tensorboard:
                progress = written = _tensorboard(run.folder / "tensorboard", progress, warn)
            if (started := getattr(progress, "started", None)) is not None:
                started(config.workers, None if saved is None else Run(run.folder))
            execution: Execution | Live
            if schedule is None:
                execution = _live(config.engine, ray)(
                    config, task, recorder, run.folder, progress=progress, warn=warn, resumed=saved, workers=workers
                )
            else:
                execution = Execution(config, task, schedule, recorder, jobs=jobs, progress=progress, resumed=saved)
            saved = run.checkpoint = None  # the execution has what it needs of it
            execution.run(signals)
            _finish(execution, recorder, task, signals, warn if real else None)
        except Interrupted as stop:
            command = resume_command(run.folder) + (execution.resume_flags if isinstance(execution, Live) else "")
            raise Interrupted(f"{stop}; saved. Go on with: {command}", stop.signal_number) from None
        except signals.Stop as stop:  # while the last files were written
            raise signals.interrupted(stop, "the run was complete, and is saved") from None
        finally:
            recorder.close()
            if written is not None:
                written.close()
    return Run(run.folder)


def _tensorboard(folder: Path, progress: Progress | None, warn: Warn) -> TensorBoardWriter:
    """TensorBoard's files beside a display; those of a run that goes on are written anew."""
    for path in writes_in(folder):
        path.unlink()
    return TensorBoardWriter(folder, progress, warn)


def _live(engine: str, options: RayOptions | None) -> Callable[..., Live]:
    """The engine of this name; Ray is an extra."""
    if engine == "processes":
        return Processes
    import_ray()
    from orlomo.engines.ray.engine import RayCluster

    return functools.partial(RayCluster, options=options or RayOptions())


def _say_what_is_lost(run: Run, warn: Warn) -> None:
    """The work since the last checkpoint, which is computed anew."""
    if not (run.folder / "events.csv").is_file():
        return
    saved, lost = run.checkpoint, run.unsaved
    reports = int((lost["kind"] == "report").sum())
    if reports:
        seconds = float(lost["finish"][-1]) - (saved.values["real_seconds"] if saved else 0.0)
        since = "the last checkpoint" if saved else "the beginning (there is no checkpoint yet)"
        warn(f"lost: the work since {since}, {reports} reports in {seconds:.1f} s; it is computed anew")


def _finish(
    execution: Execution | Live, recorder: RunRecorder, task: Task, signals: Signals, patient: Warn | None
) -> None:
    """Write the model and the last checkpoint; where the disk is full, a patient run waits for room."""
    while True:
        try:
            _write_model(execution, recorder, task)
            execution.save()  # last: a run is finished when all its files are there
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


def _write_model(execution: Execution | Live, recorder: RunRecorder, task: Task) -> None:
    """The trained model as a state dict, with running statistics as in an evaluation."""
    seed, device = execution.config.seed, execution.config.server_device
    flat = task.build(seed, device)
    load_trained(task, flat, execution.server.params, seed, execution.session.average_buffers())
    recorder.model(flat.module.state_dict())


def _method(chosen: Method | str) -> Method:
    return method(chosen) if isinstance(chosen, str) else chosen


def _task_of(run: Run, given: Task | None, warn: Warn) -> Task:
    if given is None and run.config.task == "custom":
        raise ConfigError(
            f"{run.folder} trains a Task that only Python has: "
            f"give it, as in orlomo.resume({str(run.folder)!r}, task=...)"
        )
    made = task_of(run.config, given)
    return dataclasses.replace(made, compile=compiles(run.config, made, warn))


def _plan(config: RunConfig, task: Task) -> Schedule:
    with on_threads(1):
        return plan(config, task, task.initial_params(config.seed))


def _forget_if_empty(folder: Path) -> None:
    """Remove a run that ended before its first report: there is nothing in it to resume."""
    events = folder / "events.csv"
    if (folder / "log.txt").exists():
        return  # it says why
    if not (folder / "checkpoints").exists() and (not events.exists() or events.read_bytes().count(b"\n") <= 1):
        shutil.rmtree(folder, ignore_errors=True)


def _free_folder(config: RunConfig, task: Task) -> Path:
    name = f"{Path(task.name.partition(':')[0]).stem}-{config.method.name}-seed{config.seed}"
    for number in range(1, 10_000):
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not folder.exists():
            return folder
    raise RunFolderError("runs/ is full of runs of this name: give a folder with --out")
