"""What a user would write, in short form, for the cases of test_refused.py and test_corrected.py."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import orlomo
from orlomo.tasks.evaluation import evaluate
from orlomo.tasks.task import classification_loss

GIVEN: dict[str, Any] = {"half": 0.5, "none": None, "nan": float("nan"), "text": "x", "tensor": torch.tensor(0.5)}


@dataclass(frozen=True, kw_only=True)
class OwnRate(orlomo.ALSGD):
    """A method with rules of its own, which give what `GIVEN` has under these names."""

    gives: str = "half"
    weighs: str = "half"
    speed: str = "half"

    def eta(self, delay: int, workers: int) -> float:
        return GIVEN[self.gives]

    def weight(self, fold: orlomo.Fold) -> float:
        return GIVEN[self.weighs]

    def rate(self, samples: int, epoch_samples: int) -> float:
        return GIVEN[self.speed]


INPUTS = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0).long()


def task(**changes: Any) -> orlomo.Task:
    """A small task of two classes, with some of its fields changed."""
    usual: dict[str, Any] = {
        "model": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        "loss": classification_loss,
        "train_data": (INPUTS, LABELS),
        "test_data": (INPUTS, LABELS),
        "batch_size": 8,
    }
    return orlomo.Task(**(usual | changes))


def train(given: orlomo.Task | None = None, /, out: Path | None = None, **changes: Any) -> orlomo.Run:
    """A short run of two workers, two epochs of two local steps; `method` and any setting may be changed."""
    method = changes.pop("method", orlomo.OrLoMo(learning_rate=0.05, local_steps=2))
    usual: dict[str, Any] = {"workers": 2, "epochs": 2, "jobs": 1}
    return orlomo.train(task() if given is None else given, method, out=out, **(usual | changes))


class Sparse(nn.Module):
    """A layer whose parameter is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(4).to_sparse())


@dataclass
class Output:
    """What models of transformers give."""

    loss: Tensor


class Renewed(nn.Linear):
    """Norms its weight by giving it new memory, as one must not, in training or in evaluation."""

    def __init__(self, training: bool = True):
        super().__init__(4, 2)
        self.where = training

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training is self.where:
            self.weight.data = nn.functional.normalize(self.weight.data)
        return super().forward(inputs)


class Replaced(nn.Linear):
    """Norms its weight by replacing the parameter."""

    def __init__(self) -> None:
        super().__init__(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        self.weight = nn.Parameter(nn.functional.normalize(self.weight.data))
        return super().forward(inputs)


class Late(nn.Linear):
    """Makes a layer when it first runs."""

    def __init__(self) -> None:
        super().__init__(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Linear(2, 2)
        return self.late(super().forward(inputs))


class Unfrozen(nn.Linear):
    """Trains its bias only later."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.bias.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        self.bias.requires_grad_(True)
        return super().forward(inputs)


class InPlace(nn.Linear):
    """Norms its weight in place, as one may."""

    def forward(self, inputs: Tensor) -> Tensor:
        self.weight.data.copy_(nn.functional.normalize(self.weight.data))
        return super().forward(inputs)


def in_place() -> nn.Module:
    return InPlace(4, 2)


class Mixed(nn.Module):
    """Of two dtypes; where asked for, it changes a weight in place."""

    def __init__(self, in_place: bool = False):
        super().__init__()
        self.body, self.head, self.in_place = nn.Linear(4, 8).bfloat16(), nn.Linear(8, 2), in_place

    def forward(self, inputs: Tensor) -> Tensor:
        if self.in_place:
            self.body.weight.data.mul_(0.5)
        return self.head(self.body(inputs.bfloat16()).float())


class Function(nn.Module):
    """A fixed function of the inputs as a model."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.zeros(())), function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(inputs) + self.weight


def scored(function: Callable[[Tensor], Tensor], labels: Tensor = LABELS) -> float:
    """The default accuracy of a model that is this function."""
    made = task(model=lambda: Function(function), loss=lambda m, b: m(b[0]).mean(), test_data=(INPUTS, labels))
    return evaluate(made, made.build(0), made.initial_params(0), 0)["test_accuracy"]


def evaluated(**changes: Any) -> set[int]:
    """The sizes of the batches that a model sees in an evaluation."""
    seen: set[int] = set()

    def counting(inputs: Tensor) -> Tensor:
        seen.add(len(inputs))
        return inputs[:, :2]

    made = task(model=lambda: Function(counting), **{"loss": lambda m, b: m(b[0]).mean(), **changes})
    evaluate(made, made.build(0), made.initial_params(0), 0)
    return seen


def draws(out: Path, kind: str) -> list[float]:
    """What a loss draws from a global generator in the 16 local steps of each of two workers."""
    draw = {"numpy": np.random.random, "random": random.random, "torch": lambda: torch.rand(()).item()}[kind]
    found: list[float] = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        if model.training:
            found.append(draw())
        return classification_loss(model, batch)

    train(task(loss=loss), out, epochs=4)
    return found


class Said:
    """A metric of torchmetrics' shape whose value is always this."""

    def __init__(self, value: object):
        self.value = value

    def update(self, preds: Tensor, target: Tensor) -> None: ...
    def reset(self) -> None: ...
    def compute(self) -> object:
        return self.value


def penalty(model: nn.Module, batch: Any, gradients: AbstractContextManager[object] | None = None) -> Tensor:
    """A loss with a gradient of the outputs in it."""
    with gradients or torch.enable_grad():
        inputs = batch[0].clone().requires_grad_()
        [slope] = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
    return classification_loss(model, batch) + slope.square().mean()


def steps_itself(model: nn.Module, batch: Any) -> Tensor:
    """A whole training step in the place of a loss."""
    loss = classification_loss(model, batch)
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    return loss


class Aliased(nn.Sequential):
    """Two layers tied by memory, which a vector of all parameters would untie."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 4), nn.Linear(4, 4))
        self[1].weight.data = self[0].weight.data


def scripted() -> nn.Module:
    """A module of torch.jit, which torch calls deprecated."""
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.script(nn.Linear(4, 2))  # type: ignore[no-any-return, no-untyped-call]


MADE = nn.Linear(4, 2)
"""A module that is made once, for all."""


def scaled_loss(model: nn.Module, batch: Any) -> Tensor:
    """As in a loop with a GradScaler."""
    scaled: Tensor = torch.amp.GradScaler("cpu").scale(classification_loss(model, batch))
    return scaled


def within(context: AbstractContextManager[Any], call: Callable[[], object]) -> object:
    """What a call gives within a context."""
    with context:
        return call()


def second_run(out: Path) -> None:
    """A run in a thread while another is under way; what it raises."""
    caught: list[Exception] = []

    def second() -> None:
        try:
            train(task(), out)
        except orlomo.OrlomoError as error:
            caught.append(error)

    class Other(orlomo.Callback):
        def started(self, run: orlomo.RunHandle) -> None:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    train(task(), out.with_name("first"), callbacks=[Other()])
    raise caught[0]
