"""The processes engine: each worker a process of this machine, at its own pace; the server here, in the parent."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack

from orlomo.engines.crew import Crew
from orlomo.engines.evaluator import EvaluationProcess
from orlomo.engines.fleet import Fleet
from orlomo.engines.live import Live
from orlomo.engines.sending import Starter, Work
from orlomo.engines.session import Evaluator
from orlomo.engines.slots import Shape
from orlomo.engines.worker_process import device_of
from orlomo.tasks.evaluation import read_buffers


class Processes(Live):
    """A run on worker processes."""

    def open(self, stack: ExitStack) -> tuple[Crew, Evaluator]:
        """A fleet of processes, and one more for evaluation."""
        config, task, params = self.config, self.task, self.server.params
        compiled = dataclasses.replace(config, compile="on" if task.compile else "off")
        work = Work(compiled, task if config.task == "custom" else None)
        buffers = read_buffers(task.build(config.seed)).numel() if task.buffers == "average" else 0
        shape = Shape(params.numel(), buffers, params.dtype)
        starter = Starter()
        fleet = stack.enter_context(Fleet(starter, work, shape))
        return fleet, stack.enter_context(EvaluationProcess(starter, work, shape, device_of(config, 0)))
