"""Which torch optimizer can take a method's local steps in place of its own worker rule.

A method that reports only how far the parameters have moved takes any optimizer. One that also reports a momentum needs
`torch.optim.SGD` with the method's momentum beta, because it relies on this identity over the steps of a round that
begins with an empty buffer:

    Delta w + beta/(1-beta) Delta u = sum of gamma g / (1-beta),    Delta u = gamma times SGD's buffer

g is the gradient with SGD's weight decay. Each parameter group may have its own gamma, which must not change within a
round; dampening and nesterov break the identity. A round of PRSGDm begins with the buffer u / gamma, so gamma > 0.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from orlomo.errors import ConfigError, require
from orlomo.methods.method import Method
from orlomo.methods.worker import MomentumSteps, PlainSteps, WorkerRule

OWNED = {
    "learning_rate": "the optimizer has the learning rate",
    "weight_decay": "the optimizer has the weight decay",
    "clip_norm": "gradients are clipped before the optimizer's step",
    "schedule": "the optimizer has the learning rate",
    "warmup_epochs": "the optimizer has the learning rate",
}
"""Settings of a method that have no effect with an optimizer, and why."""

NEVER = {"dampening": 0, "nesterov": False, "maximize": False}
"""What SGD's groups must have where momentum is folded."""


def folds_momentum(method: Method) -> bool:
    """Whether a method's reports carry the local momentum, and its rounds begin with a given one.

    >>> import orlomo
    >>> folds_momentum(orlomo.OrLoMo()), folds_momentum(orlomo.LocalOrMoDA())
    (True, False)
    """
    return "delta_momentum" in method.report_vectors


def keeps_state(method: Method, optimizers: Sequence[Optimizer]) -> bool:
    """Whether a round depends on what the optimizers have left in the one before.

    Where momentum is folded, a round begins with the momentum that comes with the assignment, or with none.

    >>> import orlomo
    >>> adamw, sgd = torch.optim.AdamW([torch.zeros(2)]), torch.optim.SGD([torch.zeros(2)])
    >>> keeps_state(orlomo.ALSGD(), [adamw]), keeps_state(orlomo.ALSGD(), [sgd])
    (True, False)
    """
    plain = all(map(_steps_as_sgd, optimizers)) and all(group["momentum"] == 0 for _, group in _groups(optimizers))
    return not folds_momentum(method) and not plain


def check_optimizers(method: Method, optimizers: Sequence[Optimizer]) -> None:
    """Raise a `ConfigError` unless these optimizers can take the method's local steps.

    >>> import orlomo
    >>> adamw = torch.optim.AdamW([torch.zeros(2)], lr=1e-3)
    >>> check_optimizers(orlomo.LocalOrMoDA(), [adamw])
    >>> check_optimizers(orlomo.OrLoMo(), [adamw])
    Traceback (most recent call last):
        ...
    orlomo.errors.ConfigError: orlomo needs SGD(momentum=0.9), not AdamW. For AdamW use local-ormo-da
    """
    require(bool(optimizers), "no optimizer was given: give the one that trains the model")
    for optimizer in optimizers:
        found = isinstance(optimizer, Optimizer)
        require(found, f"optimizer must be a torch.optim.Optimizer, not a {type(optimizer).__name__}")
    rule = _replaced_rule(method)
    if isinstance(rule, MomentumSteps):
        _check_momentum(method, rule.beta, optimizers)
    elif _takes_one_step(type(method)):
        _check_plain(method, optimizers)


def check_no_rate(method: Method) -> None:
    """Raise a `ConfigError` where a method was given a setting that the optimizer has.

    >>> import orlomo
    >>> check_no_rate(orlomo.OrLoMo(learning_rate=0.5))
    Traceback (most recent call last):
        ...
    orlomo.errors.ConfigError: the optimizer has the learning rate: leave learning_rate out of the method
    """
    for field in dataclasses.fields(method):
        if field.name in OWNED and getattr(method, field.name) != field.default:
            raise ConfigError(f"{OWNED[field.name]}: leave {field.name} out of the method")


