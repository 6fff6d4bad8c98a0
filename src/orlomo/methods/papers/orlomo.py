"""OrLoMo: ordered local momentum (Algorithm 2).

Chang-Wei Shi, Shi-Shang Wang, Wu-Jun Li. Ordered Local Momentum for Asynchronous Distributed Learning under Arbitrary
Delays. AAAI 2026.

Symbols -> fields: w -> `params`, u -> `momentum`, Delta w -> `delta_params`, Delta u -> `delta_momentum`,
beta -> `momentum` of the method, gamma -> `learning_rate`, S -> `local_steps`, eta_t -> `fold.eta`,
ceil(t/K) - ceil(ite/K) -> `fold.behind`.
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
class OrLoMo(Method):
    """Asynchronous momentum SGD with local steps.

    Each worker makes S momentum steps, starting from zero momentum. The server adds its momentum with the weight that
    it would have by now if it had arrived on time.

    Args:
        momentum: beta.
        global_rate: eta, `delay-adaptive` (Theorem 1) or `constant` (1/K).

    >>> OrLoMo(learning_rate=0.1, momentum=0.9, local_steps=16).name
    'orlomo'
    """

    name: ClassVar[str] = "orlomo"
    one_pass: ClassVar[bool] = True
    server_vectors: ClassVar[tuple[str, ...]] = ("params", "momentum")
    report_vectors: ClassVar[tuple[str, ...]] = ("delta_params", "delta_momentum")

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
        return MomentumSteps(params, self.momentum, self.weight_decay, self.clip_norm)

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        beta, eta = self.momentum, fold.eta
        weight = self.weight(fold)
        catch_up = geometric(beta, fold.behind) * eta
        for w, u, delta_w, delta_u in state.chunks("params", "momentum", report=report):
            open_groups(w, u, beta, fold.boundary)  # lines 6-10
            u.add_(delta_u, alpha=weight)  # line 12
            w.sub_(delta_w, alpha=eta)  # line 13
            if catch_up:
                w.sub_(delta_u, alpha=catch_up)


def geometric(beta: float, terms: int) -> float:
    """beta + beta^2 + ... + beta^terms."""
    return beta * (1 - beta**terms) / (1 - beta)


def open_groups(w: Tensor, u: Tensor, beta: float, boundary: int) -> None:
    """The boundary step, for each group that has opened: w -= beta u, u *= beta (line 7 of Algorithms 2 and 3)."""
    if boundary:
        w.sub_(u, alpha=geometric(beta, boundary))
        u.mul_(beta**boundary)
