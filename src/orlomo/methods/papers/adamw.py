"""Local AdamW steps: a worker rule whose moments and step count stay in the worker between rounds.

Ilya Loshchilov, Frank Hutter. Decoupled Weight Decay Regularization. ICLR 2019.

Symbols -> fields: theta -> `params`, m -> `first_moment`, v -> `second_moment`, t -> the number `steps`,
beta_1, beta_2 -> `betas`, epsilon -> `epsilon`, lambda -> `weight_decay`, alpha -> `assignment.learning_rate`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from orlomo.methods.messages import Assignment, Report
from orlomo.methods.worker import WorkerRule, delta, regularise

VECTORS = ("first_moment", "second_moment")
NUMBERS: dict[str, float] = {"steps": 0}
"""A method with this rule has these as its `worker_vectors` and `worker_numbers`."""


class AdamWSteps(WorkerRule):
    """The same steps as `torch.optim.AdamW`; a round reports how far the parameters have moved.

    >>> from orlomo.methods.messages import WorkerState
    >>> params = torch.ones(2)
    >>> rule = AdamWSteps(params)
    >>> rule.state = WorkerState({name: torch.zeros(2) for name in VECTORS}, dict(NUMBERS))
    >>> rule.start(Assignment(0, 0, 0, {"params": torch.ones(2)}, learning_rate=0.1, local_steps=1))
    >>> rule.step(torch.tensor([1.0, -1.0]))
    >>> rule.finish().delta_params, rule.state.numbers
    (tensor([ 0.1000, -0.1000]), {'steps': 1})
    """

    uses_groups = True

    def __init__(
        self,
        params: Tensor,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ):
        self.params = params
        self.weight_decay, self.clip_norm = weight_decay, clip_norm
        self.betas, self.epsilon = betas, epsilon

    @torch.no_grad()
    def start(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.params.copy_(assignment.params)

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        regularise(gradient, self.params, 0.0, self.clip_norm)  # the decay is decoupled: it is not in the gradient
        (beta1, beta2), rate = self.betas, self.assignment.learning_rate
        self.state.numbers["steps"] += 1
        count = self.state.numbers["steps"]
        m, v = (self.state.vectors[name] for name in VECTORS)
        m.lerp_(gradient, 1 - beta1)
        v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # The gradient's memory is free now.
        if self.groups is not None:
            torch.mul(self.groups.factors, self.groups.decays, out=gradient)
            self.params.addcmul_(self.params, gradient, value=-rate)
        elif self.weight_decay:
            self.params.mul_(1 - rate * self.weight_decay)
        # The denominator: sqrt(v / (1 - beta2^t)) + epsilon.
        torch.sqrt(v, out=gradient).div_(math.sqrt(1 - beta2**count)).add_(self.epsilon)
        if self.groups is not None:
            torch.div(m, gradient, out=gradient).mul_(self.groups.factors)
            self.params.sub_(gradient, alpha=rate / (1 - beta1**count))
        else:
            self.params.addcdiv_(m, gradient, value=-rate / (1 - beta1**count))

    @torch.no_grad()
    def finish(self, samples: int = 0, loss: float = math.nan) -> Report:
        a = self.assignment
        moved = delta(a.params, self.params, self.destination.get("delta_params"))
        return Report(a.worker, a.index, moved, samples=samples, loss=loss, round=a.round)
