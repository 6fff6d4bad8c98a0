"""Two functions with known constants, for theory: a quadratic and a smooth non-convex sum.

A sample is a noise vector xi; the stochastic gradient is the true gradient minus xi. The noise has mean zero over the
data exactly, so the loss's mean over the data is F itself, and sigma^2 is the mean of |xi|^2.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from orlomo.seeds import generator
from orlomo.tasks.data import Batch
from orlomo.tasks.task import Task

SIZE = 1024
DIMENSIONS = 32


class Point(nn.Module):
    """A model that is nothing but its parameter vector, which starts at a fixed point."""

    def __init__(self, start: Tensor):
        super().__init__()
        self.w = nn.Parameter(start.clone())

    def forward(self) -> Tensor:
        return self.w


def quadratic() -> Task:
    """F(w) = 1/2 sum a_i w_i^2 with curvatures from 0.05 to 1: L = 1, minimum 0 at w = 0.

    >>> quadratic().facts["L"]
    1.0
    """
    curvature = torch.linspace(0.05, 1.0, DIMENSIONS)
    return _task("quadratic", lambda w: 0.5 * (curvature * w * w).sum(), smoothness=1.0, minimum=0.0)


def nonconvex() -> Task:
    """F(w) = sum w_i^2 / (1 + w_i^2): smooth with L = 2 (at 0), not convex beyond |w_i| = 1/sqrt(3), minimum 0.

    >>> nonconvex().facts["L"]
    2.0
    """
    return _task("nonconvex", lambda w: (w * w / (1 + w * w)).sum(), smoothness=2.0, minimum=0.0)


def _task(name: str, function: Callable[[Tensor], Tensor], smoothness: float, minimum: float) -> Task:
    source = generator(0, "theory", name)
    noise = torch.from_numpy(source.normal(0, 0.5, (SIZE, DIMENSIONS))).float()
    # Of mean zero, so that the mean loss over the data is F itself.
    noise -= noise.mean(dim=0)
    start = torch.from_numpy(source.normal(0, 1.5, DIMENSIONS)).float()

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        w: Tensor = model()
        linear: Tensor = batch.mean(dim=0) @ w
        return function(w) - linear

    variance = float((noise * noise).sum(dim=1).mean())
    return Task(
        name=name,
        model=lambda: Point(start),
        loss=loss,
        train_data=noise,
        batch_size=1,
        evaluation_batch_size=250,
        facts={"L": smoothness, "sigma": variance**0.5, "minimum": minimum, "initial": float(function(start))},
    )
