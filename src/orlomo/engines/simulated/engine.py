"""The simulated engine: the whole cluster on this machine, on virtual time. Schedule first, then the rounds."""

from __future__ import annotations

from torch import Tensor

from orlomo.clusters.schedule import Schedule, make_schedule
from orlomo.config import RunConfig
from orlomo.engines.engine import Engine, Setup
from orlomo.engines.registry import ENGINES
from orlomo.engines.session import planned_samples
from orlomo.engines.signals import Signals
from orlomo.engines.simulated.execute import Execution
from orlomo.engines.simulated.pool import on_threads
from orlomo.tasks.task import Task


class Simulated(Engine):
    """A run on virtual time."""

    facts = ENGINES["simulated"]

    def __init__(self, setup: Setup):
        config, task = setup.config, setup.task
        with on_threads(1):  # the schedule goes into the checkpoint's checksum: the same on any number of cores
            schedule = plan(config, task, task.initial_params(config.seed))
        self._execution = Execution(
            config,
            task,
            schedule,
            setup.recorder,
            jobs=setup.jobs,
            callbacks=setup.callbacks,
            resumed=setup.resumed,
        )
        self.session = self._execution.session

    def run(self, signals: Signals) -> None:
        """Execute the schedule."""
        self._execution.run(signals)

    def save(self) -> None:
        """Write a checkpoint."""
        self._execution.save()


def plan(config: RunConfig, task: Task, params: Tensor) -> Schedule:
    """The schedule of this run: a function of the config, the task's size and the model's size."""
    return make_schedule(
        config.method,
        config.cluster,
        workers=config.workers,
        samples=planned_samples(config, task),
        batch_size=task.batch_size,
        epoch_samples=task.size,
        seed=config.seed,
        parameter_bytes=params.nbytes,
    )