def _replaced_rule(method: Method) -> WorkerRule:
    """The worker rule that an optimizer would replace; an error where it could not."""
    name, other = method.name, _takes_any(method)
    kept = (*method.worker_vectors, *method.worker_numbers)
    require(not kept, f"{name} has its own local optimizer, which keeps {', '.join(kept)}: use {other}")
    known = {"delta_params"} | ({"delta_momentum"} if folds_momentum(method) else set())
    given = {"params"} | ({"momentum"} if folds_momentum(method) else set())
    for found, expected, verb in ((method.report_vectors, known, "reports"), (method.sent_vectors(), given, "sends")):
        more, missing = sorted(set(found) - expected), "delta_params" in expected - set(found)
        require(not more, f"{name} {verb} {', '.join(more)}, which an optimizer does not know: use {other}")
        require(not missing, f"{name} does not report delta_params, all that an optimizer gives: use {other}")
    rule = method.worker(torch.zeros(1))
    usual: type[WorkerRule] = MomentumSteps if folds_momentum(method) else PlainSteps
    steps = isinstance(rule, usual) and all(
        getattr(type(rule), part) is getattr(usual, part) for part in ("start", "step", "finish")
    )
    own = type(rule).__name__
    require(steps, f"{name} has local steps of its own ({own}), which an optimizer would replace: use {other}")
    return rule


def _check_momentum(method: Method, beta: float, optimizers: Sequence[Optimizer]) -> None:
    name, other = method.name, _takes_any(method)
    plain = "local-sgd" if method.synchronous else "al-sgd"
    require(beta > 0, f"{name} with momentum=0 is {plain}: use that")
    wanted = f"{name} needs SGD(momentum={beta:g})"
    for optimizer in optimizers:
        kind = type(optimizer).__name__
        require(_steps_as_sgd(optimizer), f"{wanted}, not {_described(optimizer)}. For {kind} use {other}")
    for where, group in _groups(optimizers):
        found = group["momentum"]
        require(found == beta, f"{wanted} in every group; {where} has {found}. For AdamW use {other}")
        for setting, value in NEVER.items():
            found = group[setting]
            require(found == value, f"{name} needs SGD with {setting}={value}; {where} has {found}. Or use {other}")
        positive = "momentum" not in method.sent_vectors() or float(group["lr"]) > 0
        require(positive, f"{name} needs a learning rate above 0; {where} has {float(group['lr'])}. Or use {other}")


def _check_plain(method: Method, optimizers: Sequence[Optimizer]) -> None:
    name, other = method.name, f"{_takes_any(method)}, with local_steps=1"
    for optimizer in optimizers:
        kind = type(optimizer).__name__
        wanted = f"{name} needs SGD without momentum, not {_described(optimizer)}"
        require(_steps_as_sgd(optimizer), f"{wanted}. For {kind} use {other}")
    for where, group in _groups(optimizers):
        found = group["momentum"]
        require(found == 0, f"{name} needs SGD without momentum; {where} has {found}. Or use {other}")


def _takes_one_step(kind: type[Method]) -> bool:
    """Whether a method is defined for single gradients: its `local_steps` cannot be set."""
    return any(field.name == "local_steps" and not field.init for field in dataclasses.fields(kind))


def _takes_any(method: Method) -> str:
    """The name of a similar method that takes any optimizer."""
    if _takes_one_step(type(method)):
        parents = [
            kind for kind in type(method).__mro__[1:] if issubclass(kind, Method) and not inspect.isabstract(kind)
        ]
        return next((kind.name for kind in parents if not _takes_one_step(kind)), "local-ormo-da")
    return "local-sgd" if method.synchronous else "local-ormo-da"


def _steps_as_sgd(optimizer: Optimizer) -> bool:
    """Whether its `step` is that of `torch.optim.SGD`."""
    if not isinstance(optimizer, SGD):
        return False
    # Unwrapped: torch wraps the `step` of a class when the first optimizer of that class is made.
    parts = [(getattr(type(optimizer), part), getattr(SGD, part)) for part in ("step", "_init_group")]
    return all(inspect.unwrap(own) is inspect.unwrap(usual) for own, usual in parts)


def _described(optimizer: Optimizer) -> str:
    kind = type(optimizer).__name__
    return f"{kind}, whose step is its own" if isinstance(optimizer, SGD) else kind


def _groups(optimizers: Sequence[Optimizer]) -> list[tuple[str, dict[str, Any]]]:
    """Every parameter group, with a name to say in an error."""
    several = len(optimizers) > 1
    return [
        (f"group {position} of optimizer {number}" if several else f"group {position}", group)
        for number, optimizer in enumerate(optimizers)
        for position, group in enumerate(optimizer.param_groups)
    ]
