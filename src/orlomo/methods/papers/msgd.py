"""MSGD: plain momentum SGD on one worker, the baseline without distribution.

B. T. Polyak. Some methods of speeding up the convergence of iteration methods. 1964; equation 2 of the OrLoMo paper.

Symbols -> fields: w -> `params`, u -> `momentum`, beta -> `momentum` of the method, gamma -> `learning_rate`. The
worker reports every `local_steps` steps and continues with its own momentum, so their number changes only how often the
run is seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from orlomo.methods import rates
from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.papers.prsgdm import average_momentum, sum_report
from orlomo.methods.state import ServerState
from orlomo.methods.worker import MomentumSteps, WorkerRule


@dataclass(frozen=True, kw_only=True)
class MSGD(Method):
    """Momentum SGD on one worker.

    Args:
        momentum: beta.

    >>> MSGD().max_workers
    1
    """

    name: ClassVar[str] = "msgd"
    server_vectors: ClassVar[tuple[str, ...]] = ("params", "momentum", "sum_params", "sum_momentum")
    assignment_vectors: ClassVar[tuple[str, ...]] = ("params", "momentum")
    report_vectors: ClassVar[tuple[str, ...]] = ("delta_params", "delta_momentum")
    synchronous: ClassVar[bool] = True
    max_workers: ClassVar[int | None] = 1

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        rates.check_momentum(self.momentum)

    def worker(self, params: Tensor) -> WorkerRule:
        return MomentumSteps(params, self.momentum, self.weight_decay, self.clip_norm)

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        sum_report(state, report)

    def close(self, state: ServerState, reports: int) -> None:
        average_momentum(state, reports)
