"""Progress for a person: a calm screen at a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from rich.console import Group, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from orlomo.engines.callbacks import Callback, RunHandle
from orlomo.records.run import Run, read_measured
from orlomo.records.tables import headline
from orlomo.report.screen import LINE_SECONDS, Screen
from orlomo.report.tally import Tally

REFRESH_SECONDS = 0.1
FRAME_LINES = 7
"""Of the screen that are not workers."""


class TerminalProgress(Screen, Callback):
    """On standard error; use it as a context manager. With `runs`, several runs follow one another under one bar."""

    watches_only = True

    def __init__(self, quiet: bool = False, runs: int = 1):
        super().__init__(quiet)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True)),
            TextColumn("left"),
            TextColumn("{task.fields[facts]}"),
            console=self._console,
            expand=True,
        )
        self._runs = runs
        self._done_runs = 0
        self._overall = self._bar.add_task("all runs", total=runs, facts="", visible=runs > 1)
        self._current = self._bar.add_task("training", total=None, facts="")
        self._reset("training")

    def _reset(self, description: str) -> None:
        self._description = description
        self._loss, self._evaluated = math.nan, ""
        self._tally = Tally()
        self._next_update = 0.0
        self._first: tuple[float, int, int] | None = None  # moment, reports and samples of this sitting's first report
        self._next_line = math.inf

    def started(self, run: RunHandle) -> None:
        """The next run begins, or continues with what it has kept, which only a screen shows."""
        self._reset(f"{run.config.method.name} seed {run.config.seed}" if self._runs > 1 else "training")
        self._bar.reset(self._current, description=self._description, total=None, facts="")
        kept = run.kept.event_columns if run.kept is not None and self._is_screen else None
        self._tally, self._total, self._folder = Tally.begin(run.workers, kept), run.total, run.folder

    def event(self, row: dict[str, Any]) -> None:
        """A row of the trace: a report, or a worker that comes or goes."""
        self._tally.event(row)
        if row["kind"] == "report":
            self._report(row["reports"], self._total, row["loss"])

    def finished(self, run: Run) -> None:
        """The run is over."""
        self._done_runs += 1
        self._bar.update(self._overall, completed=self._done_runs)

    def _report(self, done: int, total: int, loss: float) -> None:
        self._loss = loss if math.isnan(self._loss) else 0.9 * self._loss + 0.1 * loss
        now = time.monotonic()
        if self._first is None:
            self._first, self._next_line = (now, done, self._tally.samples), now + LINE_SECONDS
        if not self._is_screen and now >= self._next_line and done < total:
            self._next_line = now + LINE_SECONDS
            self._print(now, done, total)
        if now < self._next_update and done < total:
            return
        self._next_update = now + REFRESH_SECONDS
        self._bar.update(self._current, completed=done, total=total, facts=self._facts(now))
        self._bar.update(self._overall, completed=self._done_runs + done / total)

    def evaluation(self, row: dict[str, Any]) -> None:
        """An evaluation has come in."""
        one = headline(read_measured(self._folder), row)
        self._evaluated = f"  {one.label} {one.text(row[one.column])}"

    def _facts(self, now: float) -> str:
        facts = f"loss {self._loss:.3g}{self._evaluated}"
        if self._first is not None and now > self._first[0] and self._tally.samples > self._first[2]:
            facts += f"  {(self._tally.samples - self._first[2]) / (now - self._first[0]):,.0f} samples/s"
        return facts

    def _print(self, now: float, done: int, total: int) -> None:
        assert self._first is not None
        begun, before, _ = self._first
        left = (now - begun) / max(1, done - before) * (total - done)
        clock = f"{int(left) // 60}:{int(left) % 60:02d}"
        facts = self._facts(now)
        self._line(f"{self._description}: {done / total:.0%}, {done:,} of {total:,} reports, {clock} left, {facts}")

    def _screen(self) -> RenderableType:
        parts: list[RenderableType] = [self._bar]
        if self._tally.workers:
            parts += ["", self._tally.table(self._console.height - FRAME_LINES), "", self._tally.histogram()]
        return Group(*parts)


def warn(text: str) -> None:
    """A line that a person should see; above the bar where there is one."""
    print(f"orlomo: warning: {text}", file=sys.stderr)
