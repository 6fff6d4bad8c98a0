"""The built-in methods by their names. Reading the table does not load torch; making a method does."""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from orlomo.errors import unknown_name

if TYPE_CHECKING:
    from orlomo.methods.method import Method


class Entry(NamedTuple):
    """Where a method's class is (`module:class` below `methods.papers`), what it does, and whose it is."""

    place: str
    summary: str
    paper: str


METHODS = {
    "orlomo": Entry(
        "orlomo:OrLoMo",
        "asynchronous, local momentum steps folded in by their order",
        "Shi, Wang, Li: Ordered Local Momentum, AAAI 2026 (Algorithm 2)",
    ),
    "al-sgd": Entry(
        "al_sgd:ALSGD",
        "asynchronous, plain local steps, no momentum",
        "Nguyen et al.: FedBuff, AISTATS 2022; Algorithm 1 of the OrLoMo paper",
    ),
    "local-ormo-da": Entry(
        "local_ormo_da:LocalOrMoDA",
        "asynchronous, ordered momentum on the server, plain local steps",
        "Shi, Wang, Li: Ordered Local Momentum, AAAI 2026 (Algorithm 3)",
    ),
    "prsgdm": Entry(
        "prsgdm:PRSGDm",
        "synchronous, local momentum steps, parameters and momentum averaged",
        "Yu, Jin, Yang: Linear Speedup of Momentum SGD, ICML 2019",
    ),
    "ormo-da": Entry(
        "ormo_da:OrMoDA",
        "asynchronous, ordered momentum, one gradient per report (S=1)",
        "Shi, Yang, Li: Ordered Momentum for Asynchronous SGD, NeurIPS 2024",
    ),
    "asgd": Entry(
        "asgd:ASGD",
        "asynchronous, one gradient per report (S=1), no momentum",
        "Mishchenko et al.: Asynchronous SGD Beats Minibatch SGD, NeurIPS 2022",
    ),
    "local-sgd": Entry(
        "local_sgd:LocalSGD",
        "synchronous, plain local steps, parameters averaged",
        "Stich: Local SGD Converges Fast and Communicates Little, ICLR 2019",
    ),
    "msgd": Entry("msgd:MSGD", "one worker, plain momentum SGD", "Polyak 1964; equation 2 of the OrLoMo paper"),
}
"""Every built-in method by its name on the command line."""


def method_class(name: str) -> type[Method]:
    """The class of a built-in method."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    module, _, attribute = METHODS[name].place.partition(":")
    found: type[Method] = getattr(importlib.import_module(f"orlomo.methods.papers.{module}"), attribute)
    return found


def method(name: str, **hyperparameters: Any) -> Method:
    """Any method by its name.

    >>> method("orlomo", learning_rate=0.1, momentum=0.9, local_steps=16)
    OrLoMo(learning_rate=0.1, local_steps=16, weight_decay=0.0, clip_norm=None, schedule='constant', warmup_epochs=0.0, momentum=0.9, global_rate='delay-adaptive')
    """  # noqa: E501  (the example's output is one line)
    kind = method_class(name)
    known = settings_of(kind)
    for key in hyperparameters:
        if key not in known:
            raise unknown_name(f"setting of {name}", key, known)
    return kind(**hyperparameters)


def settings_of(kind: type[Method]) -> list[str]:
    """The names of a method's hyperparameters."""
    return [field.name for field in dataclasses.fields(kind) if field.init]
