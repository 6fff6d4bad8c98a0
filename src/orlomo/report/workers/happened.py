"""What happened to a run and its workers: crashes, returns, joins, departures, changes of settings, a stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from orlomo.clusters.schedule import KINDS
from orlomo.records.changes import Change
from orlomo.report.streaming.rounds import Timeline

CRASH, RETURN, JOIN, LEAVE = (KINDS.index(kind) for kind in ("crash", "return", "join", "leave"))


class Happened(TypedDict):
    """One thing that happened; `time` on the run's clock, None: not known. `worker`: None where it is the whole run."""

    time: float | None
    kind: str
    worker: int | None
    text: str


def happened(
    seen: Timeline, clock: str, changes: Sequence[Change], times: Mapping[int, float], stopped: str | None, end: float
) -> list[Happened]:
    """All that happened, in its order in time.

    `clock`: what the run's seconds are called. `times`: when an event of the trace ended, by its number from 1 on, for
    the changes. `stopped`: why a callback stopped the run, at `end`.
    """
    found = _of_workers(seen, clock)
    for change in changes:
        text = f"settings were changed {change}"
        found.append({"time": times.get(change.events), "kind": "change", "worker": None, "text": text})
    found.sort(key=lambda one: np.inf if one["time"] is None else one["time"])
    if stopped:
        found.append({"time": end, "kind": "stop", "worker": None, "text": f"the run was stopped: {stopped}"})
    return found


def _of_workers(seen: Timeline, clock: str) -> list[Happened]:
    columns = [column.tolist() for column in seen.changes]
    back = _comes_back(columns[0], columns[1])
    found: list[Happened] = []
    left: dict[int, float] = {}
    for worker, kind, _, time, returns in zip(*columns, back, strict=True):
        away = f" after {time - left[worker]:.3g} {clock}" if worker in left and time > left[worker] else ""
        text = {
            CRASH: f"worker {worker} " + ("crashed" if returns else "was lost"),
            RETURN: f"worker {worker} came back{away}",
            JOIN: f"worker {worker} joined",
            LEAVE: f"worker {worker} left",
        }[kind]
        left.pop(worker, None)
        if kind in (CRASH, LEAVE):
            left[worker] = time
        known = None if np.isnan(time) else time
        found.append({"time": known, "kind": KINDS[kind], "worker": worker, "text": text})
    return found


def _comes_back(workers: list[int], kinds: list[int]) -> list[bool]:
    """For each change of a worker, sorted by worker, whether another one of the same worker follows."""
    return [here == after for here, after in zip(workers, [*workers[1:], None], strict=False)] if kinds else []


def faults(seen: Timeline) -> dict[str, int]:
    """How many workers were lost for good, and how many crashes, returns, joins and departures there were.

    >>> faults(Timeline())
    {'lost': 0, 'crashes': 0, 'returns': 0, 'joined': 0, 'left': 0}
    """
    changes = seen.changes
    kinds = Counter(changes.kind.tolist())
    last = dict(zip(changes.worker.tolist(), changes.kind.tolist(), strict=True))
    lost = sum(kind == CRASH for kind in last.values())
    return {
        "lost": lost,
        "crashes": kinds[CRASH],
        "returns": kinds[RETURN],
        "joined": kinds[JOIN],
        "left": kinds[LEAVE],
    }


def membership(workers: int, counted: Mapping[str, int]) -> str:
    """The workers of a run in a few words: how many it began with, and what became of them.

    >>> membership(4, {"lost": 1, "crashes": 3, "returns": 2, "joined": 0, "left": 1})
    '4 workers, 1 lost, 1 left, 2 crashed and came back'
    """
    text = f"{workers} worker{'s' * (workers != 1)}"
    text += "".join(f", {counted[name]} {name}" for name in ("joined", "lost", "left") if counted[name])
    back = counted["crashes"] - counted["lost"]
    return text + (f", {back} crashed and came back" if back else "")
