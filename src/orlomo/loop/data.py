"""A user's data loader, driven by leases: it loads the samples that this worker may use, and no others.

    leased = LeasedLoader(loader, seed=0)
    leased.queue.hold(order.leases)                   # with every assignment
    for batch, lease, stop in leased.iterate(epoch):  # `stop`: the position after the last sample of the batch
        ...

A data loader with processes of its own asks for samples long before they are used. What counts as delivered is what
`iterate` has yielded; what was only loaded is loaded again if the loop is left and begun again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler

from orlomo.errors import ConfigError, require
from orlomo.loop.loaders import source_of
from orlomo.loop.messages import SHARED, DataFacts, Lease
from orlomo.seeds import generator


class Piece(NamedTuple):
    """The samples of one batch: positions [first, stop) of a lease."""

    lease: Lease
    first: int
    stop: int


class LeaseQueue:
    """The leases of this worker, in the order in which they are used, and what has been delivered of the first.

    >>> queue = LeaseQueue()
    >>> queue.hold([Lease(0, 0, 8), Lease(0, 8, 16)])
    >>> queue.next(epoch=0, samples=6)
    Piece(lease=Lease(epoch=0, first=0, stop=8), first=0, stop=6)
    """

    def __init__(self) -> None:
        self._leases: list[Lease] = []
        self._begin = 0  # of what has not been delivered of the first lease

    def hold(self, leases: Iterable[Lease]) -> None:
        """These are all the leases that the worker holds now, in order: as they come with an assignment.

        What has been delivered of a lease that is still the first one stays delivered. A lease that was delivered in
        full and comes again is delivered again: its report was refused. One that comes no more is not delivered: the
        server has given it to another worker.
        """
        before, self._leases = self._leases, list(leases)
        if self._leases and self._leases[:1] != before[:1]:
            self._begin = self._leases[0].first

    def next(self, epoch: int, samples: int, after: Piece | None = None) -> Piece | None:
        """The next at most `samples` samples, of one lease of this epoch or an earlier one, after this piece or else
        after what has been delivered; None where the next lease is of a later epoch or there is none."""
        if after is None:
            number, first = 0, self._begin
        elif after.lease not in self._leases:
            return None
        elif after.stop < after.lease.stop:
            number, first = self._leases.index(after.lease), after.stop
        else:
            number = self._leases.index(after.lease) + 1
            first = self._leases[number].first if number < len(self._leases) else 0
        # Never past a lease of a later epoch: the server counts on the order.
        if number >= len(self._leases) or max(lease.epoch for lease in self._leases[: number + 1]) > epoch:
            return None
        lease = self._leases[number]
        return Piece(lease, first, min(first + samples, lease.stop))

    def deliver(self, piece: Piece) -> None:
        """This piece, the next one, is in the user's hands."""
        assert self._leases[:1] == [piece.lease]
        self._begin = piece.stop
        if piece.stop == piece.lease.stop:
            del self._leases[0]
            if self._leases:
                self._begin = self._leases[0].first

    def put_back(self, lease: Lease, first: int) -> None:
        """Of the lease that was delivered last, everything from this position on is to be delivered again."""
        if self._leases[:1] != [lease]:
            self._leases.insert(0, lease)
        self._begin = first

    def __len__(self) -> int:
        return len(self._leases)


class Orders:
    """The order of the samples in each epoch: a permutation of (seed, epoch), or as they are."""

    def __init__(self, size: int, seed: int, shuffled: bool):
        self._size, self._seed, self._shuffled = size, seed, shuffled
        self._recent: dict[int, NDArray[np.int64]] = {}

    def samples(self, piece: Piece) -> list[int]:
        """The indices of these samples in the data set."""
        if not self._shuffled:
            return list(range(piece.first, piece.stop))
        epoch = piece.lease.epoch
        if epoch not in self._recent:
            if len(self._recent) == 2:  # leases of two epochs at most come in turns, and an order may be large
                del self._recent[min(self._recent)]
            self._recent[epoch] = generator(self._seed, "samples", epoch).permutation(self._size)
        found: list[int] = self._recent[epoch][piece.first : piece.stop].tolist()
        return found


