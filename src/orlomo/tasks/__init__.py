"""Tasks: what is to be learnt. Built-in ones by name, a user's own by `file.py:name` or `module:name`."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from orlomo.errors import ConfigError, unknown_name
from orlomo.tasks import images
from orlomo.tasks.digits import digits
from orlomo.tasks.task import Task, subset
from orlomo.tasks.theory import nonconvex, quadratic

if TYPE_CHECKING:
    from orlomo.config import RunConfig

TASKS: dict[str, Callable[[], Task]] = {
    "digits": digits,
    "fashion-mnist": images.fashion_mnist,
    "cifar10-resnet20": images.cifar10_resnet20,
    "cifar100-resnet20": images.cifar100_resnet20,
    "cifar10-squeezenet": images.cifar10_squeezenet,
    "cifar100-squeezenet": images.cifar100_squeezenet,
    "tiny-imagenet-resnet32": images.tiny_imagenet_resnet32,
    "quadratic": quadratic,
    "nonconvex": nonconvex,
}
"""Every built-in task by its name on the command line."""


def task(name: str, batch_size: int | None = None) -> Task:
    """A built-in task by its name, or a user's own: `my_task.py:task` or `package.module:task` (a Task, or a function
    that makes one).

    >>> task("digits", batch_size=32).batch_size
    32
    """
    found = _own(name) if ":" in name else _built_in(name)
    return found if batch_size is None else dataclasses.replace(found, batch_size=batch_size)


def task_of(config: RunConfig, given: Task | None = None) -> Task:
    """The task of a run as its config wants it: batch size, samples, compiled or not; `given` in place of the named."""
    made = task(config.task) if given is None else given
    if config.batch_size is not None:
        made = dataclasses.replace(made, batch_size=config.batch_size)
    made = subset(made, config.samples, config.held_out)
    return made if config.compile == "auto" else dataclasses.replace(made, compile=config.compile == "on")


def _built_in(name: str) -> Task:
    if name not in TASKS:
        raise unknown_name("task", name, [*TASKS, "FILE.py:NAME"])
    return TASKS[name]()


def _own(name: str) -> Task:
    place, _, attribute = name.rpartition(":")
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    if not hasattr(module, attribute):
        names = [key for key, value in vars(module).items() if isinstance(value, Task) or callable(value)]
        raise unknown_name(f"name in {place}", attribute, names)
    found = getattr(module, attribute)
    made = found if isinstance(found, Task) else found()
    if not isinstance(made, Task):
        raise ConfigError(f"{name} is not an orlomo.Task, nor a function that makes one")
    return dataclasses.replace(made, name=name)


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"cannot read the task file {path}: no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # dataclasses and pickle look their module up
    _import_from(path.parent)  # it may import its neighbours
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ConfigError(f"{path}, line {error.lineno}: {error.msg}") from None
    return module


def _load_module(name: str) -> ModuleType:
    _import_from(Path())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"cannot import the task module {name!r}: {error}") from None


def _import_from(folder: Path) -> None:
    place = str(folder.absolute())
    if place not in sys.path:
        sys.path.append(place)


__all__ = ["TASKS", "Task", "task", "task_of"]
