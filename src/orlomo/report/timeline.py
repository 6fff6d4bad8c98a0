"""What each worker did, and when, from a run's events."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.schedule import DROP, KINDS, REPORT
from orlomo.records.tables import Columns
from orlomo.report.streaming.pieces import LEAVES, ROUND, Merger, Pieces
from orlomo.report.streaming.workers import Groups, Places, grouped, grown

STATES = ("computing", "transfer", "waiting", "lost work", "absent")
"""What a worker can be doing: `transfer` is between worker and server, `waiting` is for other workers, `lost work` is a
round that a crash has ended, `absent` is crashed or away."""

COMPUTING, TRANSFER, WAITING, LOST, ABSENT = range(len(STATES))

Bar = tuple[int, int, float, float, int]
"""Worker, state, begin, end, rounds."""

MOST_SILENT = 10_000
"""Workers that have a row though they have no events."""

BARS = 2400
"""As many bars as a browser draws at once without delay."""

CRASH = KINDS.index("crash")


class Bars(NamedTuple):
    """Stretches of time, one per position in these columns; `rounds` is how many were merged into one."""

    worker: NDArray[np.int64]
    state: NDArray[np.int64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    rounds: NDArray[np.int64]


class Use(NamedTuple):
    """How one worker spent its time, as shares of it, and how late it was."""

    worker: int
    rounds: int
    computing: float
    transfer: float
    waiting: float
    absent: float
    mean_delay: float
    max_delay: int


class WorkerCounts:
    """Rounds, delays and local steps of each worker, added up block by block."""

    def __init__(self) -> None:
        self._places = Places()
        self._rounds: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._delays: NDArray[np.float64] = np.zeros(0)  # sums, exact up to 2**53
        self._largest: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._steps: NDArray[np.float64] = np.zeros(0)

    def add(self, groups: Groups, kind: NDArray[np.int64], delay: NDArray[np.int64], steps: NDArray[np.int64]) -> None:
        """More events, not sorted; `groups` are their workers. `steps` may be empty: they are not counted then."""
        order, workers, firsts, _ = groups
        if not len(order):
            return
        places, count = self._places.of(workers), len(self._places)
        self._rounds, self._largest = grown(self._rounds, count, 0), grown(self._largest, count, 0)
        self._delays, self._steps = grown(self._delays, count, 0.0), grown(self._steps, count, 0.0)
        kind = kind[order]
        is_round = (kind == REPORT) | (kind == DROP)
        delay = np.where(is_round, delay[order], 0)
        self._rounds[places] += np.add.reduceat(is_round, firsts, dtype=np.int64)
        self._delays[places] += np.add.reduceat(delay, firsts, dtype=np.float64)
        self._largest[places] = np.maximum(self._largest[places], np.maximum.reduceat(delay, firsts))
        if len(steps):
            self._steps[places] += np.add.reduceat(np.where(is_round, steps[order], 0), firsts, dtype=np.float64)

    def of(self, worker: int) -> tuple[int, float, int, float]:
        """Rounds of a worker, the mean and the maximum of its delays, and its local steps."""
        if not self.has(np.array([worker]))[0]:
            return 0, np.nan, 0, 0.0
        place = int(self._places.of_known(np.array([worker]))[0])
        rounds = int(self._rounds[place])
        mean = float(self._delays[place]) / rounds if rounds else np.nan
        return rounds, mean, int(self._largest[place]), float(self._steps[place])

    def __len__(self) -> int:
        return len(self._places)

    def has(self, workers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these workers have events."""
        return self._places.has(workers)

    @property
    def workers(self) -> list[int]:
        """Those that have events."""
        return self._places.workers.tolist()


def bars(events: Columns, end: float = 0.0, limit: int = BARS, synchronous: bool = False) -> Bars:
    """The timeline in about `limit` bars: consecutive rounds are merged into one bar per state, in proportion.

    `end`: until then, workers that crashed and have not come back are absent; 0: their rows end with the crash.
    `synchronous`: after its report, a worker waits for the next assignment.
    """
    merger = Merger(limit, synchronous)
    merger.add(grouped(events["worker"]), codes(events), *(events[name] for name in ("start", "finish", "compute")))
    return drawn(merger, end)


