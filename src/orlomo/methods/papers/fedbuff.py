"""FedBuff: reports wait in a buffer, weighted by their age; each M-th moves the parameters by their mean.

John Nguyen, Kshitiz Malik, Hongyuan Zhan, Ashkan Yousefpour, Mike Rabbat, Mani Malek, Dzmitry Huba. Federated Learning
with Buffered Asynchronous Aggregation. AISTATS 2022. Its federated parts (secure aggregation, sampling of clients) are
left out.

Symbols -> fields: w -> `params`, B -> `buffer`, the reports in it -> the number `count`, Delta -> `delta_params`,
K of the paper (here M) -> `every`, eta_g -> `server_rate`, tau -> `fold.delay` or, in updates, see `staleness`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from orlomo.errors import require, unknown_name
from orlomo.methods import rates
from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.state import ServerState
from orlomo.methods.worker import PlainSteps, WorkerRule

STALENESS = ("reports", "updates")


@dataclass(frozen=True, kw_only=True)
class FedBuff(Method):
    """Asynchronous, reports folded in by the M-th, plain local steps.

    Args:
        every: M, the reports in a full buffer.
        server_rate: eta, the step along their mean.
        staleness: how a report's age tau is counted in its weight 1/sqrt(1 + tau): in `reports` folded in since its
            worker was assigned its parameters (the trace's delay), or in `updates` of the parameters since.

    >>> FedBuff(every=4).server_vectors
    ('params', 'buffer')
    """

    name: ClassVar[str] = "fedbuff"
    one_pass: ClassVar[bool] = True
    server_vectors: ClassVar[tuple[str, ...]] = ("params", "buffer")
    server_numbers: ClassVar[dict[str, float]] = {"count": 0}

    every: int = 10
    server_rate: float = 1.0
    staleness: str = "reports"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.every >= 1, f"every must be at least 1, not {self.every}")
        rates.check_server_rate(self.server_rate)
        if self.staleness not in STALENESS:
            raise unknown_name("count of staleness", self.staleness, STALENESS)

    def worker(self, params: Tensor) -> WorkerRule:
        return PlainSteps(params, self.weight_decay, self.clip_norm)

    def age(self, fold: Fold) -> int:
        """tau. The parameters change after each M-th report, so w_t is their floor(t/M)-th version."""
        return fold.delay if self.staleness == "reports" else fold.iteration // self.every - fold.index // self.every

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        weight = 1 / math.sqrt(1 + self.age(fold))
        state.numbers["count"] += 1
        full = state.numbers["count"] == self.every
        for w, buffer, moved in state.chunks("params", "buffer", report=report):
            buffer.add_(moved, alpha=weight)  # B += Delta / sqrt(1 + tau)
            if full:
                w.sub_(buffer, alpha=self.server_rate / self.every)  # w -= eta B / M
                buffer.zero_()
        if full:
            state.numbers["count"] = 0
