"""The Ray engine: each worker an actor somewhere on a Ray cluster; the server here, in the driver."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack

import torch

from orlomo.config import RunConfig
from orlomo.engines.engine import Setup
from orlomo.engines.live.crew import Crew
from orlomo.engines.live.loop import Live
from orlomo.engines.processes.evaluator import EvaluationProcess
from orlomo.engines.processes.starter import PackedTask, Starter
from orlomo.engines.ray.connection import RayOptions, connection, import_ray
from orlomo.engines.ray.fit import Need
from orlomo.engines.registry import ENGINES
from orlomo.engines.session import Evaluator
from orlomo.engines.slots import Shape
from orlomo.errors import ConfigError


class RayCluster(Live):
    """A run on a Ray cluster. This module can be imported without Ray: the modules that need it are loaded to run."""

    facts = ENGINES["ray"]

    @classmethod
    def check(cls, config: RunConfig) -> RunConfig:
        """Ray must be installed; devices are not looked for here, since the workers' machines are others."""
        import_ray()
        return dataclasses.replace(config, threads=config.threads or threads_of(config))

    def __init__(self, setup: Setup):
        super().__init__(setup)
        self.task = setup.task
        # Ray raises when the cluster itself is gone (its head was killed): then no crew can help, the run is saved.
        self.failures = (import_ray().exceptions.RayError,)
        self._options = setup.ray or RayOptions()
        self.resume_flags = self._options.flags

    def open(self, stack: ExitStack) -> tuple[Crew, Evaluator]:
        """A crew of actors; evaluation is in a process of the driver's machine, so that no worker waits for it."""
        from orlomo.engines.ray.actors import needed, pickled
        from orlomo.engines.ray.crew import RayCrew

        config, task, params = self.config, self.task, self.server.params
        packed_task, shape = PackedTask.of(config, task), Shape.of(task, config.method, config.seed, params)
        if params.dtype not in (torch.float16, torch.float32, torch.float64):
            raise ConfigError(f"a model of {params.dtype} cannot travel by Ray: use float32, or --engine processes")
        # What a user's file defines goes along (see loading.py): not every machine has the file.
        whole = dataclasses.replace(packed_task, task=task) if ".py:" in config.task else packed_task
        pickled_task = pickled(whole, "task")
        workers = max(config.workers, self._wanted_workers or 0, len(self.membership))
        sent, reported = len(config.method.sent_vectors()), len(config.method.report_vectors)
        need = Need(workers, needed(config), config.labels or {}, params.nbytes, pickled_task.nbytes, sent, reported)
        stack.enter_context(connection(self._options, need, self._log))
        crew = RayCrew(config, import_ray().put(pickled_task), shape, self._log)
        device = config.device if torch.cuda.is_available() else "cpu"
        return stack.enter_context(crew), stack.enter_context(EvaluationProcess(Starter(), packed_task, shape, device))


def threads_of(config: RunConfig) -> int:
    """Threads of arithmetic per process, where none are given: the CPUs of a worker."""
    return max(1, int((config.resources or {}).get("CPU", 1.0)) // (config.group or 1))
