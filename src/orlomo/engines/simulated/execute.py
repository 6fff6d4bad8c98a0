"""Execute a schedule: rounds in dependency order, folded by the method's server, recorded one by one.

The simulated engine makes its schedule first, `replay` reads one from events.csv; both are executed here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from orlomo.clusters.schedule import DEPARTURES, DROP, REPORT, Schedule
from orlomo.config import RunConfig
from orlomo.engines.callbacks import Callbacks
from orlomo.engines.session import Recorder, Session
from orlomo.engines.signals import Signals
from orlomo.engines.simulated.ahead import RoundsAhead
from orlomo.engines.simulated.pool import Pool, open_pool
from orlomo.engines.work import TaskWork
from orlomo.errors import OrlomoError
from orlomo.methods.messages import Assignment, Report, WorkerState
from orlomo.methods.server import Server
from orlomo.records.changes import Stage
from orlomo.records.checkpoint import Checkpoint
from orlomo.records.tables import Row
from orlomo.tasks.task import Task


class Execution:
    """One pass through a schedule, from its beginning or from a checkpoint.

    `later`: the configs that follow the first one, each from an event on. There the run continues as if it were
    resumed: with what is in flight, other jobs and a server of the other config in the same state.
    """

    def __init__(
        self,
        config: RunConfig,
        task: Task,
        schedule: Schedule,
        recorder: Recorder,
        *,
        later: Sequence[Stage] = (),
        jobs: int,
        callbacks: Callbacks | None = None,
        evaluates: bool = True,
        due: Callable[[], bool] | None = None,
        resumed: Checkpoint | None = None,
    ):
        position = 0 if resumed is None else resumed.position
        past = [stage.config for stage in later if stage.events <= position]
        self._later = deque(stage for stage in later if stage.events > position)
        config = past[-1] if past else config
        self.task, self.schedule = task, schedule
        self._jobs = jobs
        self._columns = {name: column.tolist() for name, column in schedule.columns.items()}
        total = int(schedule.reports.sum())
        self.session = Session(
            config, TaskWork(task), recorder, total=total, callbacks=callbacks, evaluates=evaluates, due=due
        )
        self._first_assignments: list[Assignment] = []
        self._states: dict[int, WorkerState] = {}  # what workers keep between rounds
        if resumed is not None:
            self._first_assignments = self.session.load(resumed)
            self._states |= self.session.load_states(resumed)

    @property
    def config(self) -> RunConfig:
        """The config at this point of the run."""
        return self.session.config

    @property
    def server(self) -> Server:
        """The server at this point of the run."""
        return self.session.server

    def run(self, signals: Signals) -> None:
        """Run to the end of the schedule (the caller does the last `save`). A signal saves and raises `Interrupted`."""
        while True:
            config, params = self.config, self.server.params
            device, threads = config.compute_device, config.threads or 1
            pool = open_pool(self.task, config.method, config.seed, device, self._jobs, params, threads)
            try:
                self._run(pool, signals)
            finally:
                pool.close()
            if self.at_end:
                return
            self.session.change(self._later.popleft().config)
            self._first_assignments = list(self._ahead.assignments.values())

    def _run(self, pool: Pool, signals: Signals) -> None:
        session = self.session
        self._ahead = ahead = RoundsAhead(pool, self.schedule, session.events, self._states, session.new_state)
        session.begin_pending(ahead)
        if session.events == 0 and not self._first_assignments:
            self._first_assignments = self.server.start()
            session.evaluate_if_due(ahead, 0.0, self.at_end)
        # Callbacks that act on evaluations must see them at the same event on any number of jobs.
        keep = self._jobs - 1 if session.callbacks.watch_only else 0
        ahead.offer(self._first_assignments)
        self._first_assignments = []
        try:
            session.gather(ahead, keep, signals.may_interrupt)
            while not self.at_end and not self._at_change:
                row = {name: values[session.events] for name, values in self._columns.items()}
                if row["kind"] in (REPORT, DROP):
                    # Cut off here, nothing is lost: the round has not been folded in, and its state was copied.
                    with signals.may_interrupt():
                        report = ahead.take(row["worker"], row["round"])
                    self._fold(row, report)
                else:
                    self._change_membership(row)
                session.evaluate_if_due(ahead, row["finish"], self.at_end)
                session.gather(ahead, keep, signals.may_interrupt)
                if session.recorder.due:
                    self.save()
            if self.at_end:
                last = self._columns["finish"][session.events - 1] if session.events else 0.0
                session.evaluate_if_due(ahead, last, at_end=True)
            session.gather(ahead, 0, signals.may_interrupt)
            signals.obey()
        except signals.Stop as stop:
            self.save()
            raise signals.interrupted(stop) from None
        except BaseException as error:
            session.save_after(error, self.save)
            raise

    @property
    def at_end(self) -> bool:
        """Whether every event of the schedule has happened, or a callback has stopped the run."""
        return self.session.events == len(self.schedule) or self.session.stopping

    @property
    def _at_change(self) -> bool:
        return bool(self._later) and self.session.events == self._later[0].events

    def _fold(self, row: Row, report: Report) -> None:
        worker = row["worker"]
        done = self._ahead.assignments[worker]
        assignments = self.session.fold(report, row["finish"] - row["start"], done)
        # The schedule does not know the learning rate of an optimizer, which comes with the report.
        verify(self.server, row, done.learning_rate if report.learning_rate is None else row["learning_rate"])
        self.session.record_report(row, report)
        self._ahead.folded(worker)  # first: it drops the old assignment, and a new one may be of the same worker
        self._continue_with(assignments)

    def _change_membership(self, row: Row) -> None:
        worker = row["worker"]
        self.session.whole = False
        if row["kind"] in DEPARTURES:
            self._ahead.forget(worker)
            assignments = self.server.leave(worker)
        else:
            assignments = self.server.join(worker)
        self.session.record_change(row)
        self._continue_with(assignments)

    def _continue_with(self, assignments: list[Assignment]) -> None:
        """All of an event has happened: the state is whole from here, where jobs get new work."""
        self._ahead.hold(assignments)
        self.session.whole = True
        self._ahead.fill()

    def save(self) -> None:
        """Write a checkpoint."""
        held, states = self._ahead.assignments.values(), self._states if self.session.workers_keep_state else {}
        self.session.save(held, self.at_end, states, schedule=self.schedule.digest())


def verify(server: Server, row: Row, learning_rate: float) -> None:
    """The server must have folded the newest report just as the schedule says."""
    fold = server.last_fold
    assert fold is not None
    for name in ("iteration", "index", "delay", "group", "eta", "behind", "local_steps"):
        if getattr(fold, name) != row[name]:
            raise OrlomoError(
                f"the trace and the method disagree at iteration {row['iteration']}: "
                f"{name} is {row[name]} in the trace and {getattr(fold, name)} by the method"
            )
    if learning_rate != row["learning_rate"]:
        raise OrlomoError(
            f"the trace and the method disagree at iteration {row['iteration']}: "
            f"learning_rate is {row['learning_rate']} in the trace and {learning_rate} by the method"
        )
    if fold.dropped != (row["kind"] == DROP):
        raise OrlomoError(
            f"the trace and the method disagree at iteration {row['iteration']}: whether to drop the report"
        )


def check_schedule(schedule: Schedule, saved: Checkpoint) -> None:
    """An error unless a checkpoint was written in a run with this schedule."""
    if saved.values.get("schedule") != schedule.digest():
        raise OrlomoError(
            "the schedule made from config.toml is not the one this run began with: "
            "the task has changed, or this is another version of orlomo or numpy"
        )
