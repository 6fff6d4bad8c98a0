"""A run in real time: whoever reports first is folded in and answered first. Nobody waits for the slowest.

Where the workers are, a crew knows; what becomes of those that are lost, refused, added and removed is decided here.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from orlomo.clusters.schedule import COLUMNS, KINDS, report_row
from orlomo.config import RunConfig
from orlomo.engines.live.control import Control, Request
from orlomo.engines.live.crew import Arrived, Came, Crew, Lost
from orlomo.engines.live.seats import Seat, Seats
from orlomo.engines.processes.evaluator import EvaluationFailed
from orlomo.engines.session import Evaluator, Progress, Recorder, Session, planned_reports, planned_samples
from orlomo.engines.signals import Signals
from orlomo.errors import ConfigError, Diverged, OrlomoError, ReportRefused, RunFolderError, require
from orlomo.methods.messages import Assignment
from orlomo.records.checkpoint import Checkpoint
from orlomo.records.log import Log
from orlomo.records.run import DISK_RETRY_SECONDS, resume_command
from orlomo.tasks.task import Task

REFUSALS = 3
"""Reports of a worker refused in a row after which it is replaced."""

EVALUATIONS_WAITING = 2
"""Beyond this many unfinished evaluations no more are begun: they are late rather than in the way."""


class Live(ABC):
    """A run in real time, from its beginning or from a checkpoint."""

    failures: tuple[type[Exception], ...] = ()
    """What ends the run where the crew cannot help it; it is saved first."""

    resume_flags = ""
    """What `orlomo resume` needs besides the folder."""

    def __init__(
        self,
        config: RunConfig,
        task: Task,
        recorder: Recorder,
        folder: Path,
        *,
        progress: Progress | None = None,
        warn: Callable[[str], None] = print,
        resumed: Checkpoint | None = None,
        workers: int | None = None,
    ):
        self.config, self.task = config, task
        self.session = Session(config, task, recorder, total=planned_reports(config, task), progress=progress)
        self.server = self.session.server
        self._planned_samples = planned_samples(config, task)
        self._folder, self._log = folder, Log(folder, warn)
        self._seats = Seats()
        self._held: dict[int, Assignment] = {}  # by worker: what it computes on
        self._leaving: set[int] = set()  # go after their report
        self._aside: set[int] = set()  # hired, but have no part in the run until they come
        self._refused_in_a_row: dict[int, int] = {}
        self.counts = {"lost": 0, "refused": 0}
        self._wanted_workers = workers
        self._since = time.time_ns()
        if resumed is not None:
            for assignment in self.session.load(resumed):
                self._held[assignment.worker] = assignment
            self._seats = Seats.from_json(resumed.values["seats"])
            self._leaving = set(resumed.values["leaving"])
            self._aside = set(resumed.values.get("aside", []))
            self.counts = dict(resumed.values["counts"])

    @property
    def at_end(self) -> bool:
        """Whether all planned samples are in and no barrier is half full."""
        ledger = self.server.ledger
        return ledger.samples >= self._planned_samples and ledger.settled

    @abstractmethod
    def open(self, stack: ExitStack) -> tuple[Crew, Evaluator]:
        """The workers' side and something to evaluate with, closed when the stack is."""

    def run(self, signals: Signals) -> None:
        """Go to the end (the last `save` is the caller's). A signal saves and raises `Interrupted`."""
        with ExitStack() as stack:
            self._crew, self._evaluator = self.open(stack)
            control = Control(self._folder, self._since)
            stack.callback(control.close)
            self.server.destination = self._crew.destination
            try:
                self._begin()
                self._loop(signals, control)
            except signals.Stop as stop:
                self.save()
                raise signals.interrupted(stop) from None
            except EvaluationFailed as error:
                raise self._log.end(error, error.details) from None
            except self.failures as error:
                raise self._end(OrlomoError(" ".join(f"{type(error).__name__}: {error}".split())[:300])) from None

    def _loop(self, signals: Signals, control: Control) -> None:
        session = self.session
        before, waiting = session.events, True
        while not self.at_end:
            if waiting and self._crew.anyone_ready:
                waiting = False
                if session.events == before:
                    session.restart_clock()
            seconds = min(0.2, max(0.0, self._seats.seconds_until_due()))
            signals.obey()  # the wait is short, and other people's code: it is not cut off
            happened = self._crew.wait(seconds)
            while happened:
                self._take(happened.pop(0))  # its vectors are given back at once
            self._look_after_absent()
            for seat in self._seats.due():
                self._follow(seat)
            control.answer(self._obey)
            session.gather(self._evaluator, keep=session.unfinished)
            self._save_if_due()
        session.evaluate_if_due(self._evaluator, session.elapsed(), at_end=True)
        session.gather(self._evaluator, 0, signals.may_interrupt)
        signals.obey()

    def save(self) -> None:
        """Write a checkpoint. Work in flight goes with it: after a resume it looks as if the workers had been slow."""
        held: list[Assignment] = [] if self.at_end else list(self._held.values())
        seats, leaving = self._seats.to_json(), sorted(self._leaving)
        aside = sorted(self._aside)
        self.session.save(held, self.at_end, seats=seats, leaving=leaving, aside=aside, counts=self.counts)

    # Beginning

    def _begin(self) -> None:
        session = self.session
        session.begin_pending(self._evaluator)
        if self._seats.next_worker == 0:
            for _ in range(self.config.workers):
                self._hire(self._seats.add())
            session.restart_clock()
            self._hand(self.server.start())
            self._evaluate_if_due()
        else:
            self._go_on()
        if self._wanted_workers is not None:
            self._change_number(self._wanted_workers)

    def _go_on(self) -> None:
        held, self._held = self._held, {}
        for seat in self._seats.seats:
            if seat.worker is not None:
                worker, has_place = self._hire(seat, seat.worker)
                if has_place and worker in self._aside:
                    self._take_part(worker)
        self._hand(list(held.values()))

    def _change_number(self, workers: int) -> None:
        require(workers >= 1, f"workers must be at least 1, not {workers}")
        while len(self._seats) < workers:
            self._added()
        for seat in sorted(self._seats.seats, key=lambda seat: seat.number)[workers:]:
            if seat.worker is None:
                self._seats.remove(seat)
            else:
                self._leave(seat.worker)

    # What happens

    def _take(self, event: Arrived | Lost | Came) -> None:
        if self.at_end:
            return
        if isinstance(event, Arrived):
            self._receive(event)
        elif isinstance(event, Lost):
            self._lose(event)
        elif event.worker in self._aside:
            self._take_part(event.worker)

    def _receive(self, arrived: Arrived) -> None:
        report, worker = arrived.report, arrived.report.worker
        now = self.session.elapsed()
        start = now - (time.monotonic() - arrived.sent)
        try:
            assignments = self.server.receive(report, now - start)
        except ReportRefused as refusal:
            self._refuse(worker, refusal)
            return
        done = self._held.pop(worker)
        leaves = worker in self._leaving
        self._hand([a for a in assignments if a.worker != worker or not leaves])  # first of all
        fold = self.server.last_fold
        assert fold is not None
        weight = self.config.method.weight(fold)
        values = report_row(fold, weight, done.learning_rate, start, now, arrived.compute_seconds)
        self.session.record_report(dict(zip(COLUMNS, values, strict=True)), report)
        self._refused_in_a_row.pop(worker, None)
        self._seats.reported(worker)
        if leaves:
            self._seats.remove(self._seats.of(worker))
            self._depart("leave", worker)
        self._evaluate_if_due()

    def _refuse(self, worker: int, refusal: ReportRefused) -> None:
        self.counts["refused"] += 1
        times = self._refused_in_a_row[worker] = self._refused_in_a_row.get(worker, 0) + 1
        if times >= REFUSALS:
            self._lose(Lost(worker, f"{times} reports in a row refused, the last because {refusal}", refused=True))
            return
        self._log.warn(f"report refused: {refusal}; worker {worker} computes the round again")
        self._hand([self._held[worker]])

    def _lose(self, lost: Lost) -> None:
        worker = lost.worker
        self.counts["lost"] += 1
        self._log.warn(f"worker {worker} is lost: {lost.reason}", lost.traceback)
        seat, leaves = self._seats.of(worker), worker in self._leaving
        self._depart("crash", worker)
        if leaves:
            self._seats.remove(seat)
        else:
            self._vacate(seat, lost)

    def _vacate(self, seat: Seat, lost: Lost) -> None:
        """Another worker will follow, unless that is hopeless."""
        follows = seat.vacate(lost)
        self._stop_if_all_fail_alike(lost)
        if not follows:
            if len(self._seats) == 1:
                raise self._end(OrlomoError(f"no worker is left; the last was lost: {lost.reason}"))
            self._seats.remove(seat)
            self._log.warn(f"{seat.losses} workers in a row were lost in one place: going on with one place less")

    def _stop_if_all_fail_alike(self, lost: Lost) -> None:
        """What has happened in every seat since its last report will happen again."""
        causes = [seat.cause for seat in self._seats.seats]
        if None in causes or sum(seat.losses for seat in self._seats.seats) < 2:
            return
        if all(cause.refused for cause in causes):
            raise self._end(Diverged(f"the run diverged: {lost.reason}; lower the learning rate"))
        if all(cause.traceback and cause.reason == lost.reason for cause in causes):
            raise self._end(OrlomoError(f"every worker failed: {lost.reason}"))

    def _end(self, error: OrlomoError) -> OrlomoError:
        """The error that ends the run, which is saved first."""
        self.save()
        where, again = self._folder / "log.txt", resume_command(self._folder) + self.resume_flags
        return self._log.end(type(error)(f"{error} (more in {where}; when that is mended: {again})"))

    # Who is there

    def _hire(self, seat: Seat, worker: int | None = None) -> tuple[int, bool]:
        """Start a worker for this seat, a new one or one of before a resume: its id, and whether it has a place."""
        chosen = self._seats.take(seat) if worker is None else worker
        try:
            has_place = self._crew.hire(chosen, seat.number)
        except (OSError, EOFError) as error:  # no memory, no processes, no files left
            seat.worker = None
            raise OrlomoError(f"cannot start a worker: {error}") from None
        return chosen, has_place

    def _join(self, seat: Seat) -> int:
        worker, has_place = self._hire(seat)
        if has_place:
            self._take_part(worker)
        else:
            self._aside.add(worker)
        return worker

    def _take_part(self, worker: int) -> None:
        """From now on it is one of those that the server counts with."""
        self._aside.discard(worker)
        iteration = self.server.iteration
        assignments = self.server.join(worker)
        self._hand(assignments)
        self._record("join", iteration, worker)
        self._log.note(f"worker {worker} joins")

    def _look_after_absent(self) -> None:
        """Those that have no place to work take no part until they have one: nobody waits for them."""
        absent = [worker for worker in self._crew.absent if worker not in self._aside]
        if not absent:
            return
        some = f"{len(absent)} worker{'s have' if len(absent) > 1 else ' has'} no place to work yet"
        self._log.warn(f"{some}: going on without, joining when there is room")
        for worker in absent:
            if worker in self._leaving:
                self._seats.remove(self._seats.of(worker))
                self._depart("leave", worker)
                continue
            self._crew.withdraw(worker)
            self._aside.add(worker)
            self._goes("leave", worker)

    def _follow(self, seat: Seat) -> None:
        """A new worker for one that was lost; where none can be started, later."""
        try:
            self._join(seat)
        except OrlomoError as error:
            self._log.warn(str(error))
            self._vacate(seat, Lost(self._seats.next_worker - 1, str(error)))

    def _leave(self, worker: int) -> None:
        """Let a worker go: after its report, or now if it has nothing to report."""
        self._leaving.add(worker)
        if worker not in self._held:
            self._seats.remove(self._seats.of(worker))
            self._depart("leave", worker)

    def _depart(self, kind: str, worker: int) -> None:
        self._crew.dismiss(worker)
        if worker in self._aside:
            self._aside.discard(worker)
            self._leaving.discard(worker)
        else:
            self._goes(kind, worker)

    def _goes(self, kind: str, worker: int) -> None:
        """It has no part in the run any more."""
        self._held.pop(worker, None)
        self._leaving.discard(worker)
        self._refused_in_a_row.pop(worker, None)
        iteration = self.server.iteration
        assignments = self.server.leave(worker)  # may close a barrier
        self._record(kind, iteration, worker)
        if kind == "leave":
            self._log.note(f"worker {worker} leaves")
        self._hand(assignments)
        self._evaluate_if_due()

    def _obey(self, request: Request) -> Any:
        """What `orlomo workers` asks for."""
        action = request["action"]
        if action == "add":
            limit = self.config.method.max_workers
            if limit is not None:
                raise ConfigError(f"{self.config.method.name} runs on {limit} worker")
            return [self._added() for _ in range(int(request["count"]))]
        if action == "remove":
            worker = int(request["worker"])
            if worker not in self._crew.workers:
                raise ConfigError(f"there is no worker {worker}: there are {self._crew.workers}")
            if len(set(self._crew.workers) - self._aside - self._leaving - {worker}) == 0:
                raise ConfigError("the last worker cannot be removed: stop the run with Ctrl-C")
            self._leave(worker)
            return worker
        return self._crew.listing()

    def _added(self) -> int:
        seat = self._seats.add()
        try:
            return self._join(seat)
        except OrlomoError:
            self._seats.remove(seat)
            raise

    # Small things

    def _hand(self, assignments: list[Assignment]) -> None:
        for assignment in assignments:
            self._held[assignment.worker] = self._crew.assign(assignment)

    def _record(self, kind: str, iteration: int, worker: int) -> None:
        row: dict[str, Any] = {name: -1 if code == "q" else math.nan for name, code in COLUMNS.items()}
        row |= {"kind": KINDS.index(kind), "iteration": iteration, "worker": worker, "finish": self.session.elapsed()}
        self.session.record_change(row)

    def _evaluate_if_due(self) -> None:
        if self.session.unfinished < EVALUATIONS_WAITING:
            self.session.evaluate_if_due(self._evaluator, self.session.elapsed(), self.at_end)

    def _save_if_due(self) -> None:
        """A disk that will not take a checkpoint does not stop the training."""
        if not self.session.recorder.due:
            return
        try:
            self.save()
        except RunFolderError as error:
            self._log.warn(f"NO CHECKPOINT: {error}; training goes on, next try in {DISK_RETRY_SECONDS:g} s")
