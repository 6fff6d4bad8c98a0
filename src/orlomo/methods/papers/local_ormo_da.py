"""Local OrMo-DA (Algorithm 3): OrMo-DA's server with plain local SGD steps, the paper's ablation of OrLoMo.

Chang-Wei Shi, Shi-Shang Wang, Wu-Jun Li. Ordered Local Momentum for Asynchronous Distributed Learning under Arbitrary
Delays. AAAI 2026, appendix.

Symbols -> fields: as in `orlomo.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.papers.ormo_da import fold_ordered
from orlomo.methods.server import Vectors
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
    keeps_momentum: ClassVar[bool] = True

    momentum: float = 0.9
    global_rate: str = "delay-adaptive"

    def worker(self, params: Tensor) -> WorkerRule:
        return PlainSteps(params, self.weight_decay, self.clip_norm)

    def fold(self, vectors: Vectors, fold: Fold, report: Report) -> None:
        fold_ordered(vectors, fold, report, self.momentum)
