"""Delayed Nesterov: the server's momentum is updated once in N reports, from a buffer of them.

Bo Liu, Rachita Chhaparia, Arthur Douillard, Satyen Kale, Andrei A. Rusu, Jiajun Shen, Arthur Szlam, Marc'Aurelio
Ranzato. Asynchronous Local-SGD Training for Language Modeling. 2024 (arXiv 2401.09135), Algorithm 3.

Symbols -> fields: theta -> `params`, m -> `momentum`, Delta -> `buffer`, the reports since the last update of m -> the
number `count`, g -> `delta_params`, beta -> `momentum` of the method, epsilon -> `server_rate`, c -> `spread`,
N -> `every`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from orlomo.errors import require
from orlomo.methods import rates
from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.papers import adamw
from orlomo.methods.state import ServerState
from orlomo.methods.worker import WorkerRule


@dataclass(frozen=True, kw_only=True)
class DelayedNesterov(Method):
    """Asynchronous, local AdamW steps whose state stays in the worker, Nesterov momentum on the server, delayed.

    Args:
        learning_rate: of the local AdamW steps.
        weight_decay: of the local AdamW steps, decoupled.
        momentum: beta, on the server.
        server_rate: epsilon, the server's step.
        every: N, the reports between two updates of the momentum; None: as many as there are workers.
        spread: c, the part of the momentum that each report between them applies; from 0 to 1/N.

    >>> DelayedNesterov().worker_vectors
    ('first_moment', 'second_moment')
    """

    name: ClassVar[str] = "delayed-nesterov"
    one_pass: ClassVar[bool] = True
    server_vectors: ClassVar[tuple[str, ...]] = ("params", "momentum", "buffer")
    server_numbers: ClassVar[dict[str, float]] = {"count": 0}
    worker_vectors: ClassVar[tuple[str, ...]] = adamw.VECTORS
    worker_numbers: ClassVar[dict[str, float]] = adamw.NUMBERS

    learning_rate: float = 1e-3
    momentum: float = 0.9
    server_rate: float = 0.7
    every: int | None = None
    spread: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        rates.check_momentum(self.momentum)
        rates.check_server_rate(self.server_rate)
        require(self.every is None or self.every >= 1, f"every must be at least 1, not {self.every}")
        require(0 <= self.spread <= 1 / (self.every or 1), f"spread must be from 0 to 1/N, not {self.spread}")

    def worker(self, params: Tensor) -> WorkerRule:
        return adamw.AdamWSteps(params, self.weight_decay, self.clip_norm)

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        beta, rate, c, n = self.momentum, self.server_rate, self.spread, self.every or fold.workers
        state.numbers["count"] += 1
        updates = state.numbers["count"] >= n  # not ==: with `every` unset, workers may have left meanwhile
        share = (1 - c * n + c if updates else c) * beta
        for w, m, buffer, moved in state.chunks("params", "momentum", "buffer", report=report):
            buffer.add_(moved)  # Delta += g
            if updates:
                m.mul_(beta).add_(buffer, alpha=1 / n)  # m = beta m + Delta / N
                buffer.zero_()
            if share:
                w.sub_(m, alpha=rate * share)  # theta -= epsilon (c or 1 - cN + c) beta m
            w.sub_(moved, alpha=rate / n)  # theta -= epsilon g / N
        if updates:
            state.numbers["count"] = 0
