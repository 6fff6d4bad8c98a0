"""OrMo-DA: ordered momentum for asynchronous SGD, with a delay-adaptive learning rate.

Chang-Wei Shi, Yi-Rui Yang, Wu-Jun Li. Ordered Momentum for Asynchronous SGD. NeurIPS 2024.

Symbols -> fields: as in `orlomo.py`; a report's Delta w is gamma times one gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from orlomo.methods import rates
from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.papers.orlomo import open_groups
from orlomo.methods.state import ServerState
from orlomo.methods.worker import PlainSteps, WorkerRule


@dataclass(frozen=True, kw_only=True)
class OrMoDA(Method):
    """Asynchronous SGD with ordered momentum: one gradient per report.

    Args:
        momentum: beta, on the server.
        global_rate: eta, `delay-adaptive` or `constant`.

    >>> OrMoDA().local_steps
    1
    """

    name: ClassVar[str] = "ormo-da"
    one_pass: ClassVar[bool] = True
    server_vectors: ClassVar[tuple[str, ...]] = ("params", "momentum")

    local_steps: int = field(default=1, init=False)
    momentum: float = 0.9
    global_rate: str = "delay-adaptive"

    def __post_init__(self) -> None:
        super().__post_init__()
        rates.check_momentum(self.momentum)
        rates.global_rate(self.global_rate)

    def eta(self, delay: int, workers: int) -> float:
        return rates.global_rate(self.global_rate)(delay, workers)

    def weight(self, fold: Fold) -> float:
        return self.momentum**fold.behind * fold.eta

    def worker(self, params: Tensor) -> WorkerRule:
        return PlainSteps(params, self.weight_decay, self.clip_norm)

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        fold_ordered(state, fold, report, self.momentum)


def fold_ordered(state: ServerState, fold: Fold, report: Report, beta: float) -> None:
    """The server's lines 6 to 13 of Algorithm 3; with one gradient per report, OrMo-DA itself."""
    weight = beta**fold.behind * fold.eta
    reach = (1 - beta ** (fold.behind + 1)) / (1 - beta) * fold.eta
    for w, u, delta in state.chunks("params", "momentum", report=report):
        open_groups(w, u, beta, fold.boundary)  # lines 6-10
        u.add_(delta, alpha=weight)  # line 12
        w.sub_(delta, alpha=reach)  # line 13
