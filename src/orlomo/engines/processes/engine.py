"""The processes engine: each worker a process of this machine, at its own pace; the server here, in the parent."""

from __future__ import annotations

from contextlib import ExitStack

from orlomo.engines.live.crew import Crew
from orlomo.engines.live.loop import Live
from orlomo.engines.processes.crew import Fleet
from orlomo.engines.processes.evaluator import EvaluationProcess
from orlomo.engines.processes.starter import Starter, Work
from orlomo.engines.processes.worker import device_of
from orlomo.engines.session import Evaluator
from orlomo.engines.slots import Shape


class Processes(Live):
    """A run on worker processes."""

    def open(self, stack: ExitStack) -> tuple[Crew, Evaluator]:
        """A fleet of processes, and one more for evaluation."""
        config, task = self.config, self.task
        work, shape = Work.of(config, task), Shape.of(task, config.method, config.seed, self.server.params)
        starter = Starter()
        fleet = stack.enter_context(Fleet(starter, work, shape))
        return fleet, stack.enter_context(EvaluationProcess(starter, work, shape, device_of(config, 0)))
