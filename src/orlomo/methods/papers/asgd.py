"""ASGD: asynchronous SGD with a delay-adaptive learning rate, one gradient per report.

Konstantin Mishchenko, Francis Bach, Mathieu Even, Blake Woodworth. Asynchronous SGD Beats Minibatch SGD Under
Arbitrary Delays. NeurIPS 2022.

Symbols -> fields: as in `al_sgd.py`; a report's Delta w is gamma times one gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from orlomo.methods import rates
from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.papers.al_sgd import fold_plain
from orlomo.methods.state import ServerState
from orlomo.methods.worker import PlainSteps, WorkerRule


@dataclass(frozen=True, kw_only=True)
class ASGD(Method):
    """Asynchronous SGD: one gradient per report, no momentum.

    Args:
        global_rate: eta, `delay-adaptive` or `constant`.

    >>> ASGD().local_steps
    1
    """

    name: ClassVar[str] = "asgd"
    one_pass: ClassVar[bool] = True

    local_steps: int = field(default=1, init=False)
    global_rate: str = "delay-adaptive"

    def __post_init__(self) -> None:
        super().__post_init__()
        rates.global_rate(self.global_rate)

    def eta(self, delay: int, workers: int) -> float:
        return rates.global_rate(self.global_rate)(delay, workers)

    def worker(self, params: Tensor) -> WorkerRule:
        return PlainSteps(params, self.weight_decay, self.clip_norm)

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        fold_plain(state, fold, report)
