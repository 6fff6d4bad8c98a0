"""The beginning of a run of a user's loop: its first worker says what it trains, before there is a run folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from orlomo.config import RunConfig
from orlomo.engines.live.crew import CrewEvent
from orlomo.engines.live.events import Left, Lost
from orlomo.engines.loops.crew import LoopCrew
from orlomo.engines.loops.evaluator import LoopEvaluator, NoEvaluator
from orlomo.engines.loops.local import LocalCrew
from orlomo.engines.loops.processes import variables
from orlomo.engines.loops.work import LoopWork, planned
from orlomo.engines.processes.starter import Starter
from orlomo.errors import ConfigError, require
from orlomo.loop.messages import DataFacts, LoopSettings, ModelFacts
from orlomo.loop.program import Program

PRELOADED = ("orlomo.engines.loops.process", "torch._dynamo")
"""Loaded once for all processes; the second takes a second, and the first optimizer that a process makes needs it."""


class OpenedWork(LoopWork):
    """A loop whose workers can be reached."""

    def __init__(
        self,
        model: ModelFacts,
        data: DataFacts,
        params: Tensor,
        buffers: Tensor | None,
        crew: LoopCrew[Any],
        evaluator: LoopEvaluator | NoEvaluator,
    ):
        super().__init__(model, data, params, buffers)
        self.crew, self.evaluator = crew, evaluator

    def first_values(self) -> dict[str, float]:
        """What the evaluation returns at the parameters that the run begins with."""
        ticket = self.evaluator.evaluate(self._params, self._buffers)
        found = self.evaluator.evaluation(ticket, wait=True)
        assert found is not None
        return found.values


def loop_settings(
    config: RunConfig, worker: int, rank: int, environment: Mapping[str, str], evaluates: bool = False
) -> LoopSettings:
    """What a worker is."""
    pace = config.pace[rank] if config.pace and rank < len(config.pace) else 1.0
    return LoopSettings(
        worker,
        rank,
        config.method,
        config.seed,
        threads=config.threads or 1,
        pace=pace,
        group=config.group or 1,
        evaluates=evaluates,
        environment=dict(environment),
    )


def local_crew(
    config: RunConfig,
    program: Program,
    environment: Callable[[int], Mapping[str, str]],
    together: int | None = None,
) -> LocalCrew:
    """Workers that are processes of this machine; `environment`: of each rank. `together`: as in `LoopCrew`."""
    return LocalCrew(
        Starter(PRELOADED),
        program,
        config.method,
        lambda worker, rank: loop_settings(config, worker, rank, environment(rank)),
        together=config.workers if together is None else together,
    )


def open_loop(
    crew: LoopCrew[Any], config: RunConfig, program: Program, stack: ExitStack
) -> tuple[RunConfig, OpenedWork]:
    """Start the first worker and wait until it begins to train: what it trains, and the config with the run's length.

    Whatever the program raises before that is raised here.
    """
    crew.start(0, 0)
    others: list[CrewEvent] = []  # of workers that were started with it
    while crew.data is None:
        for event in crew.wait(0.2):
            if isinstance(event, Lost) and (event.worker == 0 or event.traceback):
                raise _failed(event)
            if isinstance(event, Left) and event.worker == 0:
                raise ConfigError("the program ended before its first batch or optimizer step: there is nothing to run")
            others.append(event)
    crew.later += others
    assert crew.model is not None
    config, data = planned(config, crew.data)
    params, buffers = crew.initial()
    evaluator = make_evaluator(crew.model, config, program, stack)
    return config, OpenedWork(crew.model, data, params, buffers, crew, evaluator)


def make_evaluator(
    model: ModelFacts, config: RunConfig, program: Program, stack: ExitStack
) -> LoopEvaluator | NoEvaluator:
    """A process that evaluates, where the loop has a function for it."""
    if not model.evaluates:
        return NoEvaluator()
    # One process that is a group of its own: a program that wraps its model runs in it as it is.
    environment = {} if config.group is None else variables(0, 1, 0)
    settings = dataclasses.replace(loop_settings(config, -1, 0, environment, evaluates=True), group=1)
    evaluator = LoopEvaluator(Starter(PRELOADED), program, settings, model)
    stack.enter_context(evaluator)
    return evaluator


def check_names(values: Mapping[str, float], taken: Mapping[str, str]) -> None:
    """What an evaluation returns becomes columns of metrics.csv."""
    for name in values:
        require(name not in taken, f"evaluate returns {name!r}, which every run has already: choose another name")
        good = bool(name.strip()) and not set(name) & set(',"\n\r')
        require(good, f"evaluate returns a value named {name!r}: use a name without commas and quotes")


def _failed(event: Lost) -> ConfigError:
    ours, kind = event.reason, "ConfigError: "
    if ours.startswith(kind):  # says what to do: where it was raised does not matter
        return ConfigError(ours.removeprefix(kind))
    error = ConfigError(f"the program failed before the run began: {event.reason}")
    if event.traceback:
        error.add_note(event.traceback.rstrip())
    return error
