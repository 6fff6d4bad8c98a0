"""State in Python objects of a model, a loss or an augmentation. Workers are separate copies: it would differ."""

from __future__ import annotations

import copy
import functools
import inspect
import random
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from orlomo.tasks.task import Task

NUMBERS = (bool, int, float, complex)
CONTAINERS = (list, dict, set, deque)
GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
OF_TORCH = frozenset(vars(nn.Module()))
"""The attributes that every module has."""


class Place(NamedTuple):
    """Somewhere that a value is kept, by a name for the user."""

    name: str
    value: Any
    put: Callable[[Any], None]


def places(task: Task, module: nn.Module, optimizer: Optimizer | None = None) -> Iterator[Place]:
    """Where the code of a training step could keep something that is neither a parameter nor a buffer."""
    seen: set[int] = set()
    for path, layer in module.named_modules():
        if not type(layer).__module__.startswith("torch."):
            label = f"attribute {path}.".replace(" .", " ") if path else "attribute "
            yield from _of_object(layer, f"the model's {label}")
            yield from _of_function(type(layer).forward, "the model", seen)
        for hook in (*layer._forward_pre_hooks.values(), *layer._forward_hooks.values()):
            yield from _of_function(hook, "a hook of the model", seen)
    if optimizer is not None:
        yield from _of_optimizer(optimizer, seen)
    for name, given in (("loss", task.loss), ("augment", task.augment)):
        yield from _of_function(given, name, seen)
    for place in _of_object(task.train_data, "train_data."):
        if isinstance(place.value, GENERATORS):  # what else it keeps is usually a cache
            yield place


def _of_optimizer(optimizer: Optimizer, seen: set[int]) -> Iterator[Place]:
    """What it keeps besides its `state` and `param_groups`."""
    if not type(optimizer).__module__.startswith("torch."):
        usual = vars(torch.optim.SGD([torch.zeros(1)]))
        for place in _of_object(optimizer, "", depth=1):
            if place.name.partition(" ")[0] not in usual:
                yield place._replace(name=f"the optimizer's attribute {place.name}")
    for hook in (*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()):
        yield from _of_function(hook, "a hook of the optimizer", seen)


def _of_object(owner: object, label: str, depth: int = 2) -> Iterator[Place]:
    attributes = getattr(owner, "__dict__", {})
    for name, value in list(attributes.items()):
        if isinstance(owner, nn.Module) and name in OF_TORCH:
            continue
        yield Place(f"{label}{name}", value, functools.partial(attributes.__setitem__, name))
        yield from _inside(f"{label}{name}", value)
        if depth > 1 and _is_plain(value):
            yield from _of_object(value, f"{label}{name}.", depth - 1)


def _inside(label: str, value: object) -> Iterator[Place]:
    """The lists and tables in a small one, as in {"loss": [], "accuracy": []}."""
    if isinstance(value, (list, dict)) and len(value) <= 32:
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if isinstance(inner, CONTAINERS):
                yield Place(f"{label} at {key!r}", inner, functools.partial(value.__setitem__, key))


def _is_plain(value: object) -> bool:
    """Whether this is an object of a class that a user may have written."""
    builtin = type(value).__module__.partition(".")[0] in ("builtins", "torch", "numpy", "orlomo")
    return not builtin and not isinstance(value, (type, FunctionType, nn.Module)) and hasattr(value, "__dict__")


def _of_function(given: object, label: str, seen: set[int]) -> Iterator[Place]:
    if given is None or id(given) in seen:
        return
    seen.add(id(given))
    if isinstance(given, functools.partial):
        for number, value in enumerate(given.args):
            yield Place(f"argument {number} of {label}", value, lambda value: None)
        yield from _of_function(given.func, label, seen)
    elif inspect.ismethod(given):
        yield from _of_object(given.__self__, f"{label}'s attribute ")
        yield from _of_function(given.__func__, label, seen)
    elif not isinstance(given, FunctionType):
        if _is_plain(given) or isinstance(given, nn.Module):
            yield from _of_object(given, f"{label}'s attribute ")
            yield from _of_function(vars(type(given)).get("__call__"), label, seen)
    elif given.__module__ is None or given.__module__.partition(".")[0] not in ("torch", "orlomo"):
        yield from _of_written(given, label, seen)


def _of_written(given: FunctionType, label: str, seen: set[int]) -> Iterator[Place]:
    """The variables and defaults of a user's function, and of the functions of the same file that it calls."""
    for name, cell in zip(given.__code__.co_freevars, given.__closure__ or (), strict=True):
        try:
            yield from _variable(name, cell.cell_contents, functools.partial(setattr, cell, "cell_contents"), label)
        except ValueError:  # not assigned yet
            continue
    for value in (*(given.__defaults__ or ()), *(given.__kwdefaults__ or {}).values()):
        yield Place(f"a default of {label}", value, lambda value: None)
    for name in _names(given.__code__):
        value = given.__globals__.get(name)
        yield from _variable(name, value, functools.partial(given.__globals__.__setitem__, name), label)
        if isinstance(value, FunctionType) and value.__globals__ is given.__globals__:
            yield from _of_function(value, label, seen)


def _variable(name: str, value: object, put: Callable[[Any], None], label: str) -> Iterator[Place]:
    yield Place(f"the variable {name} of {label}", value, put)
    yield from _inside(f"the variable {name} of {label}", value)
    if _is_plain(value):
        yield from _of_object(value, f"{name}.", depth=1)


def _names(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))


class Seen(NamedTuple):
    """A value as it was: the object, and a copy of what it held."""

    place: Place
    held: Any


def look(found: Iterator[Place]) -> dict[str, Seen]:
    """What is at these places now."""
    return {place.name: Seen(place, _held(place.value)) for place in found if _is_watched(place.value)}


def changed(before: dict[str, Seen], after: dict[str, Seen]) -> list[str]:
    """The names of the places that hold something else; those that are new do not count."""
    return [name for name, seen in before.items() if name in after and not _same(seen.held, after[name].held)]


def restore(before: dict[str, Seen], names: list[str]) -> None:
    """Put back what was there."""
    for name in names:
        place, held = before[name]
        value = place.value
        if isinstance(value, list):
            value[:] = held
        elif isinstance(value, (dict, set)):
            value.clear()
            value.update(held)
        elif isinstance(value, deque):
            value.clear()
            value.extend(held)
        elif isinstance(value, Tensor):
            value.data.copy_(held)
        elif isinstance(value, np.ndarray):
            value[...] = held
        elif isinstance(value, torch.Generator):
            value.set_state(held)
        elif isinstance(value, random.Random):
            value.setstate(held)
        elif isinstance(value, np.random.RandomState):
            value.set_state(held)
        elif isinstance(value, np.random.Generator):
            value.bit_generator.state = held
        place.put(value)


def _is_watched(value: object) -> bool:
    return isinstance(value, (*NUMBERS, *CONTAINERS, *GENERATORS, Tensor, np.ndarray))


def _held(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.RandomState):
        return value.get_state()
    if isinstance(value, np.random.Generator):
        return copy.deepcopy(value.bit_generator.state)
    return copy.copy(value)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are alike, as far as can be told; numbers in containers count, other objects do not."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        # Not bit for bit: some sums on a GPU differ from run to run.
        return one.shape == other.shape and torch.allclose(one.double(), other.double(), rtol=1e-3, equal_nan=True)
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and (one.dtype == object or bool(np.array_equal(one, other)))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, set):
        return len(one) == len(other)
    return one == other or one != one if isinstance(one, (*NUMBERS, str)) else True