def uses(events: Columns, drawn: Bars, workers: int) -> list[Use]:
    """One row per worker, from its first event to its last; each of the first `workers` has one even without events,
    as far as `MOST_SILENT`.

    `drawn` are the bars of these events, merged or not: merging keeps the sums.
    """
    counts = WorkerCounts()
    counts.add(grouped(events["worker"]), codes(events), events["delay"], np.zeros(0, dtype=np.int64))
    return uses_of(counts, drawn, workers)


def codes(events: Columns) -> NDArray[np.int64]:
    """The kinds of events as positions in `KINDS`."""
    numbers = {kind: code for code, kind in enumerate(KINDS)}
    return np.array([numbers[kind] for kind in events["kind"].tolist()], dtype=np.int64)


def uses_of(counts: WorkerCounts, drawn: Bars, workers: int) -> list[Use]:
    """As `uses`, from what was added up."""
    order = np.argsort(drawn.worker, kind="stable")
    known, firsts = np.unique(drawn.worker[order], return_index=True)
    own_bars = dict(zip(known.tolist(), np.split(order, firsts[1:]), strict=False))
    lengths, nothing = drawn.end - drawn.begin, np.zeros(0, dtype=np.int64)
    result = []
    # What a config says is no reason to make a million rows of nothing.
    for worker in sorted({*range(min(workers, MOST_SILENT)), *counts.workers}):
        own = own_bars.get(worker, nothing)
        seconds = [float(lengths[own][drawn.state[own] == state].sum()) for state in range(len(STATES))]
        total = sum(seconds) or np.nan
        shares = [second / total for second in seconds]
        rounds, mean_delay, max_delay, _ = counts.of(worker)
        use = Use(
            worker=worker,
            rounds=rounds,
            computing=shares[COMPUTING],
            transfer=shares[TRANSFER],
            waiting=shares[WAITING],
            absent=shares[LOST] + shares[ABSENT],
            mean_delay=mean_delay,
            max_delay=max_delay,
        )
        result.append(use)
    return result


def drawn(merger: Merger, end: float) -> Bars:
    """The bars of these pieces, worker by worker; `end` as in `bars`."""
    pieces = merger.result()
    starts = merger.starts
    borders = np.flatnonzero(np.diff(pieces.worker)) + 1
    found: list[Bar] = []
    for first, last in zip([0, *borders.tolist()], [*borders.tolist(), len(pieces.worker)], strict=True):
        if first < last:
            own: list[Any] = [column[first:last] for column in pieces]
            found += _bars_of(Pieces(*own), end, starts)
    worker, state, begin, stop, rounds = zip(*found, strict=True) if found else ((),) * 5
    whole = (np.array(column, dtype=np.int64) for column in (worker, state, rounds))
    return Bars(next(whole), next(whole), np.array(begin, dtype=float), np.array(stop, dtype=float), next(whole))


def _bars_of(own: Pieces, end: float, starts: NDArray[np.float64]) -> list[Bar]:
    """The bars of one worker: stretches of rounds, and between them its crashes, returns, joins and departures."""
    worker = int(own.worker[0])
    found: list[Bar] = []
    here = True
    for kind, begin, stop, wait, work, whole, rounds in zip(
        *(column.tolist() for column in (own.kind, own.begin, own.end, own.wait, own.work, own.whole, own.rounds)),
        strict=True,
    ):
        if kind == ROUND:
            edges = (begin, begin + wait, begin + wait + work, begin + whole)
            for state, left, right in zip((WAITING, COMPUTING, TRANSFER), edges[:-1], edges[1:], strict=True):
                if right - left > 1e-6 * whole:  # else only rounding
                    found.append((worker, state, left, right, rounds))
            continue
        if here and kind == CRASH and len(starts) and not np.isnan(begin):
            # At a barrier only what comes after the next assignment is lost work; before it the worker waited.
            where = int(np.searchsorted(starts, begin))
            assigned = min(float(starts[where]), stop) if where < len(starts) else stop
            if assigned > begin:
                found.append((worker, WAITING, begin, assigned, 1))
            begin = assigned
        if not np.isnan(begin) and stop > begin:
            state = (LOST if kind == CRASH else WAITING) if here else ABSENT
            found.append((worker, state, begin, stop, 1))
        here = not LEAVES[kind]
    if own.kind[-1] == CRASH and end > own.end[-1]:
        found.append((worker, ABSENT, float(own.end[-1]), end, 1))
    return found
