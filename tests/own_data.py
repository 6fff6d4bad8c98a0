"""Data sets of a user's own, in the forms that people have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
)

import orlomo
from orlomo.tasks.task import classification_loss
from user import INPUTS, LABELS, task


class Unsized(Dataset[Any]):
    """Map-style, without a length."""

    def __getitem__(self, index: int) -> Tensor:
        return INPUTS[index]


class Numbers(IterableDataset[Any]):
    """0, 1, 2, ... with a little noise, read in order."""

    def __init__(self, count: int):
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number in range(self.count):
            yield torch.randn(4) + number / self.count, torch.tensor((number + self.epoch) % 2)


class Rotating(Sampler[int]):
    """Another order each time, by a count of its own."""

    def __init__(self) -> None:
        self.count = 0

    def __len__(self) -> int:
        return 64

    def __iter__(self) -> Iterator[int]:
        self.count += 1
        return iter([(number + self.count) % 64 for number in range(64)])


class Endless(IterableDataset[Any]):
    """Read in order, without a length."""

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            yield torch.randn(4)


class Open(IterableDataset[Any]):
    """Holds something that cannot be copied."""

    def __init__(self) -> None:
        self.reader = iter(Endless())

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[Tensor]:
        return self.reader


RAGGED = [(torch.ones(3 + n % 3), n % 2) for n in range(16)]
COLUMNS = (INPUTS, LABELS)
WITH_GRADIENTS = (INPUTS * torch.ones(4, requires_grad=True), LABELS)
SHARDS = [torch.utils.data.TensorDataset(INPUTS, LABELS)] * 2
LOADER = DataLoader(SHARDS[0], batch_size=8)
EVERY = RandomSampler(range(64))
BATCHED = BatchSampler(EVERY, 8, drop_last=False)
DISTRIBUTED = DistributedSampler(SHARDS[0], num_replicas=2, rank=0)
SEEDED = RandomSampler(range(64), generator=torch.Generator())


def mean_loss(model: nn.Module, batch: Tensor) -> Tensor:
    """For data that are pictures or vectors alone."""
    return model(batch.flatten(1)[:, :4]).square().mean()


def unlabelled(**changes: Any) -> orlomo.Task:
    """A task on inputs alone."""
    return task(**({"loss": mean_loss, "metrics": (), "test_data": None} | changes))


def by_name() -> orlomo.Task:
    """Columns by name; batches are dicts."""
    return task(
        train_data={"x": INPUTS, "y": LABELS},
        test_data={"x": INPUTS[:9], "y": LABELS[:9]},
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch["x"]), batch["y"]),
        metrics=(),
    )


def padded(samples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    """A batch of sequences of unequal length, filled up with zeros."""
    longest = max(len(one) for one, _ in samples)
    rows = torch.stack([nn.functional.pad(one, (0, longest - len(one))) for one, _ in samples])
    return rows, torch.tensor([label for _, label in samples])


def text() -> orlomo.Task:
    """Sequences of 3 to 7 whole numbers."""
    draw = torch.Generator().manual_seed(0)
    words = [(torch.randint(1, 20, (3 + n % 5,), generator=draw), n % 2) for n in range(48)]
    model = lambda: nn.Sequential(nn.EmbeddingBag(20, 8, padding_idx=0), nn.Linear(8, 2))  # noqa: E731
    return task(model=model, train_data=words, test_data=words[:16], collate=padded)


def two_sites(**changes: Any) -> orlomo.Task:
    """Two data sets of unequal size, each on a worker of its own."""
    parts = {"a": (INPUTS[:40], LABELS[:40]), "b": (INPUTS[40:], LABELS[40:])}
    return task(train_data=orlomo.PerWorker(parts), **changes)


def streamed(opened: Any) -> orlomo.Task:
    """A task on a stream that this function opens."""
    return task(train_data=orlomo.Stream(opened, samples=64))


TEN = (INPUTS[:10], LABELS[:10])
NOTED: list[float] = []


def noted(model: nn.Module, batch: Any) -> Tensor:
    """Keeps its losses in a list."""
    loss = classification_loss(model, batch)
    NOTED.append(float(loss.detach()))
    return loss


class Counting(nn.Linear):
    """Counts its calls in Python."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.n = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.n += 1
        return super().forward(inputs)
