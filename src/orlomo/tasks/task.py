"""A task: a model, a loss and data. Batches are a function of (seed, worker, round, step) alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from orlomo.errors import require, unknown_name
from orlomo.flat import FlatModule
from orlomo.seeds import derive, generator, isolated, seed_global
from orlomo.tasks.data import Batch, Data, checked_data, data_size, select
from orlomo.tasks.metrics import TEST, TRAIN, Metric, Predictions, accuracy, check_name, measured
from orlomo.values import settle

SAMPLINGS = ("epochs", "replacement")
BUFFERS = ("recalibrate", "average")


def classification_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross entropy of a batch (inputs, labels)."""
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A learning problem: a model, a loss and data.

    Args:
        model: makes the module; its initial parameters come from the run's seed.
        loss: (model, batch) -> scalar, the mean over the batch.
        train_data: tensors (one, or a sequence of equal length) or a map-style data set.
        test_data: the same kind, or several test sets by name; None: only the training loss is evaluated.
        batch_size: samples in a local step.
        metrics: what to measure beside the loss (see docs/how-to/metrics.md); by default the accuracy, where batches
            are (inputs, whole-number labels) and the model gives one score per class.
        augment: (batch, torch generator) -> batch, on training batches.
        sampling: `epochs` (each worker shuffles the full data, epoch by epoch) or `replacement`.
        buffers: what to do with running statistics: `recalibrate` or `average` (see docs/batchnorm.md).
        compile: whether the model is worth compiling (`torch.compile`) in runs long enough to pay for it.
        name: for tables and run folders.
        facts: known constants (the smoothness L, the noise sigma, the minimum), for theory.

    >>> data = (torch.randn(32, 4), torch.randint(0, 2, (32,)))
    >>> task = Task(model=lambda: nn.Linear(4, 2), train_data=data, batch_size=8,
    ...             loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]))
    >>> task.initial_params(seed=0).shape
    torch.Size([10])
    """

    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Batch], Tensor]
    train_data: Data = field(repr=False)
    test_data: Data | Mapping[str, Data] | None = field(default=None, repr=False)
    batch_size: int = 32
    metrics: Sequence[Metric | Predictions] = (accuracy,)
    augment: Callable[[Batch, torch.Generator], Batch] | None = None
    sampling: str = "epochs"
    buffers: str = "recalibrate"
    compile: bool = False
    name: str = "custom"
    facts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settle(self, only=("batch_size", "sampling", "buffers", "compile", "name", "facts"))
        require(self.batch_size >= 1, f"batch_size must be at least 1, not {self.batch_size}")
        object.__setattr__(self, "metrics", () if self.metrics is None else self.metrics)
        factory = callable(self.model) and not isinstance(self.model, nn.Module)
        require(factory, "model must be a function that makes the module (its class, or a lambda), not a module")
        require(callable(self.loss), "loss must be a function: loss(model, batch) -> scalar")
        # The class is frozen for users; this is still its construction.
        object.__setattr__(self, "train_data", checked_data(self.train_data, "train_data"))
        if self.test_data is not None:
            object.__setattr__(self, "test_data", _checked_tests(self.test_data))
        if self.sampling not in SAMPLINGS:
            raise unknown_name("sampling", self.sampling, SAMPLINGS)
        if self.buffers not in BUFFERS:
            raise unknown_name("treatment of buffers", self.buffers, BUFFERS)
        measured(self)  # a wrong metric is an error here, not at the first evaluation

    @property
    def test_sets(self) -> dict[str, Data]:
        """The test sets by name; where there is only one it is `test`."""
        if self.test_data is None:
            return {}
        if isinstance(self.test_data, dict):
            return self.test_data
        return {TEST: cast(Data, self.test_data)}

    @property
    def size(self) -> int:
        """Training samples in an epoch."""
        return data_size(self.train_data)

    @property
    def has_plain_loss(self) -> bool:
        """Whether the loss is known to call the model on a batch's inputs once, and to do nothing else with it."""
        # Any other function might, for example, call the model twice, or with another argument.
        return self.loss is classification_loss

    def loss_of(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss, checked to be a scalar."""
        loss = self.loss(model, batch)
        require(loss.dim() == 0, f"loss(model, batch) must give a scalar, not a tensor of shape {tuple(loss.shape)}")
        return loss

    def build(self, seed: int, device: torch.device | str = "cpu") -> FlatModule:
        """The model at its initial parameters for this seed, flattened."""
        # Model code draws from global generators: they are set from the seed, and the caller's restored.
        with isolated():
            seed_global(derive(seed, "model"))
            return FlatModule(self.model().to(device))

    def initial_params(self, seed: int) -> Tensor:
        """w_0."""
        return self.build(seed).params

    def round_batches(
        self, seed: int, worker: int, round: int, local_steps: int, first_step: int | None = None
    ) -> list[NDArray[np.int64]]:
        """Which samples each local step of a round takes; the worker has taken `first_step` steps before it."""
        size, count = self.size, self.batch_size
        if self.sampling == "replacement":
            # By round: nothing of the rounds before is needed.
            draw = generator(seed, "batches", worker, round)
            return list(draw.integers(0, size, (local_steps, count)))
        # A worker's samples are one long stream of shuffled epochs; a batch may reach over an epoch's end.
        first = round * local_steps if first_step is None else first_step
        begin, end = first * count, (first + local_steps) * count
        # Only the epochs that this round touches, usually one or two, are shuffled again.
        orders = [
            generator(seed, "epoch", worker, epoch).permutation(size)
            for epoch in range(begin // size, (end - 1) // size + 1)
        ]
        skipped = begin % size
        stream = np.concatenate(orders)[skipped : skipped + end - begin]
        return [stream[step * count : (step + 1) * count] for step in range(local_steps)]


def subset(task: Task, samples: int | None = None, held_out: float = 0.0) -> Task:
    """The task on some of its training samples; `held_out` of them become the test set.

    Which ones is the same in every run, whatever its seed.

    >>> from orlomo.tasks.registry import task
    >>> part = subset(task("digits"), samples=1000, held_out=0.1)
    >>> part.size, data_size(part.test_data)
    (900, 100)
    """
    if samples is None and not held_out:
        return task
    count = task.size if samples is None else samples
    require(count <= task.size, f"samples is {count}, but {task.name} has only {task.size} training samples")
    # Seed 0 and not the run's: runs with different seeds must see the same samples to be comparable.
    chosen = generator(0, "subset").permutation(task.size)[:count]
    tested = round(held_out * count)
    require(
        not held_out or 1 <= tested < count, f"held_out={held_out} of {count} samples leaves nothing to test or train"
    )
    train, test = chosen[tested:], chosen[:tested]
    test_data = select(task.train_data, test) if held_out else task.test_data
    return dataclasses.replace(task, train_data=select(task.train_data, train), test_data=test_data)


def _checked_tests(data: object) -> Data | dict[str, Data]:
    if not isinstance(data, Mapping):
        return checked_data(data, "test_data")
    require(bool(data), "test_data is empty: give at least one test set, or None")
    for name in data:
        check_name("a test set's name", name)
        require(name != TRAIN, f"a test set cannot be named {TRAIN!r}: that is the training data")
    return {name: checked_data(one, f"test_data[{name!r}]") for name, one in data.items()}
