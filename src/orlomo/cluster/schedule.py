"""The schedule: who reports when, laid down by a method's ledger and a cluster's times, without a gradient.

A schedule is a trace of events in columns. Real engines record the same columns; `replay` reads them back.
"""

from __future__ import annotations

import gc
import hashlib
import heapq
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orlomo.cluster.cluster import Cluster, ComputeTimes, Fault
from orlomo.errors import ConfigError
from orlomo.methods.ledger import Handout, Ledger, Step

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


def lay_down(
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
        return _lay_down(
            ledger, _Clock(cluster, workers, local_steps, seed, round_bytes), workers, reports, samples_per_report
        )


def _lay_down(ledger: Ledger, clock: _Clock, workers: int, reports: int, samples_per_report: int) -> Schedule:
    clock.send(ledger.start(workers).handouts)
    done = 0
    while done < reports or not ledger.settled:
        if not clock.queue:
            raise ConfigError(
                f"every worker is gone at time {clock.now:g}, after {done} of {reports} reports: "
                "let one return or join in the cluster's faults"
            )
        arrival = clock.queue[0]
        kind, worker = arrival.kind, arrival.worker
        if kind == REPORT and clock.held.get(worker) != arrival.serial:
            clock.advance([])  # the worker crashed in this round: nothing happens
            continue
        clock.now = arrival.time
        if kind != REPORT:
            clock.advance(_membership(ledger, clock, kind, worker))
        else:
            done += 1
            handouts = _report(ledger, clock, arrival, samples_per_report)
            if worker in clock.leaving:
                handouts = _leave_after_report(ledger, clock, worker, handouts)
            clock.advance(handouts)
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


class _Arrival(NamedTuple):
    """An entry of the event queue: a report that arrives, or a fault; compared by time, priority and serial."""

    time: float
    priority: int
    serial: int
    kind: int
    worker: int
    handout: Handout | None = None  # of a report: what the worker was given,
    start: float = 0.0  # when,
    compute: float = 0.0  # and how long it computed


class _Clock:
    """The event queue and the columns written so far."""

    def __init__(self, cluster: Cluster, workers: int, local_steps: int, seed: int, round_bytes: int):
        self.now = 0.0
        self.compute = ComputeTimes(cluster, workers, local_steps, seed)
        self.transfer = cluster.transfer_seconds(round_bytes)
        self.queue: list[_Arrival] = []
        self.serial = 0
        self.held: dict[int, int] = {}  # the serial of the report that each worker owes
        self.leaving: set[int] = set()
        self._rows = bytearray()
        for fault in cluster.faults:
            self._push_fault(fault)

    def _push_fault(self, fault: Fault) -> None:
        self.serial += 1
        # Priority 0: at equal times a fault comes before a report.
        heapq.heappush(self.queue, _Arrival(fault.time, 0, self.serial, KINDS.index(fault.kind), fault.worker))

    def send(self, handouts: list[Handout]) -> None:
        """Parameters go out; the reports will come when they have been computed and sent."""
        for handout in handouts:
            heapq.heappush(self.queue, self._arrival(handout))

    def advance(self, handouts: list[Handout]) -> None:
        """The event in front is done; parameters go out."""
        if handouts:
            heapq.heapreplace(self.queue, self._arrival(handouts[0]))
            if len(handouts) > 1:
                self.send(handouts[1:])
        else:
            heapq.heappop(self.queue)

    def _arrival(self, handout: Handout) -> _Arrival:
        worker, now = handout.worker, self.now
        compute = self.compute(worker, handout.round)
        serial = self.serial = self.serial + 1
        self.held[worker] = serial
        return _Arrival(now + compute + self.transfer, 1, serial, REPORT, worker, handout, now, compute)

    def record(self, *values: float) -> None:
        self._rows += ROW.pack(*values)

    def record_membership(self, kind: int, iteration: int, worker: int) -> None:
        nan = float("nan")
        self.record(kind, iteration, worker, -1, -1, -1, -1, nan, nan, nan, self.now, nan)

    def schedule(self) -> Schedule:
        rows = np.frombuffer(self._rows, dtype=np.dtype([(name, f"<{code}") for name, code in COLUMNS.items()]))
        return Schedule({name: np.ascontiguousarray(rows[name]) for name in COLUMNS})


def _report(ledger: Ledger, clock: _Clock, arrival: _Arrival, samples: int) -> list[Handout]:
    worker, handout = arrival.worker, arrival.handout
    del clock.held[worker]
    step: Step = ledger.receive(worker, samples)
    fold = step.fold
    assert fold is not None
    assert handout is not None
    clock.record(
        REPORT,
        fold.iteration,
        worker,
        fold.round,
        fold.index,
        fold.delay,
        fold.group,
        fold.eta,
        handout.learning_rate,
        arrival.start,
        arrival.time,
        arrival.compute,
    )
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
