"""The Ray engine: each worker an actor somewhere on a Ray cluster; the server here, in the driver."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

import ray
import torch
from ray.exceptions import RayError

from orlomo.engines.live.crew import Crew
from orlomo.engines.live.loop import Live
from orlomo.engines.processes.evaluator import EvaluationProcess
from orlomo.engines.processes.starter import Starter, Work
from orlomo.engines.ray.connection import RayOptions, connection
from orlomo.engines.ray.crew import RayCrew, needed, pack
from orlomo.engines.ray.fit import Need
from orlomo.engines.session import Evaluator
from orlomo.engines.slots import Shape
from orlomo.errors import ConfigError


class RayCluster(Live):
    """A run on a Ray cluster."""

    failures = (RayError,)

    def __init__(self, *arguments: Any, options: RayOptions, **more: Any):
        super().__init__(*arguments, **more)
        self._options = options
        self.resume_flags = options.flags

    def open(self, stack: ExitStack) -> tuple[Crew, Evaluator]:
        """A crew of actors; evaluation is in a process of the driver's machine, so that it takes no worker's place."""
        config, task, params = self.config, self.task, self.server.params
        work, shape = Work.of(config, task), Shape.of(task, config.method, config.seed, params)
        if params.dtype not in (torch.float16, torch.float32, torch.float64):
            raise ConfigError(f"a model of {params.dtype} cannot travel by Ray: use float32, or --engine processes")
        parcel = self._pack(dataclasses.replace(work, task=task) if ".py:" in config.task else work)
        workers = max(config.workers, self._wanted_workers or 0, len(self._seats))
        sent, reported = len(config.method.sent_vectors()), len(config.method.report_vectors)
        need = Need(workers, needed(config), config.labels or {}, params.nbytes, parcel.nbytes, sent, reported)
        stack.enter_context(connection(self._options, need, self._log))
        crew = RayCrew(config, ray.put(parcel), shape, self._log)
        device = config.device if torch.cuda.is_available() else "cpu"
        return stack.enter_context(crew), stack.enter_context(EvaluationProcess(Starter(), work, shape, device))

    def _pack(self, work: Work) -> Any:
        """The work as bytes. What a user's file defines goes along (see loading.py): not every machine has the file."""
        try:
            return pack(work)
        except Exception as error:  # a user's object can raise anything when it is pickled
            raise ConfigError(f"this task cannot be sent to other machines: {error}") from None
