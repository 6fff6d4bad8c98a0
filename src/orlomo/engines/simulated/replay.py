"""Replay: a run computed again from its trace, and compared with all that was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from orlomo.clusters.schedule import COLUMNS, KINDS, Schedule
from orlomo.config import RunConfig
from orlomo.engines.callbacks import Callbacks, RunHandle
from orlomo.engines.engine import check_devices
from orlomo.engines.session import checksum
from orlomo.engines.signals import Signals
from orlomo.engines.simulated.comparing import Comparison
from orlomo.engines.simulated.engine import plan
from orlomo.engines.simulated.execute import Execution
from orlomo.engines.simulated.pool import on_threads
from orlomo.errors import Interrupted, OrlomoError, RunFolderError
from orlomo.records.changes import Stage
from orlomo.records.checkpoint import Checkpoint
from orlomo.records.run import Run
from orlomo.records.tables import EVENTS, Columns, usable
from orlomo.tasks.task import Task


@dataclass(frozen=True)
class Replay:
    """The outcome: `agrees`, and if not, the first iteration at which the record differs from what was computed.

    A run agrees where all that it recorded up to its newest checkpoint was computed again and is the same, bit for bit:
    `reports` of `recorded_reports`, `evaluations` of `recorded_evaluations`, and of them what `proved` names.
    """

    agrees: bool
    events: int
    iteration: int
    recorded_checksum: str
    replayed_checksum: str
    first_difference: int | None = None
    changed_code: tuple[str, ...] = ()  # of `task` and `method`, whose file is not what it was
    why: str = ""  # what differs, and where; or why it ended before the end of the record
    reports: int = 0
    recorded_reports: int = 0
    evaluations: int = 0
    recorded_evaluations: int = 0
    proved: tuple[str, ...] = ("parameters",)

    def __str__(self) -> str:
        counts = f"{self.reports:,} of {self.recorded_reports:,} reports"
        if self.recorded_evaluations:
            counts += f", {self.evaluations:,} of {self.recorded_evaluations:,} evaluations"
        if self.agrees:
            what = f"{', '.join(self.proved[:-1])} and {self.proved[-1]}" if len(self.proved) > 1 else self.proved[0]
            return f"{counts}: {what} agree, bit for bit ({self.replayed_checksum})"
        code = " and of the ".join(self.changed_code)
        return f"{counts}: {self.why}" + (f" (the file of the {code} has changed since)" if code else "")


def replay(run: Run, stages: Sequence[Stage], task: Task, *, jobs: int, callbacks: Callbacks) -> Replay:
    """Recompute the run up to its newest checkpoint (its end, if it is finished) from events.csv."""
    saved = compared_checkpoint(run)
    trace = trace_of(run.event_columns, saved.position)
    comparison = Comparison(run, saved, len(trace))
    (_, first), *later = stages
    check_devices((first.compute_device, first.server_device))
    if run.virtual:
        with on_threads(1):
            planned = plan(first, task, task.initial_params(first.seed), later)
        comparison.compare_order(trace, planned, rates=task.optimizer is None)
    execution = Execution(
        first, task, trace, comparison, later=later, jobs=jobs, callbacks=callbacks, due=comparison.is_due
    )
    comparison.session = execution.session
    with announced(run, first, execution.session.total, callbacks), Signals() as signals:
        execution.run(signals)
    return outcome(comparison)


def compared_checkpoint(run: Run) -> Checkpoint:
    """The checkpoint up to which a run is replayed, the newest that is whole."""
    saved = run.newest
    if saved is None:
        raise RunFolderError(f"{run.folder} has no checkpoint yet: there is nothing to compare a replay with")
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


def outcome(comparison: Comparison, why: str = "") -> Replay:
    """What came of a replay; `why` it ended before the end of the record."""
    assert comparison.session is not None
    session, saved = comparison.session, comparison.saved
    server, whole = session.server, session.events == saved.position
    recorded, replayed = checksum(saved.params), checksum(server.params)
    difference, complete = comparison.first_difference, comparison.evaluations == comparison.recorded_evaluations
    if difference is None and (why or (whole and recorded != replayed)):
        difference = server.iteration
    if difference is not None and not why:
        why = f"the parameters differ, first at iteration {difference}"
        if recorded == replayed:
            why = f"the parameters agree, but the record of iteration {difference} is not what was computed"
        why += f": {comparison.what}" if comparison.what else ""
    elif difference is None and not whole:
        more = saved.position - session.events
        why = (
            f"these agree, bit for bit, but events.csv ends there: checkpoint {saved.position} has {more:,} events more"
        )
    elif difference is None and not complete:
        why = "these agree, bit for bit, but the other evaluations in metrics.csv are none that the run could have made"
    agrees = difference is None and whole and complete
    return Replay(
        agrees,
        session.events,
        server.iteration,
        recorded,
        replayed,
        difference,
        why=why,
        reports=session.reports,
        recorded_reports=comparison.recorded_reports,
        evaluations=comparison.evaluations,
        recorded_evaluations=comparison.recorded_evaluations,
        proved=comparison.proved,
    )


def trace_of(events: Columns, count: int) -> Schedule:
    """The first `count` recorded events as a schedule, or as many as there are."""
    if missing := [name for name in EVENTS if name not in events]:
        raise RunFolderError(f"events.csv has no column {missing[0]!r}: it is not the trace of a run")
    events = {name: column[:count] for name, column in events.items()}
    kinds = {name: code for code, name in enumerate(KINDS)}
    unknown = sorted({str(kind) for kind in events["kind"]} - set(kinds))
    if unknown:
        raise RunFolderError(f"events.csv has an event of unknown kind {unknown[0]!r}")
    for row in np.flatnonzero(~usable(events, EVENTS)).tolist():
        raise RunFolderError(f"events.csv is damaged: its event {row} has no numbers, or none that can be")
    if not len(events["kind"]):
        raise RunFolderError("events.csv has no event: there is nothing to replay")
    coded = {**events, "kind": np.array([kinds[kind] for kind in events["kind"]])}
    return Schedule({name: coded[name].astype(code) for name, code in COLUMNS.items()})
