"""A run as its charts need it: its tables without damaged lines, and the few numbers that are shown first.

The page, the figures and the notebook all draw from this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from orlomo import config as configuration
from orlomo.config import RunConfig
from orlomo.errors import RunFolderError
from orlomo.records.checkpoint import newest_values
from orlomo.records.folders import MEASURED, WORKER_DATA
from orlomo.records.run import Run
from orlomo.records.tables import ROUNDS, Columns, MetricColumn, empty, metrics_schema, only, usable
from orlomo.report.summary import without_nan
from orlomo.report.timeline import Bars, Use, bars, uses

POINTS = 1200
"""As many points as can be told apart on a wide screen."""


class Facts(TypedDict):
    """The numbers that are shown first; None: not known."""

    reports: int
    epochs: float | None
    wanted_epochs: float
    seconds: float | None
    reports_per_second: float | None
    mean_delay: float | None
    max_delay: int


class ViewTable(TypedDict):
    """A view without its charts, ready for JSON."""

    name: str
    method: str
    task: str
    engine: str
    clock: str
    state: str
    workers: int
    measured: dict[str, str]
    facts: Facts
    uses: list[dict[str, object]]
    config: str


@dataclass(frozen=True)
class View:
    """The data of a run's charts. Its tables hold whole rows only."""

    name: str
    config: RunConfig
    state: str
    clock: str
    measured: tuple[MetricColumn, ...]
    events: Columns
    metrics: Columns
    end: float  # until then, a worker that crashed and never came back is drawn as absent
    worker_data: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def reports(self) -> Columns:
        """The events that are reports."""
        return only(self.events, self.events["kind"] == "report")

    @cached_property
    def bars(self) -> Bars:
        """The timeline."""
        return bars(self.events, self.end, synchronous=self.config.method.synchronous)

    def to_json(self) -> ViewTable:
        """All but the charts."""
        return {
            "name": self.name,
            "method": self.config.method.name,
            "task": self.config.task,
            "engine": self.config.engine,
            "clock": self.clock,
            "state": self.state,
            "workers": self.config.workers,
            "measured": {one.label: one.text(value) for one, value in self.last_values()},
            "facts": _facts(self.config, self.reports, self.metrics),
            "uses": [self._use(use) for use in uses(self.events, self.bars, self.config.workers)],
            "config": configuration.write(self.config),
        }

    def _use(self, use: Use) -> dict[str, object]:
        """How a worker spent its time; where it has data of its own, on what, and how many epochs of it."""
        row = without_nan(use._asdict())
        if self.worker_data:
            own = self.worker_data[use.worker % len(self.worker_data)]
            rounds = (self.events["worker"] == use.worker) & np.isin(self.events["kind"], ROUNDS)
            samples = int(self.events["local_steps"][rounds].sum()) * own["batch_size"]
            row |= {"data": own["data"], "samples": own["samples"], "epochs": samples / own["samples"]}
        return row

    def last_values(self) -> list[tuple[MetricColumn, float]]:
        """The newest evaluation."""
        last = [self.metrics[one.column][-1:] for one in self.measured]
        return [
            (one, float(value[0]) if len(value) else math.nan) for one, value in zip(self.measured, last, strict=True)
        ]


def view_of(run: Run, name: str, notes: list[str]) -> View:
    """The view of a run; what cannot be shown, or is not what the run wrote, is added to the notes, under this name."""
    notes += [f"{name}: {finding}." for finding in run.findings("events.csv", "metrics.csv", MEASURED, WORKER_DATA)]
    try:
        measured = run.measured
    except RunFolderError as error:
        notes.append(f"{name}: {error}.")
        measured = ()
    events, damaged = _table(run, "events", name, notes)
    metrics, _ = _table(run, "metrics", name, notes) if measured else (empty(metrics_schema(())), 0)
    finish = events["finish"][events["kind"] == "report"]
    end = float(finish[-1]) if run.virtual and len(finish) else 0.0  # on real engines a lost worker never comes back
    if reason := newest_values(run.folder / "checkpoints").get("stopped"):
        notes.append(f"{name} was stopped: {reason}.")
    notes += [f"{name} was changed {change}." for change in run.changes]
    data: list[dict[str, Any]] = []
    try:
        data = run.worker_data
    except RunFolderError as error:
        notes.append(f"{name}: {error}.")
    view = View(name, run.config, run.state, run.clock, measured, events, metrics, end, data)
    if not damaged and view.state != "running":  # a run at work may have written one table and not yet the other
        _note_missing(view, notes)
    return view


