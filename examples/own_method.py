"""A method of one's own in one file: one more vector on the server, one vector and one number in each worker.

    orlomo train digits --method examples/own_method.py:Smoothed --set smoothing=0.5
    orlomo train digits --method examples/own_method.py:Smoothed --engine processes --workers 4
    python examples/own_method.py

The server keeps a smoothed mean of what workers report and moves along it. A worker's local steps are sign steps along
a momentum of its own, which it keeps from round to round; its steps get smaller as it takes more of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

import orlomo
from orlomo.methods.worker import regularise


@dataclass(frozen=True, kw_only=True)
class Smoothed(orlomo.Method):
    """Reports are smoothed on the server; workers take sign steps along a momentum that they keep."""

    server_vectors = ("params", "mean")  # in every checkpoint
    worker_vectors = ("momentum",)  # stays in the worker between its rounds
    worker_numbers = {"steps": 0}  # noqa: RUF012  (a plain table is how a method declares numbers)

    learning_rate: float = 0.001
    smoothing: float = 0.5

    def worker(self, params: Tensor) -> orlomo.WorkerRule:
        return SignSteps(params, self.weight_decay, self.clip_norm)

    def fold(self, state: orlomo.ServerState, fold: orlomo.Fold, report: orlomo.Report) -> None:
        for w, mean, moved in state.chunks("params", "mean", report=report):
            mean.mul_(self.smoothing).add_(moved, alpha=1 - self.smoothing)
            w.sub_(mean, alpha=2 / fold.workers)


class SignSteps(orlomo.WorkerRule):
    """w -= gamma / sqrt(1 + steps / 100) sign(m), where m is a moving mean of the gradients."""

    def __init__(self, params: Tensor, weight_decay: float, clip_norm: float | None):
        self.params, self.weight_decay, self.clip_norm = params, weight_decay, clip_norm

    def start(self, assignment: orlomo.Assignment) -> None:
        self.assignment = assignment
        self.params.copy_(assignment.params)

    def step(self, gradient: Tensor) -> None:
        regularise(gradient, self.params, self.weight_decay, self.clip_norm)
        self.state.numbers["steps"] += 1
        rate = self.assignment.learning_rate / math.sqrt(1 + self.state.numbers["steps"] / 100)
        momentum = self.state.vectors["momentum"].mul_(0.9).add_(gradient, alpha=0.1)
        self.params.sub_(torch.sign(momentum), alpha=rate)

    def finish(self, samples: int = 0, loss: float = math.nan) -> orlomo.Report:
        moved = self.assignment.params - self.params
        return orlomo.Report(self.assignment.worker, self.assignment.index, moved, samples=samples, loss=loss)


if __name__ == "__main__":
    run = orlomo.train("digits", Smoothed(local_steps=8), workers=8, epochs=40, cluster="heterogeneous")
    print(run.metrics.tail(1).T)
    print(orlomo.replay(run.folder, method=Smoothed(local_steps=8)))
