"""The schedule of a simulated run."""

from __future__ import annotations

from torch import Tensor

from orlomo.clusters.schedule import Schedule, make_schedule
from orlomo.config import RunConfig
from orlomo.engines.session import planned_samples
from orlomo.tasks.task import Task


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
