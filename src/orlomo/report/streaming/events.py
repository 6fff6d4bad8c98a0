"""A run's events.csv as its charts need it, read block by block, and only what is new when it is read again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.schedule import DROP, KINDS, REPORT
from orlomo.errors import RunFolderError
from orlomo.files import open_to_read
from orlomo.records.parsing.blocks import Block, Table
from orlomo.records.parsing.fields import key
from orlomo.records.tables import EVENTS, Columns, usable
from orlomo.report.streaming.pieces import Merger
from orlomo.report.streaming.tallies import Tallies
from orlomo.report.streaming.thinning import POSITION, Counts, Thinner, joined
from orlomo.report.streaming.workers import grouped
from orlomo.report.timeline import BARS, Bars, WorkerCounts, drawn

NEEDED = ("iteration", "worker", "delay", "group", "eta", "start", "finish", "compute", "behind")
"""The columns without which a row is damaged: all of them are read."""

IN_CHARTS = {
    "delay": ("finish", "iteration", "worker"),
    "eta": ("finish", "iteration", "delay"),
    "behind": ("iteration", "worker", "group", "delay", "weight"),
    "loss": ("finish", "iteration"),
}
"""By the column by which reports are thinned: the other columns of the charts that show them."""

RECENT = 1000
"""Reports at the end that are all kept."""

MOST_CHANGES = 20_000
"""Crashes, returns, joins and departures that are drawn: they are not merged, and a page must not grow without end."""

MOST_WORKERS = 2**17
"""Workers that are shown. Rows of further ones count as damaged."""

COMPARED = 4096
"""Bytes before the place where reading goes on by which it is known that the file is still the same."""


@dataclass
class Part:
    """The rows of one block that can be shown; `rows` are their positions in it, None: all."""

    block: Block
    kind: NDArray[np.int64]
    columns: Columns
    rows: NDArray[np.int64] | None
    reports: NDArray[np.int64] = field(init=False)  # positions among the rows

    def __post_init__(self) -> None:
        self.reports = np.flatnonzero(self.kind == REPORT)

    def __len__(self) -> int:
        return len(self.kind)

    def only(self, chosen: NDArray[np.bool_]) -> Part:
        """These rows."""
        rows = np.flatnonzero(chosen)
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Part(self.block, self.kind[rows], columns, rows if self.rows is None else self.rows[rows])

    def at(self, name: str, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        """A column at these rows; one that is not read for all rows is read for these alone."""
        if name in self.columns:
            return self.columns[name][rows]
        return self.block.column(name, rows if self.rows is None else self.rows[rows])


class Events:
    """What is shown of events, added up. `workers`: how many the run began with."""

    def __init__(self, synchronous: bool = False, losses: bool = False, steps: bool = False, workers: int = 0):
        self.lines = self.whole = 0  # in the file, and of them those that can be shown
        self.last_finish = np.nan  # of the last report
        self.has_weights = self.has_losses = False
        self.delays = Counts()
        self.workers = WorkerCounts()
        self.tallies = Tallies(workers)
        self._more = ("loss",) * losses + ("local_steps",) * steps
        self._merger = Merger(BARS, synchronous)
        self._thinners = {name: Thinner(name) for name in IN_CHARTS if name != "loss" or losses}
        self.not_drawn = self._changes = 0  # changes
        self._recent: list[tuple[int, Callable[[], Columns]]] = []  # reports in a part, and the last of them

    @property
    def reports(self) -> int:
        """How many there are."""
        return self.delays.number

    def part(self, block: Block) -> tuple[int, Part]:
        """The lines of a block, and its rows that can be shown; on any thread."""
        words = block.keys("kind")
        reports = words == key(KINDS[REPORT])
        kind = np.where(reports, REPORT, -1)
        if not reports.all():
            for code, name in enumerate(KINDS):
                kind[words == key(name)] = code
        columns = {name: block.column(name) for name in (*NEEDED, *self._more)}
        good = usable(columns, EVENTS, kind)
        part = Part(block, kind, columns, None)
        return block.lines, part if good.all() else part.only(good)

    def add(self, lines: int, part: Part) -> None:
        """Add the next block."""
        self.lines += lines
        part = self._limited(part)
        if not len(part):
            return
        columns, reports = part.columns, part.reports
        groups = grouped(columns["worker"])
        self._merger.add(groups, part.kind, *(columns[name] for name in ("start", "finish", "compute")))
        self.workers.add(groups, part.kind, columns["delay"], columns.get("local_steps", np.zeros(0, dtype=np.int64)))
        self.tallies.add(groups, part.kind, columns["compute"], columns["eta"])
        if not len(reports):
            return
        everything = len(reports) == len(part)
        self.delays.add(columns["delay"] if everything else columns["delay"][reports])
        self.last_finish = float(columns["finish"][reports[-1]])
        if not self.has_weights:
            self.has_weights = not np.isnan(part.at("weight", reports)).all()
        if "loss" in columns and not self.has_losses:
            self.has_losses = bool(np.isfinite(columns["loss"][reports]).any())
        for name, thinner in self._thinners.items():
            others = IN_CHARTS[name]
            thinner.add(
                columns[name] if everything else columns[name][reports],
                lambda rows, others=others: {other: part.at(other, reports[rows]) for other in others},  # type: ignore[misc]
            )
        self._keep_recent(part)

    def _limited(self, part: Part) -> Part:
        """Without the rows that are too much to be shown."""
        if len(self.workers) + len(part) > MOST_WORKERS:
            workers, firsts = np.unique(part.columns["worker"], return_index=True)
            new = np.flatnonzero(~self.workers.has(workers))
            refused = new[np.argsort(firsts[new])][MOST_WORKERS - len(self.workers) :]
            part = part.only(~np.isin(part.columns["worker"], workers[refused]))
        self.whole += len(part)
        changes = np.flatnonzero((part.kind != REPORT) & (part.kind != DROP))
        room = MOST_CHANGES - self._changes
        self._changes += min(len(changes), room)
        if len(changes) <= room:
            return part
        self.not_drawn += len(changes) - room
        chosen = np.ones(len(part), dtype=bool)
        chosen[changes[room:]] = False
        return part.only(chosen)

    def _keep_recent(self, part: Part) -> None:
        count, reports = len(part.reports), self.reports
        table = None if count >= RECENT else _recent_of(part, reports)  # of many small parts not all is kept
        self._recent.append((count, lambda: _recent_of(part, reports) if table is None else table))
        while sum(count for count, _ in self._recent[1:]) >= RECENT:
            del self._recent[0]

    def bars(self, end: float) -> Bars:
        """The timeline; `end` as in `timeline.bars`."""
        return drawn(self._merger, end)

    def thinned(self, name: str) -> Columns:
        """The reports that stay when they are thinned by this column, with what their charts show."""
        return self._thinners[name].kept()

    @property
    def recent(self) -> Columns:
        """The last reports, with what the chart of the groups shows, and `position` among all."""
        tables = [table() for _, table in self._recent]
        return {name: column[-RECENT:] for name, column in joined(tables).items()} if tables else {}


def _recent_of(part: Part, reports: int) -> Columns:
    """The last reports of a part; `reports`: how many there are up to its end."""
    rows = part.reports[-RECENT:]
    columns = {name: part.at(name, rows) for name in ("behind", *IN_CHARTS["behind"])}
    return {POSITION: np.arange(reports - len(rows), reports), **columns}


class EventReader:
    """Reads a run's events.csv; `update` reads only what has been added since, where nothing else was changed."""

    def __init__(self, path: Path, *, saw: Callable[[memoryview], object] | None = None):
        self.path, self.events = path, Events()
        self.missing: list[str] = []  # columns that the file does not have
        self._saw = saw
        self._table: Table | None = None
        self._settings: tuple[bool, bool, bool, int] | None = None
        self._known: tuple[int, int, bytes] | None = None

    def update(self, *, synchronous: bool, losses: bool, steps: bool, workers: int = 0) -> None:
        """Read what is new. `losses`, `steps`: whether the losses of the reports, and the local steps are needed.

        `workers`: how many the run began with.
        """
        settings = (synchronous, losses, steps, workers)
        if self._table is None or settings != self._settings or self._identity() != self._known:
            self.events, self._settings, self._table = Events(*settings), settings, None
            self._table = Table(self.path, EVENTS, saw=self._saw)
            self.missing = [column for column in EVENTS if column not in self._table.names]
        self._known = None  # if reading fails, it begins again
        if self.missing:
            self.events.lines += sum(self._table.read(lambda block: block.lines))
        else:
            for lines, part in self._table.read(self.events.part):
                self.events.add(lines, part)
        self._known = self._identity()

    def _identity(self) -> tuple[int, int, bytes]:
        """The file, and the bytes before the place up to which it was read: a run that is resumed may cut it off."""
        position = 0 if self._table is None else self._table.position
        try:
            with open_to_read(self.path) as file:
                status = os.fstat(file.fileno())
                file.seek(max(0, position - COMPARED))
                return status.st_dev, status.st_ino, file.read(min(COMPARED, position))
        except OSError as error:
            raise RunFolderError(f"cannot read {self.path}: {error.strerror}") from None
