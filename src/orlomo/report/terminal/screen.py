"""Progress of runs on standard error: one screen at a terminal, a line every few seconds elsewhere.

`ProgressDisplay` shows any number of runs at once; `TerminalProgress` is the callback that shows one after another.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.text import Text

from orlomo.engines.callbacks import Callback, RunHandle
from orlomo.printing import printable, say
from orlomo.records.run import Run
from orlomo.records.tables import Columns, MetricColumn, Row, headline
from orlomo.report.terminal.totals import ASCII_BLOCKS, BLOCKS, RECORDED, Totals

LINE_SECONDS = 5.0
"""Between lines where there is no terminal."""

REFRESH_SECONDS = 0.1
"""Between updates of the numbers."""

FRAME_LINES = 6
"""Lines of the screen that are neither bars nor workers."""


class RunProgress:
    """One run on a display, from `ProgressDisplay.add`. `steps`: how much it counts in the time left of all runs."""

    def __init__(self, display: ProgressDisplay, name: str, steps: float):
        self.name, self.steps = printable(name), steps
        self.totals = Totals()
        self.reports, self.total = 0, 0
        self.evaluated = ""
        self.first: tuple[int, int] | None = None  # reports and samples at the first report of this process
        self._display = display
        self._loss = math.nan

    def begin(self, workers: int, total: int, kept: Columns | None) -> None:
        """The run begins, or continues with what it has kept of its trace; `total` reports are planned."""
        self.totals, self.total = Totals.begin(workers, kept), total

    def event(self, row: Row) -> None:
        """A row of the trace."""
        self.totals.event(row)
        if row["kind"] != "report":
            return
        self.reports = row["reports"]
        # Smoothed: the losses of single reports vary too much to be read.
        self._loss = row["loss"] if math.isnan(self._loss) else 0.9 * self._loss + 0.1 * row["loss"]
        if self.first is None:
            self.first = (self.reports, self.totals.samples)
        self._display.update(self)

    def evaluation(self, text: str) -> None:
        """The newest evaluation, for display."""
        self.evaluated = printable(text)

    def finish(self, announce: bool = False) -> None:
        """The run is over. `announce`: print a line that says so."""
        self._display.finish(self, announce)

    @property
    def steps_left(self) -> float:
        """Local steps still to do."""
        return self.steps * (1 - self.reports / self.total) if self.total else self.steps

    @property
    def done(self) -> tuple[float, int]:
        """Local steps and samples of this process: what a resumed run did before says nothing of the present pace."""
        if self.first is None:
            return 0.0, 0
        return self.steps * (self.reports - self.first[0]) / self.total, self.totals.samples - self.first[1]

    @property
    def facts(self) -> str:
        """The loss, smoothed, and the newest evaluation."""
        loss = "" if math.isnan(self._loss) else f"loss {self._loss:.3g}"  # a loop of the user's own reports none
        return "  ".join(part for part in (loss, self.evaluated) if part)


class ProgressDisplay:
    """Shows runs on standard error; use it as a context manager. With `quiet` it shows nothing.

    On a screen: one bar for all runs where there are several, one for each run at work, and the workers and delays of
    the first of these.
    """

    def __init__(self, quiet: bool = False, runs: int = 1):
        self._console = Console(stderr=True, quiet=quiet)
        self._is_screen = not quiet and self._console.is_terminal
        self._live: Live | None = None
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[facts]}", markup=False),
            console=self._console,
            expand=True,
        )
        self._all = self._bars.add_task("training", total=None, facts="")
        self._at_work: dict[RunProgress, TaskID] = {}
        self._steps = self._samples = 0.0  # of this process, in runs that are over
        self._first_report: float | None = None
        self._next_update, self._next_line = 0.0, math.inf
        self._runs, self._over, self._several = runs, 0, runs > 1
        self._steps_waiting = float(runs)  # of runs that have not begun: each counts the same, unless `begin` says more

    def __enter__(self) -> Self:
        if self._is_screen:
            self._live = Live(get_renderable=self._screen, console=self._console, transient=True, refresh_per_second=5)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, runs: int, over: int, steps: float) -> None:
        """Announce how many runs there are and how many of them are over; `steps` are the local steps of the others."""
        self._runs, self._over, self._several, self._steps_waiting = runs, over, True, steps
        self._line(f"{runs} runs: {over} done, {runs - over} to do")

    def add(self, name: str, steps: float = 1.0) -> RunProgress:
        """One more run at work; `steps` are its local steps."""
        run = RunProgress(self, name, steps)
        self._steps_waiting -= steps
        self._bars.update(self._all, description="all runs", visible=self._several)
        self._at_work[run] = self._bars.add_task(run.name, total=None, facts="")
        return run

    def update(self, run: RunProgress) -> None:
        """A run has one more report: show it, but not more often than a reader can follow."""
        now, ends = time.monotonic(), run.reports >= run.total
        if self._first_report is None:  # the pace is counted from here: loading and compiling would distort it
            self._first_report, self._next_line = now, now + LINE_SECONDS
        prints = not self._is_screen and now >= self._next_line and not ends
        if now < self._next_update and not ends and not prints:
            return
        self._next_update = now + REFRESH_SECONDS
        share, (left, pace) = run.reports / run.total, self._time_left(now)
        facts = run.facts if self._several else f"{left}  {run.facts}  {pace}"
        self._bars.update(self._at_work[run], completed=share, total=1.0, facts=facts)
        whole = f"{self._over} of {self._runs} done, {left}, {pace}"
        steps = self._steps_done()
        self._bars.update(self._all, completed=steps, total=max(steps + self._steps_left(), 1e-9), facts=whole)
        if prints:
            self._next_line = now + LINE_SECONDS
            reports = f"{run.name}: {share:.0%}, {run.reports:,} of {run.total:,} reports"
            parts = (whole + "; " + reports, run.facts) if self._several else (reports, left, run.facts, pace)
            self._line(", ".join(part for part in parts if part))

    def finish(self, run: RunProgress, announce: bool) -> None:
        """A run is over."""
        steps, samples = run.done
        self._steps, self._samples, self._over = self._steps + steps, self._samples + samples, self._over + 1
        self._bars.remove_task(self._at_work.pop(run))
        if announce:
            outcome = f": {run.evaluated}" if run.evaluated else ""
            left = f", {self._time_left(time.monotonic())[0]}" if self._over < self._runs else ""
            self._line(f"[{self._over}/{self._runs}] {run.name}{outcome}{left}")

    def _steps_done(self) -> float:
        return self._steps + sum(run.done[0] for run in self._at_work)

    def _steps_left(self) -> float:
        return max(0.0, self._steps_waiting) + sum(run.steps_left for run in self._at_work)

    def _time_left(self, now: float) -> tuple[str, str]:
        """Time left, by the local steps still to do, and samples per second: both at the pace of this process."""
        seconds, steps = now - (now if self._first_report is None else self._first_report), self._steps_done()
        samples = self._samples + sum(run.done[1] for run in self._at_work)
        left = duration(seconds * self._steps_left() / steps) if steps and seconds else "?"
        return f"{left} left", f"{samples / seconds if seconds else 0:,.0f} samples/s"

    def _line(self, text: str) -> None:
        """Print a line as it is, above the screen where there is one."""
        self._console.print(Text(printable(text)), highlight=False, soft_wrap=True)

    def _screen(self) -> RenderableType:
        """What is on the screen; drawn a few times a second, by a thread of its own."""
        runs = list(self._at_work)  # a copy: the other thread adds and removes runs
        parts: list[RenderableType] = [self._bars]
        if runs and runs[0].totals.workers:
            name = [Text(runs[0].name, "dim")] if self._several else []
            lines = self._console.height - FRAME_LINES - len(runs) - 2 * len(name)
            parts += [
                "",
                *name,
                runs[0].totals.table(lines),
                "",
                runs[0].totals.histogram(BLOCKS if self._console.encoding.startswith("utf") else ASCII_BLOCKS),
            ]
        return Group(*parts)


class TerminalProgress(ProgressDisplay, Callback):
    """Shows the run that it is a callback of; with `runs`, several that follow one another."""

    watches_only = True  # so that the simulator computes on during evaluations

    run: RunProgress
    _measured: tuple[MetricColumn, ...]

    def started(self, run: RunHandle) -> None:
        """The next run begins, or continues. What it has kept is read for a screen only: it may be large."""
        name = f"{run.config.method.name} seed {run.config.seed}" if self._several else "training"
        self.run, self._measured = self.add(name), run.measured
        self.run.begin(
            run.workers, run.total, run.kept.some_events(*RECORDED) if run.kept and self._is_screen else None
        )

    def event(self, row: Row) -> None:
        """A row of the trace: a report, or a worker that comes or goes."""
        self.run.event(row)

    def evaluation(self, row: Row) -> None:
        """An evaluation is done."""
        self.run.evaluation(evaluation_text(self._measured, row))

    def finished(self, run: Run) -> None:
        """The run is over."""
        self.run.finish()


def evaluation_text(measured: Sequence[MetricColumn], row: Row) -> str:
    """The most important metric of an evaluation, for display."""
    one = headline(measured, row)
    return f"{one.label} {one.text(row[one.column])}"


def warn(text: str) -> None:
    """Print a warning; above the bars where there are any."""
    say(f"orlomo: warning: {text}", sys.stderr)


def duration(seconds: float) -> str:
    """A time for display.

    >>> duration(5), duration(100), duration(10_000)
    ('5 s', '2 min', '2 h 47 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
