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
from rich.text import Text

from orlomo.engines.callbacks import Callback, RunHandle
from orlomo.printing import printable
from orlomo.records.run import Run
from orlomo.records.tables import MetricColumn, Row, headline
from orlomo.report.terminal.layout import GAP, Glyphs, flow, glyphs, tell, wrapped
from orlomo.report.terminal.output import ErrorConsole, output
from orlomo.report.terminal.progress import RunProgress
from orlomo.report.terminal.totals import RECORDED
from orlomo.report.terminal.workers import drawn_delays, drawn_workers

LINE_SECONDS = (5.0, 60.0)
"""Between lines where there is no terminal: at first, and at most once a run has taken long."""

LINE_SHARE = 0.1
"""A tenth of the time so far: a log of a run of hours has no thousand lines."""

REFRESH_SECONDS = 0.1
"""Between updates of the numbers."""

FEWEST_COLUMNS = 60
"""Of a bar that shares its line with its name and the time left."""

MANY = 200
"""Workers, above which it takes long to draw them."""

WIDEST = 120
"""Columns that are used: longer bars say no more."""

LONGEST_NAME = 36


class ProgressDisplay:
    """Shows runs on standard error; use it as a context manager. With `quiet` it shows nothing.

    On a screen: one bar for all runs where there are several, one for each run at work, and the workers and delays of
    the first of these. `console`: where it is drawn, in place of standard error.
    """

    def __init__(self, quiet: bool = False, runs: int = 1, console: Console | None = None):
        self._output = None if quiet or console is not None else output()
        # Not `is_terminal` alone: FORCE_COLOR makes rich take the log of a build for a terminal.
        real = console is not None or (sys.stderr is not None and sys.stderr.isatty())
        if console is None:
            console = Console(stderr=True, quiet=quiet) if self._output is None else ErrorConsole(self._output.terminal)
        self._console = console
        self._is_screen = not quiet and real and self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None
        self._at_work: list[RunProgress] = []
        self._steps = self._samples = 0.0  # of this process, in runs that are over
        self._first_report: float | None = None
        self._next_update, self._next_line = 0.0, math.inf
        self._left, self._pace = "", ""
        self._drawn: tuple[float, tuple[RunProgress, int, int] | None, list[Text]] = (0.0, None, [])
        self._runs, self._over, self._several = runs, 0, runs > 1
        self._steps_waiting = float(runs)  # of runs that have not begun: each counts the same, unless `begin` says more

    def __enter__(self) -> Self:
        if self._is_screen:
            if self._output is not None:
                self._output.divert(self._printed)
            self._live = Live(
                get_renderable=self.screen,
                console=self._console,
                transient=True,
                refresh_per_second=5,
                redirect_stdout=self._output is None,
                redirect_stderr=self._output is None,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            if self._output is not None:
                self._output.restore()  # the last lines, above the screen
            self._live.stop()

    def begin(self, runs: int, over: int, steps: float) -> None:
        """Announce how many runs there are and how many of them are over; `steps` are the local steps of the others."""
        self._runs, self._over, self._several, self._steps_waiting = runs, over, True, steps
        self._line(f"{runs} runs: {over} done, {runs - over} to do")

    def add(self, name: str, steps: float = 1.0) -> RunProgress:
        """One more run at work; `steps` are its local steps."""
        run = RunProgress(self, name, steps)
        self._steps_waiting -= steps
        self._at_work.append(run)
        return run

    def update(self, run: RunProgress) -> None:
        """A run has one more report: show it, but not more often than a reader can follow."""
        now, ends = time.monotonic(), run.reports >= run.total
        if self._first_report is None:  # the pace is counted from here: loading and compiling would distort it
            self._first_report, self._next_line = now, now + LINE_SECONDS[0]
        prints = not self._is_screen and now >= self._next_line and not ends
        if now < self._next_update and not ends and not prints:
            return
        self._next_update = now + REFRESH_SECONDS
        self._left, self._pace = self._time_left(now)
        if prints:
            soonest, latest = LINE_SECONDS
            self._next_line = now + min(latest, max(soonest, LINE_SHARE * (now - self._first_report)))
            parts = [f"{run.name}: {run.share:.0%}", run.counted]
            if self._several:
                whole = [f"{self._over} of {self._runs} runs done", self._left, f"{self._pace}; {parts[0]}"]
                parts = [*whole, *run.facts, *run.clock]
            else:
                parts = [*parts, self._left, *run.facts, *run.clock, self._pace]
            self._line(", ".join(parts))

    def finish(self, run: RunProgress, announce: bool) -> None:
        """A run is over."""
        steps, samples = run.done
        self._steps, self._samples, self._over = self._steps + steps, self._samples + samples, self._over + 1
        self._at_work.remove(run)
        if announce:
            outcome = f": {run.evaluated}" if run.evaluated else ""
            left = f", {self._time_left(time.monotonic())[0]}" if self._over < self._runs else ""
            self._line(f"[{self._over}/{self._runs}] {run.name}{outcome}{left}")

    def _steps_done(self) -> float:
        return self._steps + sum(run.done[0] for run in list(self._at_work))

    def _steps_left(self) -> float:
        return max(0.0, self._steps_waiting) + sum(run.steps_left for run in list(self._at_work))

    def _time_left(self, now: float) -> tuple[str, str]:
        """Time left, by the local steps still to do, and samples per second: both at the pace of this process."""
        seconds, steps = now - (now if self._first_report is None else self._first_report), self._steps_done()
        samples = self._samples + sum(run.done[1] for run in self._at_work)
        left = duration(seconds * self._steps_left() / steps) if steps and seconds else "?"
        return f"{left} left", f"{samples / seconds if seconds else 0:,.0f} samples/s"

    def _printed(self, line: str) -> None:
        """A line that this process or another has printed; our own are broken between words."""
        texts = wrapped(line, self._console.width) if line.startswith("orlomo: ") else [line]
        for text in texts:
            self._console.print(Text.from_ansi(text), highlight=False, soft_wrap=True)

    def _line(self, text: str) -> None:
        """Print a line as it is, above the screen where there is one."""
        self._console.print(Text(printable(text)), highlight=False, soft_wrap=True)

    def screen(self) -> RenderableType:
        """What is on the screen; drawn a few times a second, by a thread of its own."""
        width, height = min(self._console.width, WIDEST), self._console.height - 1
        shapes = glyphs(self._console.encoding)
        runs = list(self._at_work)  # a copy: the other thread adds and removes runs
        size = min(LONGEST_NAME, max((len(run.name) for run in runs), default=0))
        lines: list[Text] = []
        if self._several:
            steps = self._steps_done()
            share = steps / max(steps + self._steps_left(), 1e-9)
            size = max(size, len("all runs"))
            lines += _bar("all runs", size, share, self._left, width, shapes)
            lines += _facts([f"{self._over} of {self._runs} done", self._pace], width)
        # Of many runs at once only the bars, so that all of them are seen.
        brief = self._several and len(lines) + 4 * len(runs) > height
        for run in runs:
            left = "" if self._several else self._left if run.reports else "starting"
            lines += _bar(run.name, size, run.share, left, width, shapes)
            if not brief:
                pace = [] if self._several or not run.reports else [self._pace]
                lines += _facts([run.counted, *run.clock, *pace], width) + _facts(run.facts, width)
        if runs and runs[0].totals.workers and not brief:
            lines += self._workers(runs[0], len(runs) > 1, width, height - len(lines), shapes)
        return Group(*lines[:height])

    def _workers(self, run: RunProgress, several: bool, width: int, lines: int, shapes: Glyphs) -> list[Text]:
        """The workers and delays of a run in so many lines; of many workers, drawn once a second."""
        now, wanted = time.monotonic(), (run, width, lines)
        if len(run.totals.workers) > MANY and self._drawn[0] > now and self._drawn[1] == wanted:
            return self._drawn[2]
        delays = drawn_delays(run.totals.delays, width, shapes)
        title = [Text(f"workers of {run.name}", "dim")] if several else []
        workers = drawn_workers(run.totals, width, lines - len(delays) - len(title) - 2, shapes)
        found = [Text(), *title, *workers, *([Text(), *delays] if delays else [])]
        self._drawn = now + 1.0, wanted, found
        return found


def _bar(name: str, size: int, share: float, left: str, width: int, shapes: Glyphs) -> list[Text]:
    """A bar with its name before it and the time left behind it; where there is little room, below them."""
    title = f"{_cut(name, size):<{size}}"
    end = f"{share:4.0%}{GAP}{left:<{len('2 h 47 min left')}}"
    one_line = width >= FEWEST_COLUMNS
    cells = max(0, width - len(title) - len(end) - 2 * len(GAP) if one_line else width)
    done = round(cells * share)
    bar = Text(shapes.done * done, "cyan").append(shapes.left * (cells - done), "dim")
    if one_line:
        return [Text.assemble((title, "bold"), GAP, bar, GAP, end, no_wrap=True, overflow="ellipsis")]
    room = max(8, width - len(end.rstrip()) - len(GAP))
    return [Text.assemble((_cut(name, room), "bold"), GAP, end.strip(), no_wrap=True, overflow="ellipsis"), bar]


def _cut(name: str, size: int) -> str:
    return name if len(name) <= size else f"{name[: max(1, size - 3)]}..."


def _facts(facts: Sequence[str], width: int) -> list[Text]:
    return [Text(line, no_wrap=True, overflow="ellipsis") for line in flow(facts, width)]


class TerminalProgress(ProgressDisplay, Callback):
    """Shows the run that it is a callback of; with `runs`, several that follow one another."""

    watches_only = True  # so that the simulator computes on during evaluations

    run: RunProgress
    _measured: tuple[MetricColumn, ...]

    def started(self, run: RunHandle) -> None:
        """The next run begins, or continues. What it has kept is read for a screen only: it may be large."""
        config, kept = run.config, run.kept.some_events(*RECORDED) if run.kept and self._is_screen else None
        method = config.method.name
        name = f"{method} seed {config.seed}" if self._several else f"{method} on {_short(config.task)}"
        self.run, self._measured = self.add(name), run.measured
        self.run.begin(run.workers, run.total, kept, config.method.synchronous, config.clock == "virtual")

    def event(self, row: Row) -> None:
        """A row of the trace: a report, or a worker that comes or goes."""
        self.run.event(row)

    def evaluation(self, row: Row) -> None:
        """An evaluation is done."""
        self.run.evaluation(evaluation_text(self._measured, row))

    def finished(self, run: Run) -> None:
        """The run is over."""
        self.run.finish()


def _short(task: str) -> str:
    """A task's name for display: of `/some/where/mine.py:task` the file and the name in it."""
    return task.rpartition("/")[2]


def evaluation_text(measured: Sequence[MetricColumn], row: Row) -> str:
    """The most important metric of an evaluation, for display."""
    one = headline(measured, row)
    return f"{one.label} {one.text(row[one.column])}"


def warn(text: str) -> None:
    """Print a warning; above the bars where there are any."""
    tell(f"orlomo: warning: {text}", sys.stderr)


def duration(seconds: float) -> str:
    """A time for display.

    >>> duration(5), duration(100), duration(10_000)
    ('5 s', '2 min', '2 h 47 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
