"""Asynchronous momentum that ignores the order: the rule that is often written by hand.

Each report moves one momentum on the server, whenever it comes and however old it is. It is the baseline for
ordered momentum, and has no paper of its own.

Symbols -> fields: w -> `params`, m -> `momentum`, D -> `delta_params`, beta -> `momentum` of the method,
eta -> `server_rate`, K -> `fold.workers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from orlomo.methods import rates
from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.state import ServerState
from orlomo.methods.worker import PlainSteps, WorkerRule


@dataclass(frozen=True, kw_only=True)
class AsyncMomentum(Method):
    """Asynchronous, one momentum on the server that ignores the order, S plain local steps.

    Args:
        momentum: beta, on the server.
        server_rate: eta, the step along the momentum.

    >>> AsyncMomentum(momentum=0.5).server_vectors
    ('params', 'momentum')
    """

    name: ClassVar[str] = "async-momentum"
    one_pass: ClassVar[bool] = True
    server_vectors: ClassVar[tuple[str, ...]] = ("params", "momentum")

    momentum: float = 0.9
    server_rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        rates.check_momentum(self.momentum)
        rates.check_server_rate(self.server_rate)

    def worker(self, params: Tensor) -> WorkerRule:
        return PlainSteps(params, self.weight_decay, self.clip_norm)

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        for w, m, moved in state.chunks("params", "momentum", report=report):
            m.mul_(self.momentum).add_(moved, alpha=1 / fold.workers)  # m = beta m + D/K
            w.sub_(m, alpha=self.server_rate)  # w -= eta m
