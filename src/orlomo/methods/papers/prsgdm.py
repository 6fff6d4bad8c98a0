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

from orlomo.methods import rates
from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.state import ServerState
from orlomo.methods.worker import MomentumSteps, WorkerRule


@dataclass(frozen=True, kw_only=True)
class PRSGDm(Method):
    """Synchronous local momentum SGD: every worker starts its round with the averaged momentum.

    Args:
        momentum: beta.

    >>> PRSGDm(local_steps=8).synchronous
    True
    """

    name: ClassVar[str] = "prsgdm"
    server_vectors: ClassVar[tuple[str, ...]] = ("params", "momentum", "sum_params", "sum_momentum")
    assignment_vectors: ClassVar[tuple[str, ...]] = ("params", "momentum")
    report_vectors: ClassVar[tuple[str, ...]] = ("delta_params", "delta_momentum")
    synchronous: ClassVar[bool] = True

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        rates.check_momentum(self.momentum)

    def worker(self, params: Tensor) -> WorkerRule:
        return MomentumSteps(params, self.momentum, self.weight_decay, self.clip_norm)

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        for sum_w, sum_u, delta_w, u in state.chunks("sum_params", "sum_momentum", report=report):
            sum_w.add_(delta_w)
            sum_u.add_(u)

    def close(self, state: ServerState, reports: int) -> None:
        for w, u, sum_w, sum_u in state.chunks("params", "momentum", "sum_params", "sum_momentum"):
            w.sub_(sum_w, alpha=1 / reports)  # x <- mean of the workers' x
            u.copy_(sum_u).div_(reports)  # u <- mean of the workers' u
            sum_w.zero_()
            sum_u.zero_()
