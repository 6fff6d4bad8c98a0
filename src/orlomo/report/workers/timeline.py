"""What each worker did, and when, from a run's events."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.schedule import DROP, KINDS, REPORT
from orlomo.records.tables import Columns
from orlomo.report.streaming.rounds import (
    ABSENT,
    COMPUTING,
    IN_A_ROUND,
    LEAVES,
    LOST,
    PARTS,
    STATES,
    TRANSFER,
    WAITING,
    Rounds,
    Timeline,
)
from orlomo.report.streaming.workers import Groups, Places, grouped, grown

MOST_SILENT = 10_000
"""Workers that have a row though they have no events."""

MOST_ROWS = 256
"""Workers that are drawn: of more, the slowest, and some of the others."""

CRASH = KINDS.index("crash")


class Bars(NamedTuple):
    """Stretches of time, one per position in these columns; `state` is a position in `STATES`."""

    worker: NDArray[np.int64]
    state: NDArray[np.int64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]


class Use(NamedTuple):
    """How one worker spent its time, as shares of it, how long its rounds took, and how late it was."""

    worker: int
    rounds: int
    round_seconds: float
    computing: float
    transfer: float
    waiting: float
    lost: float
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


def bars(events: Columns, end: float = 0.0, synchronous: bool = False) -> Bars:
    """Every round of these events as bars, worker by worker, in their order in time.

    `end`: until then, workers that crashed and have not come back are absent; 0: their rows end with the crash.
    `synchronous`: after its report, a worker waits for the next assignment.
    """
    seen = Timeline(synchronous)
    seen.add(grouped(events["worker"]), codes(events), *(events[name] for name in ("start", "finish", "compute")))
    rounds = seen.rounds
    assert rounds is not None, "there are too many to be drawn"
    both = zip(round_bars(rounds), away(seen, end), strict=True)
    joined: list[Any] = [np.concatenate(columns) for columns in both]
    order = np.lexsort((joined[2], joined[0]))
    return Bars(*(column[order] for column in joined))


def round_bars(rounds: Rounds) -> Bars:
    """Waiting, computing and transfer of each round, where they took any time."""
    edges = (rounds.before, rounds.start, rounds.start + rounds.work, rounds.finish)
    found = []
    for state, begin, stop in zip(PARTS, edges[:-1], edges[1:], strict=True):
        there = stop - begin > 1e-6 * (rounds.finish - rounds.before)  # else only rounding
        found.append(Bars(rounds.worker[there], np.full(int(there.sum()), state), begin[there], stop[there]))
    columns: list[Any] = [np.concatenate(column) for column in zip(*found, strict=True)]
    return Bars(*columns)


def away(seen: Timeline, end: float) -> Bars:
    """What workers did that was no round: work that was lost, absence, and at a barrier waiting before either.

    `end` as in `bars`.
    """
    found: list[tuple[int, int, float, float]] = []
    starts, changes = seen.starts, seen.changes
    here: dict[int, bool] = {}
    crashed: dict[int, float] = {}
    for worker, kind, begin, stop in zip(*(column.tolist() for column in changes), strict=True):
        present = here.get(worker, True)
        if present and kind == CRASH and len(starts) and not np.isnan(begin):
            # At a barrier only what comes after the next assignment is lost work; before it the worker waited.
            where = int(np.searchsorted(starts, begin))
            assigned = min(float(starts[where]), stop) if where < len(starts) else stop
            if assigned > begin:
                found.append((worker, WAITING, begin, assigned))
            begin = assigned
        if not np.isnan(begin) and stop > begin:
            state = (LOST if kind == CRASH else WAITING) if present else ABSENT
            found.append((worker, state, begin, stop))
        here[worker] = not LEAVES[kind]
        crashed.pop(worker, None)
        if kind == CRASH:
            crashed[worker] = stop
    for worker, stop in crashed.items():
        if end > stop and stop == seen.last_event(np.array([worker]))[0]:  # nothing came after it
            found.append((worker, ABSENT, stop, end))
    if seen.synchronous and len(starts):  # those that have reported wait for the others of the last barrier
        workers = seen.workers
        own = seen.last_event(workers)
        for worker, stop in zip(workers.tolist(), own.tolist(), strict=True):
            if here.get(worker, True) and starts[-1] < stop < seen.cells.last:
                found.append((worker, WAITING, stop, seen.cells.last))
    worker_, state_, begin_, stop_ = zip(*found, strict=True) if found else ((),) * 4
    whole = [np.array(column, dtype=np.int64) for column in (worker_, state_)]
    return Bars(whole[0], whole[1], np.array(begin_, dtype=float), np.array(stop_, dtype=float))


def uses(events: Columns, workers: int, end: float = 0.0, synchronous: bool = False) -> list[Use]:
    """One row per worker, from its first event to its last; each of the first `workers` has one even without events,
    as far as `MOST_SILENT`. `end` and `synchronous` as in `bars`."""
    counts, seen = WorkerCounts(), Timeline(synchronous)
    groups, kinds = grouped(events["worker"]), codes(events)
    counts.add(groups, kinds, events["delay"], np.zeros(0, dtype=np.int64))
    seen.add(groups, kinds, *(events[name] for name in ("start", "finish", "compute")))
    return uses_of(counts, seen, workers, end)


def codes(events: Columns) -> NDArray[np.int64]:
    """The kinds of events as positions in `KINDS`."""
    numbers = {kind: code for code, kind in enumerate(KINDS)}
    return np.array([numbers[kind] for kind in events["kind"].tolist()], dtype=np.int64)


def uses_of(counts: WorkerCounts, seen: Timeline, workers: int, end: float) -> list[Use]:
    """As `uses`, from what was added up."""
    known = seen.workers
    seconds = np.zeros((len(known), len(STATES)))
    seconds[:, : WAITING + 1] = seen.seconds(known).sum(axis=-1)
    gone = away(seen, end)
    np.add.at(seconds, (np.searchsorted(known, gone.worker), gone.state), gone.end - gone.begin)
    row_of = dict(zip(known.tolist(), seconds, strict=True))
    result = []
    # What a config says is no reason to make a million rows of nothing.
    for worker in sorted({*range(min(workers, MOST_SILENT)), *counts.workers}):
        own = row_of.get(worker, np.zeros(len(STATES)))
        shares = (own / (own.sum() or np.nan)).tolist()
        rounds, mean_delay, max_delay, _ = counts.of(worker)
        use = Use(
            worker=worker,
            rounds=rounds,
            round_seconds=float(own[COMPUTING] + own[TRANSFER]) / rounds if rounds else np.nan,
            computing=shares[COMPUTING],
            transfer=shares[TRANSFER],
            waiting=shares[WAITING],
            lost=shares[LOST],
            absent=shares[ABSENT],
            mean_delay=mean_delay,
            max_delay=max_delay,
        )
        result.append(use)
    return result


def strips(seen: Timeline, end: float, cells: int, rounds: int) -> dict[str, Any]:
    """What is drawn of a run's timeline, ready for JSON; columns of numbers are bytes in base64 (see `column_of`).

    `shares`: of each worker's recorded time in each cell, how much it spent in each state of a round, 255 is all.
    `away`: lost work and absence, exactly. `each`: the rounds themselves, where they are at most `rounds`.
    `first`, `last`: when each worker's record begins and ends; `present`: whether it was still there then.
    `cells`: at most so many per worker. `end` as in `bars`.
    """
    everyone = seen.workers
    workers = everyone[_rows(seen, everyone)]
    gone = away(seen, end)
    shown = np.isin(gone.worker, workers)
    gone = Bars(gone.worker[shown], gone.state[shown], gone.begin[shown], gone.end[shown])
    width, seconds, done = seen.cells.width, seen.seconds(workers), seen.rounds_per_cell(workers)
    while seconds.shape[-1] > cells:
        seconds, done = seconds[..., ::2] + seconds[..., 1::2], done[..., ::2] + done[..., 1::2]
        width *= 2
    used = min(int(seen.cells.last / width) + 1 if width else 1, seconds.shape[-1])
    seconds, done = seconds[..., :used], done[..., :used]
    total = seconds.sum(axis=1, keepdims=True)
    shares = np.divide(seconds, total, out=np.zeros(seconds.shape), where=total > 1e-9 * width)
    shares = np.clip(np.round(np.round(shares, 9) * 255), 0, 255).astype(np.uint8)
    here = present(seen)
    size = next(size for size in (1, 2, 4, 8) if done.max(initial=0.0) < 256**size)  # bytes for how many rounds ended
    found: dict[str, Any] = {
        "workers": workers.tolist(),
        "all_workers": len(everyone),
        "first": _numbers(seen.first_event(workers)),
        "last": _numbers(seen.last_event(workers)),
        "present": [here.get(worker, True) for worker in workers.tolist()],
        "end": max(seen.cells.last, float(gone.end.max(initial=0.0))),
        "width": width,
        "cells": used,
        "states": list(STATES),
        "shares": {
            state: _text(shares[:, code]) for code, state in enumerate(STATES[:IN_A_ROUND]) if shares[:, code].any()
        },
        "done": {"bytes": size, "text": _text(done.astype(f"<u{size}"))},
        "rounds": seen.count,
        "away": {
            "row": np.searchsorted(workers, gone.worker).tolist(),
            "state": gone.state.tolist(),
            "begin": _numbers(gone.begin),
            "end": _numbers(gone.end),
        },
    }
    every = seen.rounds if seen.count <= rounds else None
    if every is not None:
        found["each"] = round_columns(every, workers)
    return found


def round_columns(rounds: Rounds, workers: NDArray[np.int64]) -> dict[str, str]:
    """The rounds of these workers, which are sorted as the rounds are; `row` is the worker's position."""
    drawn = np.isin(rounds.worker, workers)
    found = {"row": _text(np.searchsorted(workers, rounds.worker[drawn]).astype("<u2"))}
    for name in ("before", "start", "work", "finish"):
        found[name] = _text(getattr(rounds, name)[drawn].astype("<f4"))
    return found