class LeasedLoader:
    """A DataLoader that delivers the leased samples, with all other settings of the one given.

    In each epoch the samples are in the order of a permutation of (seed, epoch) if the loader shuffles, else as they
    are in the data set. With `drop_last` the samples after the last whole batch of an epoch belong to no lease.

    `part`: (rank, ranks) in a group of processes that are one worker. A batch of the group has `batch_size` samples
    for each rank; each takes its part of it. The last batch of a lease may be smaller: its samples are shared out as
    evenly as possible, and a rank for which none is left takes the last one too, so that no rank has an empty batch.

    >>> import torch
    >>> from torch.utils.data import DataLoader
    >>> leased = LeasedLoader(DataLoader(torch.arange(10), batch_size=3))
    >>> leased.queue.hold([Lease(0, 4, 8)])
    >>> [(batch.tolist(), stop) for batch, lease, stop in leased.iterate(epoch=0)]
    [([4, 5, 6], 7), ([7], 8)]
    """

    def __init__(self, loader: DataLoader[Any], seed: int = 0, accumulate: int = 1, part: tuple[int, int] = (0, 1)):
        require(accumulate >= 1, f"accumulate must be at least 1, not {accumulate}")
        self.queue = LeaseQueue()
        self._source = source_of(loader)
        self._part, self._accumulate = part, accumulate
        self._group_batch = self._source.batch_size * part[1]
        self._orders = Orders(self._source.size, seed, self._source.shuffled)
        self._kept: tuple[_LeasedSampler, DataLoader[Any]] | None = None
        self._issued: deque[Piece] = deque()

    def facts(self, epochs: float | None) -> DataFacts:
        """What the server needs to know to lease samples to this worker."""
        source = self._source
        size = source.size
        if source.drop_last:
            size -= size % self._group_batch
            require(
                size > 0, f"with drop_last the data set of {source.size} samples has no batch of {self._group_batch}"
            )
        return DataFacts(SHARED, size, source.batch_size, self._accumulate, epochs, source.ahead)

    def iterate(self, epoch: int) -> Iterator[tuple[Any, Lease, int]]:
        """Batches in the order of the leases, each with its lease and the position after its last sample.

        Ends where the next lease is of a later epoch, or none is known. Between two batches the caller may give the
        queue more leases. Where the loop is left and begun again, it continues after the last batch that was yielded.
        """
        sampler, loader = self._rebuilt()
        issued = self._issued = sampler.begin(epoch)
        batches: Iterator[Any] | None = None
        while (due := self.queue.next(epoch, self._group_batch)) is not None:
            # A pass over the loader is over when all that it was asked for is delivered: its processes stop where they
            # are asked for nothing. It is of no use where the leases have changed, and other samples are due.
            changed = bool(issued) and issued[0] != due
            if batches is None or changed or (not issued and self._source.ahead):
                issued.clear()
                batches = iter(loader)
            batch = self._source.place(next(batches))
            piece = issued.popleft()
            assert piece == due
            self.queue.deliver(piece)
            yield batch, piece.lease, piece.stop
            if self._issued is not issued:
                raise ConfigError("the same loader is iterated over twice at a time: its batches are delivered once")

    def _rebuilt(self) -> tuple[_LeasedSampler, DataLoader[Any]]:
        if self._kept is not None:
            return self._kept
        sampler = _LeasedSampler(self.queue, self._orders, self._group_batch, self._part)
        rebuilt = sampler, self._source.rebuild(sampler)
        if self._source.persistent:
            self._kept = rebuilt
        return rebuilt


class _LeasedSampler(Sampler[list[int]]):
    """Gives the data loader the indices of the next samples that are leased, and remembers what it has given."""

    def __init__(self, queue: LeaseQueue, orders: Orders, samples: int, part: tuple[int, int]):
        self._queue, self._orders, self._samples, self._part = queue, orders, samples, part
        self._epoch = 0
        self._issued: deque[Piece] = deque()

    def begin(self, epoch: int) -> deque[Piece]:
        """Leases up to this epoch; what is issued and not delivered, in order."""
        self._epoch, self._issued = epoch, deque()
        return self._issued

    def __iter__(self) -> Iterator[list[int]]:
        # Not a generator, which would be over for good when it has nothing to give for once.
        return self

    def __next__(self) -> list[int]:
        piece = self._queue.next(self._epoch, self._samples, self._issued[-1] if self._issued else None)
        if piece is None:
            raise StopIteration
        self._issued.append(piece)
        samples = self._orders.samples(piece)
        rank, ranks = self._part
        if ranks == 1:
            return samples
        share: list[int] = np.array_split(np.asarray(samples), ranks)[rank].tolist()
        return share or samples[-1:]


class LeasedIds:
    """The numbers 0 to `count` - 1, each exactly once per epoch over all workers: of files, or ranges of rows.

    For data that no sampler can index, as an IterableDataset. A lease is one number, and a round is all that the loop
    does with it: only so can it be said of every number that it was folded in once, and not in part. Choose `count` so
    that a number is about `local_steps` optimizer steps.

    >>> ids = LeasedIds(4)
    >>> ids.queue.hold([Lease(0, 1, 2), Lease(0, 2, 3)])
    >>> [number for number, lease, stop in ids.iterate(epoch=0)]
    [1, 2]
    """

    def __init__(self, count: int, seed: int = 0, shuffle: bool = False):
        require(count >= 1, f"there must be at least one block, not {count}")
        self.queue = LeaseQueue()
        self._count = count
        self._orders = Orders(count, seed, shuffle)

    def facts(self, epochs: float | None) -> DataFacts:
        """What the server needs to know to lease numbers to this worker."""
        return DataFacts(SHARED, self._count, epochs=epochs, block=1)

    def iterate(self, epoch: int) -> Iterator[tuple[int, Lease, int]]:
        """Numbers in the order of the leases, as `LeasedLoader.iterate` gives batches."""
        while (piece := self.queue.next(epoch, 1)) is not None:
            self.queue.deliver(piece)
            yield self._orders.samples(piece)[0], piece.lease, piece.stop
