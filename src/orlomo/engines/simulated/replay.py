"""Replay: a run computed again from its trace alone, and compared with what was recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from orlomo.clusters.schedule import COLUMNS, KINDS, REPORT, Schedule
from orlomo.config import RunConfig
from orlomo.engines.callbacks import Callbacks, RunHandle
from orlomo.engines.session import Session, checksum
from orlomo.engines.signals import Signals
from orlomo.engines.simulated.execute import Execution
from orlomo.errors import Interrupted, OrlomoError, RunFolderError
from orlomo.records.changes import Stage
from orlomo.records.checkpoint import Checkpoint, Values
from orlomo.records.run import Run
from orlomo.records.tables import Columns, Row
from orlomo.tasks.task import Task


@dataclass(frozen=True)
class Replay:
    """The outcome: `agrees`, and if not, the first iteration at which the record differs from what was computed."""

    agrees: bool
    events: int
    iteration: int
    recorded_checksum: str
    replayed_checksum: str
    first_difference: int | None = None
    changed_code: tuple[str, ...] = ()  # of `task` and `method`, whose file is not what it was
    why: str = ""  # it ended before the end of the record: of a loop of the user's own, where it computed otherwise

    def __str__(self) -> str:
        if self.agrees:
            return f"{self.events} events replayed: the parameters agree, bit for bit ({self.replayed_checksum})"
        if self.why:
            what = self.why
        elif self.recorded_checksum == self.replayed_checksum:
            what = f"the parameters agree, but the record of iteration {self.first_difference} is not what was computed"
        else:
            what = f"the parameters differ, first at iteration {self.first_difference}"
        why = (
            f" (the file of the {' and of the '.join(self.changed_code)} has changed since)"
            if self.changed_code
            else ""
        )
        return f"{self.events} events replayed: {what}{why}"


def replay(run: Run, stages: Sequence[Stage], task: Task, *, jobs: int, callbacks: Callbacks) -> Replay:
    """Recompute the run up to its newest checkpoint (its end, if it is finished) from events.csv."""
    saved = compared_checkpoint(run)
    recorder = Comparison(run.event_columns, run.metric_columns)
    schedule = trace_of(run.event_columns, saved.position)
    (_, first), *later = stages
    execution = Execution(first, task, schedule, recorder, later=later, jobs=jobs, callbacks=callbacks, evaluates=False)
    recorder.session = execution.session
    with announced(run, first, execution.session.total, callbacks), Signals() as signals:
        execution.run(signals)
    return outcome(saved, recorder, saved.position)


def compared_checkpoint(run: Run) -> Checkpoint:
    """The checkpoint up to which a run is replayed; an error where the record does not go so far."""
    saved = run.newest
    if saved is None:
        raise RunFolderError(f"{run.folder} has no checkpoint yet: there is nothing to compare a replay with")
    count = len(run.event_columns["kind"])
    if count < saved.position:
        raise RunFolderError(
            f"{run.folder}/events.csv has {count} events, the checkpoint {saved.position}: the trace is cut off"
        )
    return saved


@contextmanager
def announced(run: Run, config: RunConfig, total: int, callbacks: Callbacks) -> Iterator[None]:
    """Callbacks are told of the beginning and the end of a replay."""
    try:
        callbacks.started(RunHandle(run.folder, config, config.workers, total, run.measured, callbacks=callbacks))
        yield
    except Interrupted:
        raise
    except OrlomoError as error:
        raise OrlomoError(f"replay of {run.folder}: {error}") from None
    finally:
        callbacks.finished(run)
    if callbacks.stop_reason is not None:
        raise OrlomoError(
            f"replay of {run.folder}: stopped, so that there is nothing to compare: {callbacks.stop_reason}"
        )


def outcome(saved: Checkpoint, recorder: Comparison, events: int, why: str = "") -> Replay:
    """What came of a replay of so many events."""
    assert recorder.session is not None
    server = recorder.session.server
    recorded, replayed = checksum(saved.tensors["server.params"]), checksum(server.params)
    difference, iteration = recorder.first_difference, server.iteration
    if (recorded != replayed or why) and difference is None:
        difference = iteration
    return Replay(difference is None, events, iteration, recorded, replayed, difference, why=why)


def trace_of(events: Columns, count: int) -> Schedule:
    """The first `count` recorded events as a schedule."""
    kinds = {name: code for code, name in enumerate(KINDS)}
    columns = {}
    for name, code in COLUMNS.items():
        if name not in events:
            raise RunFolderError(f"events.csv has no column {name!r}: it is not the trace of a run")
        values = events[name][:count]
        if name == "kind":
            unknown = set(values) - set(kinds)
            if unknown:
                raise RunFolderError(f"events.csv has an event of unknown kind {sorted(map(str, unknown))[0]!r}")
            values = np.array([kinds[value] for value in values])
        columns[name] = values.astype(code)
    return Schedule(columns)


@dataclass
class Comparison:
    """Listens to a session and notes where it first differs from the record."""

    events: Columns
    metrics: Columns
    first_difference: int | None = None
    session: Session | None = None
    position: int = 0
    due: bool = False
    checksums: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        reports = self.metrics["reports"].tolist()
        self.checksums = dict(zip(reports, self.metrics["params_checksum"].tolist(), strict=True))
        self.reports = 0

    def event(self, row: Row) -> None:
        recorded = float(self.events["loss"][self.position])
        self.position += 1
        if "loss" not in row or self.first_difference is not None:
            return
        self.reports += row["kind"] == REPORT
        known = self.checksums.get(self.reports)
        # Losses are compared at every report, parameters where an evaluation recorded their checksum: that narrows the
        # first difference down to one iteration without a second copy of the run.
        same_loss = recorded == row["loss"] or (math.isnan(recorded) and math.isnan(row["loss"]))
        assert self.session is not None
        server = self.session.server
        same_params = known is None or not server.ledger.settled or known == checksum(server.params)
        if not same_loss or not same_params:
            self.first_difference = row["iteration"]

    def round(self, row: Row) -> None:
        """Of a loop of the user's own, which are compared when they are computed."""

    def metric(self, row: Row) -> None:
        pass

    def best(self, state: dict[str, Tensor], metrics: Row) -> None:
        pass

    def save(self, position: int, tensors: dict[str, Tensor], values: Values) -> None:
        pass
