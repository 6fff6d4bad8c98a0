"""Rounds of workers, merged as they come: what a timeline of millions of rounds is drawn from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.schedule import DROP, KINDS, REPORT
from orlomo.report.streaming.workers import Groups, Places, Whole, grown

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]

KEPT = 2**15
"""Pieces that are kept before more rounds are merged: far more than bars are drawn."""

LONG = 4.0
"""A round is long that takes so many times its worker's median; the longest are not merged with others."""

ROUND = -1
"""The kind of a piece that is made of rounds; the others are changes: a crash, a return, a join, a departure."""

LEAVES = np.array([kind in ("crash", "leave") for kind in KINDS])


class Pieces(NamedTuple):
    """Rounds of a worker that follow one another, or one change; sorted by worker, then in their order.

    `position` is that of the first round since the last change. `begin`: the end of what came before, NaN: not known.
    """

    worker: Whole
    kind: Whole
    position: Whole
    rounds: Whole
    begin: Numbers
    end: Numbers
    wait: Numbers
    work: Numbers
    whole: Numbers


class Merger:
    """Takes events block by block; keeps all rounds as they are up to `KEPT`, then merges ever more of them.

    Merged are rounds of one worker that follow one another, in windows of one size; not the longest of a worker.
    """

    def __init__(self, bars: int, synchronous: bool):
        self._bars = bars
        self._synchronous = synchronous
        self.rounds = 0
        self._places = Places()
        self._window = 1
        self._parts: list[Pieces] = []
        self._size, self._most = 0, 2 * KEPT
        self._end: Numbers = np.zeros(0)  # of each worker's last event
        self._position: Whole = np.zeros(0, dtype=np.int64)  # of its next round
        self._events: Whole = np.zeros(0, dtype=np.int64)
        self._threshold: Numbers = np.zeros(0)  # only longer rounds can be among its longest
        self._stride = 1
        self._sampled: list[tuple[Whole, Whole, Numbers]] = []  # worker, number of the event, length
        self._samples = 0
        self._starts: list[Numbers] = []

    @property
    def alone(self) -> int:
        """How many of a worker's longest rounds are not merged: a tenth of the bars is for them."""
        return max(1, self._bars // (10 * max(1, len(self._places))))

    def add(self, groups: Groups, kind: Whole, start: Numbers, finish: Numbers, compute: Numbers) -> None:
        """More events, not sorted; `groups` are their workers."""
        order, workers, _, sizes = groups
        if not len(order):
            return
        kind, start, finish, compute = kind[order], start[order], finish[order], compute[order]
        is_round = (kind == REPORT) | (kind == DROP)
        changes = np.flatnonzero(~is_round)
        self.rounds += len(order) - len(changes)
        if self._synchronous:
            self._starts.append(np.unique(start[is_round]))
        before, position, place = self._continued(groups, kind, start, finish, is_round, changes)
        work = np.minimum(compute, finish - np.maximum(start, before))
        pieces = Pieces(
            worker=np.repeat(workers, sizes),
            kind=np.where(is_round, ROUND, kind) if len(changes) else np.full(len(order), ROUND),
            position=position,
            rounds=np.ones(len(order), dtype=np.int64),
            begin=before,
            end=finish,
            wait=np.maximum(0.0, start - before),
            # Real clocks of worker and server differ a little: computing never takes longer than the round.
            work=work,
            whole=finish - before,
        )
        self._sample(pieces, groups, place, is_round)
        if self._window > 1:
            pieces = merged(pieces, self._window, pieces.whole > self._threshold[place])
        self._parts.append(pieces)
        self._size += len(pieces.worker)
        if self._size > self._most:
            self._reduce()

    def _continued(
        self, groups: Groups, kind: Whole, start: Numbers, finish: Numbers, is_round: Flags, changes: Whole
    ) -> tuple[Numbers, Whole, Whole]:
        """The end of the event before, the position among the rounds since the last change, and the worker's place."""
        _, workers, firsts, sizes = groups
        known = len(self._places)
        places = self._places.of(workers)
        count = len(self._places)
        self._end = grown(self._end, count, np.nan)
        self._position = grown(self._position, count, 0)
        self._events = grown(self._events, count, 0)
        self._threshold = grown(self._threshold, count, 0.0)
        before = np.empty(len(kind))
        before[1:] = finish[:-1]
        before[firsts] = self._end[places]
        new = firsts[places >= known]
        before[new[LEAVES[kind[new]]]] = 0.0  # it was there from the beginning
        unknown = np.flatnonzero(np.isnan(before) & is_round)
        before[unknown] = start[unknown]
        # Positions are counted from each change on, and for each worker's first rows here from where it was.
        begins = np.union1d(firsts, changes[changes < len(kind) - 1] + 1) if len(changes) else firsts
        offsets = begins.copy()
        offsets[np.searchsorted(begins, firsts)] -= self._position[places]
        position = np.arange(len(kind)) - np.repeat(offsets, np.diff(np.append(begins, len(kind))))
        lasts = firsts + sizes - 1
        self._end[places] = finish[lasts]
        self._position[places] = np.where(is_round[lasts], position[lasts] + 1, 0)
        return before, position, np.repeat(places, sizes)

    def _sample(self, pieces: Pieces, groups: Groups, place: Whole, is_round: Flags) -> None:
        """Keep the length of every so many rounds, for the medians."""
        _, _, firsts, sizes = groups
        number = np.arange(len(place)) + np.repeat(self._events[place[firsts]] - firsts, sizes)
        self._events[place[firsts]] += sizes
        chosen = np.flatnonzero((number % self._stride == 0) & is_round)
        self._sampled.append((pieces.worker[chosen], number[chosen], pieces.whole[chosen]))
        self._samples += len(chosen)
        if self._samples > 2 * KEPT:
            worker, number, length = (np.concatenate(column) for column in zip(*self._sampled, strict=True))
            while len(number) > KEPT and number.any():
                self._stride *= 2
                kept = number % self._stride == 0
                worker, number, length = worker[kept], number[kept], length[kept]
            self._sampled, self._samples = [(worker, number, length)], len(number)

    def _table(self) -> Pieces:
        order = np.argsort(np.concatenate([part.worker for part in self._parts]), kind="stable")
        columns: list[Any] = [np.concatenate(column)[order] for column in zip(*self._parts, strict=True)]
        return Pieces(*columns)

    def _reduce(self) -> None:
        """Merge more rounds, until there are few pieces."""
        table = self._table()
        places = self._places.of_known(table.worker)
        self._raise_thresholds(table, places)
        alone = (table.rounds == 1) & (table.whole > self._threshold[places])
        while len(table.worker) > KEPT and self._window <= int(table.position.max()):
            self._window *= 2
            table = merged(table, self._window, alone)
            places = self._places.of_known(table.worker)
            alone = (table.rounds == 1) & (table.whole > self._threshold[places])
        self._parts, self._size = [table], len(table.worker)
        self._most = 2 * max(KEPT, self._size)
        self._starts = [np.unique(np.concatenate(self._starts))] if self._starts else []

    def _raise_thresholds(self, table: Pieces, places: Whole) -> None:
        """The length of the longest round of each worker that is merged."""
        single = np.flatnonzero((table.rounds == 1) & (table.kind == ROUND) & (table.whole > self._threshold[places]))
        order = single[np.lexsort((-table.whole[single], places[single]))]
        owner = places[order]
        firsts = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]])) if len(order) else order
        sizes = np.diff(np.append(firsts, len(order)))
        enough = firsts[sizes > self.alone]
        self._threshold[owner[enough]] = table.whole[order[enough + self.alone]]

    def result(self) -> Pieces:
        """The pieces, about as many as there are to be bars. More events can be added afterwards."""
        if not self._parts:
            nothing, none = np.zeros(0, dtype=np.int64), np.zeros(0)
            return Pieces(nothing, nothing, nothing, nothing, none, none, none, none, none)
        table = self._table()
        before = self._threshold.copy()
        places = self._places.of_known(table.worker)
        self._raise_thresholds(table, places)
        long = np.maximum(self._threshold, LONG * self._medians())[places]
        self._threshold = before
        # Merged rounds make up to three bars: waiting, computing, transfer.
        together = max(1, -(-3 * self.rounds // self._bars))
        together = -(-together // self._window) * self._window
        return merged(table, together, (table.rounds == 1) & (table.whole > long))

    def _medians(self) -> Numbers:
        """Of the lengths of each worker's rounds, by place; of some of them where they are many."""
        medians = np.zeros(len(self._threshold))
        worker, _, length = (np.concatenate(column) for column in zip(*self._sampled, strict=True))
        order = np.lexsort((length, worker))
        owner, length = worker[order], length[order]
        firsts = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]])) if len(owner) else order
        sizes = np.diff(np.append(firsts, len(owner)))
        middle = (length[firsts + (sizes - 1) // 2] + length[firsts + sizes // 2]) / 2
        medians[self._places.of_known(owner[firsts])] = middle
        return medians

    @property
    def starts(self) -> Numbers:
        """The moments at which rounds began, where the method is synchronous."""
        return np.unique(np.concatenate(self._starts)) if self._starts else np.zeros(0)


def merged(pieces: Pieces, window: int, alone: Flags) -> Pieces:
    """Pieces of rounds of one worker that lie in one window, as one; not those that are alone, and no changes."""
    windows = pieces.position // window
    apart = alone | (pieces.kind != ROUND)
    begins = np.ones(len(apart), dtype=bool)
    begins[1:] = (windows[1:] != windows[:-1]) | (pieces.worker[1:] != pieces.worker[:-1]) | apart[1:] | apart[:-1]
    firsts = np.flatnonzero(begins)
    if len(firsts) == len(apart):
        return pieces
    lasts = np.append(firsts[1:], len(apart)) - 1
    return Pieces(
        worker=pieces.worker[firsts],
        kind=pieces.kind[firsts],
        position=pieces.position[firsts],
        begin=pieces.begin[firsts],
        end=pieces.end[lasts],
        rounds=np.add.reduceat(pieces.rounds, firsts),
        wait=np.add.reduceat(pieces.wait, firsts),
        work=np.add.reduceat(pieces.work, firsts),
        whole=np.add.reduceat(pieces.whole, firsts),
    )
