"""The schedule: who reports when, made by a method's ledger and a cluster's times, without a gradient.

A schedule is a trace of events in columns. Real engines record the same columns; `replay` reads them back.
"""

from __future__ import annotations

import gc
import hashlib
import heapq
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.cluster import Cluster, ComputeTimes, Fault
from orlomo.clusters.cluster import cluster as cluster_by_name
from orlomo.errors import ConfigError, require
from orlomo.methods.ledger import Handout, Ledger
from orlomo.methods.registry import method as method_by_name

if TYPE_CHECKING:
    from orlomo.methods.method import Method

KINDS = ("report", "crash", "return", "join", "leave")
"""What an event can be, by its code in the `kind` column."""

REPORT = 0
DEPARTURES = frozenset((KINDS.index("crash"), KINDS.index("leave")))

COLUMNS = {
    "kind": "q",  # see KINDS
    "iteration": "q",  # t
    "worker": "q",
    "round": "q",  # of this worker
    "index": "q",  # ite(t, worker)
    "delay": "q",  # tau_t
    "group": "q",  # of the report
    "eta": "d",
    "learning_rate": "d",  # gamma of the round
    "start": "d",  # parameters sent
    "finish": "d",  # report arrived
    "compute": "d",  # of that, time computing; the rest is transfer
}
"""The columns of a trace and their type codes: q a whole number, d a number (8 bytes each)."""

ROW = struct.Struct("<" + "".join(COLUMNS.values()))


