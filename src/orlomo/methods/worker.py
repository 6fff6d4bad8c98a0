"""The worker's side of a round: S local steps, in three parts that any training loop can drive.

`start(assignment)` loads the parameters, `step(gradient)` takes one local step in place, `finish()` makes the report.

Symbols of the paper -> fields: w~ -> `params`, u~ -> `momentum`, gamma -> `assignment.learning_rate`, beta -> `beta`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import torch
from torch import Tensor

from orlomo.flat import GroupVectors
from orlomo.methods.messages import Assignment, Report, WorkerState


class WorkerRule(ABC):
    """The local steps of a method, which change a flat parameter vector in place.

    The engine or loop that drives the rule may set three attributes before `start`:

    - `state` holds the method's `worker_vectors` and `worker_numbers`. The rule may read and change them; the
      worker's next round starts with what they are after `finish`.
    - `destination` is memory for the report's vectors. Writing them there saves a copy; returning new vectors is fine
      too.
    - `groups` has a learning-rate factor and a weight decay for each element of the vector, if the task has parameter
      groups; it is only set for rules that declare `uses_groups = True`.

    >>> import orlomo
    >>> params = torch.zeros(2)
    >>> rule = orlomo.ALSGD(learning_rate=0.5).worker(params)
    >>> rule.start(orlomo.Assignment(0, 0, 0, {"params": torch.ones(2)}, learning_rate=0.5, local_steps=1))
    >>> rule.step(torch.tensor([1.0, -1.0]))
    >>> params, rule.finish().delta_params
    (tensor([0.5000, 1.5000]), tensor([ 0.5000, -0.5000]))
    """

    state: WorkerState
    destination: Mapping[str, Tensor]
    groups: GroupVectors | None
    uses_groups: ClassVar[bool] = False

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        if "step" in vars(cls) and "uses_groups" not in vars(cls):  # what is true of the parent's step is not of this
            cls.uses_groups = False

    def __new__(cls, *arguments: object, **more: object) -> Self:
        """Every rule has these attributes, whether or not its own `__init__` calls this class's."""
        rule = super().__new__(cls)
        rule.state, rule.destination, rule.groups = WorkerState(), {}, None
        return rule

    @abstractmethod
    def start(self, assignment: Assignment) -> None:
        """Load the assigned parameters."""

    @abstractmethod
    def step(self, gradient: Tensor) -> None:
        """Make one local step with the gradient at the current parameters; the gradient may be overwritten."""

    @abstractmethod
    def finish(self, samples: int = 0, loss: float = math.nan) -> Report:
        """The report of the round."""


def delta(assigned: Tensor, params: Tensor, destination: Tensor | None = None) -> Tensor:
    """How far the parameters have moved, w - w~, in this memory or in new."""
    return assigned - params if destination is None else torch.sub(assigned, params, out=destination)


class PlainSteps(WorkerRule):
    """Local SGD steps: lines 14 to 20 of Algorithm 1."""

    uses_groups = True

    def __init__(self, params: Tensor, weight_decay: float = 0.0, clip_norm: float | None = None):
        self.params = params
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm

    @torch.no_grad()
    def start(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.params.copy_(assignment.params)

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        regularise(gradient, self.params, self.weight_decay, self.clip_norm, self.groups)
        self.params.sub_(gradient, alpha=self.assignment.learning_rate)

    @torch.no_grad()
    def finish(self, samples: int = 0, loss: float = math.nan) -> Report:
        a = self.assignment
        moved = delta(a.params, self.params, self.destination.get("delta_params"))
        return Report(a.worker, a.index, moved, samples=samples, loss=loss, round=a.round)


class MomentumSteps(WorkerRule):
    """Local momentum steps: lines 19 to 27 of Algorithm 2.

    The momentum starts at zero, or at the assignment's where it brings one. As in the paper it contains the learning
    rate (u = beta u + gamma g); torch.optim.SGD's buffer does not, and differs after a drop of the learning rate.
    """

    uses_groups = True

    def __init__(self, params: Tensor, beta: float, weight_decay: float = 0.0, clip_norm: float | None = None):
        self.params = params
        self.beta = beta
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm

    @torch.no_grad()
    def start(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.params.copy_(assignment.params)
        # Where no memory is given, a new buffer for each round: the last one went out with the last report.
        given = self.destination.get("delta_momentum")
        self.momentum = torch.empty_like(self.params) if given is None else given
        if assignment.momentum is None:
            self.momentum.zero_()
        else:
            self.momentum.copy_(assignment.momentum)

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        regularise(gradient, self.params, self.weight_decay, self.clip_norm, self.groups)
        self.momentum.mul_(self.beta).add_(gradient, alpha=self.assignment.learning_rate)
        self.params.sub_(self.momentum)

    @torch.no_grad()
    def finish(self, samples: int = 0, loss: float = math.nan) -> Report:
        a = self.assignment
        moved = delta(a.params, self.params, self.destination.get("delta_params"))
        return Report(a.worker, a.index, moved, self.momentum, samples, loss, a.round)


def regularise(
    gradient: Tensor,
    params: Tensor,
    weight_decay: float,
    clip_norm: float | None,
    groups: GroupVectors | None = None,
) -> None:
    """Clip the gradient's norm, add the L2 term, and multiply by the groups' factors, all in place.

    The factors belong to the learning rate: gamma_i g = gamma (factor_i g), also in a momentum that contains gamma.
    """
    if clip_norm is not None:
        norm = torch.linalg.vector_norm(gradient)
        gradient.mul_((clip_norm / (norm + 1e-6)).clamp(max=1.0))
    if groups is not None:
        gradient.addcmul_(params, groups.decays).mul_(groups.factors)
    elif weight_decay:
        gradient.add_(params, alpha=weight_decay)
