"""The schedule: which worker reports when, made by a method's ledger and a cluster's times, without a gradient.

A schedule is a trace of events in columns. Real engines record the same columns; `replay` reads them back.
"""

from __future__ import annotations

import gc
import hashlib
import heapq
import json
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.cluster import Cluster, ComputeTimes, Fault, check_reports
from orlomo.clusters.cluster import cluster as cluster_by_name
from orlomo.errors import ConfigError, require
from orlomo.methods.ledger import Assigned, Fold, Ledger
from orlomo.methods.registry import given_method
from orlomo.values import whole

if TYPE_CHECKING:
    from orlomo.methods.method import Method

KINDS = ("report", "crash", "return", "join", "leave", "drop")
"""What an event can be, by its code in the `kind` column; a `drop` is a report that the method does not fold in."""

REPORT, DROP = KINDS.index("report"), KINDS.index("drop")
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
    "behind": "q",  # groups behind the newest
    "weight": "d",  # in the momentum, where the method has one
    "local_steps": "q",  # in the round
}
"""The columns of a trace and their type codes: q a whole number, d a number (8 bytes each)."""

Column: TypeAlias = NDArray[Any]
"""Of 8-byte integers or floats, as `COLUMNS` says."""

ROW = struct.Struct("<" + "".join(COLUMNS.values()))


@dataclass(frozen=True)
class Schedule:
    """Events in the order in which the server sees them, one numpy array per column (see `COLUMNS`).

    Rows that are no report (a crash, a join) have only kind, iteration, worker and finish; the rest is -1 or NaN.
    """

    columns: dict[str, Column]

    def __len__(self) -> int:
        return len(self.columns["kind"])

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    @property
    def reports(self) -> NDArray[np.bool_]:
        """Which rows are reports that were folded in."""
        chosen: NDArray[np.bool_] = self.columns["kind"] == REPORT
        return chosen

    def digest(self) -> str:
        """A checksum of all columns."""
        total = hashlib.blake2b(digest_size=16)
        for column in self.columns.values():
            total.update(np.ascontiguousarray(column).tobytes())
        return total.hexdigest()


class Continued(NamedTuple):
    """From an event on the run has another method (of the same class) and another end."""

    events: int
    method: Method
    samples: int


