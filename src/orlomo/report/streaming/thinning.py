"""Fewer points that look the same, of columns that come block by block, and counts of whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

POINTS = 1200
"""As many points as can be told apart on a wide screen."""

KEPT = 2**15
"""Rows that are kept before the stretches grow: far more than points, so that stretches can be of nearly any length."""

COUNTED = 2**16
"""Numbers below this are counted one by one."""

Column = NDArray[Any]
Rows = Callable[[NDArray[np.int64]], dict[str, Column]]
"""Gives the columns of the rows at these positions."""

POSITION = "position"
"""The column with the number of each row that is kept."""


class Thinner:
    """The first row, the last, and those with the extremes of one column in each stretch of rows of one length.

    Up to `KEPT` rows all are kept. Beyond that, those with the extremes of short stretches; the length of the final
    stretches is a multiple of theirs.
    """

    def __init__(self, name: str):
        self.name = name
        self.count = 0
        self._window = 1
        self._parts: list[dict[str, Column]] = []
        self._size = 0
        self._last: tuple[Rows, Column] | None = None

    def add(self, values: Column, rows: Rows) -> None:
        """More rows: their values, by which they are thinned, and the others on demand."""
        if not len(values):
            return
        positions = np.arange(self.count, self.count + len(values))
        kept = _extremes(values, positions, self._window) if self._window > 1 else positions - self.count
        self._parts.append({**rows(kept), self.name: values[kept], POSITION: positions[kept]})
        self._last = rows, values
        self.count += len(values)
        self._size += len(kept)
        if self._size > 2 * KEPT:
            self._reduce()

    def _reduce(self) -> None:
        table = joined(self._parts)
        while len(table[POSITION]) > KEPT:
            self._window *= 2
            kept = _extremes(table[self.name], table[POSITION], self._window)
            if not len(kept) or kept[0]:
                kept = np.concatenate([[0], kept])  # the first row is always there
            table = {name: column[kept] for name, column in table.items()}
        self._parts, self._size = [table], len(table[POSITION])

    def kept(self, points: int = POINTS) -> dict[str, Column]:
        """The rows that are shown: all, or at most `points`."""
        if self._last is None:
            return {}
        rows, values = self._last
        table = joined(self._parts)
        if table[POSITION][-1] < self.count - 1:  # the last row is no extreme
            end = {**rows(np.array([len(values) - 1])), self.name: values[-1:], POSITION: np.array([self.count - 1])}
            table = joined([table, end])
        if self.count > points:
            size = -(-self.count // max(1, (points - 2) // 2))
            size = -(-size // self._window) * self._window
            chosen = _extremes(table[self.name], table[POSITION], size)
            chosen = np.union1d(chosen, [0, len(table[POSITION]) - 1])
            table = {name: column[chosen] for name, column in table.items()}
        return table


def _extremes(values: Column, positions: NDArray[np.int64], window: int) -> NDArray[np.int64]:
    """Where the first lowest and the first highest value of each window is; of one without numbers, nothing."""
    windows = positions // window
    firsts = np.flatnonzero(np.concatenate([[True], windows[1:] != windows[:-1]]))
    sizes = np.diff(np.append(firsts, len(values)))
    found = np.zeros(len(values), dtype=bool)
    for extreme in (np.fmin, np.fmax):
        wanted = np.repeat(extreme.reduceat(values, firsts), sizes)
        there = np.flatnonzero(values == wanted)
        of = windows[there]
        found[there[np.concatenate([[True], of[1:] != of[:-1]])] if len(there) else there] = True
    return np.flatnonzero(found)


def thin(values: Column, points: int = POINTS) -> NDArray[np.int64]:
    """The positions of fewer points that look the same: the first, the last, and the extremes of each stretch.

    >>> thin(np.array([0.0, 1.0, 9.0, 1.0, 0.0, 2.0, -5.0, 2.0]), points=4).tolist()
    [0, 2, 6, 7]
    """
    thinner = Thinner("value")
    thinner.add(values, lambda rows: {})
    return thinner.kept(points).get(POSITION, np.zeros(0, dtype=np.int64))


class Counts:
    """How often each whole number from 0 on occurs; of large ones, how often one of a few that follow one another."""

    def __init__(self) -> None:
        self._shift = 0
        self._counts = np.zeros(COUNTED, dtype=np.int64)
        self.number, self.sum, self.max = 0, 0, 0

    def add(self, values: NDArray[np.int64]) -> None:
        """Count these."""
        if not len(values):
            return
        largest = int(values.max())
        while largest >> self._shift >= COUNTED:
            self._counts = np.append(self._counts.reshape(-1, 2).sum(axis=1), np.zeros(COUNTED // 2, dtype=np.int64))
            self._shift += 1
        counted = np.bincount(values >> self._shift)
        self._counts[: len(counted)] += counted
        self.number += len(values)
        self.max = max(self.max, largest)
        # A sum of 64 bits cannot hold many absurd numbers.
        self.sum += int(values.sum()) if largest < 2**40 else sum(values.tolist())

    def bins(self, most: int) -> tuple[int, NDArray[np.int64]]:
        """The counts in at most so many bins of one width, and that width."""
        if not self.number:
            return 1, np.zeros(0, dtype=np.int64)
        step = 1 << self._shift
        width = max(1, -(-(self.max + 1) // most))  # rounded up
        width = -(-width // step) * step
        used = (self.max >> self._shift) + 1
        return width, np.add.reduceat(self._counts[:used], np.arange(0, used, width // step))


def joined(parts: list[dict[str, Column]]) -> dict[str, Column]:
    """Parts of a table as one."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
