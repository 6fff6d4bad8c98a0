"""Local SGD: synchronous, plain local steps, parameters averaged every S steps.

Sebastian U. Stich. Local SGD Converges Fast and Communicates Little. ICLR 2019.

Symbols -> fields: w -> `params`, gamma -> `learning_rate`, H (here S) -> `local_steps`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.state import ServerState
from orlomo.methods.worker import PlainSteps, WorkerRule


@dataclass(frozen=True, kw_only=True)
class LocalSGD(Method):
    """Synchronous local SGD without momentum.

    >>> LocalSGD(local_steps=8).learning_rate
    0.1
    """

    name: ClassVar[str] = "local-sgd"
    server_vectors: ClassVar[tuple[str, ...]] = ("params", "sum_params")
    synchronous: ClassVar[bool] = True

    def worker(self, params: Tensor) -> WorkerRule:
        return PlainSteps(params, self.weight_decay, self.clip_norm)

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        for sum_w, delta_w in state.chunks("sum_params", report=report):
            sum_w.add_(delta_w)

    def close(self, state: ServerState, reports: int) -> None:
        for w, sum_w in state.chunks("params", "sum_params"):
            w.sub_(sum_w, alpha=1 / reports)
            sum_w.zero_()
