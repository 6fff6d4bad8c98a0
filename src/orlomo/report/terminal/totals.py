"""What the workers of a run have done so far: running totals, added up as events come in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from orlomo.records.tables import EVENTS, ROUNDS, Columns, Row

SHOWN = ("kind", "worker", "delay", "start", "finish", "compute", "samples", "reports", "loss")
"""What a display reads of an event (see `Callback.event`)."""

RECORDED = tuple(name for name in SHOWN if name in EVENTS)
"""Those that are columns of events.csv."""

AT_ONCE = 10_000
"""Rows of what a resumed run has kept that are looked at together."""

COMPUTING, WAITING, STARTING, LOST, LEFT = "computing", "waiting", "starting", "lost", "left"
"""The states of a worker, for display."""


@dataclass
class WorkerTotals:
    """One worker: its rounds, its last delay, and how it spent its time.

    `turn`: rounds since the run began, as the barriers of a synchronous method count them.
    """

    state: str = COMPUTING
    rounds: int = 0
    turn: int = 0
    delay: int = 0
    computing: float = 0.0
    waiting: float = 0.0
    transfer: float = 0.0
    finish: float | None = None  # of its last round

    @property
    def shares(self) -> tuple[float, float, float]:
        """Computing, transfer and waiting as shares of the worker's time so far; all 0 before its first report."""
        total = self.computing + self.waiting + self.transfer
        return (self.computing / total, self.transfer / total, self.waiting / total) if total > 0 else (0.0, 0.0, 0.0)

    @property
    def round_seconds(self) -> float:
        """What a round takes it, without the time in which it waits."""
        return (self.computing + self.transfer) / self.rounds if self.rounds else 0.0


@dataclass
class Totals:
    """The running totals of all workers of a run, and how often each delay occurred.

    `synchronous`: a worker that has reported waits until all others have.
    """

    workers: dict[int, WorkerTotals] = field(default_factory=dict)
    delays: Counter[int] = field(default_factory=Counter)
    samples: int = 0
    seconds: float = 0.0  # of the run's clock
    synchronous: bool = False

    @classmethod
    def begin(cls, workers: int, kept: Columns | None, *, synchronous: bool = False, starting: bool = False) -> Totals:
        """One row per worker, and the events that a resumed run has kept. `starting`: the workers must be started."""
        state = STARTING if starting else COMPUTING
        totals = cls({worker: WorkerTotals(state) for worker in range(workers)}, synchronous=synchronous)
        kept = kept or {}
        names = [name for name in SHOWN if name in kept]
        # Not all rows at once: as Python's numbers they would need several times the memory.
        for begin in range(0, len(kept["kind"]) if names else 0, AT_ONCE):
            for values in zip(*(kept[name][begin : begin + AT_ONCE].tolist() for name in names), strict=True):
                totals.event(dict(zip(names, values, strict=True)))
        return totals

    def event(self, row: Row) -> None:
        """Add one row of the trace (see `Callback.event`)."""
        worker = self.workers.setdefault(row["worker"], WorkerTotals())
        if row["kind"] not in ROUNDS:
            worker.state = {"crash": LOST, "leave": LEFT}.get(row["kind"], COMPUTING)
            worker.turn = max((one.turn for one in self.workers.values()), default=0)  # it begins at the next barrier
            worker.finish = None
            return
        worker.state = COMPUTING
        worker.rounds += 1
        worker.turn += 1
        worker.delay = row["delay"]
        # The same rule as in timeline.py: what is neither computing nor waiting for an assignment is transfer. Real
        # clocks overlap a little, so a round begins at the end of the one before at the earliest, and the first one not
        # before the run.
        before = max(0.0, row["start"]) if worker.finish is None else worker.finish
        begin = max(row["start"], before)
        computed = min(row["compute"], row["finish"] - begin)
        worker.computing += computed
        worker.transfer += row["finish"] - begin - computed
        worker.waiting += begin - before
        worker.finish = row["finish"]
        self.seconds = max(self.seconds, row["finish"])
        self.delays[row["delay"]] += 1
        self.samples = row.get("samples", 0)

    def states(self) -> dict[int, str]:
        """The state of each worker, by its number; those that others are waiting for are computing."""
        workers = sorted(self.workers.items())  # a copy: the display's thread draws while the run adds workers
        if not self.synchronous:
            return {number: one.state for number, one in workers}
        turns = [one.turn for _, one in workers if one.state in (COMPUTING, STARTING)]
        slowest = min(turns, default=0)
        return {
            number: WAITING if one.state == COMPUTING and one.turn > slowest else one.state for number, one in workers
        }
