"""MSGD: plain momentum SGD on one worker, the baseline without distribution.

B. T. Polyak. Some methods of speeding up the convergence of iteration methods. 1964; equation 2 of the OrLoMo paper.

Symbols -> fields: w -> `params`, u -> `momentum`, beta -> `momentum` of the method, gamma -> `learning_rate`. The
worker reports every `local_steps` steps and continues with its own momentum, so their number changes only how often the
run is seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orlomo.methods.papers.prsgdm import PRSGDm


@dataclass(frozen=True, kw_only=True)
class MSGD(PRSGDm):
    """Momentum SGD on one worker: with one report per barrier, PRSGDm's mean is that report.

    Args:
        momentum: beta.

    >>> MSGD().max_workers
    1
    """

    name: ClassVar[str] = "msgd"
    max_workers: ClassVar[int | None] = 1
