"""AL-SGD: asynchronous local SGD (Algorithm 1), the core of FedBuff without its federated parts.

John Nguyen et al. Federated Learning with Buffered Asynchronous Aggregation. AISTATS 2022; stated as Algorithm 1 of
the OrLoMo paper.

Symbols -> fields: w -> `params`, Delta w -> `delta_params`, eta_t -> `fold.eta`, gamma -> `learning_rate`,
S -> `local_steps`.
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
class ALSGD(Method):
    """Asynchronous local SGD, no momentum.

    Args:
        global_rate: eta, `delay-adaptive` or `constant`.

    >>> ALSGD(learning_rate=0.3).synchronous
    False
    """

    name: ClassVar[str] = "al-sgd"
    one_pass: ClassVar[bool] = True

    global_rate: str = "delay-adaptive"

    def __post_init__(self) -> None:
        super().__post_init__()
        rates.global_rate(self.global_rate)

    def eta(self, delay: int, workers: int) -> float:
        return rates.global_rate(self.global_rate)(delay, workers)

    def worker(self, params: Tensor) -> WorkerRule:
        return PlainSteps(params, self.weight_decay, self.clip_norm)

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        for w, delta in state.chunks("params", report=report):
            w.sub_(delta, alpha=fold.eta)  # line 7: w -= eta Delta w
