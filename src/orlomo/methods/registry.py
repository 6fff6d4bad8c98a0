"""The built-in methods by their names. Reading the table does not load torch; making a method does."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import weakref
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from orlomo.errors import ConfigError, require, unknown_name
from orlomo.loading import absolute, is_import_path, load_attribute, name_a_file
from orlomo.values import shown

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


OTHER_WORDS = {
    "lr": "learning_rate",
    "gamma": "learning_rate",
    "beta": "momentum",
    "beta1": "momentum",
    "steps": "local_steps",
    "wd": "weight_decay",
    "l2": "weight_decay",
    "eta": "global_rate",
    "clip": "clip_norm",
    "max_norm": "clip_norm",
    "max_grad_norm": "clip_norm",
    "gradient_clip_val": "clip_norm",
    "scheduler": "schedule",
    "lr_scheduler": "schedule",
    "lr_schedule": "schedule",
    "warmup": "warmup_epochs",
}
"""Hyperparameters as other programs and the paper call them, too far from ours for a comparison of letters."""

CUSTOM = "custom"
"""The name, in a run's config, of a method that only Python has."""

_import_paths: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
"""Where classes that are not built in were loaded from."""


def method_class(name: str) -> type[Method]:
    """The class of a method: built in, or a user's own by `FILE.py:NAME` or `package.module:NAME`."""
    require(isinstance(name, str), f"a method is given by its name, a text such as 'orlomo', not {shown(name)}")
    if is_import_path(name):
        return _own(name)
    if name == CUSTOM:
        raise ConfigError("this is a method that only Python has: give it to orlomo.train, or name it as FILE.py:NAME")
    if name not in METHODS:
        name_a_file(name, "method")
        raise unknown_name("method", name, [*METHODS, "FILE.py:NAME"])
    module, _, attribute = METHODS[name].import_path.partition(":")
    found: type[Method] = getattr(importlib.import_module(f"orlomo.methods.papers.{module}"), attribute)
    return found


def _own(import_path: str) -> type[Method]:
    from orlomo.methods.method import Method

    found = load_attribute(import_path, "method")
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ConfigError(f"{import_path} is {shown(found)}, not a class that derives from orlomo.Method")
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
            raise unknown_setting(f"setting of {kind.name}", key, known)
    return kind(**hyperparameters)


def unknown_setting(what: str, name: str, known: Collection[str]) -> ConfigError:
    """The error for a hyperparameter that there is not, with what it is called here.

    >>> str(unknown_setting("setting", "lr", ["momentum", "learning_rate"]))
    "unknown setting 'lr': did you mean 'learning_rate'? (known: momentum, learning_rate)"
    """
    meant = OTHER_WORDS.get(name.lower())
    if meant not in known:
        return unknown_name(what, name, known)
    return ConfigError(f"unknown {what} {name!r}: did you mean {meant!r}? (known: {', '.join(known)})")


def given_method(given: object) -> Method:
    """What was given as a method: an object of one, or the name of one for its default hyperparameters."""
    from torch.optim import Optimizer

    from orlomo.methods.method import Method

    if isinstance(given, Method):
        return given
    if isinstance(given, str):
        return method(given)
    wanted = "give an object of a method, as in orlomo.OrLoMo(learning_rate=0.1), or a name, as in 'orlomo'"
    kind = given if isinstance(given, type) else type(given)
    if issubclass(kind, Method):
        raise ConfigError(f"method is the class {kind.__name__}: give an object of it, as in {kind.__name__}()")
    if issubclass(kind, Optimizer):
        raise ConfigError(f"method is the optimizer {kind.__name__}, which trains in one process: {wanted}")
    if isinstance(given, Mapping):
        raise ConfigError("method is a table: make a method of it, as in orlomo.method('orlomo', learning_rate=0.1)")
    raise ConfigError(f"method is {shown(given)}: {wanted}")


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