def _table(run: Run, table: str, name: str, notes: list[str]) -> tuple[Columns, int]:
    """The whole rows of `events` or `metrics`, and how many lines are damaged; an empty table where there is none."""
    path, schema = run.folder / f"{table}.csv", run.schema(table)
    try:
        # Counted before the table is read: a running run may append in between, and then no line seems damaged.
        lines = path.read_bytes().count(b"\n") - 1 if path.is_file() else 0
        found = run.event_columns if table == "events" else run.metric_columns
    except RunFolderError as error:
        notes.append(f"{name}: {error}.")
        return empty(schema), 0
    if missing := [column for column in schema if column not in found]:
        notes.append(f"{name}: {path.name} has no {', '.join(missing)}.")
        return empty(schema), lines
    if run.is_cut_off(table):
        notes.append(f"{name}: {path.name} ends in the middle of a line, which is left out.")
    whole = usable(found, schema)
    damaged = max(lines, len(whole)) - int(whole.sum())
    if damaged:
        notes.append(f"{name}: {damaged} damaged line{'s' * (damaged > 1)} of {path.name} left out.")
    return only(found, whole), damaged


def _note_missing(view: View, notes: list[str]) -> None:
    """Note that one table knows of more reports than the other has."""
    here, known = len(view.reports["delay"]), int(view.metrics["reports"].max(initial=0))
    if known > here:
        notes.append(f"{view.name}: events.csv has {here:,} reports, metrics.csv has {known:,}: lines are missing.")
    elif view.state == "finished" and 0 < known < here:
        notes.append(f"{view.name}: metrics.csv ends at report {known:,} of {here:,}: lines are missing.")


def _facts(config: RunConfig, reports: Columns, metrics: Columns) -> Facts:
    delays = reports["delay"]
    some = len(delays) > 0
    seconds = float(reports["finish"][-1]) if some else None
    return {
        "reports": len(delays),
        "epochs": _epochs(len(delays), metrics),
        "wanted_epochs": config.epochs,
        "seconds": seconds,
        "reports_per_second": len(delays) / seconds if seconds is not None and seconds > 0 else None,
        "mean_delay": float(delays.mean()) if some else None,
        "max_delay": int(delays.max()) if some else 0,
    }


def _epochs(reports: int, metrics: Columns) -> float | None:
    """Epochs now: the share of an epoch that one report is, by the last evaluation, times the reports."""
    if not reports:
        return 0.0
    known = len(metrics["reports"]) > 0 and metrics["reports"][-1] > 0
    return reports * float(metrics["epoch"][-1] / metrics["reports"][-1]) if known else None


def differences(tables: list[dict[str, object]]) -> dict[str, list[str]]:
    """The settings in which configs differ, one text per config."""
    flat = [_flat(table) for table in tables]
    names = sorted({name for table in flat for name in table})
    texts = {name: [str(table.get(name, "")) for table in flat] for name in names}
    return {name: values for name, values in texts.items() if len(set(values)) > 1}


def _flat(table: dict[str, object], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in table.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def thin(values: NDArray[Any], points: int = POINTS) -> NDArray[np.int64]:
    """The positions of fewer points that look the same: the first, the last, and the extremes of each stretch.

    >>> thin(np.array([0.0, 1.0, 9.0, 1.0, 0.0, 2.0, -5.0, 2.0]), points=4).tolist()
    [0, 2, 6, 7]
    """
    if len(values) <= points:
        return np.arange(len(values))
    stretches = max(1, (points - 2) // 2)
    size = -(-len(values) // stretches)
    padded = np.full(stretches * size, np.nan)
    padded[: len(values)] = values.astype(np.float64)
    table = padded.reshape(stretches, size)
    known = ~np.isnan(table).all(axis=1)  # a stretch without numbers has no extremes
    begin = np.flatnonzero(known) * size
    lowest, highest = np.nanargmin(table[known], axis=1), np.nanargmax(table[known], axis=1)
    return np.unique(np.concatenate([[0], begin + lowest, begin + highest, [len(values) - 1]]))


def numbers(column: NDArray[Any]) -> list[float | None]:
    """For JSON: what is not finite becomes None, and no more digits than a picture shows."""
    values: list[float] = column.tolist()
    if column.dtype.kind != "f":
        return [*values]
    # Seven digits, about those of a float32, keep the page small.
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]
