"""A run as its charts need it: its tables without damaged lines, and the few numbers that are shown first.

The page, the figures and the notebook all draw from this.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict

from numpy.typing import NDArray

from orlomo import config as configuration
from orlomo.config import RunConfig
from orlomo.errors import RunFolderError
from orlomo.records.checkpoint import newest_values
from orlomo.records.folders import MEASURED, MODEL, WORKER_DATA
from orlomo.records.run import Run
from orlomo.records.tables import EVENTS, Columns, MetricColumn, empty, metrics_schema, only, read_counted, usable
from orlomo.report.streaming.events import EventReader, Events
from orlomo.report.summary import without_nan
from orlomo.report.workers.happened import Happened, faults, happened, membership
from orlomo.report.workers.timeline import Use, uses_of


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
    synchronous: bool
    workers: int
    membership: str
    faults: dict[str, int]
    events: list[Happened]
    measured: dict[str, str]
    facts: Facts
    uses: list[dict[str, object]]
    config: str


@dataclass(frozen=True)
class View:
    """The data of a run's charts, without damaged rows. `seen` is what is shown of its events.

    `events` and `reports` are whole tables, which may be large, for charts that need more: read when asked for.
    """

    run: Run
    name: str
    state: str
    measured: tuple[MetricColumn, ...]
    seen: Events
    metrics: Columns
    end: float  # until then, a worker that crashed and never came back is drawn as absent
    worker_data: list[dict[str, Any]] = field(default_factory=list)
    stopped: str | None = None  # why a callback stopped it

    @property
    def config(self) -> RunConfig:
        """The run's config."""
        return self.run.config

    @property
    def clock(self) -> str:
        """What the run's seconds are."""
        return self.run.clock

    @cached_property
    def events(self) -> Columns:
        """The events."""
        return only(self.run.event_columns, usable(self.run.event_columns, EVENTS))

    @cached_property
    def reports(self) -> Columns:
        """The events that are reports."""
        return only(self.events, self.events["kind"] == "report")

    @cached_property
    def uses(self) -> list[Use]:
        """How each worker spent its time."""
        return uses_of(self.seen.workers, self.seen.timeline, self.config.workers, self.end)

    @cached_property
    def faults(self) -> dict[str, int]:
        """How many workers were lost, came back, joined and left."""
        return faults(self.seen.timeline)

    @cached_property
    def happened(self) -> list[Happened]:
        """Crashes, returns, joins, departures, changes of settings, and a stop by a callback."""
        end = self.seen.last_finish if self.seen.reports else 0.0
        return happened(self.seen.timeline, self.clock, self.run.changes, self.seen.times, self.stopped, end)

    def to_json(self) -> ViewTable:
        """All but the charts."""
        return {
            "name": self.name,
            "method": self.config.method.name,
            "task": self.config.task,
            "engine": self.config.engine,
            "clock": self.clock,
            "state": self.state,
            "synchronous": self.config.method.synchronous,
            "workers": self.config.workers,
            "membership": membership(self.config.workers, self.faults),
            "faults": self.faults,
            "events": self.happened,
            "measured": {one.label: one.text(value) for one, value in self.last_values()},
            "facts": _facts(self.config, self.seen, self.metrics),
            "uses": [self._use(use) for use in self.uses],
            "config": configuration.write(self.config),
        }

    def _use(self, use: Use) -> dict[str, object]:
        """How a worker spent its time; where it has data of its own, on what, and how many epochs of it."""
        row = without_nan(use._asdict())
        if self.worker_data:
            own = self.worker_data[use.worker % len(self.worker_data)]
            samples = int(self.seen.workers.of(use.worker)[-1]) * own["batch_size"]
            row |= {"data": own["data"], "samples": own["samples"], "epochs": samples / own["samples"]}
        return row

    def last_values(self) -> list[tuple[MetricColumn, float]]:
        """The newest evaluation."""
        last = [self.metrics[one.column][-1:] for one in self.measured]
        return [
            (one, float(value[0]) if len(value) else math.nan) for one, value in zip(self.measured, last, strict=True)
        ]


def view_of(run: Run, name: str, notes: list[str], events: EventReader | None = None) -> View:
    """The view of a run; what cannot be shown, or is not what the run wrote, is added to the notes, under this name.

    `events`: one that has read the run's events before, and reads only what is new.
    """
    # The files are compared with their seals at the same time as they are read: of a large run both take seconds.
    with ThreadPoolExecutor(1) as pool:
        compared = pool.submit(run.findings, "events.csv", "metrics.csv", MEASURED, WORKER_DATA)
        more: list[str] = []
        view, damaged = _view_of(run, name, more, events or EventReader(run.folder / "events.csv"))
        notes += [f"{name}: {finding}." for finding in compared.result()]
    notes += more
    if not damaged and view.state != "running":  # a run at work may have written one table and not yet the other
        _note_missing(view, notes)
    return view


