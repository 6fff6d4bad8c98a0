"""What happens to the user's own loop, in an order that is given: reports, and workers that join and leave.

Whatever decides the order, the server, the leases of samples and the record go through the same steps as in a run in
real time (engines/loops/live.py): so one can compute again what the other has recorded.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod

from orlomo.clusters.schedule import COLUMNS, KINDS, report_row
from orlomo.engines.loops.bookkeeping import Bookkeeping
from orlomo.engines.session import Session
from orlomo.methods.messages import Assignment, Report
from orlomo.records.tables import Row


class Ordered(ABC):
    """The server's side of a loop whose events come in a given order."""

    def __init__(self, session: Session, books: Bookkeeping):
        self.session, self.books = session, books
        self.held: dict[int, Assignment] = {}  # by worker: what it computes on
        self.parked: list[int] = []  # workers for which no samples are left, and that hold an assignment all the same
        self.without: list[int] = []  # the same for synchronous methods: the others should not wait for them

    @property
    def at_end(self) -> bool:
        """Whether all there was to do is folded in, or a callback has stopped the run; and no barrier is half full."""
        return self.session.stopping or (self.books.complete and self.session.server.ledger.settled)

    @abstractmethod
    def sent(self, assignment: Assignment) -> None:
        """A worker is given a round, with its samples."""

    @abstractmethod
    def chief(self, assignment: Assignment) -> int:
        """The worker that saves and prints when this assignment is made."""

    def hand(self, assignments: list[Assignment]) -> None:
        """Give each its samples; where none are left for a worker, it waits, in case others give theirs back."""
        for assignment in assignments:
            worker = assignment.worker
            self.books.chief = self.chief(assignment)
            order = self.books.order(assignment)
            if order is None and self.session.config.method.synchronous:
                self.without.append(worker)
                continue
            self.held[worker] = dataclasses.replace(assignment, order=order)
            if order is None:
                self.parked.append(worker)
            else:
                self.sent(self.held[worker])

    def receive(self, report: Report, start: float, finish: float, compute: float, leaves: bool) -> Row:
        """Fold a report in; `leaves`: its worker is not answered. The row of the record."""
        worker, session = report.worker, self.session
        done = self.held[worker]
        assignments = session.fold(report, finish - start, done)
        del self.held[worker]
        self.books.accept(report)
        self.hand([assignment for assignment in assignments if assignment.worker != worker or not leaves])
        fold = session.server.last_fold
        assert fold is not None
        weight = session.config.method.weight(fold)
        values = report_row(fold, weight, done.learning_rate, start, finish, compute)
        row = dict(zip(COLUMNS, values, strict=True))
        session.record_report(row, report)
        session.whole = True
        return row

    def leave(self, worker: int, kind: str, time: float) -> None:
        """A worker is gone, or takes no part for now; its samples are for others."""
        self.session.whole = False
        self.books.give_back(worker)
        self.parked = [other for other in self.parked if other != worker]
        self.held.pop(worker, None)
        iteration = self.session.server.iteration  # of the event: closing a barrier would advance it
        assignments = self.session.server.leave(worker)
        self._record(kind, iteration, worker, time)
        self.hand(assignments)
        self.session.whole = True

    def join(self, worker: int, kind: str, time: float) -> None:
        """A worker takes part from now on."""
        self.session.whole = False
        iteration = self.session.server.iteration
        assignments = self.session.server.join(worker)
        self.hand(assignments)
        self._record(kind, iteration, worker, time)
        self.session.whole = True

    def wake(self) -> None:
        """Workers that wait for samples continue where there are some; after every event."""
        parked, self.parked = self.parked, []
        self.hand([self.held[worker] for worker in parked if worker in self.held])

    def _record(self, kind: str, iteration: int, worker: int, time: float) -> None:
        row: Row = {name: -1 if code == "q" else math.nan for name, code in COLUMNS.items()}
        row |= {"kind": KINDS.index(kind), "iteration": iteration, "worker": worker, "finish": time}
        self.session.record_change(row)
