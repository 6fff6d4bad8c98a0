"""Runs of the user's own loop: `orlomo.launch(function, ...)`, and `orlomo run script.py` on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from orlomo.clusters.cluster import Cluster
from orlomo.config import RunConfig, check_reads_back, make_cluster
from orlomo.engines.callbacks import Callback, Callbacks
from orlomo.engines.engine import job_count
from orlomo.engines.loops.crew import LoopCrew
from orlomo.engines.loops.opening import OpenedWork, check_names, make_evaluator, open_loop
from orlomo.engines.loops.simulated.replay import replay
from orlomo.engines.loops.work import from_json
from orlomo.engines.ray.connection import RayOptions
from orlomo.engines.registry import engine_class
from orlomo.engines.simulated.pool import on_threads
from orlomo.engines.simulated.replay import Replay
from orlomo.engines.trial.surroundings import only_run
from orlomo.errors import ConfigError, require
from orlomo.loading import absolute, is_import_path
from orlomo.loop.program import Function, Program
from orlomo.methods.inner import check_no_rate, folds_momentum
from orlomo.methods.method import Method
from orlomo.methods.registry import CUSTOM, given_method
from orlomo.printing import say
from orlomo.records.leftovers import forget_if_empty
from orlomo.records.recorder import create_folder, free_folder
from orlomo.records.run import Run
from orlomo.records.shapes import restoring
from orlomo.records.tables import METRICS, MetricColumn
from orlomo.report.export import summary_writer
from orlomo.training import Warn, check_options, run_engine
from orlomo.values import path_of

LOWER = ("loss", "error", "perplexity", "nll", "mse", "mae")
"""A value of an evaluation with one of these in its name is better if it is lower."""


def launch(
    function: Function | str,
    method: Method | str = "orlomo",
    *,
    workers: int = 4,
    engine: str = "processes",
    steps: int | None = None,
    seed: int = 0,
    group: int = 1,
    out: Path | str | None = None,
    cluster: Cluster | Path | str = "homogeneous",
    jobs: int | None = None,
    threads: int | None = None,
    devices: Sequence[str] | str | None = None,
    pace: Sequence[float] | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    ray: RayOptions | None = None,
    evaluate_every: float = 1.0,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] | Callback | None = (),
    warn: Warn = say,
) -> Run:
    """Train with your own loop: `function(worker)` runs in each worker.

    Args:
        function: called with a `Worker`, to which it attaches its model and optimizer; or `FILE.py:NAME` of one.
        method: a method, or its name; the learning rate is the optimizer's.
        workers: how many.
        engine: `processes`, `ray`, or `simulated` (real worker processes, ordered by the clock of `cluster`).
        steps: optimizer steps of all workers together; None: as many as the loop's epochs have.
        group: processes per worker, for DDP or FSDP within a worker.
        out: the run folder; None: a new one under `runs/`.

    The other arguments are those of `orlomo.train`.

    >>> import torch, orlomo
    >>> def loop(worker):
    ...     model = torch.nn.Linear(4, 1)
    ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    ...     loader = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4, shuffle=True)
    ...     with worker.attach(model, optimizer):
    ...         for epoch in worker.epochs(2):
    ...             for x in worker.batches(loader):
    ...                 optimizer.zero_grad()
    ...                 model(x).square().mean().backward()
    ...                 optimizer.step()
    >>> run = orlomo.launch(loop, "orlomo", workers=2, out=getfixture("tmp_path") / "run")
    >>> run.finished, len(run.params)
    (True, 5)
    """
    named = isinstance(function, str)
    require(named or callable(function), f"launch takes a function of a worker, or FILE.py:NAME, not {function!r}")
    if isinstance(function, str):
        require(is_import_path(function), f"{function!r} is no FILE.py:NAME: for a whole script use `orlomo run`")
        program = Program(absolute(function), directory=str(Path().absolute()))
    else:
        program = Program(CUSTOM, directory=str(Path().absolute()), function=function)
    config = RunConfig(
        task=program.name,
        method=given_method(method),
        cluster=make_cluster(cluster, "launch"),
        workers=workers,
        seed=seed,
        engine=engine,
        threads=threads,
        devices=devices,  # type: ignore[arg-type]  # any sequence here: RunConfig makes it a tuple
        pace=pace,  # type: ignore[arg-type]
        resources=resources,
        labels=labels,
        evaluate_every=evaluate_every,
        checkpoint_seconds=checkpoint_seconds,
        directory=program.directory,
        steps=steps,
        group=None if group == 1 else group,
    )
    return start_loop(config, program, out, jobs=jobs, ray=ray, tensorboard=tensorboard, callbacks=callbacks, warn=warn)


def start_loop(
    config: RunConfig,
    program: Program,
    out: Path | str | None = None,
    *,
    jobs: int | None = None,
    ray: RayOptions | None = None,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] | Callback | None = (),
    warn: Warn = say,
) -> Run:
    """Begin a new run of this program in a new folder, once its first worker has said what it trains."""
    listening = Callbacks(callbacks, warn)
    check_options(jobs, ray, tensorboard)
    check_no_rate(config.method)
    program.check()
    chosen = None if out is None else path_of(out, "out").absolute()
    kind = engine_class(config.engine, loop=True)
    config = kind.check(config)
    if tensorboard:
        summary_writer()  # where it is missing, say so before there is a folder
    with only_run(), ExitStack() as stack:
        crew = kind.make_crew(config, program, ray, stack, listening.warning)
        config, work = open_loop(crew, config, program, stack)
        check_reads_back(config)
        measured = _measured(work)
        folder = chosen or free_folder(config, program.name).absolute()
        create_folder(folder, config, measured, warn=warn)
        try:
            return run_engine(Run(folder), config, work, job_count(jobs), ray, tensorboard, listening)
        except BaseException:
            forget_if_empty(folder)
            raise


def resume_loop(
    run: Run,
    config: RunConfig,
    function: Function | None,
    jobs: int | None,
    ray: RayOptions | None,
    tensorboard: bool,
    callbacks: Callbacks,
    workers: int | None,
) -> Run:
    """Continue a run of a user's loop with new workers; what their optimizers kept is lost. One without a checkpoint
    begins again."""
    program = program_of(run, config, function)
    program.check()
    saved, kind = run.resumable, engine_class(config.engine, loop=True)
    if saved is not None and not folds_momentum(config.method):  # else a round begins with an empty or an assigned one
        callbacks.warning(
            "the state of the workers' optimizers is not part of a checkpoint: they begin with an empty one"
        )
    with only_run(), ExitStack() as stack:
        crew = kind.make_crew(config, program, ray, stack, callbacks.warning)
        if saved is None:
            work = _begin_again(run, config, program, crew, stack)
        else:
            with restoring(saved.position):
                crew.model, crew.data = model, data = from_json(saved.values["loop"])
            evaluator = make_evaluator(model, config, program, stack)
            work = OpenedWork(model, data, saved.params, None, crew, evaluator)
        return run_engine(run, config, work, job_count(jobs), ray, tensorboard, callbacks, workers)


def _begin_again(run: Run, config: RunConfig, program: Program, crew: LoopCrew[Any], stack: ExitStack) -> OpenedWork:
    """The work of a run that was killed before its first checkpoint: its first worker says again what it trains."""
    again, work = open_loop(crew, config, program, stack)
    same = again == config and [one.column for one in _measured(work)] == [one.column for one in run.measured]
    require(same, f"the program of {run.folder} has changed, and the run has no checkpoint: begin it in another folder")
    return work


def replay_loop(run: Run, config: RunConfig, function: Function | None, *, jobs: int, callbacks: Callbacks) -> Replay:
    """Compute a run of a user's loop again, with processes of this machine, wherever its workers were."""
    program = program_of(run, config, function)
    program.check()
    with only_run(), on_threads(1):
        return replay(run, config, program, jobs=jobs, callbacks=callbacks)


def program_of(run: Run, config: RunConfig, function: Function | None) -> Program:
    """The program of a run: as recorded, or the function that only Python has."""
    if config.task == CUSTOM and function is None:
        raise ConfigError(
            f"{run.folder} runs a function that only Python has: give it, as in task=function, to resume or replay it"
        )
    return Program(config.task, config.arguments or (), config.directory or "", function)


def _measured(work: OpenedWork) -> list[MetricColumn]:
    """The columns of metrics.csv: what the loop's evaluation returns, at the parameters that the run begins with."""
    if not work.evaluates:
        return []
    initial = work.first_values()
    check_names(initial, METRICS)
    lower = {name for name in initial if any(word in name.lower() for word in LOWER)}
    return [MetricColumn(name, name, name, name, better="lower" if name in lower else "higher") for name in initial]
