"""A run in real time: the worker that reports first is folded in and answered first; none waits for the slowest.

The crew reaches the workers, wherever they are; the membership decides which of them take part; the loop, here, folds
reports in, records, evaluates, saves, and carries out what the membership decides.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from contextlib import ExitStack

from orlomo.clusters.schedule import COLUMNS, KINDS, report_row
from orlomo.engines.engine import Engine, Setup
from orlomo.engines.live import events
from orlomo.engines.live.actions import Action, Deny, End, Join, Leave, Redo, Say, Start, Stop
from orlomo.engines.live.control import Control, Request
from orlomo.engines.live.crew import Arrived, Crew, CrewEvent
from orlomo.engines.live.membership import Membership
from orlomo.engines.processes.evaluator import EvaluationFailed
from orlomo.engines.session import Evaluator, Session
from orlomo.engines.signals import Signals
from orlomo.errors import ConfigError, Diverged, OrlomoError, ReportRefused, RunFolderError
from orlomo.methods.messages import Assignment, Report
from orlomo.records.folders import resume_command
from orlomo.records.log import Log
from orlomo.records.recorder import DISK_RETRY_SECONDS
from orlomo.records.shapes import restoring
from orlomo.records.tables import Row

EVALUATIONS_WAITING = 2
"""Beyond this many unfinished evaluations no more are begun: they are late rather than in the way."""


class Live(Engine):
    """A run in real time, from its beginning or from a checkpoint."""

    waits_for_disk = True

    failures: tuple[type[Exception], ...] = ()
    """What ends the run where the crew cannot help it; it is saved first."""

    def __init__(self, setup: Setup):
        self.config, self.work, resumed = setup.config, setup.work, setup.resumed
        total = self.work.planned_reports(self.config)
        self.session = Session(
            self.config,
            self.work,
            setup.recorder,
            total=total,
            callbacks=setup.callbacks,
            evaluates=self.work.evaluates,
        )
        self.server = self.session.server
        self._folder, self._log = setup.folder, Log(setup.folder, setup.callbacks.warning)
        self._held: dict[int, Assignment] = {}  # by worker: what it computes on
        self._wanted_workers, self._has_begun = setup.workers, False
        self._since = time.time_ns()
        limit, keeps = self.config.method.max_workers, self.session.workers_keep_state
        self.membership = Membership(limit, keeps)
        if resumed is not None:
            self._held = {assignment.worker: assignment for assignment in self.session.load(resumed)}
            with restoring(resumed.position):
                table = resumed.values["membership"]
                self.membership = Membership.from_json(table, limit=limit, keeps_worker_state=keeps)

    @property
    def at_end(self) -> bool:
        """Whether all planned samples are in, or a callback has stopped the run; and no barrier is half full."""
        return self.session.stopping or (self.session.complete and self.server.ledger.settled)

    @abstractmethod
    def open(self, stack: ExitStack) -> tuple[Crew, Evaluator]:
        """The workers' side and something to evaluate with, closed when the stack is."""

    def run(self, signals: Signals) -> None:
        """Run to the end (the caller does the last `save`). A signal saves and raises `Interrupted`."""
        with ExitStack() as stack:
            self._crew, self._evaluator = self.open(stack)
            control = Control(self._folder, self._since, self._log.warn)
            stack.callback(control.close)
            self.server.destination = self._crew.destination
            try:
                self._begin()
                self._has_begun = True
                self._loop(signals, control)
            except signals.Stop as stop:
                self.save()
                raise signals.interrupted(stop) from None
            except EvaluationFailed as error:
                raise self._end(error, error.details) from None
            except self.failures as error:
                raise self._end(OrlomoError(" ".join(f"{type(error).__name__}: {error}".split())[:300])) from None
            except BaseException as error:
                if self._has_begun:
                    self.session.save_after(error, self.save)
                raise

    def save(self) -> None:
        """Write a checkpoint. Work in flight is part of it: after a resume it looks as if the workers had been slow."""
        held: list[Assignment] = [] if self.at_end else list(self._held.values())
        self.session.save(held, self.at_end, membership=self.membership.to_json())

    def _begin(self) -> None:
        session = self.session
        session.begin_pending(self._evaluator)
        if self.at_end:  # only evaluations are missing: no worker is needed
            return
        if self.membership.next_worker == 0:
            self._tell(events.Begin(self.config.workers))
            session.restart_clock()
            self._hand(self.server.start())
            self._evaluate_if_due()
        else:
            held, self._held = self._held, {}
            # A run that was at its end, and continues, has not saved what was in flight.
            ended = not self.server.ledger.outstanding.keys() <= held.keys()
            self._tell(events.Resume(frozenset(self.server.ledger.outstanding), ended))
            self._hand([assignment for worker, assignment in held.items() if self.membership.takes_part(worker)])
        if self._wanted_workers is not None:
            self._tell(events.Resize(self._wanted_workers, frozenset(self._held)))

    def _loop(self, signals: Signals, control: Control) -> None:
        session = self.session
        before, waiting = session.events, True
        while not self.at_end:
            if waiting and self._crew.anyone_ready:
                waiting = False
                if session.events == before:  # starting the workers was not the run's time
                    session.restart_clock()
            # A signal is obeyed here and nowhere else: everything that has arrived is folded in, recorded and answered,
            # so what is saved is a whole state. The wait after it is short, and is not cut off: it is the crew's code
            # (a pipe, Ray), which may have taken a message out and not handed it over yet.
            signals.obey()
            happened = self._crew.wait(min(0.2, max(0.0, self.membership.next_due - session.elapsed())))
            while happened:
                self._take(happened.pop(0))  # popped, so that its vectors are given back at once
            self._tell(events.Tick())
            control.answer(self._obey)
            session.gather(self._evaluator, keep=session.unfinished)
            self._save_if_due()
        session.evaluate_if_due(self._evaluator, session.elapsed(), at_end=True)
        session.gather(self._evaluator, 0, signals.may_interrupt)
        signals.obey()

    # What happens

    def _take(self, event: CrewEvent) -> None:
        if self.at_end:  # what arrives after the last report is not folded in
            return
        if isinstance(event, Arrived):
            self._receive(event)
        elif isinstance(event, events.NoRoom):
            self._tell(event._replace(busy=frozenset(self._held)))
        else:
            self._tell(event)

    def _receive(self, arrived: Arrived) -> None:
        report, worker = arrived.report, arrived.report.worker
        now = self.session.elapsed()
        start = now - (time.monotonic() - arrived.sent)
        self.session.whole = False
        try:
            assignments = self.server.receive(report, now - start)
        except ReportRefused as refusal:
            self.session.whole = True  # it has changed nothing
            if refusal.reason in ("folded", "over") or worker not in self._held:
                self._log.note(f"report ignored: {refusal}")  # late, or sent twice: what its worker has now is another
                return
            cause = self.work.why_not_finite(self.config, self._held[worker]) if refusal.reason == "finite" else ""
            if cause:
                raise self._end(Diverged(f"{refusal}; {cause}")) from None  # computed again it would be no better
            self._tell(events.Refused(worker, str(refusal), finite=refusal.reason != "finite"))
            return
        # A refused report left the server as it was: the assignment is still held, and `Redo` sends it again.
        done = self._held.pop(worker)
        self._accept(report)
        leaves = self.membership.is_leaving(worker)
        # Answered before anything is written down: the workers compute while the server records.
        self._hand([assignment for assignment in assignments if assignment.worker != worker or not leaves])
        fold = self.server.last_fold
        assert fold is not None
        weight = self.config.method.weight(fold)
        values = report_row(fold, weight, done.learning_rate, start, now, arrived.compute_seconds)
        self.session.record_report(dict(zip(COLUMNS, values, strict=True)), report)
        self.session.whole = True
        self._tell(events.Reported(worker))
        self._evaluate_if_due()

    def _accept(self, report: Report) -> None:
        """A report has been folded in, and nobody has been answered yet."""

    def _obey(self, request: Request) -> object:
        """What `orlomo workers` asks for."""
        if request["action"] == "add":
            first = self.membership.next_worker
            for _ in range(int(request["count"])):
                self._tell(events.Add())
            return list(range(first, self.membership.next_worker))
        if request["action"] == "remove":
            worker = int(request["worker"])
            self._tell(events.Remove(worker, worker in self._held))
            return worker
        return self._crew.listing()

    # What is done about it

    def _tell(self, event: events.Event) -> None:
        for action in self.membership.handle(event, self.session.elapsed()):
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start(worker, rank):
                self._start(worker, rank)
            case Join(worker):
                self._join(worker)
            case Leave(worker, kind):
                self._leave(worker, kind)
            case Stop(worker):
                self._crew.stop(worker)
            case Redo(worker):
                self._hand([self._held[worker]])
            case Say(text, details):
                self._log.warn(text, details)
            case Deny(reason):
                raise ConfigError(reason)
            case End(reason, diverged):
                raise self._end(Diverged(reason) if diverged else OrlomoError(reason))

    def _start(self, worker: int, rank: int) -> None:
        try:
            takes_part = self._crew.start(worker, rank)
        except (OSError, EOFError) as error:  # no memory, no processes, no files left
            self._tell(events.NotStarted(worker, f"cannot start a worker: {error}"))
            return
        if takes_part:
            self._tell(events.Ready(worker))

    def _join(self, worker: int) -> None:
        iteration = self.server.iteration
        self.session.whole = False
        self._hand(self.server.join(worker))
        self._record("join", iteration, worker)
        self.session.whole = True
        self._log.note(f"worker {worker} joins")

    def _leave(self, worker: int, kind: str) -> None:
        self.session.whole = False
        self._held.pop(worker, None)
        iteration = self.server.iteration  # of the event: closing a barrier would advance it
        assignments = self.server.leave(worker)  # may close a barrier
        self._record(kind, iteration, worker)
        if kind == "leave":
            self._log.note(f"worker {worker} leaves")
        self._hand(assignments)
        self.session.whole = True
        self._evaluate_if_due()

    def _end(self, error: OrlomoError, details: str = "") -> OrlomoError:
        """The error that ends the run, which is saved first; half begun it is not, and resumes as it did this time."""
        if self._has_begun:
            self.save()
        where, again = self._folder / "log.txt", resume_command(self._folder, self.config.task) + self.resume_flags
        return self._log.end(type(error)(f"{error} (more in {where}; when that is fixed: {again})"), details)

    # Small steps

    def _hand(self, assignments: list[Assignment]) -> None:
        for assignment in assignments:
            self._held[assignment.worker] = self._crew.send(assignment)

    def _record(self, kind: str, iteration: int, worker: int) -> None:
        row: Row = {name: -1 if code == "q" else math.nan for name, code in COLUMNS.items()}
        row |= {"kind": KINDS.index(kind), "iteration": iteration, "worker": worker, "finish": self.session.elapsed()}
        self.session.record_change(row)

    def _evaluate_if_due(self) -> None:
        if self.session.unfinished < EVALUATIONS_WAITING:
            self.session.evaluate_if_due(self._evaluator, self.session.elapsed(), self.at_end)

    def _save_if_due(self) -> None:
        """A disk that will not take a checkpoint does not stop the training."""
        # One at a position: the one at the end follows, and to replace one is to be without it for a moment.
        if not self.session.recorder.due or self.at_end or self.session.saved_events == self.session.events:
            return
        try:
            self.save()
        except RunFolderError as error:
            self._log.warn(f"NO CHECKPOINT: {error}; training continues, next try in {DISK_RETRY_SECONDS:g} s")
