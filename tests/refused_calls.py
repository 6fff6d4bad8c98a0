"""More cases for test_refused.py: functions that cannot be called as we call them, and what they must not do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import nn

import orlomo
import own_data as own
from orlomo.tasks.task import classification_loss
from user import Aliased, scripted, steps_itself, task, train


def written(out: Path, text: str) -> orlomo.Task:
    """The task of a file with this text."""
    file = out.with_name("ending.py")
    file.write_text(text)
    return orlomo.task(f"{file}:task")


CALLS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a sampler that counts": (lambda out: train(task(sampler=own.Rotating()), out), "another order when it is asked"),
    "a sampler of two arguments": (lambda out: task(sampler=lambda draw, epoch: []), "a function of a numpy generator"),
    "a sampler, each its own": (lambda out: own.two_sites(sampler=own.EVERY), "leave the sampler out"),
    "collate of two arguments": (lambda out: task(collate=lambda samples, pad: 0), "required argument: 'pad'"),
    "a stream of two arguments": (
        lambda out: own.streamed(lambda rank, count: []),
        "must take (rank, count, position)",
    ),
    "a stream that gives None": (lambda out: train(own.streamed(lambda r, c, p: None), out), "must give an iterator"),
    "data with gradients": (lambda out: task(train_data=own.WITH_GRADIENTS), "give it with .detach()"),
    "a metric of a function": (lambda out: orlomo.Metric("a", classification_loss), "make must take no arguments"),  # type: ignore[arg-type]
    "a metric of labels": (lambda out: orlomo.Metric.mean("a", lambda m, x, y: 0), "required argument: 'y'"),  # type: ignore[arg-type, misc]
    "a model that needs arguments": (lambda out: task(model=nn.Linear), "without arguments that makes the module"),
    "a loss of three arguments": (lambda out: task(loss=lambda m, x, y: 0), "missing a required argument: 'y'"),
    "augment=3": (lambda out: task(augment=3), "augment must be a function of a batch and a torch generator, not 3"),
    "augment of a batch alone": (lambda out: task(augment=lambda batch: batch), "too many positional arguments"),
    "augment gives None": (lambda out: train(task(augment=lambda b, g: None), out), "does it return the batch?"),
    "backward in the loss": (lambda out: train(task(loss=steps_itself), out), "the loss changes the parameters' .grad"),
    "a module of torch.jit": (lambda out: train(task(model=scripted), out), "leave torch.jit out"),
    "a file that exits": (
        lambda out: written(out, "import sys\nsys.exit(4)\n"),
        "line 2 ends the program while the file",
    ),
    "parameters that share memory": (lambda out: train(task(model=Aliased), out), "has the memory of 0.weight"),
}
