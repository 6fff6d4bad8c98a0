"""What travels between the server and its workers: assignments and reports."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Assignment:
    """What the server sends: parameters w_index for one round of local steps.

    The vectors are snapshots: they do not change when the server goes on, and several assignments may share one.
    `momentum` is the buffer a method such as PRSGDm carries into the round, None elsewhere.

    >>> import orlomo
    >>> [assignment] = orlomo.OrLoMo(local_steps=4).server(torch.zeros(2), workers=1).start()
    >>> assignment.worker, assignment.index, assignment.local_steps, assignment.params
    (0, 0, 4, tensor([0., 0.]))
    """

    worker: int
    index: int
    round: int
    params: Tensor
    learning_rate: float
    local_steps: int
    momentum: Tensor | None = None

    def to(self, device: torch.device | str) -> Assignment:
        """The same with its vectors there."""
        momentum = None if self.momentum is None else self.momentum.to(device, non_blocking=True)
        return replace(self, params=self.params.to(device, non_blocking=True), momentum=momentum)


@dataclass(frozen=True)
class Report:
    """What the worker sends back: how far it moved, and its momentum where the method has one.

    >>> Report(worker=3, index=0, delta_params=torch.ones(2), samples=16).delta_momentum is None
    True
    """

    worker: int
    index: int
    delta_params: Tensor
    delta_momentum: Tensor | None = None
    samples: int = 0
    loss: float = math.nan
    round: int | None = None  # checked when given: tells two stays of one worker apart
    buffers: Tensor | None = None  # running statistics, where the task averages them
    finite: bool | None = None  # whether the vectors are; None: the server looks for itself

    def to(self, device: torch.device | str) -> Report:
        """The same with its vectors there."""
        momentum = None if self.delta_momentum is None else self.delta_momentum.to(device)
        buffers = None if self.buffers is None else self.buffers.to(device)
        return replace(self, delta_params=self.delta_params.to(device), delta_momentum=momentum, buffers=buffers)
