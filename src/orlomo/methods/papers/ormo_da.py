"""OrMo-DA: ordered momentum for asynchronous SGD, with a delay-adaptive learning rate.

Chang-Wei Shi, Yi-Rui Yang, Wu-Jun Li. Ordered Momentum for Asynchronous SGD. NeurIPS 2024.

It is local OrMo-DA with S = 1. Symbols -> fields: as in `orlomo.py`; a report's Delta w is gamma times one gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from orlomo.methods.papers.local_ormo_da import LocalOrMoDA


@dataclass(frozen=True, kw_only=True)
class OrMoDA(LocalOrMoDA):
    """Asynchronous SGD with ordered momentum: one gradient per report.

    Args:
        momentum: beta, on the server.
        global_rate: eta, `delay-adaptive` or `constant`.

    >>> OrMoDA().local_steps
    1
    """

    name: ClassVar[str] = "ormo-da"

    local_steps: int = field(default=1, init=False)