def make_schedule(
    method: Method,
    cluster: Cluster,
    *,
    workers: int,
    reports: int = 1,
    samples: int = 0,
    batch_size: int = 0,
    epoch_samples: int = 1,
    seed: int = 0,
    parameter_bytes: int = 0,
    changes: Sequence[Continued] = (),
) -> Schedule:
    """Run the cluster's clock and the method's ledger until that many reports and samples are in.

    It ends where no barrier is half full. `parameter_bytes`: of one vector of the model's size, where links cost time.
    With `changes` the schedule is the same up to each of them, however far the run was to go before.
    """
    a_round, last = max(1, method.local_steps * batch_size), max((change.samples for change in changes), default=0)
    check_reports(max(reports, samples // a_round, last // a_round))
    vectors = len(method.sent_vectors()) + len(method.report_vectors)
    ledger, weight = method.ledger(workers, epoch_samples), method.weight
    clock = _Clock(cluster, workers, method, seed, vectors * parameter_bytes)
    waiting, leaver = deque(changes), -1
    with _without_collector():
        assigned = ledger.start(workers).assigned
        clock.send(assigned)
        while (
            due := clock.reports < reports or ledger.samples < samples or not ledger.settled or leaver >= 0
        ) or waiting:
            if waiting and clock.events == waiting[0].events:
                _, method, samples = waiting.popleft()
                ledger, weight = _continued(ledger, method, workers, epoch_samples), method.weight
                continue
            if not due:  # a change is made at the latest where the run before it ends
                at, end = waiting[0].events, clock.events
                raise ConfigError(f"changes.json has a change at event {at:,}, but the run before it ends at {end:,}")
            if leaver >= 0:
                clock.send(_leave_after_report(ledger, clock, leaver, assigned))
                leaver = -1
                continue
            if not clock.queue:
                raise ConfigError(
                    f"every worker is gone at time {clock.now:g}, after {clock.reports} reports: "
                    "let one return or join in the cluster's faults"
                )
            time, _, serial, kind, worker, learning_rate, start, compute, steps = clock.queue.pop()
            if kind == REPORT and clock.held.get(worker) != serial:
                continue  # the worker crashed in this round: nothing happens
            clock.now = time
            if kind != REPORT:
                assigned = _membership(ledger, clock, kind, worker)
            else:
                del clock.held[worker]
                clock.reports += 1
                fold, _, assigned = ledger.receive(worker, steps * batch_size, time - start)
                assert fold is not None
                clock.record(report_row(fold, weight(fold), learning_rate, start, time, compute))
                if worker in clock.leaving:
                    leaver = worker
                    continue
            clock.send(assigned)
        return clock.schedule()


def _continued(ledger: Ledger, method: Method, workers: int, epoch_samples: int) -> Ledger:
    """The ledger of another method in the state of this one, by way of JSON, as when a run is resumed."""
    made = method.ledger(workers, epoch_samples)
    made.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    return made


@contextmanager
def _without_collector() -> Iterator[None]:
    """Millions of small tuples without a cycle: the garbage collector would take a quarter of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


Event: TypeAlias = tuple[float, int, int, int, int, float, float, float, int]
"""Time, priority, serial, kind, worker, and of a report: learning rate, start, compute time, local steps (else 0)."""


class _Clock:
    """The event queue and the columns written so far."""

    def __init__(self, cluster: Cluster, workers: int, method: Method, seed: int, round_bytes: int):
        self.now = 0.0
        self.compute = ComputeTimes(cluster, workers, method.local_steps, seed)
        self.transfer = cluster.transfer_seconds(round_bytes)
        self.queue: EventQueue[Event] = EventQueue(bucket_seconds=method.local_steps * cluster.step_seconds / 256)
        self.reports = 0  # that came so far, folded in or dropped
        self.serial = 0
        self.held: dict[int, int] = {}  # the serial of the report that each worker owes
        self.leaving: set[int] = set()
        self._rows = bytearray()
        for fault in cluster.faults:
            self._push_fault(fault)

    def _push_fault(self, fault: Fault) -> None:
        self.serial += 1
        # Priority 0: at equal times a fault comes before a report.
        self.queue.push((fault.time, 0, self.serial, KINDS.index(fault.kind), fault.worker, 0.0, 0.0, 0.0, 0))

    def send(self, assigned: list[Assigned]) -> None:
        """Parameters go out; the reports will come when they have been computed and sent."""
        now = self.now
        for worker, _, round, _, learning_rate, steps, _ in assigned:
            compute = self.compute(worker, round, steps)
            serial = self.serial = self.serial + 1
            self.held[worker] = serial
            arrival = now + compute + self.transfer
            self.queue.push((arrival, 1, serial, REPORT, worker, learning_rate, now, compute, steps))

    def record(self, values: tuple[float, ...]) -> None:
        self._rows += ROW.pack(*values)

    @property
    def events(self) -> int:
        """Recorded so far."""
        return len(self._rows) // ROW.size

    def record_membership(self, kind: int, iteration: int, worker: int) -> None:
        nan = float("nan")
        self.record((kind, iteration, worker, -1, -1, -1, -1, nan, nan, nan, self.now, nan, -1, nan, -1))

    def schedule(self) -> Schedule:
        rows = np.frombuffer(self._rows, dtype=np.dtype([(name, f"<{code}") for name, code in COLUMNS.items()]))
        return Schedule({name: np.ascontiguousarray(rows[name]) for name in COLUMNS})


def report_row(
    fold: Fold, weight: float, learning_rate: float, start: float, finish: float, compute: float
) -> tuple[float, ...]:
    """A report as a row of the trace: one value per column, in their order."""
    t, worker, number, index, delay, group, behind, _, eta, steps, _, dropped = fold
    kind, rate = DROP if dropped else REPORT, learning_rate
    return (kind, t, worker, number, index, delay, group, eta, rate, start, finish, compute, behind, weight, steps)


def _membership(ledger: Ledger, clock: _Clock, kind: int, worker: int) -> list[Assigned]:
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
    return step.assigned


def _leave_after_report(ledger: Ledger, clock: _Clock, worker: int, assigned: list[Assigned]) -> list[Assigned]:
    """A worker leaves after its report was folded in: what it was assigned in return is not taken."""
    clock.leaving.discard(worker)
    clock.record_membership(KINDS.index("leave"), ledger.iteration, worker)
    further = ledger.leave(worker).assigned
    return [one for one in assigned + further if one.worker != worker]


E = TypeVar("E", bound=tuple[float, ...])
"""An event: a tuple that starts with time, priority and a serial number that no other event has."""


class EventQueue(Generic[E]):
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
        self._now: list[E] = []  # a heap: the bucket at hand
        self._number = -1  # of that bucket
        self._later: dict[int, list[E]] = {}
        self._numbers: list[int] = []  # a heap of the later buckets' numbers

    def __bool__(self) -> bool:
        return bool(self._now or self._numbers)

    def push(self, event: E) -> None:
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

    def pop(self) -> E:
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
    """The schedule of a run, without training: which worker would report when, with which delay and weight.

    Args:
        parameters: the number of model parameters, for clusters whose links have a bandwidth.

    >>> events = trace("orlomo", workers=4, iterations=100)
    >>> int(events["delay"].sum()) < 3 * 100  # (K-1) T, less what is under way at the end
    True
    """
    numbers = {"workers": workers, "iterations": iterations, "seed": seed, "parameters": parameters}
    workers, iterations, seed, parameters = (whole(value, name) for name, value in numbers.items())
    require(seed >= 0, f"seed must be 0 or more, not {seed}")
    require(iterations >= 1, f"iterations must be at least 1, not {iterations}")
    require(parameters >= 0, f"parameters must be 0 or more, not {parameters}")
    where, size = cluster_by_name(cluster), 4 * parameters
    return make_schedule(
        given_method(method), where, workers=workers, reports=iterations, seed=seed, parameter_bytes=size
    )
