"""Progress over many runs: how many are done, how long the rest will take, and the runs at work.

At a terminal one screen; elsewhere a line every few seconds, and one for each run that is over.
"""

from __future__ import annotations

import math
import time
from typing import Any

from rich.console import Group, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from orlomo.records.tables import Columns
from orlomo.report.screen import LINE_SECONDS, Screen
from orlomo.report.tally import Tally
from orlomo.reproduce.plan import Cell

REFRESH_SECONDS = 0.2


FRAME_LINES = 8
"""Of the screen that are neither workers nor runs."""


class CellProgress(Screen):
    """One line for the whole, one for each run at work, and the workers and delays of the first of these.

    Time left is by the local steps still to do, at the pace of this sitting.
    """

    def __init__(self, quiet: bool = False):
        super().__init__(quiet)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[facts]}"),
            console=self._console,
            expand=True,
        )
        self._whole = self._bars.add_task("all runs", total=None, facts="")
        self._lines: dict[Cell, TaskID] = {}
        self._accuracy: dict[Cell, float] = {}
        self._steps: dict[Cell, float] = {}  # done in this sitting
        self._first: dict[Cell, float] = {}  # share that was done before it
        self._tallies: dict[Cell, Tally] = {}
        self._totals: dict[Cell, int] = {}  # planned reports
        self._samples: dict[Cell, tuple[int, int]] = {}  # when its first report of this sitting came, and now
        self._next_update = 0.0
        self._next_line = math.inf

    def begin(self, cells: list[Cell], waiting: list[Cell]) -> None:
        """These are all the runs, and those still to do."""
        self._all, self._left = len(cells), len(waiting)
        self._todo = sum(cell.steps for cell in waiting)
        self._started = time.monotonic()
        self._next_line = self._started + LINE_SECONDS
        self._line(f"{self._all} runs: {self._all - self._left} done, {self._left} to do")

    def started(self, cell: Cell, workers: int, total: int, kept: Columns | None) -> None:
        """A run begins, or continues with what it has kept of its trace."""
        self._tallies[cell] = Tally.begin(workers, kept)
        self._totals[cell] = total

    def event(self, cell: Cell, row: dict[str, Any]) -> None:
        """A row of a run's trace."""
        tally = self._tallies[cell]
        tally.event(row)
        self._samples[cell] = (self._samples.get(cell, (tally.samples, 0))[0], tally.samples)
        if row["kind"] == "report":
            self._report(cell, row["reports"], self._totals[cell], row["loss"])

    def _report(self, cell: Cell, done: int, total: int, loss: float) -> None:
        if cell not in self._lines:
            self._first[cell] = (done - 1) / total
            self._todo -= int(self._first[cell] * cell.steps)
            self._lines[cell] = self._bars.add_task(_name(cell), total=1.0, facts="")
        self._steps[cell] = (done / total - self._first[cell]) * cell.steps
        now = time.monotonic()
        if now < self._next_update:
            return
        self._next_update = now + REFRESH_SECONDS
        accuracy = self._accuracy.get(cell, math.nan)
        facts = f"loss {loss:.3g}" + ("" if math.isnan(accuracy) else f" accuracy {accuracy:.1%}")
        self._bars.update(self._lines[cell], completed=done / total, facts=facts)
        whole = f"{self._all - self._left} of {self._all} done, {self.time_left()} left{self._pace(now)}"
        self._bars.update(self._whole, completed=sum(self._steps.values()), total=max(self._todo, 1), facts=whole)
        if not self._is_screen and now >= self._next_line:
            self._next_line = now + LINE_SECONDS
            self._line(f"{whole}; {_name(cell)}: {done / total:.0%}, {facts}")

    def evaluation(self, cell: Cell, accuracy: float) -> None:
        """A run has been evaluated."""
        self._accuracy[cell] = accuracy

    def done(self, cell: Cell) -> None:
        """A run is over."""
        self._left -= 1
        if cell in self._lines:
            self._steps[cell] = (1 - self._first[cell]) * cell.steps
            self._bars.remove_task(self._lines.pop(cell))
            self._tallies.pop(cell, None)
        else:
            self._steps[cell] = cell.steps
        accuracy = self._accuracy.get(cell, math.nan)
        outcome = "" if math.isnan(accuracy) else f": {accuracy:.2%}"
        left = f", about {self.time_left()} left" if self._left else ""
        self._line(f"[{self._all - self._left}/{self._all}] {_name(cell)}{outcome}{left}")

    def time_left(self) -> str:
        """For a person."""
        steps = sum(self._steps.values())
        if not steps:
            return "?"
        return duration((time.monotonic() - self._started) * max(0.0, self._todo - steps) / steps)

    def _pace(self, now: float) -> str:
        samples = sum(last - first for first, last in self._samples.values())
        return f", {samples / (now - self._started):,.0f} samples/s" if samples and now > self._started else ""

    def _screen(self) -> RenderableType:
        parts: list[RenderableType] = [self._bars]
        shown = next(iter(list(self._tallies.items())), None)
        if shown is not None:
            cell, tally = shown
            room = self._console.height - FRAME_LINES - len(self._lines)
            parts += ["", f"[dim]{_name(cell)}[/dim]", tally.table(room), "", tally.histogram()]
        return Group(*parts)


def _name(cell: Cell) -> str:
    return f"{cell.row.name} {cell.method} seed {cell.seed}"


def duration(seconds: float) -> str:
    """A time for a person.

    >>> duration(5), duration(100), duration(10_000)
    ('5 s', '2 min', '2 h 47 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