def _view_of(run: Run, name: str, notes: list[str], reader: EventReader) -> tuple[View, int]:
    """The view, and how many lines of the events are damaged."""
    try:
        measured = run.measured
    except RunFolderError as error:
        notes.append(f"{name}: {error}.")
        measured = ()
    data: list[dict[str, Any]] = []
    data_notes: list[str] = []
    try:
        data = run.worker_data
    except RunFolderError as error:
        data_notes.append(f"{name}: {error}.")
    # The evaluations first: where there are some, the losses of the reports are not needed.
    metric_notes: list[str] = []
    metrics = _metrics(run, name, metric_notes) if measured else empty(metrics_schema(()))
    damaged = _read_events(run, reader, name, notes, losses=not len(metrics["reports"]), steps=bool(data))
    notes += metric_notes
    seen = reader.events
    end = seen.last_finish if run.virtual and seen.reports else 0.0  # on real engines a lost worker never comes back
    reason = newest_values(run.folder / "checkpoints").get("stopped")
    if reason:
        notes.append(f"{name} was stopped: {reason}.")
    notes += [f"{name} was changed {change}." for change in run.changes]
    notes += data_notes
    view = View(run, name, run.state, measured, seen, metrics, end, data, str(reason) if reason else None)
    if run.seals.done and view.state == "stopped":
        notes.append(f"{name}: the run is finished, but {MODEL} is missing, or not a file of its own.")
    return view, damaged


def _read_events(run: Run, reader: EventReader, name: str, notes: list[str], losses: bool, steps: bool) -> int:
    """Read the events; how many lines are damaged."""
    try:
        config = run.config
        marks = tuple(change.events for change in run.changes)
        reader.update(
            synchronous=config.method.synchronous, losses=losses, steps=steps, workers=config.workers, marks=marks
        )
    except RunFolderError as error:
        notes.append(f"{name}: {error}.")
        return 0
    if reader.missing:
        notes.append(f"{name}: {reader.path.name} has no {', '.join(reader.missing)}.")
        return reader.events.lines
    if reader.events.not_drawn:
        notes.append(f"{name}: {reader.events.not_drawn:,} more crashes, returns, joins and departures are not drawn.")
    return _note_damaged(run, "events", name, notes, reader.events.lines - reader.events.whole)


def _metrics(run: Run, name: str, notes: list[str]) -> Columns:
    """The whole rows of the evaluations; an empty table where there is none."""
    path, schema = run.folder / "metrics.csv", run.schema("metrics")
    try:
        found, lines = read_counted(path, schema)
    except RunFolderError as error:
        notes.append(f"{name}: {error}.")
        return empty(schema)
    whole = usable(found, schema)
    _note_damaged(run, "metrics", name, notes, lines - int(whole.sum()))
    return only(found, whole)


def _note_damaged(run: Run, table: str, name: str, notes: list[str], damaged: int) -> int:
    if run.is_cut_off(table):
        notes.append(f"{name}: {table}.csv ends in the middle of a line, which is left out.")
    if damaged:
        notes.append(f"{name}: {damaged} damaged line{'s' * (damaged > 1)} of {table}.csv left out.")
    return damaged


def _note_missing(view: View, notes: list[str]) -> None:
    """Note that one table knows of more reports than the other has."""
    here, known = view.seen.reports, int(view.metrics["reports"].max(initial=0))
    if known > here:
        notes.append(f"{view.name}: events.csv has {here:,} reports, metrics.csv has {known:,}: lines are missing.")
    elif view.state == "finished" and 0 < known < here:
        notes.append(f"{view.name}: metrics.csv ends at report {known:,} of {here:,}: lines are missing.")


def _facts(config: RunConfig, seen: Events, metrics: Columns) -> Facts:
    reports = seen.reports
    seconds = seen.last_finish if reports else None
    return {
        "reports": reports,
        "epochs": _epochs(reports, metrics),
        "wanted_epochs": config.epochs,
        "seconds": seconds,
        "reports_per_second": reports / seconds if seconds is not None and seconds > 0 else None,
        "mean_delay": seen.delays.sum / reports if reports else None,
        "max_delay": seen.delays.max,
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


def numbers(column: NDArray[Any]) -> list[float | None]:
    """For JSON: what is not finite becomes None, and no more digits than a picture shows."""
    values: list[float] = column.tolist()
    if column.dtype.kind != "f":
        return [*values]
    # Seven digits, about those of a float32, keep the page small.
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]
