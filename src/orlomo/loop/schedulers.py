"""Learning-rate schedulers on the clock of the whole run.

A scheduler that counts the steps of one of K workers would reach 1/K of its curve. Here it follows the optimizer steps
of all workers (or the epoch of the run), is moved only between rounds, and never backwards.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from orlomo.errors import ConfigError, require, warn
from orlomo.loop.hooks import unwrapped

STEP, EPOCH = UNITS = ("step", "epoch")

STATELESS = (LambdaLR, OneCycleLR)
"""Their learning rate is a function of `last_epoch` alone, so that they need not go through every step."""


class Schedulers:
    """The user's schedulers while they are attached: their own `step()` does nothing.

    `unit`: what one step of theirs is, an optimizer `step` or an `epoch`.

    >>> import torch
    >>> sgd = torch.optim.SGD([torch.zeros(2)], lr=1.0)
    >>> halved = torch.optim.lr_scheduler.StepLR(sgd, step_size=10, gamma=0.5)
    >>> schedulers = Schedulers(halved, [sgd])
    >>> halved.step()
    >>> schedulers.drive(clock=25, epoch=0)
    >>> halved.last_epoch, sgd.param_groups[0]["lr"]
    (25, 0.25)
    """

    def __init__(self, given: object, optimizers: Sequence[Optimizer], unit: str = STEP):
        require(unit in UNITS, f"unit must be 'step' or 'epoch', not {unit!r}")
        listed = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
        found = [_scheduler(one) for one in listed]
        for scheduler in found:
            mine = any(unwrapped(scheduler.optimizer)[-1] is one for one in optimizers)
            require(mine, f"the scheduler {type(scheduler).__name__} belongs to an optimizer that is not attached")
            once = sum(one is scheduler for one in found) == 1
            require(once, f"the scheduler {type(scheduler).__name__} is given twice")
        self.unit = unit
        self._started = False
        self._driven = [(scheduler, _hold(scheduler)) for scheduler in found]

    def drives(self, optimizer: Optimizer) -> bool:
        """Whether one of them belongs to this optimizer."""
        return any(unwrapped(scheduler.optimizer)[-1] is optimizer for scheduler, _ in self._driven)

    def drive(self, clock: int, epoch: int) -> None:
        """Bring all of them to this point of the run: optimizer steps of all workers, and its epoch."""
        target = clock if self.unit == STEP else epoch
        if not self._started:
            self._started = True
            self._warn_of_lead(target)
        if all(_position(scheduler) >= target for scheduler, _ in self._driven):
            return
        with warnings.catch_warnings():
            # A worker that joins late begins in the middle of the curve, before its first optimizer step.
            warnings.filterwarnings("ignore", message=r"(?s).*optimizer\.step\(\)")
            if all(kind in STATELESS for _, kind in self._driven):
                for scheduler, _ in self._driven:
                    steps = min(target - scheduler.last_epoch, _remaining(scheduler))
                    scheduler.last_epoch += max(0, int(steps) - 1)
            # Step by step, each in its turn: those of one optimizer change the same learning rate.
            while self._step(target):
                pass

    def close(self) -> None:
        """Give them back: their `step()` works again."""
        for scheduler, kind in self._driven:
            scheduler.__class__ = kind
        self._driven.clear()

    def _step(self, target: int) -> bool:
        """One step of those that are not there yet; whether there were any."""
        behind = [
            (scheduler, kind)
            for scheduler, kind in self._driven
            if _position(scheduler) < target and _remaining(scheduler) >= 1
        ]
        for scheduler, kind in behind:
            kind.step(scheduler)
        return bool(behind)

    def _warn_of_lead(self, target: int) -> None:
        for scheduler, _ in self._driven:
            if (position := _position(scheduler)) > target:
                warn(
                    f"the scheduler {type(scheduler).__name__} is at {self.unit} {position} and the run at {target}: "
                    f"the learning rate stays as it is until the run is there"
                )


def has_scheduler(optimizer: Optimizer) -> bool:
    """Whether a scheduler of torch's was ever made for this optimizer."""
    marked = hasattr(optimizer.step, "_wrapped_by_lr_sched")
    return marked or any("initial_lr" in group for group in optimizer.param_groups)


def _scheduler(given: Any) -> LRScheduler:
    """The scheduler, out of the wrappers of accelerate and Lightning."""
    found = given
    while not isinstance(found, LRScheduler) and hasattr(found, "scheduler"):
        found = found.scheduler
    if isinstance(found, ReduceLROnPlateau):
        raise ConfigError(
            "ReduceLROnPlateau cannot follow the run's clock, as each worker sees another loss: use a scheduler that "
            "goes by steps or epochs, as CosineAnnealingLR"
        )
    if not isinstance(found, LRScheduler):
        raise ConfigError(f"scheduler must be one of torch.optim.lr_scheduler, not a {type(given).__name__}")
    return found


def _hold(scheduler: LRScheduler) -> type[LRScheduler]:
    """Make its `step()` do nothing; returns its class.

    By its class, not by an attribute: all of its attributes are in its `state_dict()`, which users save.
    """
    kind = type(scheduler)
    held = type(kind.__name__, (kind,), {"step": _nothing, "__module__": kind.__module__, "__doc__": kind.__doc__})
    scheduler.__class__ = held
    return kind


def _nothing(scheduler: LRScheduler, *args: object, **kwargs: object) -> None:
    """In place of `step()`."""


def _position(scheduler: LRScheduler) -> int:
    """How many steps it has gone."""
    # A ChainedScheduler has no count of its own.
    counted = scheduler._schedulers[0] if isinstance(scheduler, ChainedScheduler) else scheduler
    return _position(counted) if isinstance(counted, ChainedScheduler) else counted.last_epoch


def _remaining(scheduler: LRScheduler) -> float:
    """How many steps it can still go; OneCycleLR has an end, beyond which it raises an error."""
    if isinstance(scheduler, OneCycleLR):
        return int(scheduler.total_steps) - 1 - scheduler.last_epoch
    if isinstance(scheduler, ChainedScheduler):
        return min(_remaining(one) for one in scheduler._schedulers)
    if isinstance(scheduler, SequentialLR) and isinstance(last := scheduler._schedulers[-1], OneCycleLR):
        begins = scheduler._milestones[-1] if scheduler._milestones else 0
        return begins + int(last.total_steps) - 1 - scheduler.last_epoch
    return math.inf
