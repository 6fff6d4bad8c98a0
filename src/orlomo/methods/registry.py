"""The built-in methods by their names. Reading the table does not load torch; making a method does."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from orlomo.errors import ConfigError, unknown_name
from orlomo.loading import absolute, is_import_path, load_attribute

if TYPE_CHECKING:
    from orlomo.methods.method import Method


class Entry(NamedTuple):
    """Where a method's class is (`module:class` below `methods.papers`), what it does, and whose it is."""

    import_path: str
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
    "async-momentum": Entry(
        "async_momentum:AsyncMomentum",
        "asynchronous, one momentum on the server that ignores the order",
        "what is often written by hand; no paper",
    ),
    "delayed-nesterov": Entry(
        "delayed_nesterov:DelayedNesterov",
        "asynchronous, local AdamW steps, the server's momentum updated every N reports",
        "Liu et al.: Asynchronous Local-SGD Training for Language Modeling, 2024 (Algorithm 3)",
    ),
    "fedbuff": Entry(
        "fedbuff:FedBuff",
        "asynchronous, plain local steps, reports folded in by the M-th",
        "Nguyen et al.: Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022",
    ),
    "msgd": Entry("msgd:MSGD", "one worker, plain momentum SGD", "Polyak 1964; equation 2 of the OrLoMo paper"),
}
"""Every built-in method by its name on the command line."""


CUSTOM = "custom"
"""The name, in a run's config, of a method that only Python has."""

_import_paths: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
"""Where classes that are not built in were loaded from."""


def method_class(name: str) -> type[Method]:
    """The class of a method: built in, or a user's own by `FILE.py:NAME` or `package.module:NAME`."""
    if is_import_path(name):
        return _own(name)
    if name == CUSTOM:
        raise ConfigError("this is a method that only Python has: give it to orlomo.train, or name it as FILE.py:NAME")
    if name not in METHODS:
        raise unknown_name("method", name, [*METHODS, "FILE.py:NAME"])
    module, _, attribute = METHODS[name].import_path.partition(":")
    found: type[Method] = getattr(importlib.import_module(f"orlomo.methods.papers.{module}"), attribute)
    return found


def _own(import_path: str) -> type[Method]:
    from orlomo.methods.method import Method

    found = load_attribute(import_path, "method")
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ConfigError(f"{import_path} is not a class that derives from orlomo.Method")
    # Here and not when it is made, which would raise a TypeError without the file's name.
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise ConfigError(f"{import_path} cannot be used: it does not define {missing}")
    _import_paths[found] = absolute(import_path)
    return found


def method(name: str, **hyperparameters: Any) -> Method:
    """Any method by its name, or a user's own by `FILE.py:NAME`.

    >>> method("orlomo", learning_rate=0.1, momentum=0.9, local_steps=16)
    OrLoMo(learning_rate=0.1, local_steps=16, weight_decay=0.0, clip_norm=None, schedule='constant', warmup_epochs=0.0, momentum=0.9, global_rate='delay-adaptive')
    """  # noqa: E501  (the example's output is one line)
    kind = method_class(name)
    known = settings_of(kind)
    for key in hyperparameters:
        if key not in known:
            raise unknown_name(f"setting of {kind.name}", key, known)
    return kind(**hyperparameters)


def settings_of(kind: type[Method]) -> list[str]:
    """The names of a method's hyperparameters."""
    return [field.name for field in dataclasses.fields(kind) if field.init]


def origin(method: Method) -> str:
    """What names this method's class: a built-in's name, an import path, or `custom` for one that only Python has.

    >>> import orlomo
    >>> origin(orlomo.OrLoMo())
    'orlomo'
    """
    kind = type(method)
    for name, entry in METHODS.items():
        if f"{kind.__module__}:{kind.__qualname__}" == f"orlomo.methods.papers.{entry.import_path}":
            return name
    return _import_paths.get(kind, CUSTOM)
