"""The processes engine: each worker a process of this machine, at its own pace; the server here, in the parent."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack

from orlomo.config import RunConfig
from orlomo.engines.engine import Setup, job_count
from orlomo.engines.live.crew import Crew
from orlomo.engines.live.loop import Live
from orlomo.engines.processes.crew import ProcessCrew
from orlomo.engines.processes.evaluator import EvaluationProcess
from orlomo.engines.processes.starter import PackedTask, Starter
from orlomo.engines.processes.worker import device_of
from orlomo.engines.registry import ENGINES
from orlomo.engines.session import Evaluator
from orlomo.engines.slots import Shape


class Processes(Live):
    """A run on worker processes."""

    facts = ENGINES["processes"]

    @classmethod
    def check(cls, config: RunConfig) -> RunConfig:
        """The cores are shared out among the workers; their number of threads decides the bits, so it is recorded."""
        threads = config.threads or max(1, job_count(None) // config.workers)
        return dataclasses.replace(super().check(config), threads=threads)

    def __init__(self, setup: Setup):
        super().__init__(setup)
        self.task = setup.task

    def open(self, stack: ExitStack) -> tuple[Crew, Evaluator]:
        """A crew of processes, and one more for evaluation."""
        config, task = self.config, self.task
        packed_task, shape = PackedTask.of(config, task), Shape.of(task, config.method, config.seed, self.server.params)
        starter = Starter()
        crew = stack.enter_context(ProcessCrew(starter, packed_task, shape))
        return crew, stack.enter_context(EvaluationProcess(starter, packed_task, shape, device_of(config, 0)))
