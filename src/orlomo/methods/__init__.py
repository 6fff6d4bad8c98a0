"""The methods, one paper a file, by their names."""

from __future__ import annotations

from typing import Any

from orlomo.methods.al_sgd import ALSGD
from orlomo.methods.asgd import ASGD
from orlomo.methods.local_ormo_da import LocalOrMoDA
from orlomo.methods.local_sgd import LocalSGD
from orlomo.methods.method import Method, build
from orlomo.methods.msgd import MSGD
from orlomo.methods.orlomo import OrLoMo
from orlomo.methods.ormo_da import OrMoDA
from orlomo.methods.prsgdm import PRSGDm
from orlomo.methods.server import Server
from orlomo.methods.worker import Assignment, Report

METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (OrLoMo, ALSGD, LocalOrMoDA, PRSGDm, OrMoDA, ASGD, LocalSGD, MSGD)
}
"""Every method by its name on the command line."""


def method(name: str, **hyperparameters: Any) -> Method:
    """Any method by its name.

    >>> method("orlomo", learning_rate=0.1, momentum=0.9, local_steps=16)
    OrLoMo(learning_rate=0.1, local_steps=16, weight_decay=0.0, clip_norm=None, schedule='constant', warmup_epochs=0.0, momentum=0.9, global_rate='delay-adaptive')
    """  # noqa: E501  (the example's output is one line)
    return build(METHODS, name, hyperparameters)


__all__ = [
    "ALSGD",
    "ASGD",
    "METHODS",
    "MSGD",
    "Assignment",
    "LocalOrMoDA",
    "LocalSGD",
    "Method",
    "OrLoMo",
    "OrMoDA",
    "PRSGDm",
    "Report",
    "Server",
    "method",
]
