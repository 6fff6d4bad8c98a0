"""The schedule: who reports when, laid down by a method's ledger and a cluster's times, without a gradient.

A schedule is a trace of events in columns. Real engines record the same columns; `replay` reads them back.
"""

from __future__ import annotations

import gc
import hashlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.cluster import Cluster, ComputeTimes, Fault
from orlomo.clusters.queue import EventQueue
from orlomo.errors import ConfigError
from orlomo.methods.ledger import Handout, Ledger

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
