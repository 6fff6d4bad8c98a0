"""The built-in tasks by their names, and a user's own by `FILE.py:NAME` or `package.module:NAME`."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orlomo.errors import ConfigError, require, unknown_name
from orlomo.loading import check_needs_nothing, is_import_path, load_attribute, name_a_file
from orlomo.values import shown

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


MOST_REPEATED = 100_000
"""Samples in a batch that is larger than the training data, each of which is then in it several times."""

MOST_IN_A_ROUND = 1 << 25
"""Samples in a round: which they are is drawn at once, 8 bytes each."""


def task(name: str | Path, batch_size: int | None = None) -> Task:
    """A built-in task by its name, or a user's own: `my_task.py:task` or `package.module:task` (a Task, or a function
    that makes one).

    >>> task("digits", batch_size=32).batch_size
    32
    """
    require(isinstance(name, (str, Path)), f"a task is given by its name, such as 'digits', not {shown(name)}")
    found = _own(str(name)) if is_import_path(str(name)) else maker(str(name))()
    return found if batch_size is None else dataclasses.replace(found, batch_size=batch_size)


def task_of(config: RunConfig, given: Task | None = None) -> Task:
    """The task of a run as its config wants it: batch size, samples, compiled or not; `given` in place of the named."""
    from orlomo.tasks.task import subset

    made = task(config.task) if given is None else given_task(given)[0] or task(str(given))
    made = dataclasses.replace(made, workers=config.workers)
    if config.batch_size is not None:
        made = dataclasses.replace(made, batch_size=config.batch_size)
    made = subset(made, config.samples, config.held_out)
    largest, size = max(made.size, MOST_REPEATED), made.batch_size
    require(
        size <= largest, f"batch_size must be at most {largest:,} with {made.size:,} training samples, not {size:,}"
    )
    a_round = config.method.local_steps * size
    many = f"a round of {config.method.local_steps:,} local steps of {size:,} samples is too large"
    require(a_round <= MOST_IN_A_ROUND, f"{many}: at most {MOST_IN_A_ROUND:,} samples; lower local_steps or batch_size")
    return made if config.compile == "auto" else dataclasses.replace(made, compile=config.compile == "on")


def given_task(given: object) -> tuple[Task | None, str]:
    """What was given as a task: itself, or None where it is a name; and what the config calls it."""
    from torch import nn

    from orlomo.tasks.task import Task

    if isinstance(given, (str, Path)):
        return None, str(given)
    if isinstance(given, Task):
        return given, "custom"
    wanted = "orlomo.Task(model=..., loss=..., train_data=...)"
    if isinstance(given, nn.Module) or (isinstance(given, type) and issubclass(given, nn.Module)):
        name = given.__name__ if isinstance(given, type) else type(given).__name__
        raise ConfigError(f"task is the model {name}: a task is also a loss and data: {wanted}")
    if isinstance(given, type):
        raise ConfigError(f"task is the class {given.__name__}: give an object, {wanted}")
    if callable(given):
        raise ConfigError(f"task is {shown(given)}: call it, and give the orlomo.Task that it makes")
    raise ConfigError(f"task must be {wanted} or a name such as 'digits', not {shown(given)}")


def maker(name: str) -> Callable[[], Task]:
    """The function that makes a built-in task."""
    if name == "custom":
        raise ConfigError("this is a Task that only Python has: give it to orlomo.train, or name it as FILE.py:NAME")
    if name not in TASKS:
        name_a_file(name, "task")
        raise unknown_name("task", name, [*TASKS, "FILE.py:NAME"])
    module, _, attribute = TASKS[name].partition(":")
    found: Callable[[], Task] = getattr(importlib.import_module(f"orlomo.tasks.{module}"), attribute)
    return found


def _own(name: str) -> Task:
    from torch import nn

    from orlomo.tasks.task import Task

    found = load_attribute(name, "task")
    made = found
    if isinstance(found, nn.Module):
        raise ConfigError(
            f"{name} is a model: a task is also a loss and data: Task(model=..., loss=..., train_data=...)"
        )
    if not isinstance(found, Task) and callable(found):
        check_needs_nothing(found, name)
        made = found()
    if not isinstance(made, Task):
        gave = f"is {shown(found)}" if made is found else f"gives {shown(made)}"
        raise ConfigError(f"{name} {gave}: it must be an orlomo.Task, or a function that returns one")
    return dataclasses.replace(made, name=name)
