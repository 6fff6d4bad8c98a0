"""What is decided before a run begins: cores, threads, devices, whether to compile."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

import torch

from orlomo.config import RunConfig
from orlomo.engines import compiling
from orlomo.engines.ray.connection import import_ray
from orlomo.engines.session import planned_reports
from orlomo.errors import ConfigError, require
from orlomo.tasks.task import Task

Warn = Callable[[str], None]


def decide(config: RunConfig, task: Task, warn: Warn) -> RunConfig:
    """The config with what was left open decided, so that the run's folder says all that decides its bits."""
    steps = planned_reports(config, task) * config.method.local_steps
    if config.engine != "simulated":
        config = dataclasses.replace(config, threads=config.threads or _threads(config))
        steps //= config.workers  # each compiles for itself
    choice = compiling.decide(config.compile, task, steps, config.device, warn)
    return dataclasses.replace(config, compile=choice)


def _threads(config: RunConfig) -> int:
    if config.engine == "ray":
        return max(1, int((config.resources or {}).get("CPU", 1.0)))
    return max(1, job_count(None) // config.workers)


def compiles(config: RunConfig, task: Task, warn: Warn) -> bool:
    """Whether to compile a run that has decided to; there may be no compiler here."""
    return compiling.decide(config.compile, task, 0, config.device, warn) == "on"


def check_devices(config: RunConfig) -> None:
    """An error where a device that the run wants is not there."""
    if config.engine == "ray":
        import_ray()  # where it is missing, say so before there is a folder
        return  # the workers' machines are others
    for device in config.devices or (config.device,):
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"device {device!r} cannot be used here: {reason}") from None


def job_count(jobs: int | None) -> int:
    """How many processes compute: as asked for, or one a core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    chosen = cores if jobs is None else jobs
    require(chosen >= 1, f"jobs must be at least 1, not {jobs}")
    return chosen
