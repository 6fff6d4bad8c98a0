"""A task: a model, a loss and data. Batches are a function of (seed, worker, round, step) alone."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils.data import IterableDataset

from orlomo.errors import ConfigError, require, require_takes, unknown_name
from orlomo.flat import FlatModule, Group, GroupVectors, checked
from orlomo.seeds import derive, generator, isolated, seed_global
from orlomo.tasks.batches import Order, check_sampler, epoch_samples, round_batches
from orlomo.tasks.buffers import RECALIBRATE, Policies, checked_policies, first_match
from orlomo.tasks.data import Batch, Collate, Data, checked_data, select
from orlomo.tasks.metrics import TEST, TRAIN, Metric, Predictions, accuracy, check_name, measured
from orlomo.tasks.shares import PerWorker, Stream
from orlomo.values import settle

SAMPLINGS = ("epochs", "replacement")
EVALUATION_BATCH = 250
"""Divides the sizes of the usual test sets: a compiled model then needs no second version for a smaller last batch."""


def classification_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross entropy of a batch (inputs, labels)."""
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A learning problem: a model, a loss and data.

    Args:
        model: builds the module; the run's seed decides its initial parameters.
        loss: (model, batch) -> scalar, the mean over the batch.
        train_data: tensors (one, or a tuple or dict of columns), a map-style data set, an `IterableDataset`, or
            `PerWorker` data (see docs/how-to/tasks.md).
        test_data: the same kind, or several test sets by name; None: only the training loss is evaluated.
        batch_size: samples in a local step.
        metrics: what to measure besides the loss (see docs/how-to/metrics.md); by default the accuracy, if
            batches are (inputs, whole-number labels) and the model returns one score per class.
        collate: makes a batch from a list of samples, for samples that differ in size or are not tensors.
        sampler: yields the samples of an epoch, as in `WeightedRandomSampler(weights, count)`; or a function of a numpy
            generator. By default each worker shuffles all samples.
        augment: (batch, torch generator) -> batch, on training batches.
        sampling: `epochs` (each worker shuffles the full data, epoch by epoch) or `replacement`.
        groups: parameters with a learning rate or a weight decay of their own, by name (`orlomo.Group`).
        decay_biases: False: no weight decay for parameters of at most one dimension (biases, norms), unless a group
            sets one.
        micro_batch: at most this many samples go through the model at once; a larger local step adds up the gradients
            of its parts (see docs/how-to/precision-and-groups.md).
        autocast: `bfloat16` to compute the model and the loss under `torch.autocast`; parameters stay as they are.
        evaluation_batch_size: samples per batch in evaluations; None: 250 with `classification_loss`, else
            `batch_size`, since a loss may compare the samples of a batch.
        buffers: what happens to running statistics, counters and queues: `recalibrate`, `average`, `keep` or `reset`,
            or a dict from patterns of buffer names to these (see docs/how-to/buffers.md).
        optimizer: creates the optimizer of the local steps from the list of the model's trainable parameters, as in
            `lambda params: torch.optim.AdamW(params, lr=1e-3)`; None: the method's own steps. Learning
            rate and weight decay are the optimizer's; workers keep its state (see docs/how-to/own-optimizer.md).
        compile: whether the model is worth compiling (`torch.compile`) in long runs.
        name: for tables and run folders.
        facts: known constants (smoothness L, noise sigma, the minimum), for experiments on theory.
        workers: K, among which a `Stream` is shared; set by the run.

    >>> data = (torch.randn(32, 4), torch.randint(0, 2, (32,)))
    >>> task = Task(model=lambda: nn.Linear(4, 2), train_data=data, batch_size=8,
    ...             loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]))
    >>> task.initial_params(seed=0).shape
    torch.Size([10])
    """

    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Batch], Tensor]
    train_data: Data | PerWorker | Stream = field(repr=False)
    test_data: Data | Mapping[str, Data] | None = field(default=None, repr=False)
    batch_size: int = 32
    metrics: Sequence[Metric | Predictions] = (accuracy,)
    collate: Collate | None = None
    sampler: Order | None = None
    augment: Callable[[Batch, torch.Generator], Batch] | None = None
    sampling: str = "epochs"
    groups: Sequence[Group] = ()
    decay_biases: bool = True
    micro_batch: int | None = None
    autocast: str | torch.dtype | None = None
    evaluation_batch_size: int | None = None
    buffers: Policies = RECALIBRATE
    optimizer: Callable[[list[nn.Parameter]], Optimizer] | None = None
    compile: bool = False
    name: str = "custom"
    facts: dict[str, float] = field(default_factory=dict)
    workers: int | None = None

    def __post_init__(self) -> None:
        settle(
            self,
            only=(
                "batch_size",
                "sampling",
                "buffers",
                "compile",
                "name",
                "facts",
                "micro_batch",
                "evaluation_batch_size",
            ),
        )
        require(self.batch_size >= 1, f"batch_size must be at least 1, not {self.batch_size}")
        object.__setattr__(self, "metrics", () if self.metrics is None else self.metrics)
        for name in ("micro_batch", "evaluation_batch_size"):
            size = getattr(self, name)
            whole = size is None or (type(size) is int and size >= 1)
            require(whole, f"{name} must be a whole number of at least 1, not {size!r}")
        _check_autocast(self.autocast)
        listed = isinstance(self.groups, (tuple, list)) and all(isinstance(group, Group) for group in self.groups)
        require(
            listed,
            f"groups must be a list of Group objects, as in [Group('head.*', rate_factor=0.1)], not {self.groups!r}",
        )
        plain = isinstance(self.decay_biases, bool)
        require(plain, f"decay_biases must be True or False, not {self.decay_biases!r}: a Group has a weight decay")
        factory = callable(self.model) and not isinstance(self.model, nn.Module)
        require(factory, "model must be a function that makes the module (its class, or a lambda), not a module")
        require_takes(self.model, 0, "model must be a function without arguments that makes the module")
        require(callable(self.loss), "loss must be a function: loss(model, batch) -> scalar")
        named = getattr(self.loss, "__name__", self.loss)
        require(
            getattr(self.loss, "__module__", None) not in ("torch.nn.functional", "torch.nn.modules.loss"),
            "loss takes a model and a batch, not outputs and targets: write loss=lambda model, batch: "
            f"criterion(model(batch[0]), batch[1]), where criterion is your {named}",
        )
        require_takes(self.loss, 2, "loss must be a function of the model and a batch")
        # The class is frozen for users; this is still its construction.
        object.__setattr__(self, "train_data", _checked_training(self.train_data))
        if self.test_data is not None:
            object.__setattr__(self, "test_data", _checked_tests(self.test_data, self.train_data))
        if self.sampling not in SAMPLINGS:
            raise unknown_name("sampling", self.sampling, SAMPLINGS)
        object.__setattr__(self, "buffers", checked_policies(self.buffers))
        for name, takes, wanted in (
            ("collate", 1, "a function of a list of samples"),
            ("augment", 2, "a function of a batch and a torch generator"),
        ):
            given = getattr(self, name)
            require(given is None or callable(given), f"{name} must be {wanted}, not {given!r}")
            if given is not None:
                require_takes(given, takes, f"{name} must be {wanted}")
        check_sampler(self)
        if self.optimizer is not None:
            self._check_optimizer()
        streams = isinstance(self.train_data, Stream) and self.sampling != "epochs"
        require(not streams, f"a Stream is read in order: leave sampling={self.sampling!r} out")
        measured(self)  # a wrong metric is an error here, not at the first evaluation

    def _check_optimizer(self) -> None:
        wanted = "a function that makes the optimizer, as in lambda params: torch.optim.AdamW(params, lr=1e-3)"
        require(callable(self.optimizer), f"optimizer must be {wanted}, not {self.optimizer!r:.60}")
        assert self.optimizer is not None
        require_takes(self.optimizer, 1, f"optimizer must be {wanted}")
        for name, effect in (("groups", bool(self.groups)), ("decay_biases", not self.decay_biases)):
            require(not effect, f"{name} has no effect with an optimizer of your own: give it parameter groups instead")

    @property
    def test_sets(self) -> dict[str, Data]:
        """The test sets by name; a single one is called `test`."""
        if self.test_data is None:
            return {}
        if isinstance(self.test_data, TestSets):
            return self.test_data
        return {TEST: cast(Data, self.test_data)}

    @property
    def size(self) -> int:
        """Training samples in an epoch."""
        return epoch_samples(self)

    @property
    def has_plain_loss(self) -> bool:
        """Whether the loss is known to call the model on a batch's inputs once, and to do nothing else with it."""
        # Any other function might, for example, call the model twice, or with another argument.
        return self.loss is classification_loss

    @property
    def evaluation_batch(self) -> int:
        """Samples in a batch of an evaluation."""
        usual = EVALUATION_BATCH if self.has_plain_loss else self.batch_size
        return self.evaluation_batch_size or min(usual, self.micro_batch or usual)

    def parts(self, chosen: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
        """The samples of a local step in parts that go through the model at once, each with where it begins."""
        if self.micro_batch is None:
            return [(0, chosen)]
        count = -(-len(chosen) // self.micro_batch)
        # Of equal size where that divides, else one apart: BatchNorm would fail on a last part of one sample.
        bounds = [len(chosen) * part // count for part in range(count + 1)]
        return [(begin, chosen[begin:end]) for begin, end in itertools.pairwise(bounds)]

    def casting(self, model: nn.Module) -> AbstractContextManager[object]:
        """Within, the model computes in the task's precision."""
        if self.autocast is None:
            return nullcontext()
        device = next(model.parameters()).device.type
        # Without the cache of cast weights: it would not notice a model that changes its own weights in place.
        return torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False)

    def loss_of(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss, checked to be a scalar with a gradient."""
        if self.autocast is None:
            return checked_loss(self.loss(model, batch))
        with self.casting(model):
            return checked_loss(self.loss(model, batch))

    def build(self, seed: int, device: torch.device | str = "cpu") -> FlatModule:
        """The model at its initial parameters for this seed, flattened."""
        # Model code draws from global generators: they are set from the seed, and the caller's restored.
        with isolated():
            seed_global(derive(seed, "model"))
            flat = FlatModule(checked(self.model()).to(device), self._has_policy)
        self.group_vectors(flat)  # a pattern that matches nothing is an error here
        return flat

    def group_vectors(self, flat: FlatModule, weight_decay: float = 0.0) -> GroupVectors | None:
        """What the groups say for each number in the vector, given the method's weight decay; None: there are none."""
        if not self.groups and (self.decay_biases or not weight_decay):
            return None
        return flat.group_vectors(self.groups, self.decay_biases, weight_decay)

    def _has_policy(self, name: str) -> bool:
        return first_match(self.buffers, name) is not None

    def initial_params(self, seed: int) -> Tensor:
        """w_0."""
        return self.build(seed).params

    def round_batches(
        self, seed: int, worker: int, round: int, local_steps: int, first_step: int | None = None
    ) -> list[NDArray[np.int64]]:
        """Which samples each local step of a round takes; the worker has taken `first_step` steps before it."""
        return round_batches(self, seed, worker, round, local_steps, first_step)


def subset(task: Task, samples: int | None = None, held_out: float = 0.0) -> Task:
    """The task on some of its training samples; `held_out` of them become the test set.

    Which ones is the same in every run, whatever its seed.

    >>> from orlomo.tasks.data import data_size
    >>> from orlomo.tasks.registry import task
    >>> part = subset(task("digits"), samples=1000, held_out=0.1)
    >>> part.size, data_size(part.test_data)
    (900, 100)
    """
    if samples is None and not held_out:
        return task
    whole = task.sampler is None and not isinstance(task.train_data, (PerWorker, Stream))
    require(whole, "samples and held_out need one data set that is indexed, without a sampler: leave them out")
    data = cast(Data, task.train_data)
    count = task.size if samples is None else samples
    require(count <= task.size, f"samples is {count}, but {task.name} has only {task.size} training samples")
    # Seed 0 and not the run's: runs with different seeds must see the same samples to be comparable.
    chosen = generator(0, "subset").permutation(task.size)[:count]
    tested = round(held_out * count)
    require(
        not held_out or 1 <= tested < count, f"held_out={held_out} of {count} samples leaves nothing to test or train"
    )
    train, test = chosen[tested:], chosen[:tested]
    test_data = select(data, test) if held_out else task.test_data
    return dataclasses.replace(task, train_data=select(data, train), test_data=test_data)


def _check_autocast(given: object) -> None:
    float16 = given in ("float16", "fp16", "half", torch.float16)
    require(not float16, "autocast='float16' would need its loss scaled: use 'bfloat16', which needs no scaling")
    right = given is None or given == "bfloat16" or given is torch.bfloat16
    require(right, f"autocast must be 'bfloat16' or None, not {given!r}")


def checked_loss(given: object) -> Tensor:
    """The scalar that a loss gave, also as the `loss` of a dict or an object; an error where it is none.

    >>> checked_loss({"loss": torch.ones(1, requires_grad=True), "logits": None}).shape
    torch.Size([])
    """
    if not isinstance(given, Tensor):  # as transformers' models give it
        inside = given.get("loss") if isinstance(given, Mapping) else getattr(given, "loss", None)
        given = given if inside is None else inside
    if not isinstance(given, Tensor):
        more = {"NoneType": ": does it return anything?", "float": ": leave .item() out"}.get(type(given).__name__, "")
        what = "None" if given is None else f"a {type(given).__name__}"
        raise ConfigError(f"loss(model, batch) must give a scalar tensor, not {what}{more}")
    if given.numel() != 1:
        shape = tuple(given.shape)
        raise ConfigError(f"loss(model, batch) must give a scalar, not a tensor of shape {shape}: take its mean")
    if not given.is_floating_point():
        raise ConfigError(f"loss(model, batch) must give a real number, not {given.dtype}")
    if not given.requires_grad and torch.is_grad_enabled():  # evaluations take no gradient
        raise ConfigError(
            "loss(model, batch) gives a tensor without a gradient: it must depend on the model's parameters, without "
            ".detach(), .item(), .data or torch.no_grad() between"
        )
    return given if given.dim() == 0 else given.reshape(())


class TestSets(dict[str, Data]):
    """Several test sets by name; a plain dict of tensors is one data set with named columns."""

    __test__ = False  # nothing for pytest


def _checked_training(data: object) -> Data | PerWorker | Stream:
    if isinstance(data, IterableDataset):
        data = Stream(data)
    return data if isinstance(data, (PerWorker, Stream)) else checked_data(data, "train_data")


def _checked_tests(data: object, train_data: object) -> Data | TestSets:
    for kind in (PerWorker, Stream):
        require(not isinstance(data, kind), f"test_data cannot be {kind.__name__}: all is tested on the same data")
    # A dict is one of test sets, unless it has the columns of the training data.
    columns = isinstance(train_data, dict) and isinstance(data, Mapping) and set(data) == set(train_data)
    if not isinstance(data, Mapping) or (columns and not isinstance(data, TestSets)):
        return checked_data(data, "test_data")
    require(bool(data), "test_data is empty: give at least one test set, or None")
    for name in data:
        check_name("a test set's name", name)
        require(name != TRAIN, f"a test set cannot be named {TRAIN!r}: that is the training data")
    return TestSets({name: checked_data(one, f"test_data[{name!r}]") for name, one in data.items()})
