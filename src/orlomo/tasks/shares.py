"""The training data of each worker: all the same, each its own (`PerWorker`), or a share of a stream (`Stream`)."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from torch.utils.data import IterableDataset

from orlomo.errors import ConfigError, require, require_takes
from orlomo.seeds import derive, isolated, seed_global
from orlomo.tasks.data import Data, checked_data, data_size, sample

if TYPE_CHECKING:
    from orlomo.tasks.task import Task

Opened: TypeAlias = Callable[[int, int, int], Iterable[Any]]
"""(rank, count, position) -> the share of worker `rank` of `count`, from its `position`-th sample on."""

HEAD = 2000
"""Samples at the beginning of a stream on which the training loss is evaluated."""


class PerWorker:
    """Separate training data for each worker, as in two data centres or two hospitals; no data move between them.

    Worker k has the k-th data set; with more workers than data sets, the list starts again from its beginning. The data
    sets may differ in size: each worker shuffles its own, epoch by epoch, and an epoch of the run is as many samples as
    all have together.

    Args:
        parts: the data sets, in order or by name; names are for the run folder, the screen and the page.

    >>> import orlomo, torch
    >>> oslo, bergen = (torch.randn(30, 4), torch.arange(30) % 2), (torch.randn(10, 4), torch.arange(10) % 2)
    >>> data = orlomo.PerWorker({"oslo": oslo, "bergen": bergen})
    >>> len(data), data.name_of(1), data.name_of(2)
    (40, 'bergen', 'oslo')
    """

    def __init__(self, parts: Sequence[Any] | Mapping[str, Any]):
        good = isinstance(parts, (Sequence, Mapping)) and not isinstance(parts, str) and len(parts) > 0
        require(good, "PerWorker needs a list of data sets, or a dict from names to data sets")
        named = parts.items() if isinstance(parts, Mapping) else ((str(k), part) for k, part in enumerate(parts))
        checked = {str(name): checked_data(part, f"the data of {name!r}") for name, part in named}
        self.names, self.parts = tuple(checked), tuple(checked.values())
        self._ends = tuple(itertools.accumulate(map(data_size, self.parts)))

    def of(self, worker: int) -> Data:
        """The data of this worker."""
        return self.parts[worker % len(self.parts)]

    def name_of(self, worker: int) -> str:
        """What they are called."""
        return self.names[worker % len(self.names)]

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        """Sample `index` of all data sets, one behind the other: for evaluating the training loss."""
        number = next(k for k, end in enumerate(self._ends) if index < end)
        return sample(self.parts[number], index - (self._ends[number] - data_size(self.parts[number])))


class Stream:
    """Training data that are read sequentially; each worker takes its share.

    Worker k of K takes samples k, k+K, k+2K and so on, and starts again at the end. A worker that continues at a later
    position reads the data set from the beginning up to there, unless `data` is a function that can open it anywhere.

    Args:
        data: an `IterableDataset`, or a function (rank, count, position) that returns an iterator over the share of
            worker `rank` of `count`, starting with its `position`-th sample.
        samples: the size of an epoch; by default the data set's length.

    >>> import orlomo
    >>> numbers = orlomo.Stream(lambda rank, count, position: iter(range(rank + position * count, 100, count)), 100)
    >>> share = numbers.share(rank=1, count=4, seed=0)
    >>> [share[0], share[1], share[24], share[25]]  # after 25 samples from the beginning again
    [1, 5, 97, 1]
    """

    def __init__(self, data: IterableDataset[Any] | Opened, samples: int | None = None):
        streams = isinstance(data, IterableDataset)
        require(streams or callable(data), f"Stream needs an IterableDataset or a function, not {type(data).__name__}")
        if not isinstance(data, IterableDataset):
            require_takes(data, 3, "the function of a Stream must take (rank, count, position)")
        if samples is None:
            try:
                samples = len(data)  # type: ignore[arg-type]
            except TypeError:
                raise ConfigError(
                    f"{type(data).__name__} has no length: give Stream(data, samples=...), how many make an epoch"
                ) from None
        good = isinstance(samples, int) and not isinstance(samples, bool) and samples >= 1
        require(good, f"samples of a Stream must be a whole number of at least 1, not {samples!r}")
        self.data, self.samples = data, samples
        self._head: list[Any] = []

    @property
    def opens_anywhere(self) -> bool:
        """Whether a worker can continue without reading what came before."""
        return not isinstance(self.data, IterableDataset)

    def share(self, rank: int, count: int, seed: int) -> Share:
        """What worker `rank` of `count` reads."""
        return Share(self, rank, count, seed)

    def head(self, seed: int) -> list[Any]:
        """The first samples, always the same."""
        if not self._head:
            with isolated():
                whole = self.share(0, 1, seed)
                self._head = list(itertools.islice(whole.one_pass(0), min(HEAD, self.samples)))
            require(bool(self._head), "the stream is empty")
        return self._head

    def __len__(self) -> int:
        return self.samples

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_head": []}  # read again where it is needed


class Share:
    """A worker's share of a stream as a data set that is read in order: position n is the worker's n-th sample.

    Reading draws from global generators that are seeded by the position alone, so that a share which is opened again,
    in another process, gives the same samples.
    """

    def __init__(self, stream: Stream, rank: int, count: int, seed: int):
        self._stream, self._rank, self._count = stream, rank % count, count
        self._seed, self._worker = seed, rank
        self._position = 0  # of the next sample
        self._pass = 0
        self._samples: Iterator[Any] | None = None

    def __len__(self) -> int:
        return self._stream.samples

    def one_pass(self, number: int, position: int = 0) -> Iterator[Any]:
        """The share once, from a position on."""
        data = self._stream.data
        seed_global(derive(self._seed, "stream pass", self._worker, number))
        if not isinstance(data, IterableDataset):
            opened = data(self._rank, self._count, position)
            good = isinstance(opened, Iterable)
            require(good, f"the function of a Stream must give an iterator over samples, not {type(opened).__name__}")
            return iter(opened)
        try:
            # A copy: workers in one process must not share what the data set keeps.
            data = copy.deepcopy(data)
        except Exception as error:
            raise ConfigError(
                f"the stream {type(data).__name__} cannot be copied for each worker ({error}): open files and "
                "connections in __iter__"
            ) from None
        if hasattr(data, "set_epoch"):
            data.set_epoch(number)
        return itertools.islice(iter(data), self._rank + position * self._count, None, self._count)

    def __getitem__(self, position: int) -> Any:
        if self._samples is None or position < self._position:
            self._open(position)
        while self._position < position:
            self._next()
        return self._next()

    def _open(self, position: int) -> None:
        self._position, self._pass = 0, 0
        if self._stream.opens_anywhere and position:
            ahead = self.one_pass(0, position)
            first = next(ahead, self)  # itself: nothing is there
            if first is not self:
                self._samples, self._position = itertools.chain([first], ahead), position
                return
        # Behind the end of the first pass, whose length is not known: read from the beginning.
        self._samples = self.one_pass(0)

    def _next(self) -> Any:
        seed_global(derive(self._seed, "stream", self._worker, self._position))
        assert self._samples is not None
        found = next(self._samples, self)
        if found is self:
            self._pass += 1
            self._samples = self.one_pass(self._pass)
            found = next(self._samples, self)
            require(
                found is not self,
                f"the stream gives worker {self._rank} of {self._count} no samples: use fewer workers",
            )
        self._position += 1
        return found


class Shares:
    """The training data of each worker, for whoever computes its rounds."""

    def __init__(self, task: Task, seed: int):
        self._task, self._seed = task, seed
        self._readers: dict[int, Share] = {}

    def of(self, worker: int) -> Any:
        """The data of this worker, to be indexed by `Task.round_batches`."""
        data = self._task.train_data
        if isinstance(data, PerWorker):
            return data.of(worker)
        if not isinstance(data, Stream):
            return data
        if worker not in self._readers:
            self._readers[worker] = data.share(worker, self._task.workers or 1, self._seed)
        return self._readers[worker]


def describe(task: Task, workers: int) -> list[dict[str, object]]:
    """What each worker trains on, for the run folder; nothing where all have the same data."""
    data, batch = task.train_data, task.batch_size
    if not isinstance(data, PerWorker):
        return []
    return [
        {"worker": worker, "data": data.name_of(worker), "samples": data_size(data.of(worker)), "batch_size": batch}
        for worker in range(workers)
    ]