@dataclass(frozen=True)
class Schedule:
    """Events in the order in which the server sees them, one numpy array a column (see `COLUMNS`).

    Rows that are no report (a crash, a join) have only kind, iteration, worker and finish; the rest is -1 or NaN.
    """

    columns: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["kind"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    @property
    def reports(self) -> NDArray[np.bool_]:
        """Which rows are reports."""
        chosen: NDArray[np.bool_] = self.columns["kind"] == REPORT
        return chosen

    def digest(self) -> str:
        """A checksum of all columns."""
        total = hashlib.blake2b(digest_size=16)
        for column in self.columns.values():
            total.update(np.ascontiguousarray(column).tobytes())
        return total.hexdigest()


def make_schedule(
    ledger: Ledger,
    cluster: Cluster,
    *,
    workers: int,
    local_steps: int,
    reports: int,
    seed: int = 0,
    samples_per_report: int = 0,
    round_bytes: int = 0,
) -> Schedule:
    """Run the cluster's clock and the ledger until `reports` reports are folded in and no barrier is half full."""
    with _without_collector():
        return _make_schedule(
            ledger, _Clock(cluster, workers, local_steps, seed, round_bytes), workers, reports, samples_per_report
        )


def _make_schedule(ledger: Ledger, clock: _Clock, workers: int, reports: int, samples_per_report: int) -> Schedule:
    clock.send(ledger.start(workers).handouts)
    done = 0
    while done < reports or not ledger.settled:
        if not clock.queue:
            raise ConfigError(
                f"every worker is gone at time {clock.now:g}, after {done} of {reports} reports: "
                "let one return or join in the cluster's faults"
            )
        time, _, serial, kind, worker, *round = clock.queue.pop()
        if kind == REPORT and clock.held.get(worker) != serial:
            continue  # the worker crashed in this round: nothing happens
        clock.now = time
        if kind != REPORT:
            handouts = _membership(ledger, clock, kind, worker)
        else:
            done += 1
            handouts = _report(ledger, clock, worker, round, samples_per_report)
            if worker in clock.leaving:
                handouts = _leave_after_report(ledger, clock, worker, handouts)
        clock.send(handouts)
    return clock.schedule()


@contextmanager
def _without_collector() -> Iterator[None]:
    """Millions of small tuples and not one cycle: looking for cycles takes a quarter of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Clock:
    """The event queue and the columns written so far."""

    def __init__(self, cluster: Cluster, workers: int, local_steps: int, seed: int, round_bytes: int):
        self.now = 0.0
        self.compute = ComputeTimes(cluster, workers, local_steps, seed)
        self.transfer = cluster.transfer_seconds(round_bytes)
        # (time, priority, serial, kind, worker), and for a report: learning rate, start, compute time
        self.queue = EventQueue(bucket_seconds=local_steps * cluster.step_seconds / 256)
        self.serial = 0
        self.held: dict[int, int] = {}  # the serial of the report that each worker owes
        self.leaving: set[int] = set()
        self._rows = bytearray()
        for fault in cluster.faults:
            self._push_fault(fault)

    def _push_fault(self, fault: Fault) -> None:
        self.serial += 1
        # Priority 0: at equal times a fault comes before a report.
        self.queue.push((fault.time, 0, self.serial, KINDS.index(fault.kind), fault.worker))

    def send(self, handouts: list[Handout]) -> None:
        """Parameters go out; the reports will come when they have been computed and sent."""
        now = self.now
        for worker, _, round, _, learning_rate in handouts:
            compute = self.compute(worker, round)
            serial = self.serial = self.serial + 1
            self.held[worker] = serial
            arrival = now + compute + self.transfer
            self.queue.push((arrival, 1, serial, REPORT, worker, learning_rate, now, compute))

    def record(self, *values: float) -> None:
        self._rows += ROW.pack(*values)

    def record_membership(self, kind: int, iteration: int, worker: int) -> None:
        nan = float("nan")
        self.record(kind, iteration, worker, -1, -1, -1, -1, nan, nan, nan, self.now, nan)

    def schedule(self) -> Schedule:
        rows = np.frombuffer(self._rows, dtype=np.dtype([(name, f"<{code}") for name, code in COLUMNS.items()]))
        return Schedule({name: np.ascontiguousarray(rows[name]) for name in COLUMNS})


def _report(ledger: Ledger, clock: _Clock, worker: int, round: list[float], samples: int) -> list[Handout]:
    learning_rate, start, compute = round
    del clock.held[worker]
    step = ledger.receive(worker, samples)
    assert step.fold is not None
    t, _, number, index, delay, group, _, _, eta = step.fold
    clock.record(REPORT, t, worker, number, index, delay, group, eta, learning_rate, start, clock.now, compute)
    return step.handouts


def _membership(ledger: Ledger, clock: _Clock, kind: int, worker: int) -> list[Handout]:
    name = KINDS[kind]
    if name == "leave" and worker in clock.held:
        clock.leaving.add(worker)  # graceful: it reports first
        return []
    if kind not in DEPARTURES and worker in clock.leaving:
        clock.leaving.discard(worker)  # it had not gone yet, and stays
        return []
    iteration = ledger.iteration
    try:
        step = ledger.leave(worker) if kind in DEPARTURES else ledger.join(worker)
    except ConfigError as error:
        raise ConfigError(f"the cluster's faults, {name} at time {clock.now:g}: {error}") from None
    clock.record_membership(kind, iteration, worker)
    if kind in DEPARTURES:
        clock.held.pop(worker, None)
        clock.leaving.discard(worker)
    return step.handouts


def _leave_after_report(ledger: Ledger, clock: _Clock, worker: int, handouts: list[Handout]) -> list[Handout]:
    """A graceful goodbye: the report was folded in, what was handed out in return is not taken."""
    clock.leaving.discard(worker)
    clock.record_membership(KINDS.index("leave"), ledger.iteration, worker)
    further = ledger.leave(worker).handouts
    return [handout for handout in handouts + further if handout.worker != worker]


Event = tuple[Any, ...]
"""Starts with time, priority and a serial number that no other event has."""


class EventQueue:
    """Push events, pop the earliest: events in order of (time, priority, serial), for any number of workers.

    One heap of 100,000 events is slow because each comparison waits for memory. Here events wait unsorted in buckets of
    time, and only the bucket at hand is a heap. The order is that of one heap, exactly.

    >>> queue = EventQueue(bucket_seconds=1.0)
    >>> for event in [(2.5, 1, 1), (0.5, 1, 2), (2.5, 0, 3)]:
    ...     queue.push(event)
    >>> [queue.pop() for _ in range(3)]
    [(0.5, 1, 2), (2.5, 0, 3), (2.5, 1, 1)]
    """

    def __init__(self, bucket_seconds: float):
        self._width = bucket_seconds
        self._now: list[Event] = []  # a heap: the bucket at hand
        self._number = -1  # of that bucket
        self._later: dict[int, list[Event]] = {}
        self._numbers: list[int] = []  # a heap of the later buckets' numbers

    def __bool__(self) -> bool:
        return bool(self._now or self._numbers)

    def push(self, event: Event) -> None:
        number = int(event[0] / self._width)
        if number <= self._number:
            heapq.heappush(self._now, event)
            return
        bucket = self._later.get(number)
        if bucket is None:
            self._later[number] = [event]
            heapq.heappush(self._numbers, number)
        else:
            bucket.append(event)

    def pop(self) -> Event:
        if not self._now:
            self._number = heapq.heappop(self._numbers)
            self._now = self._later.pop(self._number)
            heapq.heapify(self._now)
        return heapq.heappop(self._now)


def trace(
    method: Method | str = "orlomo",
    *,
    workers: int,
    iterations: int,
    cluster: Cluster | str = "homogeneous",
    seed: int = 0,
    parameters: int = 0,
) -> Schedule:
    """The schedule of a run alone, without a task: who would report when, with what delay and weight.

    Args:
        parameters: the model's size, where the cluster's links have a bandwidth.

    >>> events = trace("orlomo", workers=4, iterations=100)
    >>> int(events["delay"].sum()) < 3 * 100  # (K-1) T, less what is under way at the end
    True
    """
    require(iterations >= 1, f"iterations must be at least 1, not {iterations}")
    require(math.isfinite(parameters) and parameters >= 0, f"parameters must be 0 or more, not {parameters}")
    chosen = method_by_name(method) if isinstance(method, str) else method
    return make_schedule(
        chosen.ledger(workers, epoch_samples=1),
        cluster_by_name(cluster),
        workers=workers,
        local_steps=chosen.local_steps,
        reports=iterations,
        seed=seed,
        round_bytes=round_bytes(chosen, parameters),
    )


def round_bytes(method: Method, parameters: int, element_bytes: int = 4) -> int:
    """Bytes on a worker's link in one round, both ways."""
    vectors = 2 + method.carries_momentum + method.reports_momentum
    return vectors * parameters * element_bytes
