"""The simulated engine: the whole cluster on this machine, on virtual time. Schedule first, then the rounds."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from orlomo.clusters.schedule import Continued, Schedule, make_schedule
from orlomo.config import RunConfig
from orlomo.engines.engine import Engine, Setup
from orlomo.engines.registry import ENGINES
from orlomo.engines.signals import Signals
from orlomo.engines.simulated.execute import Execution, check_schedule
from orlomo.engines.simulated.pool import on_threads
from orlomo.engines.work import planned_samples
from orlomo.records.changes import Stage, stages
from orlomo.tasks.task import Task


class Simulated(Engine):
    """A run on virtual time."""

    facts = ENGINES["simulated"]

    def __init__(self, setup: Setup):
        (_, config), *later = stages(setup.began, setup.changes)
        task, saved = setup.task, setup.resumed
        with on_threads(1):  # the schedule goes into the checkpoint's checksum: the same on any number of cores
            params = task.initial_params(config.seed)
            schedule = plan(config, task, params, later)
            if saved is not None:
                # The checkpoint may have been written before the newest changes were made.
                known = len(saved.values.get("changes", []))
                (_, first), *others = stages(setup.began, setup.changes[:known])
                before = schedule if known == len(setup.changes) else plan(first, task, params, others)
                check_schedule(before, saved)
        self._execution = Execution(
            config,
            task,
            schedule,
            setup.recorder,
            later=later,
            jobs=setup.jobs,
            callbacks=setup.callbacks,
            resumed=saved,
        )
        self.session = self._execution.session

    def run(self, signals: Signals) -> None:
        """Execute the schedule."""
        self._execution.run(signals)

    def save(self) -> None:
        """Write a checkpoint."""
        self._execution.save()


def plan(config: RunConfig, task: Task, params: Tensor, later: Sequence[Stage] = ()) -> Schedule:
    """The schedule of this run: a function of the config, its later stages, the task's size and the model's size."""
    changes = [Continued(at, changed.method, planned_samples(changed, task)) for at, changed in later]
    return make_schedule(
        config.method,
        config.cluster,
        workers=config.workers,
        samples=planned_samples(config, task),
        batch_size=task.batch_size,
        epoch_samples=task.size,
        seed=config.seed,
        parameter_bytes=params.nbytes,
        changes=changes,
    )
