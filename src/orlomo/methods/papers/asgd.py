"""ASGD: asynchronous SGD with a delay-adaptive learning rate, one gradient per report.

Konstantin Mishchenko, Francis Bach, Mathieu Even, Blake Woodworth. Asynchronous SGD Beats Minibatch SGD Under
Arbitrary Delays. NeurIPS 2022.

It is AL-SGD with S = 1. Symbols -> fields: as in `al_sgd.py`; a report's Delta w is gamma times one gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from orlomo.methods.papers.al_sgd import ALSGD


@dataclass(frozen=True, kw_only=True)
class ASGD(ALSGD):
    """Asynchronous SGD: one gradient per report, no momentum.

    Args:
        global_rate: eta, `delay-adaptive` or `constant`.

    >>> ASGD().local_steps
    1
    """

    name: ClassVar[str] = "asgd"

    local_steps: int = field(default=1, init=False)
