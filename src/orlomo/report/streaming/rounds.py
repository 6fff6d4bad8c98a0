"""Rounds of workers as they come, and what each worker did in each cell of time, added up block by block."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.schedule import DROP, KINDS, REPORT
from orlomo.report.streaming.workers import Groups, Places, Whole, grown

Numbers = NDArray[np.float64]

STATES = ("computing", "transfer", "waiting", "lost work", "absent")
"""What a worker can be doing: `transfer` is between worker and server, `waiting` is for other workers, `lost work` is a
round that a crash has ended, `absent` is crashed or away."""

COMPUTING, TRANSFER, WAITING, LOST, ABSENT = range(len(STATES))

IN_A_ROUND = 3
"""The first of these states are the parts of a round."""

PARTS = (WAITING, COMPUTING, TRANSFER)
"""In their order in time."""

CELLS = 512
"""Most cells of time per worker; at least half of them are used."""

ROOM = 2**18
"""Cells of all workers together: of more than 512 workers each has fewer."""

ROUNDS_KEPT = 40_000
"""Up to so many rounds are kept as they are."""

LEAVES = np.array([kind in ("crash", "leave") for kind in KINDS])


class Rounds(NamedTuple):
    """Rounds, one per position. From `before`, the end of the worker's previous event, it waits until `start`, then
    computes for `work`; the rest up to `finish` is transfer."""

    worker: Whole
    before: Numbers
    start: Numbers
    work: Numbers
    finish: Numbers


class Changes(NamedTuple):
    """Crashes, returns, joins and departures, one per position, those of each worker in their order.

    `kind` is a position in `KINDS`; `before` is the end of the worker's previous event, NaN: not known.
    """

    worker: Whole
    kind: Whole
    before: Numbers
    time: Numbers


class Cells:
    """Seconds per worker, part of a round (in their order in time) and cell of time.

    The cells' width is a power of two that doubles as time goes on.

    A stretch that lies in one cell is added to it. One that spans several is kept as its two ends: what an end adds to
    its own cell, and how many stretches are open in all later cells.
    """

    def __init__(self) -> None:
        self.width = 0.0
        self.cells = CELLS
        self.last = 0.0  # the latest moment
        shape = (0, IN_A_ROUND, CELLS)
        self._own, self._open = np.zeros(shape), np.zeros(shape)
        self._rounds = np.zeros((0, CELLS))

    def add(self, place: Whole, workers: int, edges: list[Numbers]) -> None:
        """Rounds of the workers in these places; `edges`: where their parts begin and end."""
        self.make_room(workers, float(edges[-1].max(initial=0.0)))
        first, last = (self._cell(edge) for edge in (edges[0], edges[-1]))
        inside = first == last
        whole = bool(inside.all())
        own, cell = (place, last) if whole else (place[inside], last[inside])
        size = self._rounds.size
        self._rounds += _summed(place * self.cells + last, None, size).reshape(self._rounds.shape)
        for part in range(IN_A_ROUND):
            length = edges[part + 1] - edges[part]
            at = own * self.cells + cell
            seconds = _summed(at, length if whole else length[inside], size)
            self._own[:, part] += seconds.reshape(self._rounds.shape)
        if not whole:
            self._spanning(place[~inside], [edge[~inside] for edge in edges])

    def _spanning(self, place: Whole, edges: list[Numbers]) -> None:
        """Rounds that lie in more than one cell."""
        cells = [self._cell(edge) for edge in edges]
        rest = [(cell + 1) * self.width - edge for cell, edge in zip(cells, edges, strict=True)]
        at, own, opened, one = [], [], [], np.ones(len(place))
        for part in range(IN_A_ROUND):
            for edge, sign in ((part, 1.0), (part + 1, -1.0)):
                at.append((place * IN_A_ROUND + part) * self.cells + cells[edge])
                own.append(sign * rest[edge])
                opened.append(sign * one)
        where, shape = np.concatenate(at), self._own.shape
        self._own += _summed(where, np.concatenate(own), self._own.size).reshape(shape)
        self._open += _summed(where, np.concatenate(opened), self._own.size).reshape(shape)

    def _cell(self, edge: Numbers) -> Whole:
        return (edge / self.width).astype(np.int64)

    def make_room(self, workers: int, last: float) -> None:
        """For so many workers, up to this moment."""
        self.last = max(self.last, last)
        if workers > len(self._own):
            more = max(workers, 2 * len(self._own)) - len(self._own)
            self._own, self._open, self._rounds = (
                np.concatenate([one, np.zeros((more, *one.shape[1:]))]) for one in (self._own, self._open, self._rounds)
            )
        if not self.width:
            self.width = 2.0 ** (math.floor(math.log2(self.last / self.cells)) if self.last else -40)
        wanted = most_cells(workers)
        doublings = 0
        while self.last >= self.cells * self.width:
            if doublings > math.log2(CELLS):  # all there is lies in the first cell
                self.width *= 2.0
            else:
                self._double()
            doublings += 1
        while self.cells > wanted:
            if self.last >= self.cells // 2 * self.width:
                self._double()
            self.cells //= 2
            self._own, self._open, self._rounds = (
                np.ascontiguousarray(one[..., : self.cells]) for one in (self._own, self._open, self._rounds)
            )

    def _double(self) -> None:
        """Make cells twice as wide: the first half of them has all there is."""
        self._own[..., ::2] += self.width * self._open[..., ::2]
        for one in (self._own, self._open, self._rounds):
            one[..., : self.cells // 2] = one[..., ::2] + one[..., 1::2]
            one[..., self.cells // 2 :] = 0.0
        self.width *= 2.0

    def seconds(self, places: Whole) -> Numbers:
        """By worker, part of a round and cell."""
        opened = self._open[places]
        found: Numbers = self._own[places] + self.width * (np.cumsum(opened, axis=-1) - opened)
        return found

    def rounds(self, places: Whole) -> Numbers:
        """Rounds that ended in each cell, by worker."""
        return self._rounds[places]


def most_cells(workers: int) -> int:
    """A power of two: how many cells so many workers can each have.

    >>> most_cells(64), most_cells(2000), most_cells(10**6)
    (512, 128, 8)
    """
    return int(max(8, min(CELLS, 2 ** int(math.log2(ROOM / max(1, workers))))))


def _summed(where: Whole, values: Numbers | None, size: int) -> Numbers:
    if size < 16 * len(where):
        return np.bincount(where, values, size).astype(float, copy=False)
    found = np.zeros(size)
    np.add.at(found, where, 1.0 if values is None else values)
    return found


class Timeline:
    """What workers did, from events that come block by block: cells of time, the rounds while they are few, and every
    crash, return, join and departure."""

    def __init__(self, synchronous: bool = False):
        self.synchronous = synchronous
        self.count = 0  # rounds
        self.cells = Cells()
        self._places = Places()
        self._begin: Numbers = np.zeros(0)  # of each worker's first event
        self._end: Numbers = np.zeros(0)  # of each worker's last event
        self._rounds: list[Rounds] = []
        self._changes: list[Changes] = []
        self._starts: list[Numbers] = []

    def add(self, groups: Groups, kind: Whole, start: Numbers, finish: Numbers, compute: Numbers) -> None:
        """More events, not sorted; `groups` are their workers."""
        order, workers, firsts, sizes = groups
        if not len(order):
            return
        kind, start, finish, compute = kind[order], start[order], finish[order], compute[order]
        is_round = (kind == REPORT) | (kind == DROP)
        known = len(self._places)
        places = self._places.of(workers)
        self._end = grown(self._end, len(self._places), np.nan)
        before: Numbers = np.empty(len(kind))
        before[1:] = finish[:-1]
        before[firsts] = self._end[places]
        new = firsts[places >= known]
        self._begin = grown(self._begin, len(self._places), np.nan)
        left = LEAVES[kind[new]]  # it was there from the beginning
        before[new[left]] = 0.0
        self._begin[places[places >= known]] = np.where(left, 0.0, np.where(is_round[new], start[new], finish[new]))
        self._end[places] = finish[firsts + sizes - 1]
        worker, place = np.repeat(workers, sizes), np.repeat(places, sizes)
        if not is_round.all():
            gone = np.flatnonzero(~is_round)
            self._changes.append(Changes(worker[gone], kind[gone], before[gone], finish[gone]))
            there = np.flatnonzero(is_round)
            worker, place = worker[there], place[there]
            before, start, finish, compute = (column[there] for column in (before, start, finish, compute))
        if not len(worker):
            self.cells.make_room(len(self._places), 0.0)
            return
        self.count += len(worker)
        if self.synchronous:
            self._starts.append(np.unique(start))
        # Real clocks of worker and server differ a little: a round begins after the one before it and not before the
        # run, and computing never takes longer than the round.
        before = np.maximum(np.where(np.isnan(before), start, before), 0.0)
        start = np.minimum(np.maximum(start, before), finish)
        before = np.minimum(before, start)
        work = np.minimum(compute, finish - start)
        self.cells.add(
            place, len(self._places), [np.maximum(edge, 0.0) for edge in (before, start, start + work, finish)]
        )
        if self.count <= ROUNDS_KEPT:
            self._rounds.append(Rounds(worker, before, start, work, finish))
        else:
            self._rounds = []

    @property
    def workers(self) -> Whole:
        """Those that have events, sorted."""
        return self._places.workers

    @property
    def rounds(self) -> Rounds | None:
        """All rounds, sorted by worker, each worker's in their order; None where they are more than `ROUNDS_KEPT`."""
        if self.count > ROUNDS_KEPT:
            return None
        none = np.zeros(0)
        columns = [np.concatenate(column) for column in zip(*self._rounds, strict=True)] or [
            none.astype(int),
            *[none] * 4,
        ]
        order = np.argsort(columns[0], kind="stable")
        return Rounds(*(column[order] for column in columns))

    @property
    def changes(self) -> Changes:
        """Sorted by worker."""
        none = np.zeros(0)
        columns = [np.concatenate(column) for column in zip(*self._changes, strict=True)]
        columns = columns or [none.astype(int), none.astype(int), none, none]
        order = np.argsort(columns[0], kind="stable")
        return Changes(*(column[order] for column in columns))

    @property
    def starts(self) -> Numbers:
        """The moments at which rounds began, where the method is synchronous."""
        return np.unique(np.concatenate(self._starts)) if self._starts else np.zeros(0)

    def first_event(self, workers: Whole) -> Numbers:
        """When each of these workers, which have events, began its first round, or came."""
        return self._begin[self._places.of_known(workers)]

    def last_event(self, workers: Whole) -> Numbers:
        """When each of these workers, which have events, had its last."""
        return self._end[self._places.of_known(workers)]

    def seconds(self, workers: Whole) -> Numbers:
        """Of the rounds, by worker, state and cell; all these workers have events."""
        places = self._places.of_known(workers)
        found = np.zeros((len(workers), IN_A_ROUND, self.cells.cells if self.count else 1))
        if self.count:
            found[:, PARTS] = self.cells.seconds(places)
        return found

    def rounds_per_cell(self, workers: Whole) -> Numbers:
        """Rounds that ended in each cell, by worker."""
        places = self._places.of_known(workers)
        return self.cells.rounds(places) if self.count else np.zeros((len(workers), 1))
