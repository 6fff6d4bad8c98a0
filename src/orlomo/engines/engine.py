"""The contract of an engine: what executes a run, on virtual or on real time, wherever its workers are."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from orlomo.config import RunConfig
from orlomo.engines.callbacks import Callbacks
from orlomo.engines.ray.connection import RayOptions
from orlomo.engines.registry import Clock, Facts
from orlomo.engines.session import Recorder, Session
from orlomo.engines.signals import Signals
from orlomo.engines.work import TaskWork, Work
from orlomo.errors import ConfigError, require, require_at_most, shown
from orlomo.records.changes import Change, stages
from orlomo.records.checkpoint import Checkpoint
from orlomo.tasks.task import Task
from orlomo.values import whole

if TYPE_CHECKING:
    from orlomo.engines.loops.crew import LoopCrew
    from orlomo.loop.program import Program


@dataclass(frozen=True)
class Setup:
    """What an engine is made from.

    `began`: the config with which the run began; `changes`: those made since.
    `resumed`: the checkpoint from which the run continues. `workers`: the number to continue with, None: as before.
    `jobs` and `ray` do not decide the result, so they are no part of the config; an engine that has no use for them
    leaves them alone.
    """

    began: RunConfig
    work: Work
    recorder: Recorder
    folder: Path
    callbacks: Callbacks
    resumed: Checkpoint | None = None
    workers: int | None = None
    jobs: int = 1
    ray: RayOptions | None = None
    changes: Sequence[Change] = ()

    @property
    def config(self) -> RunConfig:
        """The newest config."""
        return stages(self.began, self.changes)[-1].config

    @property
    def task(self) -> Task:
        """The task that is trained."""
        assert isinstance(self.work, TaskWork)
        return self.work.task


class Engine(ABC):
    """One run. An engine is a folder with a subclass of this, and one line in `registry.ENGINES`."""

    facts: ClassVar[Facts]
    """Its line in `registry.ENGINES`."""

    waits_for_disk: ClassVar[bool] = False
    """Whether a full disk is waited for, with warnings: the work of real workers cannot be computed again."""

    resume_flags: str = ""
    """What `orlomo resume` needs besides the folder."""

    session: Session

    @abstractmethod
    def __init__(self, setup: Setup): ...

    @property
    def clock(self) -> Clock:
        """Whether its seconds are virtual or real."""
        return self.facts.clock

    @property
    def settings(self) -> frozenset[str]:
        """The fields of `RunConfig` that it takes, and that engines without them refuse."""
        return self.facts.settings

    @classmethod
    def check(cls, config: RunConfig) -> RunConfig:
        """Refuse what cannot run here, and resolve what was left open; before there is a run folder."""
        check_devices(config.devices or (config.device,))
        return config

    @classmethod
    def make_crew(
        cls,
        config: RunConfig,
        program: Program,
        ray: RayOptions | None,
        stack: ExitStack,
        warn: Callable[[str], None],
    ) -> LoopCrew[Any]:
        """What reaches the workers that run the user's own loop, closed with the stack; for engines of loops."""
        raise NotImplementedError

    @abstractmethod
    def run(self, signals: Signals) -> None:
        """Run to the end; the caller does the last `save`.

        A signal saves and raises `Interrupted`; what a callback raised is raised once the run is saved.
        """

    @abstractmethod
    def save(self) -> None:
        """Write a checkpoint."""


def check_devices(devices: Iterable[str]) -> None:
    """An error where one of these devices is not there."""
    for device in devices:
        try:
            torch.empty(0, device=device)  # names alone prove nothing: `cuda:7` may not be there
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"device {shown(device)} cannot be used here: {reason[:200]}") from None


MOST_JOBS = 64
"""Processes that compute, where that is more than four for each core: more would only wait for one another."""


def job_count(jobs: int | None) -> int:
    """How many processes compute: as asked for, or one per core."""
    # A container or `taskset` may allow fewer cores than the machine has.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    chosen = cores if jobs is None else whole(jobs, "jobs")
    require(chosen >= 1, f"jobs must be at least 1, not {jobs}")
    require_at_most(chosen, max(MOST_JOBS, 4 * cores), "jobs")
    return chosen
