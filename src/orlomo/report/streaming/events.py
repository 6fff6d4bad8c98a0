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
from orlomo.report.streaming.counting import Counts
from orlomo.report.streaming.over_time import OverTime
from orlomo.report.streaming.rounds import LEAVES, Timeline
from orlomo.report.streaming.tallies import Tallies
from orlomo.report.streaming.thinning import joined
from orlomo.report.streaming.workers import grouped
from orlomo.report.workers.timeline import WorkerCounts

NEEDED = ("iteration", "worker", "delay", "group", "eta", "start", "finish", "compute", "behind")
"""The columns without which a row is damaged: all of them are read."""

RECENT = 1000
"""Reports at the end that are kept as they are, with these columns."""

OF_RECENT = ("finish", "iteration", "worker", "group", "behind", "delay", "weight")

MOST_CHANGES = 20_000
"""Crashes, returns, joins and departures that are drawn: they are not merged, and a page must not grow without end."""

MOST_WORKERS = 2**17
"""Workers that are shown. Rows of further ones count as damaged."""

COMPARED = 4096
"""Bytes before the place where reading continues, by which it is known that the file is still the same."""


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
    """What is shown of events, added up. `workers`: how many the run began with. `marks`: numbers of events, from 1 on,
    whose `times` are wanted."""

    def __init__(
        self,
        synchronous: bool = False,
        losses: bool = False,
        steps: bool = False,
        workers: int = 0,
        marks: tuple[int, ...] = (),
    ):
        self._marks = marks
        self.times: dict[int, float] = {0: 0.0}
        self.lines = self.whole = 0  # in the file, and of them those that can be shown
        self.last_finish = np.nan  # of the last report
        self.has_weights = self.has_losses = False
        self.delays = Counts()
        self.workers = WorkerCounts()
        self.tallies = Tallies()
        self._more = ("loss",) * losses + ("local_steps",) * steps
        self.timeline = Timeline(synchronous)
        self.over_time = OverTime(losses)
        self._present = workers
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
        columns = {name: block.column(name) for name in (*NEEDED, "weight", *self._more)}
        good = usable(columns, EVENTS, kind)
        part = Part(block, kind, columns, None)
        return block.lines, part if good.all() else part.only(good)

    def add(self, lines: int, part: Part) -> None:
        """Add the next block."""
        for mark in self._marks:
            if self.lines < mark <= self.lines + lines:
                row = mark - 1 - self.lines
                at = np.array([row]) if part.rows is None else np.flatnonzero(part.rows == row)
                self.times.update((mark, float(time)) for time in part.columns["finish"][at] if np.isfinite(time))
        self.lines += lines
        part = self._limited(part)
        if not len(part):
            return
        columns, reports = part.columns, part.reports
        groups = grouped(columns["worker"])
        self.timeline.add(groups, part.kind, *(columns[name] for name in ("start", "finish", "compute")))
        self.workers.add(groups, part.kind, columns["delay"], columns.get("local_steps", np.zeros(0, dtype=np.int64)))
        everything = len(reports) == len(part)
        present = self._presence(part.kind, everything)
        self.tallies.add(groups, part.kind, columns["compute"], columns["eta"], present)
        if not len(reports):
            return
        own = columns if everything else {name: column[reports] for name, column in columns.items()}
        self.delays.add(own["delay"])
        self.last_finish = float(own["finish"][-1])
        self.has_weights = self.has_weights or not np.isnan(own["weight"]).all()
        if "loss" in own and not self.has_losses:
            self.has_losses = bool(np.isfinite(own["loss"]).any())
        self.over_time.add(groups if everything else grouped(own["worker"]), present[reports], own)
        self._keep_recent(part)

    def _presence(self, kind: NDArray[np.int64], everything: bool) -> NDArray[np.int64]:
        """How many workers there are after each event; `everything` is a report."""
        if everything:
            return np.full(len(kind), self._present)
        changed = np.where((kind == REPORT) | (kind == DROP), 0, np.where(LEAVES[kind], -1, 1))
        present = self._present + np.cumsum(changed)
        self._present = int(present[-1])
        return present

    def _limited(self, part: Part) -> Part:
        """Without the rows that are too much to be shown."""
        if len(self.workers) + len(part) > MOST_WORKERS:
            workers, firsts = np.unique(part.columns["worker"], return_index=True)
            new = np.flatnonzero(~self.workers.has(workers))
            refused = new[np.argsort(firsts[new])][MOST_WORKERS - len(self.workers) :]
            part = part.only(~np.isin(part.columns["worker"], workers[refused]))
        self.whole += len(part)
        if len(part.reports) == len(part):
            return part
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
        count = len(part.reports)
        table = None if count >= RECENT else _recent_of(part)  # of many small parts not all is kept
        self._recent.append((count, lambda: _recent_of(part) if table is None else table))
        while sum(count for count, _ in self._recent[1:]) >= RECENT:
            del self._recent[0]

    @property
    def recent(self) -> Columns:
        """The last reports, with the columns `OF_RECENT`."""
        tables = [table() for _, table in self._recent]
        return {name: column[-RECENT:] for name, column in joined(tables).items()} if tables else {}


def _recent_of(part: Part) -> Columns:
    """The last reports of a part."""
    rows = part.reports[-RECENT:]
    return {name: part.at(name, rows) for name in OF_RECENT}


class EventReader:
    """Reads a run's events.csv; `update` reads only what has been added since, where nothing else was changed."""

    def __init__(self, path: Path, *, saw: Callable[[memoryview], object] | None = None):
        self.path, self.events = path, Events()
        self.missing: list[str] = []  # columns that the file does not have
        self._saw = saw
        self._table: Table | None = None
        self._settings: tuple[bool, bool, bool, int, tuple[int, ...]] | None = None
        self._known: tuple[int, int, bytes] | None = None

    def update(
        self, *, synchronous: bool, losses: bool, steps: bool, workers: int = 0, marks: tuple[int, ...] = ()
    ) -> None:
        """Read what is new. `losses`, `steps`: whether the losses of the reports, and the local steps are needed.

        `workers`, `marks`: as in `Events`.
        """
        settings = (synchronous, losses, steps, workers, marks)
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
