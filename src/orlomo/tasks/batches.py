"""Which samples each local step takes: a function of (seed, worker, round, step) alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, DistributedSampler, Sampler

from orlomo.errors import ConfigError, require, require_takes
from orlomo.seeds import derive, generator, isolated, seed_global
from orlomo.tasks.data import data_size
from orlomo.tasks.shares import PerWorker, Stream

if TYPE_CHECKING:
    from orlomo.tasks.task import Task

Order: TypeAlias = "Sampler[int] | Callable[[np.random.Generator], Iterable[int]]"
"""The samples of an epoch in their order: a torch sampler, or a function of a numpy generator."""


def round_batches(
    task: Task, seed: int, worker: int, round: int, local_steps: int, first_step: int | None = None
) -> list[NDArray[np.int64]]:
    """The samples of each local step of a round, in the data of this worker (see `Shares.of`).

    The worker has taken `first_step` steps before it; None: as many as rounds of this length take.
    """
    data, count = task.train_data, task.batch_size
    if task.sampling == "replacement":
        # By round: nothing of the rounds before is needed.
        draw = generator(seed, "batches", worker, round)
        size = data_size(data.of(worker) if isinstance(data, PerWorker) else data)
        return list(draw.integers(0, size, (local_steps, count)))
    # A worker's samples are one long sequence of shuffled epochs; a batch may reach over an epoch's end.
    first = round * local_steps if first_step is None else first_step
    begin, end = first * count, (first + local_steps) * count
    if isinstance(data, Stream):
        return list(np.arange(begin, end).reshape(local_steps, count))
    size = task.size if not isinstance(data, PerWorker) else data_size(data.of(worker))
    # Only the epochs that this round touches, usually one or two, are shuffled again.
    orders = [epoch_order(task, seed, worker, epoch, size) for epoch in range(begin // size, (end - 1) // size + 1)]
    skipped = begin % size
    stream = np.concatenate(orders)[skipped : skipped + end - begin]
    return [stream[step * count : (step + 1) * count] for step in range(local_steps)]


def epoch_order(task: Task, seed: int, worker: int, epoch: int, size: int) -> NDArray[np.int64]:
    """The order in which a worker takes the samples of one of its epochs."""
    draw = generator(seed, "epoch", worker, epoch)
    if task.sampler is None:
        return draw.permutation(size)
    with isolated():
        # A torch sampler draws from torch's global generator.
        seed_global(derive(seed, "epoch", worker, epoch))
        if isinstance(task.sampler, Sampler):
            if hasattr(task.sampler, "set_epoch"):
                task.sampler.set_epoch(epoch)
            drawn = list(task.sampler)
        else:
            drawn = list(task.sampler(draw))
    return _checked_order(drawn, size, data_size(task.train_data))


def _checked_order(drawn: list[int], size: int, samples: int) -> NDArray[np.int64]:
    require(len(drawn) == size, f"the sampler gives {len(drawn)} samples in one epoch and {size} in another")
    order = np.asarray(drawn)
    require(order.ndim == 1 and order.dtype.kind in "iu", "the sampler must give whole numbers, one per sample")
    good = bool(((order >= 0) & (order < samples)).all())
    require(good, f"the sampler gives sample {order.max()} (or one below 0), but there are {samples}")
    return order.astype(np.int64)


def check_sampler(task: Task) -> None:
    """Refuse a sampler whose draws would not be a function of the run's seed, the worker and the epoch."""
    sampler, data = task.sampler, task.train_data
    if sampler is None:
        return
    kind = type(sampler).__name__
    require(
        not isinstance(data, (PerWorker, Stream)),
        f"a sampler and {type(data).__name__} do not go together: leave the sampler out",
    )
    require(task.sampling == "epochs", f"a sampler and sampling={task.sampling!r} do not go together: leave one out")
    if isinstance(sampler, BatchSampler):
        raise ConfigError("sampler is a BatchSampler: give one that draws samples; the batch size is the Task's")
    if isinstance(sampler, DistributedSampler):
        raise ConfigError("sampler is a DistributedSampler: leave it out; each worker has an order of its own already")
    good = callable(sampler) and not isinstance(sampler, type)
    require(isinstance(sampler, Sampler) or good, f"sampler must be a torch Sampler or a function, not a {kind}")
    if not isinstance(sampler, Sampler):
        require_takes(sampler, 1, "sampler must be a torch Sampler, or a function of a numpy generator")
    require(task.size >= 1, "the sampler gives no samples")
    if getattr(sampler, "generator", None) is not None:
        raise ConfigError(f"{kind} has a generator of its own: make it without, so that the run's seed decides")


def epoch_samples(task: Task) -> int:
    """Samples in an epoch of the run."""
    if task.sampler is None:
        return data_size(task.train_data)
    if isinstance(task.sampler, Sampler):
        try:
            return len(task.sampler)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            raise ConfigError(
                f"{type(task.sampler).__name__} has no length: define __len__, an epoch's samples"
            ) from None
    return len(list(task.sampler(generator(0, "epoch", 0, 0))))
