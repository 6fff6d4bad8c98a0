"""The built-in tasks by their names, and a user's own by `FILE.py:NAME` or `package.module:NAME`."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from orlomo.errors import ConfigError, unknown_name
from orlomo.loading import is_import_path, load_attribute

if TYPE_CHECKING:
    from orlomo.config import RunConfig
    from orlomo.tasks.task import Task

TASKS = {
    "digits": "digits:digits",
    "fashion-mnist": "images:fashion_mnist",
    "cifar10-resnet20": "images:cifar10_resnet20",
    "cifar100-resnet20": "images:cifar100_resnet20",
    "cifar10-squeezenet": "images:cifar10_squeezenet",
    "cifar100-squeezenet": "images:cifar100_squeezenet",
    "tiny-imagenet-resnet32": "images:tiny_imagenet_resnet32",
    "quadratic": "theory:quadratic",
    "nonconvex": "theory:nonconvex",
}
"""Every built-in task by its name on the command line: where the function is that makes it, below `orlomo.tasks`."""


def task(name: str, batch_size: int | None = None) -> Task:
    """A built-in task by its name, or a user's own: `my_task.py:task` or `package.module:task` (a Task, or a function
    that makes one).

    >>> task("digits", batch_size=32).batch_size
    32
    """
    found = _own(name) if is_import_path(name) else maker(name)()
    return found if batch_size is None else dataclasses.replace(found, batch_size=batch_size)


def task_of(config: RunConfig, given: Task | None = None) -> Task:
    """The task of a run as its config wants it: batch size, samples, compiled or not; `given` in place of the named."""
    from orlomo.tasks.task import subset

    made = dataclasses.replace(task(config.task) if given is None else given, workers=config.workers)
    if config.batch_size is not None:
        made = dataclasses.replace(made, batch_size=config.batch_size)
    made = subset(made, config.samples, config.held_out)
    return made if config.compile == "auto" else dataclasses.replace(made, compile=config.compile == "on")


def maker(name: str) -> Callable[[], Task]:
    """The function that makes a built-in task."""
    if name not in TASKS:
        raise unknown_name("task", name, [*TASKS, "FILE.py:NAME"])
    module, _, attribute = TASKS[name].partition(":")
    found: Callable[[], Task] = getattr(importlib.import_module(f"orlomo.tasks.{module}"), attribute)
    return found


def _own(name: str) -> Task:
    from orlomo.tasks.task import Task

    found = load_attribute(name, "task")
    made = found() if callable(found) else found
    if not isinstance(made, Task):
        raise ConfigError(f"{name} is not an orlomo.Task, nor a function that makes one")
    return dataclasses.replace(made, name=name)
