"""What a user's DataLoader does, and one that does the same with another sampler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from orlomo.errors import ConfigError, require

OWN_SAMPLING = 'with sampling="own" each worker takes its samples from its own loader'


@dataclass(frozen=True)
class Source:
    """A loader whose samples can be leased: all samples of a data set, once per epoch, in order or shuffled."""

    loader: DataLoader[Any]
    size: int
    batch_size: int
    shuffled: bool
    drop_last: bool
    place: Callable[[Any], Any]
    """Brings a batch to where the loader would have brought it."""

    @property
    def persistent(self) -> bool:
        """Whether its processes live on between epochs."""
        return self.loader.persistent_workers

    @property
    def ahead(self) -> int:
        """How many batches it asks for before they are used."""
        return self.loader.num_workers * (self.loader.prefetch_factor or 0)

    def rebuild(self, batch_sampler: Sampler[list[int]]) -> DataLoader[Any]:
        """A loader with the same settings that loads these batches.

        Its processes live as long as it does, also from one pass over it to the next: a pass is over when no more
        leases are known, which may be several times in an epoch. Where processes should not live on between epochs,
        make a new one for each.
        """
        old = self.loader
        return DataLoader(
            old.dataset,
            batch_sampler=batch_sampler,
            num_workers=old.num_workers,
            collate_fn=old.collate_fn,
            pin_memory=old.pin_memory,
            timeout=old.timeout,
            worker_init_fn=old.worker_init_fn,
            multiprocessing_context=old.multiprocessing_context,
            generator=old.generator,
            prefetch_factor=old.prefetch_factor,
            persistent_workers=old.num_workers > 0,
            pin_memory_device=old.pin_memory_device,
            in_order=True,  # whatever the user's is: which samples a batch has must be known
        )


def source_of(loader: DataLoader[Any]) -> Source:
    """What this loader does; an error that says what to do where its samples cannot be leased."""
    require(
        isinstance(loader, DataLoader),
        f"batches needs a torch.utils.data.DataLoader, not {type(loader).__name__}; {OWN_SAMPLING}, whatever it is",
    )
    loader, place = _plain(loader)
    if isinstance(loader.dataset, IterableDataset):
        raise ConfigError(
            "the samples of an IterableDataset have no index to share them out by: take files or ranges of rows from "
            f"worker.blocks(n), or {OWN_SAMPLING}"
        )
    batches: Any = loader.batch_sampler
    if _is_accelerates(type(batches)) and hasattr(batches, "num_processes") and not batches.split_batches:
        batches = batches.batch_sampler  # the one that accelerate shares out in a group, as is done here
    if batches is None:
        raise ConfigError(
            "a DataLoader with batch_size=None has no batches to share out: give it a batch_size, take files or ranges "
            f"of rows from worker.blocks(n), or {OWN_SAMPLING}"
        )
    if type(batches) is not BatchSampler:
        raise ConfigError(
            f"the loader has a batch_sampler of its own, {type(batches).__name__}, which cannot be shared out among "
            f"workers: use batch_size and shuffle, or {OWN_SAMPLING}"
        )
    size = _size(loader)
    shuffled = _is_shuffled(batches.sampler, size)
    return Source(loader, size, batches.batch_size, shuffled, batches.drop_last, place)


def _size(loader: DataLoader[Any]) -> int:
    try:
        size = len(loader.dataset)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(
            f"{type(loader.dataset).__name__} has no len(), so that its samples cannot be shared out: give it "
            f"__len__, or {OWN_SAMPLING}"
        ) from None
    require(size > 0, "the loader's data set is empty")
    return size


def _is_shuffled(sampler: Any, size: int) -> bool:
    """Whether this sampler gives every sample once in an order of chance, or in order; an error if neither."""
    name = type(sampler).__name__
    if isinstance(sampler, DistributedSampler):
        raise ConfigError(
            "the loader has a DistributedSampler: leave it out where worker.alone is False, and give the DataLoader "
            "shuffle=True instead; the workers, and the ranks of a group, share the samples out already"
        )
    if type(sampler) is SequentialSampler and len(sampler) == size:
        return False
    # accelerate's sampler differs from RandomSampler only in how it is seeded.
    random = type(sampler) is RandomSampler or (isinstance(sampler, RandomSampler) and _is_accelerates(type(sampler)))
    if random and not sampler.replacement and len(sampler) == len(sampler.data_source) == size:
        return True
    if random:
        name += " with replacement" if sampler.replacement else f" of {len(sampler)} of {size} samples"
    elif type(sampler) is SequentialSampler:
        name += f" of {len(sampler)} of {size} samples"
    raise ConfigError(
        f"the loader has a sampler of its own, {name}, which cannot be shared out among workers: use shuffle=True or "
        f"False (a part of a data set: torch.utils.data.Subset), or {OWN_SAMPLING}"
    )


def _plain(loader: DataLoader[Any]) -> tuple[DataLoader[Any], Callable[[Any], Any]]:
    """The DataLoader proper, and what is done to its batches: one from accelerate puts them on a device."""
    kind = type(loader)
    if kind.__iter__ is DataLoader.__iter__:
        return loader, _as_it_is
    if any(_is_accelerates(base) and base.__name__ == "DataLoaderShard" for base in kind.__mro__):
        shard: Any = loader
        return getattr(shard, "base_dataloader", shard), _Placed(shard.device, getattr(shard, "_non_blocking", False))
    if _is_accelerates(kind) and kind.__name__ == "DataLoaderDispatcher":
        raise ConfigError(
            "the loader was prepared to be read by one process of a group only: give accelerate's "
            "DataLoaderConfiguration dispatch_batches=False"
        )
    raise ConfigError(
        f"the loader is a {kind.__name__} that iterates in a way of its own, which cannot be shared out among workers: "
        f"use a torch.utils.data.DataLoader, or {OWN_SAMPLING}"
    )


def _is_accelerates(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "accelerate"


def _as_it_is(batch: Any) -> Any:
    return batch


class _Placed:
    """Puts batches on a device as accelerate does."""

    def __init__(self, device: Any, non_blocking: bool):
        self._device, self._non_blocking = device, non_blocking

    def __call__(self, batch: Any) -> Any:
        if self._device is None:
            return batch
        # The user's loader is accelerate's, so it is loaded.
        send = sys.modules["accelerate.utils"].send_to_device
        return send(batch, self._device, non_blocking=self._non_blocking)
