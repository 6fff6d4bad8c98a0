"""The simulated engine: the whole cluster on this machine, on virtual time. Schedule first, then the rounds."""

from __future__ import annotations

from torch import Tensor

from orlomo.clusters.schedule import Schedule, make_schedule, round_bytes
from orlomo.config import RunConfig
from orlomo.engines.session import planned_reports
from orlomo.tasks.task import Task


def plan(config: RunConfig, task: Task, params: Tensor) -> Schedule:
    """The schedule of this run: a function of the config, the task's size and the model's size."""
    method = config.method
    samples = method.local_steps * task.batch_size
    return make_schedule(
        method.ledger(config.workers, task.size),
        config.cluster,
        workers=config.workers,
        local_steps=method.local_steps,
        reports=planned_reports(config, task),
        seed=config.seed,
        samples_per_report=samples,
        round_bytes=round_bytes(method, params.numel(), params.element_size()),
    )
