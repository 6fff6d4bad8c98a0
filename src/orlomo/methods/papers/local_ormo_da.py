"""Local OrMo-DA (Algorithm 3): OrMo-DA's server with plain local SGD steps, the paper's ablation of OrLoMo.

Chang-Wei Shi, Shi-Shang Wang, Wu-Jun Li. Ordered Local Momentum for Asynchronous Distributed Learning under Arbitrary
Delays. AAAI 2026, appendix.

Symbols -> fields: as in `orlomo.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
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
class LocalOrMoDA(Method):
    """Asynchronous, momentum on the server only, S plain local steps.

    Args:
        momentum: beta, on the server.
        global_rate: eta, `delay-adaptive` or `constant`.

    >>> LocalOrMoDA(local_steps=32).momentum
    0.9
    """

    name: ClassVar[str] = "local-ormo-da"
    one_pass: ClassVar[bool] = True
    server_vectors: ClassVar[tuple[str, ...]] = ("params", "momentum")

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
        beta, weight = self.momentum, self.weight(fold)
        reach = (1 - beta ** (fold.behind + 1)) / (1 - beta) * fold.eta
        for w, u, delta in state.chunks("params", "momentum", report=report):
            open_groups(w, u, beta, fold.boundary)  # lines 6-10
            u.add_(delta, alpha=weight)  # line 12
            w.sub_(delta, alpha=reach)  # line 13
