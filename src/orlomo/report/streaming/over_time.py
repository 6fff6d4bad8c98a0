"""How delays, losses and weights change over a run's time, added up block by block in bins of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orlomo.records.tables import Columns
from orlomo.report.streaming.counting import NUMBERS, WHOLES, Column, Grouped, Spread, Table, Whole, spread, summed
from orlomo.report.streaming.workers import Groups, Places

Numbers = NDArray[np.float64]

DIGITS = 8
BINS = 2**DIGITS
"""Bins of time, of which at least half are in use."""

OWN_DIGITS = 5
FINER = 2 ** (DIGITS - OWN_DIGITS) - 1
"""For each worker alone there are fewer bins of time; these bits of a bin are zero."""

ENOUGH = 20
"""Values in a bin, on average, from which its quantiles say something; fewer bins are shown where there are less."""

FEWEST = 4

WEIGHTS_SHOWN = 80
"""Delays, or ranges of them, of which the weights are shown."""

FEW = 2**18
"""Numbers below this are counted in an array, without sorting them."""

SUMS = ("number", "full", "eta", "weight", "cut")


class Bins:
    """Bins from time 0 on, of one width, a power of 2. When they do not reach far enough, each two become one."""

    def __init__(self) -> None:
        self._power: int | None = None
        self.latest = 1e-9  # time so far

    @property
    def width(self) -> float:
        """Of a bin, in seconds."""
        return float(np.ldexp(1.0, self._power or 0))

    def of(self, times: Numbers) -> tuple[int, Whole]:
        """How many times all bins are to be halved in number, and then the bins of these times."""
        self.latest = max(float(times.max()), self.latest)
        power = int(np.frexp(self.latest)[1]) - DIGITS
        halved = 0 if self._power is None else max(0, power - self._power)
        self._power = power if self._power is None else self._power + halved
        return halved, np.clip(np.ldexp(times, -self._power), 0, BINS - 1).astype(np.int64)


class Band(NamedTuple):
    """Quantiles per bin of time (see `Spread`). Bins begin at `group * width` seconds; the last ends at `end`."""

    width: float
    end: float
    spread: Spread


class OverTime:
    """Delays by time and by worker, weights by delay, and the sums of weights by time."""

    def __init__(self, losses: bool = False):
        self._places = Places()
        self._bins = Bins()
        self._delays = Grouped(WHOLES)
        self._own = Grouped(WHOLES, joined=DIGITS)
        self._etas, self._weights = Grouped(NUMBERS), Grouped(NUMBERS)
        self._losses = Grouped(NUMBERS) if losses else None
        self._sums = np.zeros((len(SUMS), BINS))

    def add(self, groups: Groups, present: Whole, columns: Columns) -> None:
        """More reports, in their order. `groups`: their workers; `present`: how many there were, for each report."""
        halved, bins = self._bins.of(columns["finish"])
        if halved:
            self._halve(halved)
        order, workers, _, sizes = groups
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.repeat(self._places.of(workers), sizes)
        codes = WHOLES.encode(columns["delay"])
        first, delays = bins.min(), codes.max() + 1
        at, counts = _different((place * (bins.max() - first + 1) + bins - first) * delays + codes)
        keys = (((place[at] << DIGITS) + bins[at]) << WHOLES.width) + codes[at]
        # All workers together: the same without the worker.
        self._delays.add_keys(keys & ((1 << (DIGITS + WHOLES.width)) - 1), counts)
        self._own.add_keys(keys & ~(FINER << WHOLES.width), counts)
        self._add_weights(codes, columns["behind"], columns["eta"], columns["weight"])
        self._add_sums(bins, 1 / np.maximum(1, present), columns["eta"], columns["weight"])
        if self._losses is not None and "loss" in columns:
            known = np.isfinite(columns["loss"])
            self._losses.add(bins[known], columns["loss"][known])

    def _add_weights(self, codes: Whole, behind: Whole, eta: Numbers, weight: Numbers) -> None:
        pairs = [(self._etas, eta), (self._weights, weight)]
        # For one delay and one number of groups behind there is one weight, as a rule: then few numbers are counted.
        groups = int(behind.max()) + 1
        size = (int(codes.max()) + 1) * groups
        at, counts = None, None
        for grouped, values in pairs:
            if size <= FEW:
                index = codes * groups + behind
                usual = np.empty(size)
                usual[index] = values
                if (usual[index] == values).all():
                    if at is None or counts is None:
                        at, counts = _different(index)
                    grouped.add_keys((codes[at] << grouped.code.width) + grouped.code.encode(values[at]), counts)
                    continue
            known = np.isfinite(values)
            grouped.add(codes[known], values[known])

    def _add_sums(self, bins: Whole, full: Numbers, eta: Numbers, weight: Numbers) -> None:
        if np.isnan(weight[0]) or np.isnan(weight).any():
            weight = np.nan_to_num(weight)
        borders = np.flatnonzero(bins[1:] != bins[:-1]) + 1
        firsts = np.concatenate([[0], borders])
        own = bins[firsts]
        sums = np.stack([np.add.reduceat(column, firsts) for column in (full, eta, weight)])
        cut = np.add.reduceat(eta < full * (1 - 1e-9), firsts, dtype=np.float64)
        sizes = np.diff(firsts, append=len(bins))
        for place, column in enumerate((sizes, *sums, cut)):
            np.add.at(self._sums[place], own, column)

    def _halve(self, times: int) -> None:
        def change(group: Whole) -> Whole:
            low: Whole = group & (BINS - 1)
            return group - low + (low >> min(times, 63))

        self._delays.regroup(change)
        self._own.regroup(lambda group: change(group) & ~FINER)
        if self._losses is not None:
            self._losses.regroup(change)
        for _ in range(min(times, DIGITS)):
            halves = self._sums.reshape(len(SUMS), -1, 2).sum(axis=2)
            self._sums = np.concatenate([halves, np.zeros_like(halves)], axis=1)

    @property
    def end(self) -> float:
        """When the last report came."""
        return self._bins.latest

    def delays(self) -> Band:
        """Of all workers together."""
        return self._band(self._delays)

    def losses(self) -> Band | None:
        """Of all workers together; None: there are none."""
        return None if self._losses is None else self._band(self._losses)

    def _band(self, grouped: Grouped) -> Band:
        group, _, counts = grouped.table()
        times = _halvings(group, int(counts.sum()))
        return Band(self._bins.width * 2**times, self.end, spread(grouped.table(lambda group: group >> times)))

    def of_workers(self, workers: Sequence[int]) -> dict[int, Band]:
        """Of each of these workers alone."""
        table = self._own.table()
        places = table.group >> DIGITS
        found = {}
        for worker, place in zip(workers, self._places.of_known(np.array(workers, dtype=np.int64)), strict=True):
            first, last = np.searchsorted(places, [place, place + 1])
            own = Table(*(column[first:last] for column in table))
            bins = (own.group & (BINS - 1)) >> (DIGITS - OWN_DIGITS)
            times = _halvings(bins, int(own.counts.sum()))
            width = self._bins.width * 2.0 ** (times + DIGITS - OWN_DIGITS)
            found[worker] = Band(width, self.end, spread(summed(own._replace(group=bins >> times))))
        return found

    def by_worker(self) -> tuple[Whole, Spread]:
        """The workers, and the spread of each one's delays over the whole run."""
        found = spread(self._own.table(lambda group: group >> DIGITS))
        workers = np.empty(len(self._places), dtype=np.int64)
        workers[self._places.of_known(self._places.workers)] = self._places.workers
        return workers[found.group], found

    def others(self, workers: list[int]) -> Spread:
        """The delays of these workers together."""
        chosen = np.zeros(len(self._places), dtype=bool)
        chosen[self._places.of_known(np.array(sorted(workers), dtype=np.int64))] = True
        both = spread(self._own.table(lambda group: chosen[group >> DIGITS].astype(np.int64)))
        return Spread(*(column[both.group == 1] for column in both))

    def weights(self) -> tuple[Whole, Whole, Spread, Spread]:
        """Ranges of delays, first and last, with the spread of eta and of the weight in the momentum (may be empty)."""
        codes = np.unique(self._etas.table().group)
        bits = WHOLES.bits
        groups = codes
        while len(groups) > WEIGHTS_SHOWN and bits > 2:
            bits -= 1
            groups = np.unique(WHOLES.coarser(codes, bits))

        def change(group: Whole) -> Whole:
            return WHOLES.coarser(group, bits)

        etas, weights = spread(self._etas.table(change)), spread(self._weights.table(change))
        delays = WHOLES.decode(codes)
        last = np.searchsorted(WHOLES.coarser(codes, bits), etas.group, side="right") - 1
        return WHOLES.decode(etas.group), delays[last], etas, weights

    def sums(self) -> tuple[float, Whole, dict[str, Column]]:
        """The width of bins of time, those in use, and in each the `SUMS`: reports; their sum of weights had each had
        the full weight, 1/K for K workers; of eta; of the weights in the momentum; and how many had less than the full
        weight."""
        used = np.flatnonzero(self._sums[0])
        times = _halvings(used, int(self._sums[0].sum()))
        sums = self._sums.reshape(len(SUMS), -1, 2**times).sum(axis=2)
        used = np.flatnonzero(sums[0])
        return self._bins.width * 2**times, used, dict(zip(SUMS, sums[:, used], strict=True))

    @property
    def exact_below(self) -> int:
        """Delays below this were counted one by one."""
        return 1 << min(self._delays.bits, self._own.bits)


def _halvings(bins: Whole, values: int) -> int:
    """How many times bins are joined two by two, so that there are enough values in each."""
    used = np.unique(bins)
    for times in range(DIGITS):
        if len(used) <= FEWEST or values >= ENOUGH * len(used):
            return times
        used = np.unique(used >> 1)
    return DIGITS


def _different(index: Whole) -> tuple[Whole, Whole]:
    """Where each different number is, once, and how often it occurs."""
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= FEW:
        _, at, counts = np.unique(index, return_index=True, return_counts=True)
        return at, counts
    counts = np.bincount(index)
    where = np.empty(high + 1, dtype=np.int64)
    where[index] = np.arange(len(index))
    used = np.flatnonzero(counts > 0)
    return where[used], counts[used]
