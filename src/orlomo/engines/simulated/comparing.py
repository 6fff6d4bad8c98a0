"""What a replay computes, held against what the run recorded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from orlomo.clusters.schedule import Schedule
from orlomo.errors import RunFolderError
from orlomo.records.checkpoint import Checkpoint, Values
from orlomo.records.run import Run
from orlomo.records.tables import METRICS, ROUNDS, Row

if TYPE_CHECKING:
    from orlomo.engines.session import Session


class Comparison:
    """Listens to a session, says when the run evaluated, and notes where something first differs from the record."""

    due = False  # no checkpoint is written

    def __init__(self, run: Run, saved: Checkpoint, count: int):
        self.saved, self._count, self._virtual = saved, count, run.virtual
        self._events = run.event_columns
        metrics = run.metric_columns
        names = [*METRICS, *(one.column for one in run.measured)]
        if missing := [name for name in names if name not in metrics]:
            raise RunFolderError(f"metrics.csv has no column {missing[0]!r}: it is not the record of a run")
        # Of a real run, times cannot be computed again.
        self._compared = [name for name in names if name != "real_seconds" and (name != "seconds" or run.virtual)]
        self.recorded_reports = int(saved.values.get("reports", 0))
        self._rows: dict[tuple[int, int, int], Row] = {}  # by iteration, reports and samples
        columns = {name: metrics[name].tolist() for name in names}
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(names, values, strict=True))
            if row["reports"] <= self.recorded_reports:  # those behind the checkpoint are not replayed
                self._rows.setdefault((row["iteration"], row["reports"], row["samples"]), row)
        self.recorded_evaluations = len(self._rows)
        self._waiting = set(self._rows)
        self.evaluations = 0  # that agree
        self._position = 0
        self._has_losses = self._has_order = False
        self.first_difference: int | None = None
        self.what = ""
        self.session: Session | None = None

    @property
    def proved(self) -> tuple[str, ...]:
        """What was compared."""
        times = ("times",) if self._virtual and self._has_order else ()
        losses = ("losses",) if self._has_losses else ()
        return ("order", *times, "samples", "parameters", *losses, *(("metrics",) if self.evaluations else ()))

    def compare_order(self, trace: Schedule, planned: Schedule, rates: bool) -> None:
        """The order of a simulated run follows from its config and seed. `rates`: so do the learning rates."""
        self._has_order = True
        if len(planned) < len(trace):
            self._differs(int(trace["iteration"][-1]), "events.csv has more events than the config makes")
            return
        first: tuple[int, str] | None = None
        for name, column in trace.columns.items():
            if name == "learning_rate" and not rates:
                continue
            other = planned[name][: len(trace)]
            same = (column == other) | ((column != column) & (other != other))
            if not same.all() and (first is None or int(np.argmin(same)) < first[0]):
                row = int(np.argmin(same))
                first = row, f"{name} of event {row} is {column[row]} in events.csv and {other[row]} by the config"
        if first is not None:
            self._differs(int(trace["iteration"][first[0]]), first[1])

    def compare_times(self, row: Row, computed: tuple[float, float, float]) -> None:
        """The start, compute and finish of a round of a user's loop on virtual time."""
        self._has_order = True
        for name, value in zip(("start", "compute", "finish"), computed, strict=True):
            if row[name] != value:
                self._differs(row["iteration"], f"{name} is {row[name]} in events.csv and {value} by the config")

    def _differs(self, iteration: int, what: str) -> None:
        if self.first_difference is None or iteration < self.first_difference:
            self.first_difference, self.what = iteration, what

    def is_due(self) -> bool:
        """Whether the run evaluated after this event."""
        assert self.session is not None
        server, reports = self.session.server, self.session.reports
        key = server.iteration, reports, server.ledger.samples
        if key not in self._waiting:
            return False
        if not self._virtual and self._waited(self.session.events, key[0], self._rows[key]["seconds"]):
            return False
        self._waiting.discard(key)
        return True

    def _waited(self, events: int, iteration: int, seconds: float) -> bool:
        """Whether a real run evaluated these parameters only after the next event: a worker that came or went."""
        # It matters: a worker that has left has taken its buffers along.
        if events + 1 >= self._count or self._events["kind"][events] in ROUNDS:
            return False
        before = self._events["finish"][events] <= seconds
        return bool(before) and self._events["iteration"][events + 1] == iteration

    def event(self, row: Row) -> None:
        """An event, and its loss."""
        recorded = float(self._events["loss"][self._position])
        self._position += 1
        if "loss" not in row:
            return
        self._has_losses |= not math.isnan(recorded)
        if not _same(recorded, row["loss"]):
            self._differs(row["iteration"], f"loss is {recorded} in events.csv and {row['loss']} computed again")

    def round(self, row: Row) -> None:
        """Of the user's own loop, which are compared when they are computed."""

    def metric(self, row: Row) -> None:
        """An evaluation."""
        recorded = self._rows[row["iteration"], row["reports"], row["samples"]]
        for name in self._compared:
            if not _same(recorded[name], row.get(name, math.nan)):
                what = f"{name} is {recorded[name]} in metrics.csv and {row.get(name, '')} computed again"
                self._differs(row["iteration"], what if name != "params_checksum" else "")
                return
        self.evaluations += 1

    def best(self, state: dict[str, Tensor], metrics: Row) -> None:
        """Nothing is kept."""

    def save(self, position: int, tensors: dict[str, Tensor], values: Values) -> None:
        """Nothing is written."""


def _same(one: object, other: object) -> bool:
    return one == other or (one != one and other != other)
