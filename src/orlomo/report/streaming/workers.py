"""Rows sorted by worker, and a place for each worker in arrays of numbers, whatever its number is."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.float64)


class Groups(NamedTuple):
    """Rows sorted by worker: their `order`, the workers, and where in that order each begins and how many it has."""

    order: Whole
    workers: Whole
    firsts: Whole
    sizes: Whole


def grouped(worker: Whole) -> Groups:
    """Sort rows by worker; each worker's rows stay in their order."""
    small = len(worker) > 0 and int(worker.min()) >= 0 and int(worker.max()) < 2**16
    order = np.argsort(worker.astype(np.uint16) if small else worker, kind="stable")  # 16 bits are sorted faster
    ranked = worker[order]
    firsts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]])) if len(worker) else order
    return Groups(order, ranked[firsts], firsts, np.diff(np.append(firsts, len(worker))))


class Places:
    """The position of each worker in arrays that grow with their number, in the order in which they appear."""

    def __init__(self) -> None:
        self.workers = np.zeros(0, dtype=np.int64)  # sorted
        self._places = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.workers)

    def has(self, workers: Whole) -> NDArray[np.bool_]:
        """Which of these workers have a place."""
        where = np.searchsorted(self.workers, workers)
        known: NDArray[np.bool_] = where < len(self.workers)
        known[known] = self.workers[where[known]] == workers[known]
        return known

    def of(self, workers: Whole) -> Whole:
        """The places of these workers, which are sorted; the new ones come after all others."""
        known = self.has(workers)
        if not known.all():
            new = workers[~known]
            places = np.concatenate([self._places, len(self) + np.arange(len(new))])
            joined = np.concatenate([self.workers, new])
            order = np.argsort(joined, kind="stable")
            self.workers, self._places = joined[order], places[order]
        return self.of_known(workers)

    def of_known(self, workers: Whole) -> Whole:
        """The places of these workers, in any order; none is new."""
        return self._places[np.searchsorted(self.workers, workers)]


def grown(column: NDArray[Number], size: int, filling: float) -> NDArray[Number]:
    """The array with `filling` at its end, at least of this size."""
    if len(column) >= size:
        return column
    return np.concatenate([column, np.full(max(size, 2 * len(column)) - len(column), filling, dtype=column.dtype)])
