"""Drives a server through any order of arrivals with random reports, and keeps everything that happened."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from orlomo import Assignment, Method, Report, Server
from orlomo.methods.ledger import Fold

DIMENSIONS = 3


@dataclass
class Received:
    """One report: how the server folded it, its vectors, and w_{t+1}, u_{t+1} after it."""

    fold: Fold
    delta_w: Tensor
    delta_u: Tensor
    delta_h: Tensor  # gamma times the sum of the round's gradients
    params: Tensor
    momentum: Tensor


@dataclass
class Drive:
    """A float64 server, the assignments that are out, and the reports so far."""

    method: Method
    workers: int
    seed: int = 0
    received: list[Received] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = torch.Generator().manual_seed(self.seed)
        self.initial = self.random()
        self.server: Server = self.method.server(self.initial, self.workers)
        self.held: dict[int, Assignment] = {}
        self.keep(self.server.start())

    def random(self) -> Tensor:
        return torch.randn(DIMENSIONS, dtype=torch.float64, generator=self.source)

    def keep(self, assignments: list[Assignment]) -> None:
        for assignment in assignments:
            self.held[assignment.worker] = assignment

    def report(self, worker: int) -> Report:
        """Run the worker rule on random gradients."""
        assignment = self.held[worker]
        params = torch.empty(DIMENSIONS, dtype=torch.float64)
        rule = self.method.worker(params)
        rule.state = self.method.worker_state(params)
        rule.start(assignment)
        self.delta_h = torch.zeros_like(params)
        for _ in range(assignment.local_steps):
            gradient = self.random()
            self.delta_h += assignment.learning_rate * gradient
            rule.step(gradient)
        return rule.finish(samples=assignment.local_steps)

    def arrive(self, worker: int) -> Received:
        """The report of this worker arrives."""
        report = self.report(worker)
        del self.held[worker]
        self.keep(self.server.receive(report))
        momentum, fold = self.server.momentum, self.server.last_fold
        assert fold is not None
        received = Received(
            fold,
            report.delta_params,
            torch.zeros(DIMENSIONS) if report.delta_momentum is None else report.delta_momentum,
            self.delta_h,
            self.server.params.clone(),
            torch.zeros(DIMENSIONS, dtype=torch.float64) if momentum is None else momentum.clone(),
        )
        self.received.append(received)
        return received

    def join(self, worker: int) -> None:
        self.keep(self.server.join(worker))

    def leave(self, worker: int) -> None:
        self.held.pop(worker, None)
        self.keep(self.server.leave(worker))


def close(a: Tensor, b: Tensor) -> bool:
    """Equal to rounding in float64."""
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9)
