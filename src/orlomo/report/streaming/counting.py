"""Values counted as they come, block by block, and the quantiles and histograms of what was counted.

A quantile of q% is the smallest value that at least q% of the values do not exceed: always a value that occurs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Column = NDArray[Any]

MOST = 2**19
"""Different pairs of a group and a value that are counted one by one. Beyond that, values lose digits (`bits`)."""

FEWEST_BITS = 5

COUNTED = 2**16
"""In `Counts`, numbers below this are counted one by one."""

BARS = 60
"""At most so many bars in a histogram."""

NEGATIVE = np.int64(np.iinfo(np.int64).max)
"""What is turned around in the bits of a negative number, so that they are in the order of the numbers."""


class Code(NamedTuple):
    """How values become small whole numbers in the same order, with so many significant `bits`, and back."""

    width: int  # bits of a code
    bits: int
    encode: Callable[[Column], Whole]
    decode: Callable[[Whole], Column]
    coarser: Callable[[Whole, int], Whole]
    """Codes of the same values with fewer significant bits."""


def _encode_wholes(values: Column) -> Whole:
    if not len(values) or values.max() < 2**14:
        return values.astype(np.int64)
    power = np.maximum(np.frexp(values.astype(np.float64))[1].astype(np.int64) - 13, 1)
    return np.where(values < 2**14, values, (power << 13) + np.clip((values >> (power - 1)) - 2**13, 0, 2**13 - 1))


def _decode_wholes(codes: Whole) -> Column:
    power, rest = codes >> 13, codes & (2**13 - 1)
    return np.where(power == 0, rest, (rest + 2**13) << np.maximum(power - 1, 0))


def _coarser_wholes(codes: Whole, bits: int) -> Whole:
    values = _decode_wholes(codes)
    shift = np.maximum(np.frexp(values.astype(np.float64))[1].astype(np.int64) - bits, 0)
    return _encode_wholes((values >> shift) << shift)


def _encode_numbers(values: Column) -> Whole:
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    bits = np.where(bits < 0, bits ^ NEGATIVE, bits)
    return ((bits + 2**35) >> 36) + 2**27  # to the nearest with 16 binary digits after the first


def _decode_numbers(codes: Whole) -> Column:
    bits = (codes - 2**27) << 36
    return np.where(bits < 0, bits ^ NEGATIVE, bits).view(np.float64)


def _coarser_numbers(codes: Whole, bits: int) -> Whole:
    shift = 17 - bits
    return ((codes + (1 << shift >> 1)) >> shift) << shift


WHOLES = Code(19, 14, _encode_wholes, _decode_wholes, _coarser_wholes)
"""Whole numbers from 0 on: exact below 2**14, then rounded down by less than 1 in 8,192."""

NUMBERS = Code(28, 17, _encode_numbers, _decode_numbers, _coarser_numbers)
"""Numbers, rounded by less than 1 in 100,000."""


class Table(NamedTuple):
    """How often each value occurs in each group; sorted by group, then by value."""

    group: Whole
    value: Column
    counts: Whole


class Grouped:
    """How often each value occurs in each group. Groups are small numbers: up to 44 bits for whole numbers.

    Memory is limited: where there are too many different values, they lose digits; `bits` says how many they have.
    `joined`: how many of the lowest bits of a group's number may be set to zero before values lose more than four bits;
    neighbouring groups become one then.
    """

    def __init__(self, code: Code, joined: int = 0):
        self.code, self.bits = code, code.bits
        self.dropped = 0  # bits of the groups
        self._joined = joined
        self._parts: list[tuple[Whole, Whole]] = []
        self._size = 0

    def add(self, group: Whole, values: Column) -> None:
        """Count these values of these groups; none is missing (NaN)."""
        if len(values):
            keys = (group << self.code.width) + self.code.encode(values)
            self.add_keys(*np.unique(keys, return_counts=True))

    def add_keys(self, keys: Whole, counts: Whole) -> None:
        """Count what was counted before: each group and the code of a value, in one number, and how often."""
        self._parts.append((keys, counts))
        self._size += len(keys)
        if self._size > 2 * MOST:
            self._settle()

    def regroup(self, change: Callable[[Whole], Whole]) -> None:
        """Give each group another number; those that get the same become one."""
        width = self.code.width
        self._parts = [((change(keys >> width) << width) | (keys & ((1 << width) - 1)), n) for keys, n in self._parts]

    def _settle(self) -> tuple[Whole, Whole]:
        keys, counts = _summed([(self._coarser(keys), counts) for keys, counts in self._parts])
        while len(keys) > MOST and (self.bits > FEWEST_BITS or self.dropped < self._joined):
            if self.bits > self.code.bits - 4 or self.dropped == self._joined:
                self.bits -= 1
            else:
                self.dropped += 1
            keys, counts = _summed([(self._coarser(keys), counts)])
        self._parts, self._size = [(keys, counts)], len(keys)
        return keys, counts

    def _coarser(self, keys: Whole) -> Whole:
        if not self.dropped and self.bits == self.code.bits:
            return keys
        width = self.code.width
        group, codes = keys >> width >> self.dropped << self.dropped, keys & ((1 << width) - 1)
        return (group << width) | (self.code.coarser(codes, self.bits) if self.bits < self.code.bits else codes)

    def table(self, change: Callable[[Whole], Whole] = lambda group: group) -> Table:
        """What was counted; with `change`, as if `regroup` had been called."""
        nothing = np.zeros(0, dtype=np.int64)
        keys, counts = self._settle() if self._parts else (nothing, nothing)
        width = self.code.width
        group, codes = change(keys >> width), keys & ((1 << width) - 1)
        keys, counts = _summed([((group << width) | codes, counts)])
        return Table(keys >> width, self.code.decode(keys & ((1 << width) - 1)), counts)


def summed(table: Table) -> Table:
    """Equal values of one group once; the groups are in order, the values of one group are not."""
    order = np.lexsort((table.value, table.group))
    group, value, counts = (column[order] for column in table)
    if not len(group):
        return table
    firsts = np.flatnonzero(np.concatenate([[True], (group[1:] != group[:-1]) | (value[1:] != value[:-1])]))
    return Table(group[firsts], value[firsts], np.add.reduceat(counts, firsts))


def _summed(parts: list[tuple[Whole, Whole]]) -> tuple[Whole, Whole]:
    """Equal keys once, in order, with their counts added up."""
    keys, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    if not len(keys):
        return keys, counts
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[firsts], np.add.reduceat(counts[order], firsts)


class Spread(NamedTuple):
    """Of each group: how many values it has, quantiles of 5, 50 and 95%, the largest, and the values that lie far out.

    `outliers`: those above twice the quantile of 95%.
    """

    group: Whole
    number: Whole
    low: Column
    middle: Column
    high: Column
    largest: Column
    outliers: Whole


def spread(table: Table) -> Spread:
    """The quantiles of each group.

    >>> values = np.array([1, 2, 3, 40])
    >>> spread(Table(np.zeros(4, dtype=int), values, np.array([10, 10, 79, 1])))[1:]
    (array([100]), array([1]), array([3]), array([3]), array([40]), array([1]))
    """
    group, value, counts = table
    if not len(group):
        return Spread(group, counts, value, value, value, value, counts)
    firsts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    total = np.cumsum(counts)
    before = total[firsts] - counts[firsts]
    lasts = np.append(firsts[1:], len(group)) - 1
    sums = total[lasts] - before
    low, middle, high = (value[np.searchsorted(total, before + -(-sums * q // 100))] for q in (5, 50, 95))
    limits = np.repeat(2 * np.maximum(high, -high), lasts - firsts + 1)
    outliers = np.add.reduceat(np.where(value > limits, counts, 0), firsts)
    return Spread(group[firsts], sums, low, middle, high, value[lasts], outliers)


def quantile(values: Column, counts: Whole, percent: int) -> Any:
    """The smallest of the sorted values that at least so many percent do not exceed.

    >>> int(quantile(np.array([0, 1, 7]), np.array([50, 49, 1]), 99))
    1
    """
    total = np.cumsum(counts)
    return values[np.searchsorted(total, -(-int(total[-1]) * percent // 100))]


class Histogram(NamedTuple):
    """Bars of one width, of whole numbers from 0 on: `left` is a bar's first number.

    It ends at `limit`: so many numbers are `above` it, the largest is `largest`.
    """

    width: int
    left: list[int]
    counts: list[int]
    above: int
    limit: int
    largest: int

    @property
    def rest(self) -> str:
        """What the bars do not show, or nothing.

        >>> histogram(np.array([0, 1, 500]), np.array([900, 98, 2])).rest
        '2 above 1, the largest 500'
        """
        return f"{self.above:,} above {self.limit:,}, the largest {self.largest:,}" if self.above else ""


def histogram(values: Column, counts: Whole, most: int = BARS) -> Histogram:
    """A histogram in at most `most` bars that ends at the quantile of 99%, if there are much larger numbers.

    `values`: different whole numbers in order; `counts`: how often each occurs.

    >>> histogram(np.array([0, 1, 500]), np.array([900, 98, 2])).counts
    [900, 98]
    """
    if not len(values):
        return Histogram(1, [], [], 0, 0, 0)
    largest, shown = int(values[-1]), int(quantile(values, counts, 99))
    if largest <= 2 * max(shown, 5):
        shown = largest
    width = _round_width(-(-(shown + 1) // most))
    bars = shown // width + 1
    limit = bars * width - 1
    inside = values <= limit
    bar = values[inside] // width
    counted = np.zeros(bars, dtype=np.int64)
    np.add.at(counted, bar, counts[inside])
    left = [number * width for number in range(bars)]
    above = int(counts.sum() - counted.sum())
    return Histogram(width, left, counted.tolist(), above, limit, largest)


def _round_width(width: int) -> int:
    """The next of 1, 2, 5, 10, 20, 50, ..."""
    power: int = 10 ** (len(str(width)) - 1)
    return min(power * step for step in (1, 2, 5, 10) if power * step >= width)


class Counts:
    """How often each whole number from 0 on occurs; of large ones, how often one of a few that follow one another."""

    def __init__(self) -> None:
        self._shift = 0
        self._counts = np.zeros(COUNTED, dtype=np.int64)
        self.number, self.sum, self.max = 0, 0, 0

    def add(self, values: Whole) -> None:
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

    def table(self) -> tuple[Whole, Whole]:
        """The numbers that occur, in order, and how often; a large one stands for those that were counted with it."""
        used = np.flatnonzero(self._counts)
        values = used << self._shift
        if len(values):
            values[-1] = self.max
        return values, self._counts[used]

    def quantile(self, percent: int) -> int | None:
        """The quantile of so many percent; None: nothing was counted."""
        return int(quantile(*self.table(), percent)) if self.number else None

    def histogram(self, most: int = BARS) -> Histogram:
        """The histogram of what was counted."""
        return histogram(*self.table(), most)
