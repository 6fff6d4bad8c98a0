"""Replay of a user's own loop: processes compute the recorded rounds again, from the same parameters and samples.

Which worker reported when is in events.csv, which samples each round used, and what its report was, in rounds.csv. The
leases follow from these. A round that was never reported is not computed.
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import NamedTuple

from orlomo.clusters.schedule import DEPARTURES, DROP, KINDS, REPORT, Schedule
from orlomo.config import RunConfig
from orlomo.engines.callbacks import Callbacks
from orlomo.engines.live.crew import Arrived
from orlomo.engines.live.events import Lost
from orlomo.engines.loops.bookkeeping import Bookkeeping
from orlomo.engines.loops.facts import differs
from orlomo.engines.loops.live import visible
from orlomo.engines.loops.opening import OpenedWork, local_crew, open_loop
from orlomo.engines.loops.simulated.engine import EVALUATIONS_WAITING, RoundTimes
from orlomo.engines.loops.simulated.ordered import Ordered
from orlomo.engines.loops.simulated.rounds import Outcome, Rounds
from orlomo.engines.loops.work import from_json
from orlomo.engines.processes.evaluator import EvaluationFailed
from orlomo.engines.session import Session, checksum
from orlomo.engines.signals import Signals
from orlomo.engines.simulated.comparing import Comparison
from orlomo.engines.simulated.execute import verify
from orlomo.engines.simulated.replay import Replay, announced, compared_checkpoint, outcome, trace_of
from orlomo.errors import ConfigError, OrlomoError, RunFolderError
from orlomo.loop.messages import Lease, RoundFacts
from orlomo.loop.program import Program
from orlomo.methods.messages import Assignment, Report
from orlomo.records.checkpoint import Checkpoint
from orlomo.records.run import Run
from orlomo.records.shapes import restoring
from orlomo.records.tables import LOOP_ROUNDS, Columns, Row

OTHER_START = "the program does not begin at the same parameters: seed it"


class Recorded(NamedTuple):
    """A round as rounds.csv has it."""

    event: int
    samples: int
    facts: RoundFacts

    def is_that_of(self, report: Report) -> bool:
        """Whether a round computed again has this report."""
        return (report.samples, report.facts) == (self.samples, self.facts)


def replay(run: Run, config: RunConfig, program: Program, *, jobs: int, callbacks: Callbacks) -> Replay:
    """Compute the run again up to its newest checkpoint, or up to the first report that is another."""
    saved = compared_checkpoint(run)
    config = dataclasses.replace(config, pace=None)  # it slows down, and changes nothing else
    with ExitStack() as stack:
        # Wherever its workers were, they are processes of this machine now; each is started when its turn comes.
        crew = stack.enter_context(local_crew(config, program, lambda rank: visible(config, rank), together=1))
        config, work = open_loop(crew, config, program, stack)
        _check_program(work, saved)
        trace = trace_of(run.event_columns, saved.position)
        comparison = Comparison(run, saved, len(trace))
        session = Session(
            config,
            work,
            comparison,
            total=comparison.recorded_reports,
            callbacks=callbacks,
            evaluates=work.evaluates,
            due=comparison.is_due,
        )
        comparison.session = session
        with announced(run, config, session.total, callbacks), Signals() as signals:
            if checksum(session.server.params) != saved.values.get("initial"):
                return outcome(comparison, OTHER_START)
            again = _Again(comparison, work, run, trace, Rounds(crew, jobs, signals.obey))
            try:
                again.run()
            except signals.Stop as stop:
                raise signals.interrupted(stop) from None
            except EvaluationFailed as error:
                raise OrlomoError(str(error)) from None
        return outcome(comparison, again.why)


class _Again(Ordered):
    """The recorded events, once more."""

    def __init__(self, comparison: Comparison, work: OpenedWork, run: Run, trace: Schedule, rounds: Rounds):
        session = comparison.session
        assert session is not None
        self._comparison = comparison
        super().__init__(session, Bookkeeping(session, work, None))
        work.crew.present = self.books.present
        self._rounds, self._count, self._evaluator = rounds, len(trace), work.evaluator
        columns = {name: column.tolist() for name, column in trace.columns.items()}
        self._rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        self._recorded = {key: row for key, row in _rounds_of(run.round_columns) if row.event < self._count}
        self._last: dict[tuple[int, int], int] = {}  # by worker and when it was welcomed: its last event
        self._starts: dict[int, dict[int, int]] = {}  # by number of events: the workers welcomed then, and their ranks
        self._running: dict[int, int] = {}  # the workers that have a process, and when each was welcomed
        for (worker, _), row in self._recorded.items():
            self._last[worker, row.facts.welcomed] = row.event
            self._starts.setdefault(row.facts.welcomed, {})[worker] = row.facts.rank
        self.why = ""
        # Of a run on virtual time: how long each round takes, and when those under way began.
        self._times = RoundTimes(session, work) if run.virtual else None
        self._begun: dict[int, tuple[float, float, float]] = {}  # by worker: start, compute, finish
        self._now = 0.0

    def run(self) -> None:
        """Up to the last recorded event, or to the first report that is another: then `why` says so."""
        session = self.session
        self.hand(session.server.start())
        session.evaluate_if_due(self._evaluator, 0.0, at_end=False)
        while session.events < self._count and not self.why:
            self._start()
            row = self._rows[session.events]
            self._now = row["finish"]
            self.without = []  # that they leave is in the record
            if row["kind"] in (REPORT, DROP):
                self._report(row)
            elif row["kind"] in DEPARTURES:
                self.leave(row["worker"], KINDS[row["kind"]], row["finish"])
                self._stop(row["worker"])
            else:
                self.join(row["worker"], KINDS[row["kind"]], row["finish"])
            self.wake()
            session.evaluate_if_due(self._evaluator, row["finish"], at_end=False)
            session.gather(self._evaluator, EVALUATIONS_WAITING)
        if not self.why:
            session.gather(self._evaluator, 0)

    def chief(self, assignment: Assignment) -> int:
        """As recorded."""
        row = self._recorded.get((assignment.worker, assignment.round))
        return assignment.worker if row is not None and row.facts.chief else -1

    def sent(self, assignment: Assignment) -> None:
        """It is computed if its report is in the record."""
        worker, number = assignment.worker, assignment.round
        if self._times is not None:
            self._begun[worker] = self._now, *self._times(assignment, self._now)
        row, leases = self._recorded.get((worker, number)), assignment.order.leases
        if row is None:
            return
        used = row.facts.used
        if used is not None and leases and (used[:2] != leases[0][:2] or used.stop > leases[0].stop):
            raise OrlomoError(
                f"events.csv and rounds.csv disagree: worker {worker} used samples {used.first} to {used.stop} of "
                f"epoch {used.epoch} in its round {number}, where {leases[0].first} to {leases[0].stop} of epoch "
                f"{leases[0].epoch} are due"
            )
        self._rounds.offer(assignment, row.event, 0)

    def _report(self, row: Row) -> None:
        worker, number, event = row["worker"], row["round"], self.session.events
        known = self._recorded.get((worker, number))
        if known is None or known.event != event:
            raise OrlomoError(f"rounds.csv does not have round {number} of worker {worker}, event {event}")
        found = self._rounds.take(worker)
        self.why = _difference(found, known, f"worker {worker}, round {number}")
        if self.why or not isinstance(found, Arrived):
            return
        if self._times is not None:
            self._comparison.compare_times(row, self._begun[worker])
        following = self._rows[event + 1] if event + 1 < self._count else None
        # Not answered in the run either: it was asked to leave, and did so after this report.
        leaves = following is not None and (KINDS[following["kind"]], following["worker"]) == ("leave", worker)
        self.receive(found.report, row["start"], row["finish"], row["compute"], leaves)
        verify(self.session.server, row, row["learning_rate"])

    def _start(self) -> None:
        """Start the processes of the workers that were welcomed at this point of the run."""
        workers = self._starts.get(self.session.events, {})
        for worker, rank in workers.items():
            self._running[worker] = self.session.events
            self._rounds.start(worker, rank, at_once=True)
        self._rounds.welcome(list(workers))

    def _stop(self, worker: int) -> None:
        """End the process of a worker that has left; one that was only without samples takes part again."""
        welcomed = self._running.get(worker)
        if welcomed is not None and self._last[worker, welcomed] < self.session.events:
            del self._running[worker]
            self._rounds.stop(worker)


def _difference(found: Outcome, known: Recorded, where: str) -> str:
    """How a round computed again is not the recorded one, in a sentence; empty where it is."""
    if isinstance(found, Lost):
        error = OrlomoError(f"{where}: the program failed where it had reported before: {found.reason}")
        if found.traceback:
            error.add_note(found.traceback.rstrip())
        raise error
    if isinstance(found, Arrived):
        if known.is_that_of(found.report):
            return ""
        what = "another report out"
    else:
        what = "but no report, the loop ended"
    return f"{where}: same parameters and samples in, {what}: your loop is not deterministic"


def _check_program(work: OpenedWork, saved: Checkpoint) -> None:
    with restoring(saved.position):
        model, data = from_json(saved.values["loop"])
    if (difference := differs(work.model, model)) is not None:
        raise ConfigError(f"the program does not train what the run did: {difference}".replace("the first", "the run"))
    if work.data != data:
        raise ConfigError(f"the program does not train on what the run did: on {work.data}, the run on {data}")


def _rounds_of(columns: Columns) -> list[tuple[tuple[int, int], Recorded]]:
    """The rows of rounds.csv, by worker and round."""
    if missing := [name for name in LOOP_ROUNDS if name not in columns]:
        raise RunFolderError(f"rounds.csv has no column {missing[0]!r}: it does not say what the rounds used")
    columns = {name: columns[name] for name in LOOP_ROUNDS}
    found = []
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        row = dict(zip(columns, values, strict=True))
        used = None if row["epoch"] < 0 else Lease(row["epoch"], row["first"], row["stop"])
        facts = RoundFacts(
            row["steps"], row["batches"], used, row["checksum"], row["rank"], bool(row["chief"]), row["welcomed"]
        )
        found.append(((row["worker"], row["round"]), Recorded(row["event"], row["samples"], facts)))
    return found
