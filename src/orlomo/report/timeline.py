"""What each worker did, and when, from a run's events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orlomo.records.tables import ROUNDS, Columns

STATES = ("computing", "transfer", "waiting", "lost work", "absent")
"""What a worker can be doing: `transfer` is between worker and server, `waiting` is for other workers, `lost work` is a
round that a crash has ended, `absent` is crashed or away."""

COMPUTING, TRANSFER, WAITING, LOST, ABSENT = range(len(STATES))

Bar = tuple[int, int, float, float, int]
"""Worker, state, begin, end, rounds."""

COLUMNS = ("kind", "start", "finish", "compute")

BARS = 2400
"""As many bars as a browser draws at once without delay."""

LONG = 4.0
"""A round is long that takes so many times its worker's median; the longest are not merged with others."""


class Bars(NamedTuple):
    """Stretches of time, one per position in these columns; `rounds` is how many were merged into one."""

    worker: NDArray[np.int64]
    state: NDArray[np.int64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    rounds: NDArray[np.int64]


class Merging(NamedTuple):
    """How many rounds are merged into one bar, and how many of a worker's longest are not."""

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
    """The positions of each worker's events, in their order."""
    if not len(events["worker"]):
        return {}
    order = np.argsort(events["worker"], kind="stable")
    workers, begins = np.unique(events["worker"][order], return_index=True)
    return dict(zip(workers.tolist(), np.split(order, begins[1:]), strict=True))


def bars(events: Columns, end: float = 0.0, limit: int = BARS, synchronous: bool = False) -> Bars:
    """The timeline in about `limit` bars: consecutive rounds are merged into one bar per state, in proportion.

    `end`: until then, workers that crashed and have not come back are absent; 0: their rows end with the crash.
    `synchronous`: after its report, a worker waits for the next assignment.
    """
    rounds = np.isin(events["kind"], ROUNDS)
    starts = np.unique(events["start"][rounds]) if synchronous else None
    own = by_worker(events)
    reports = int(rounds.sum())
    # Merged rounds make up to three bars: waiting, computing, transfer. A tenth of the bars is for long rounds.
    merging = Merging(max(1, -(-3 * reports // limit)), max(1, limit // (10 * max(1, len(own)))))
    found: list[Bar] = []
    for worker, rows in own.items():
        found += _bars_of(worker, {name: events[name][rows] for name in COLUMNS}, end, merging, starts)
    table = np.array(found, dtype=np.float64).reshape(-1, 5)
    whole = table[:, [0, 1, 4]].astype(np.int64)
    return Bars(whole[:, 0], whole[:, 1], table[:, 2], table[:, 3], whole[:, 2])


def uses(events: Columns, drawn: Bars, workers: int) -> list[Use]:
    """One row per worker, from its first event to its last; each of the first `workers` has one even without events.

    `drawn` are the bars of these events, merged or not: merging keeps the sums.
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
    """The bars of one worker: stretches of rounds, and between them its crashes, returns, joins and departures."""
    changes = np.flatnonzero(~np.isin(own["kind"], ROUNDS))
    found: list[Bar] = []
    here, since = True, np.nan  # `since`: the moment up to which there are bars
    if own["kind"][0] in ("crash", "leave"):
        since = 0.0  # it was there from the beginning
    for first, last in zip([-1, *changes.tolist()], [*changes.tolist(), len(own["kind"])], strict=True):
        if first >= 0:
            moment, kind = float(own["finish"][first]), own["kind"][first]
            leaves = kind in ("crash", "leave")
            if here and kind == "crash" and starts is not None and not np.isnan(since):
                # At a barrier only what comes after the next assignment is lost work; before it the worker waited.
                assigned = min(float(np.append(starts[starts >= since], moment).min()), moment)
                if assigned > since:
                    found.append((worker, WAITING, since, assigned, 1))
                since = assigned
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
    """Consecutive rounds, merged into one bar per state; the longest rounds are not merged."""
    before = np.concatenate([[start[0] if np.isnan(since) else since], finish[:-1]])
    waited = np.maximum(0.0, start - before)
    # Real clocks of worker and server differ a little: computing never takes longer than the round.
    computed = np.minimum(compute, finish - np.maximum(start, before))
    length = finish - before
    longest = np.sort(length)[-merging.alone - 1 :][0] if len(length) > merging.alone else 0.0
    alone = (length > LONG * np.median(length)) & (length > longest)
    cuts = np.flatnonzero(alone[1:] | alone[:-1]) + 1  # before and after a long round
    firsts = np.unique(np.concatenate([[0], cuts, np.arange(0, len(start), merging.together)]))
    totals = [np.add.reduceat(column, firsts) for column in (waited, computed, length)]
    counts = np.diff([*firsts.tolist(), len(start)])
    found = []
    for begin, wait, work, whole, rounds in zip(before[firsts], *totals, counts, strict=True):
        edges = (begin, begin + wait, begin + wait + work, begin + whole)
        for state, left, right in zip((WAITING, COMPUTING, TRANSFER), edges[:-1], edges[1:], strict=True):
            if right - left > 1e-6 * whole:  # else only rounding
                found.append((worker, state, float(left), float(right), int(rounds)))
    return found
