"""PRSGDm: parallel restarted SGD with momentum, OrLoMo's synchronous twin.

Hao Yu, Rong Jin, Sen Yang. On the Linear Speedup Analysis of Communication Efficient Momentum SGD for Distributed
Non-Convex Optimization. ICML 2019 (Algorithm 1, Option I: momentum buffers and parameters are both averaged every S
steps, and not reset).

Symbols -> fields: x -> `params`, u -> `momentum`, beta -> `momentum` of the method, gamma -> `learning_rate`,
I (here S) -> `local_steps`. As in the OrLoMo paper, u contains gamma.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.server import Vectors
from orlomo.methods.worker import MomentumSteps, WorkerRule


@dataclass(frozen=True, kw_only=True)
class PRSGDm(Method):
    """Synchronous local momentum SGD: every worker carries the averaged momentum into the round.

    Args:
        momentum: beta.

    >>> PRSGDm(local_steps=8).synchronous
    True
    """

    name: ClassVar[str] = "prsgdm"
    synchronous: ClassVar[bool] = True
    reports_momentum: ClassVar[bool] = True
    carries_momentum: ClassVar[bool] = True
    keeps_momentum: ClassVar[bool] = True

    momentum: float = 0.9

    def worker(self, params: Tensor) -> WorkerRule:
        return MomentumSteps(params, self.momentum, self.weight_decay, self.clip_norm)

    def fold(self, vectors: Vectors, fold: Fold, report: Report) -> None:
        sum_report(vectors, report)

    def close(self, vectors: Vectors, reports: int) -> None:
        average_momentum(vectors, reports)


def sum_report(vectors: Vectors, report: Report) -> None:
    """Add a report, with its momentum, to the open barrier's sums."""
    for sum_w, sum_u, delta_w, u in vectors.chunks(
        vectors.sum_params, vectors.sum_momentum, report.delta_params, report.delta_momentum
    ):
        sum_w.add_(delta_w)
        sum_u.add_(u)


def average_momentum(vectors: Vectors, reports: int) -> None:
    """w <- mean of the workers' w, u <- mean of the workers' u; the sums start again at zero."""
    for w, u, sum_w, sum_u in vectors.chunks(*vectors.named().values()):
        w.sub_(sum_w, alpha=1 / reports)
        u.copy_(sum_u).div_(reports)
        sum_w.zero_()
        sum_u.zero_()
