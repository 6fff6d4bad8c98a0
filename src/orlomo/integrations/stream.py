"""A worker's batches for a framework that iterates over a data loader itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from orlomo.loop.messages import SHARED
from orlomo.loop.worker import Worker


class Stream:
    """In place of a data loader: each pass over it gives this worker's batches of one epoch of the run.

    An epoch that the other workers have finished meanwhile is left out. `epochs`: how many the run has.
    """

    def __init__(
        self, worker: Worker, loader: Any, accumulate: int = 1, sampling: str = SHARED, epochs: float | None = None
    ):
        self.worker, self.loader, self.epochs = worker, loader, epochs
        self._accumulate, self._sampling = accumulate, sampling
        self._pass: Any = None

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def dataset(self) -> Any:
        """The data set of the loader."""
        return self.loader.dataset

    def __iter__(self) -> Iterator[Any]:
        self.close()
        self._pass = self.worker.batches(
            self.loader, accumulate=self._accumulate, sampling=self._sampling, epochs=self.epochs
        )
        return iter(self._pass)

    def close(self) -> None:
        """End the pass, and the round, if all of its batches have been used. Others come again."""
        if self._pass is not None:
            self._pass.close()
            self._pass = None
            if self.worker._rounds is not None:
                self.worker._rounds.settle()

    @property
    def epoch(self) -> int:
        """The epoch that the next pass begins in, or continues."""
        return 0 if self.worker._rounds is None else self.worker._rounds.next_epoch

    @property
    def position(self) -> float:
        """How far the run is, in epochs, with the batch at hand."""
        return 0.0 if self.worker._rounds is None else self.worker._rounds.position

    def group(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Of these batches, as many as are of the same round."""
        for batch in batches:
            yield batch
            if self.worker.last_of_round:
                return


def leads(worker: Worker) -> bool:
    """Whether this worker is the one that saves and prints; before it is attached, whether it will be."""
    if worker.attached or worker._port is None:
        return worker.chief
    settings = worker._port.settings
    return settings.rank == 0 and not settings.evaluates
