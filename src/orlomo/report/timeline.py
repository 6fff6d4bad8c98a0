"""What each worker did when, from a run's events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orlomo.records.tables import ROUNDS, Columns

STATES = ("computing", "transfer", "waiting", "lost work", "absent")
"""What a worker can be doing: `transfer` is between worker and server, `waiting` for others, `lost work` a round that a
crash has ended, `absent` crashed or away."""

COMPUTING, TRANSFER, WAITING, LOST, ABSENT = range(len(STATES))

Bar = tuple[int, int, float, float, int]
"""Worker, state, begin, end, rounds."""

COLUMNS = ("kind", "start", "finish", "compute")

BARS = 2400
"""As many bars as a browser draws at once without effort."""

LONG = 4.0
"""A round of so many times its worker's usual one is long: the longest stay bars of their own."""


class Bars(NamedTuple):
    """Stretches of time, one a place in these columns; `rounds` is how many were merged into one."""

    worker: NDArray[np.int64]
    state: NDArray[np.int64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    rounds: NDArray[np.int64]


class Merging(NamedTuple):
    """How many rounds go into one bar, and how many of a worker's longest stay alone."""

    together: int
    alone: int


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


def by_worker(events: Columns) -> dict[int, NDArray[np.int64]]:
    """Where each worker's events are, in their order."""
    if not len(events["worker"]):
        return {}
    order = np.argsort(events["worker"], kind="stable")
    workers, begins = np.unique(events["worker"][order], return_index=True)
    return dict(zip(workers.tolist(), np.split(order, begins[1:]), strict=True))


def bars(events: Columns, end: float = 0.0, limit: int = BARS, synchronous: bool = False) -> Bars:
    """The timeline in about `limit` bars: many rounds are merged into one bar for each state, in proportion.

    `end`: until when those are absent that crashed and have not come back; 0: their rows end with the crash.
    `synchronous`: after a report one waits until the others are handed parameters.
    """
    rounds = np.isin(events["kind"], ROUNDS)
    starts = np.unique(events["start"][rounds]) if synchronous else None
    own = by_worker(events)
    reports = int(rounds.sum())
    merging = Merging(max(1, -(-3 * reports // limit)), max(1, limit // (10 * max(1, len(own)))))
    found: list[Bar] = []
    for worker, rows in own.items():
        found += _bars_of(worker, {name: events[name][rows] for name in COLUMNS}, end, merging, starts)
    table = np.array(found, dtype=np.float64).reshape(-1, 5)
    whole = table[:, [0, 1, 4]].astype(np.int64)
    return Bars(whole[:, 0], whole[:, 1], table[:, 2], table[:, 3], whole[:, 2])


def uses(events: Columns, drawn: Bars, workers: int) -> list[Use]:
    """One row per worker, from its first sign of life to its last; the first `workers` have one even without any.

    `drawn` are the bars of these events, merged or not: that keeps the sums.
    """
    result = []
    nothing = np.zeros(0, dtype=np.int64)
    for worker, rows in sorted({**dict.fromkeys(range(workers), nothing), **by_worker(events)}.items()):
        own = drawn.worker == worker
        lengths = (drawn.end - drawn.begin)[own]
        seconds = [float(lengths[drawn.state[own] == state].sum()) for state in range(len(STATES))]
        total = sum(seconds) or np.nan
        delays = events["delay"][rows[np.isin(events["kind"][rows], ROUNDS)]]
        shares = [second / total for second in seconds]
        use = Use(
            worker=worker,
            rounds=len(delays),
            computing=shares[COMPUTING],
            transfer=shares[TRANSFER],
            waiting=shares[WAITING],
            absent=shares[LOST] + shares[ABSENT],
            mean_delay=float(delays.mean()) if len(delays) else np.nan,
            max_delay=int(delays.max()) if len(delays) else 0,
        )
        result.append(use)
    return result


def _bars_of(worker: int, own: Columns, end: float, merging: Merging, starts: NDArray[np.float64] | None) -> list[Bar]:
    """One worker's: stretches of reports, parted by its comings and goings."""
    changes = np.flatnonzero(~np.isin(own["kind"], ROUNDS))
    found: list[Bar] = []
    here, since = True, np.nan  # since: the moment up to which all is told
    if own["kind"][0] in ("crash", "leave"):
        since = 0.0  # it was there from the beginning
    for first, last in zip([-1, *changes.tolist()], [*changes.tolist(), len(own["kind"])], strict=True):
        if first >= 0:
            moment, kind = float(own["finish"][first]), own["kind"][first]
            leaves = kind in ("crash", "leave")
            if here and kind == "crash" and starts is not None and not np.isnan(since):
                handed = float(np.append(starts[starts >= since], moment).min())  # when the next round began
                if handed > since:
                    found.append((worker, WAITING, since, min(handed, moment), 1))
                since = min(handed, moment)
            if not np.isnan(since) and moment > since:
                state = (LOST if kind == "crash" else WAITING) if here else ABSENT
                found.append((worker, state, since, moment, 1))
            here, since = not leaves, moment
        rows = slice(first + 1, last)
        if first + 1 < last:
            start, finish = own["start"][rows], own["finish"][rows]
            found += _rounds(worker, since, start, finish, own["compute"][rows], merging)
            since = float(finish[-1])
    if own["kind"][-1] == "crash" and end > since:
        found.append((worker, ABSENT, since, end, 1))
    return found


def _rounds(
    worker: int,
    since: float,
    start: NDArray[np.float64],
    finish: NDArray[np.float64],
    compute: NDArray[np.float64],
    merging: Merging,
) -> list[Bar]:
    """Consecutive rounds, so many of them merged into one bar a state; the longest stay alone."""
    before = np.concatenate([[start[0] if np.isnan(since) else since], finish[:-1]])
    waited = np.maximum(0.0, start - before)
    computed = np.minimum(compute, finish - np.maximum(start, before))
    length = finish - before
    longest = np.sort(length)[-merging.alone - 1 :][0] if len(length) > merging.alone else 0.0
    alone = (length > LONG * np.median(length)) & (length > longest)
    cuts = np.flatnonzero(alone[1:] | alone[:-1]) + 1  # before and after a long round
    places = np.unique(np.concatenate([[0], cuts, np.arange(0, len(start), merging.together)]))
    totals = [np.add.reduceat(column, places) for column in (waited, computed, length)]
    counts = np.diff([*places.tolist(), len(start)])
    found = []
    for begin, wait, work, whole, rounds in zip(before[places], *totals, counts, strict=True):
        edges = (begin, begin + wait, begin + wait + work, begin + whole)
        for state, left, right in zip((WAITING, COMPUTING, TRANSFER), edges[:-1], edges[1:], strict=True):
            if right - left > 1e-6 * whole:
                found.append((worker, state, float(left), float(right), int(rounds)))
    return found
