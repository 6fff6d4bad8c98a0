"""The user's own loop on virtual time: real worker processes compute, a cluster's clock decides what comes when.

How long a round takes is known when it is assigned, by its samples: so the rounds that come next are computed at the
same time, and the result does not depend on how many are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from orlomo.clusters.cluster import ComputeTimes, Fault
from orlomo.clusters.schedule import DEPARTURES, KINDS, REPORT, EventQueue
from orlomo.config import RunConfig
from orlomo.engines.engine import Engine, Setup
from orlomo.engines.live.events import Left, Lost
from orlomo.engines.loops.bookkeeping import Bookkeeping
from orlomo.engines.loops.local import LocalCrew
from orlomo.engines.loops.opening import OpenedWork, local_crew
from orlomo.engines.loops.simulated.ordered import Ordered
from orlomo.engines.loops.simulated.rounds import Rounds
from orlomo.engines.ray.connection import RayOptions
from orlomo.engines.registry import ENGINES
from orlomo.engines.session import Session
from orlomo.engines.signals import Signals
from orlomo.errors import ConfigError, OrlomoError, require
from orlomo.loop.program import Program
from orlomo.methods.messages import Assignment
from orlomo.records.log import Log
from orlomo.records.shapes import restoring

EVALUATIONS_WAITING = 2
"""Evaluations that may be unfinished while the run continues."""

Event = tuple[float, int, int, int, int, float, float]
"""Time, priority, serial, kind, worker, and of a report: start and compute time (else 0)."""


class RoundTimes:
    """How long the rounds of a run on virtual time take."""

    def __init__(self, session: Session, work: OpenedWork):
        self._config, self._work = session.config, work
        cluster, method = self._config.cluster, self._config.method
        vectors = len(method.sent_vectors()) + len(method.report_vectors)
        self._compute = ComputeTimes(cluster, self._config.workers, method.local_steps, self._config.seed)
        self._transfer = cluster.transfer_seconds(vectors * session.server.params.nbytes)

    def __call__(self, assignment: Assignment, start: float) -> tuple[float, float]:
        """The seconds it computes, and when its report arrives."""
        steps = self._work.steps_in(assignment, self._config)
        compute = self._compute(assignment.worker, assignment.round, steps)
        return compute, start + compute + self._transfer


class SimulatedLoop(Engine, Ordered):
    """A run of a user's loop on virtual time."""

    facts = ENGINES["simulated"]

    def __init__(self, setup: Setup):
        config, work = setup.config, setup.work
        assert isinstance(work, OpenedWork)
        self.opened, self._jobs = work, setup.jobs
        session = Session(
            config,
            work,
            setup.recorder,
            total=work.planned_reports(config),
            callbacks=setup.callbacks,
            evaluates=work.evaluates,
        )
        resumed = setup.resumed
        if resumed is not None:
            session.load(resumed)
        Ordered.__init__(self, session, Bookkeeping(session, work, resumed))
        self.log = Log(setup.folder, setup.callbacks.warning)
        cluster, method = config.cluster, config.method
        self._times = RoundTimes(session, work)
        self._queue: EventQueue[Event] = EventQueue(bucket_seconds=method.local_steps * cluster.step_seconds / 256)
        self._serial = 0
        self._owed: dict[int, int] = {}  # by worker: the serial of the report that it owes
        self._idle: list[int] = []  # workers without samples, that the server does not count for now
        self._leaving: set[int] = set()
        self._present = set(range(config.workers))  # by the cluster's faults
        self._now, self._faults = 0.0, 0  # virtual seconds, and faults so far
        self._resumed = resumed is not None
        if resumed is not None:
            with restoring(resumed.position):
                values: dict[str, Any] = resumed.values["virtual"]
                self._now, self._faults = float(values["now"]), int(values["faults"])
                self._present, self._leaving = set(map(int, values["present"])), set(map(int, values["leaving"]))
        for fault in _in_order(cluster.faults)[self._faults :]:
            self._push_fault(fault)

    @classmethod
    def check(cls, config: RunConfig) -> RunConfig:
        """Faults must be possible: a worker that crashes is there, one that joins is not."""
        present = set(range(config.workers))
        for fault in _in_order(config.cluster.faults):
            departs, there = KINDS.index(fault.kind) in DEPARTURES, fault.worker in present
            text = f"worker {fault.worker} is {'already' if there else 'not'} present"
            require(departs == there, f"the cluster's faults, {fault.kind} at time {fault.time:g}: {text}")
            present ^= {fault.worker}
        return super().check(config)

    @classmethod
    def make_crew(
        cls,
        config: RunConfig,
        program: Program,
        ray: RayOptions | None,
        stack: ExitStack,
        warn: Callable[[str], None],
    ) -> LocalCrew:
        """Worker processes of this machine."""
        return stack.enter_context(local_crew(config, program, lambda rank: {}))

    def run(self, signals: Signals) -> None:
        """Run to the end (the caller does the last `save`). A signal saves and raises `Interrupted`."""
        session, crew, evaluator = self.session, self.opened.crew, self.opened.evaluator
        crew.present = self.books.present
        self._rounds = Rounds(crew, self._jobs, signals.obey)
        # Callbacks that act on evaluations must see them at the same event on any number of jobs.
        keep = EVALUATIONS_WAITING if session.callbacks.watch_only else 0
        try:
            session.begin_pending(evaluator)
            self._begin()
            session.gather(evaluator, keep, signals.may_interrupt)
            while not self.at_end:
                signals.obey()
                self._next()
                session.evaluate_if_due(evaluator, self._now, self.at_end)
                session.gather(evaluator, keep, signals.may_interrupt)
                if session.recorder.due:
                    self.save()
            session.evaluate_if_due(evaluator, self._now, at_end=True)
            session.gather(evaluator, 0, signals.may_interrupt)
            signals.obey()
            self._rounds.finish(self.books.end(), self.log.warn)
        except signals.Stop as stop:
            self.save()
            raise signals.interrupted(stop) from None
        except BaseException as error:
            session.save_after(error, self.save)
            raise

    def save(self) -> None:
        """Write a checkpoint. What workers have in hand is not part of it: a resumed run has other processes."""
        virtual = {
            "now": self._now,
            "faults": self._faults,
            "present": sorted(self._present),
            "leaving": sorted(self._leaving),
        }
        self.session.save([], self.at_end, virtual=virtual, **self.books.to_json())

    # Events

    def _begin(self) -> None:
        """All workers start; in a run that continues, all that there were have crashed, and come back."""
        if self.at_end:  # only evaluations are missing: no worker is needed
            return
        server, session = self.session.server, self.session
        if not self._resumed:
            session.whole = False
            self.hand(server.start())
            session.whole = True
            self.wake()
            session.evaluate_if_due(self.opened.evaluator, 0.0, self.at_end)
        else:
            # Those that wait at a barrier first: it closes when the last that holds an assignment is gone.
            for worker in [*sorted(getattr(server.ledger, "waiting", ())), *sorted(server.ledger.outstanding)]:
                self.leave(worker, "crash", self._now)
            self._present -= self._leaving  # they would have left after the rounds that are lost
            self._leaving.clear()
            for worker in sorted(self._present):
                self.join(worker, "return", self._now)
            self.wake()
        self._start(sorted(self._present))

    def _next(self) -> None:
        """The next event of the clock."""
        if not self._queue:
            raise ConfigError(
                f"every worker is gone at time {self._now:g}, after {self.session.reports} reports: "
                "let one return or join in the cluster's faults"
            )
        time, _, serial, kind, worker, start, compute = self._queue.pop()
        if kind == REPORT:
            if self._owed.get(worker) == serial:  # else the worker has crashed in this round
                self._round_ends(worker, time, start, compute)
                self.wake()
            return
        self._now, self._faults = time, self._faults + 1
        self._fault(KINDS[kind], worker)
        self.wake()
        if worker in self._present:
            self._start([worker])

    def _round_ends(self, worker: int, time: float, start: float, compute: float) -> None:
        outcome = self._rounds.take(worker)
        if isinstance(outcome, Lost):
            raise _failed(outcome, self.held[worker])
        self._now = time
        del self._owed[worker]
        if isinstance(outcome, Left):
            self._gone(worker, "leave")
            if not self._present and self._faults == len(self.session.config.cluster.faults):
                self.session.callbacks.stop_reason = "every worker has left the run"
            return
        leaves = worker in self._leaving
        self.receive(outcome.report, start, time, compute, leaves)
        if leaves:
            self._gone(worker, "leave")

    def _fault(self, kind: str, worker: int) -> None:
        if kind == "leave" and worker in self._owed:
            self._leaving.add(worker)  # it reports first
        elif kind in ("crash", "leave"):
            if worker in self._present:  # else its program has ended before
                self._gone(worker, kind)
        elif worker in self._leaving:
            self._leaving.discard(worker)  # it had not gone yet, and stays
        else:
            self._present.add(worker)
            self.join(worker, kind, self._now)

    def _gone(self, worker: int, kind: str) -> None:
        """A worker is gone, and its process with it."""
        if worker in self._idle:
            self._idle.remove(worker)  # the server does not count it
        else:
            self.leave(worker, kind, self._now)
        self._owed.pop(worker, None)
        self._leaving.discard(worker)
        self._present.discard(worker)
        self._rounds.stop(worker)

    def wake(self) -> None:
        """Also, workers for which there are no samples leave the barrier, and come back where there are some."""
        without, self.without = self.without, []
        if without and not self.books.complete:
            self._idle += without
            for worker in without:
                self.leave(worker, "leave", self._now)
        super().wake()
        while self._idle and self.books.has_samples:
            self.join(self._idle.pop(0), "join", self._now)

    # Rounds

    def chief(self, assignment: Assignment) -> int:
        """The lowest worker that takes part."""
        return min((worker for worker in self._present if worker not in self._idle), default=-1)

    def sent(self, assignment: Assignment) -> None:
        """The round will be over when the samples are computed and the vectors have travelled."""
        worker = assignment.worker
        compute, time = self._times(assignment, self._now)
        serial = self._serial = self._serial + 1
        self._owed[worker] = serial
        self._queue.push((time, 1, serial, REPORT, worker, self._now, compute))
        self._rounds.offer(assignment, time, serial)

    def _start(self, workers: list[int]) -> None:
        for worker in workers:
            self._rounds.start(worker, worker)
        self._rounds.welcome(workers)

    def _push_fault(self, fault: Fault) -> None:
        self._serial += 1
        # Priority 0: at equal times a fault comes before a report.
        self._queue.push((fault.time, 0, self._serial, KINDS.index(fault.kind), fault.worker, 0.0, 0.0))


def _in_order(faults: Sequence[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda fault: fault.time)


def _failed(lost: Lost, held: Assignment) -> OrlomoError:
    error = OrlomoError(f"worker {lost.worker} failed in its round {held.round}: {lost.reason}")
    if lost.traceback:
        error.add_note(lost.traceback.rstrip())
    return error