def present(seen: Timeline) -> dict[int, bool]:
    """For each worker that came or went: whether it was there after that."""
    changes = seen.changes
    return dict(zip(changes.worker.tolist(), (~LEAVES[changes.kind]).tolist(), strict=True))


def _rows(seen: Timeline, workers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the workers that are drawn: all, or half of `MOST_ROWS` for the slowest, half for others."""
    if len(workers) <= MOST_ROWS:
        return np.arange(len(workers))
    busy = seen.seconds(workers)[:, : TRANSFER + 1].sum(axis=(1, 2))
    done = seen.rounds_per_cell(workers).sum(axis=1)
    slowest = np.argsort(-np.divide(busy, done, out=np.full(len(done), np.inf), where=done > 0), kind="stable")
    half = MOST_ROWS // 2
    others = slowest[half:][np.linspace(0, len(workers) - half - 1, half).astype(int)]
    return np.sort(np.concatenate([slowest[:half], others]))


def _numbers(column: NDArray[np.float64]) -> list[float | None]:
    return [float(f"{value:.7g}") if np.isfinite(value) else None for value in column.tolist()]


def _text(column: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(column).tobytes()).decode()


def column_of(text: str, kind: str) -> NDArray[Any]:
    """A column of `strips` again; `kind` is a numpy type, as in `<f4`.

    >>> column_of("AQIDBA==", "u1").tolist()
    [1, 2, 3, 4]
    """
    return np.frombuffer(base64.b64decode(text), dtype=kind)
