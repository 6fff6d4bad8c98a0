"""Progress over many runs: how many are done, how long the rest will take, and the runs at work."""

from __future__ import annotations

import math
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from orlomo.reproduce.plan import Cell

REFRESH_SECONDS = 0.2


class CellProgress:
    """One line for the whole, one for each run at work, on standard error; a line a finished run where that is no
    terminal. Time left is by the local steps still to do, at the pace of this sitting."""

    def __init__(self, quiet: bool = False):
        self._console = Console(stderr=True, quiet=quiet)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[facts]}"),
            console=self._console,
            expand=True,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._whole = self._bars.add_task("all runs", total=None, facts="")
        self._lines: dict[Cell, TaskID] = {}
        self._accuracy: dict[Cell, float] = {}
        self._steps: dict[Cell, float] = {}  # done in this sitting
        self._first: dict[Cell, float] = {}  # share that was done before it
        self._next_update = 0.0

    def __enter__(self) -> CellProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begin(self, cells: list[Cell], waiting: list[Cell]) -> None:
        """These are all the runs, and those still to do."""
        self._all, self._left = len(cells), len(waiting)
        self._todo = sum(cell.steps for cell in waiting)
        self._started = time.monotonic()
        self._console.print(f"{self._all} runs: {self._all - self._left} done, {self._left} to do", highlight=False)

    def report(self, cell: Cell, done: int, total: int, loss: float) -> None:
        """A run has folded one more report in."""
        if cell not in self._lines:
            self._first[cell] = (done - 1) / total
            self._todo -= int(self._first[cell] * cell.steps)
            name = f"{cell.row.name} {cell.method} seed {cell.seed}"
            self._lines[cell] = self._bars.add_task(name, total=1.0, facts="")
        self._steps[cell] = (done / total - self._first[cell]) * cell.steps
        now = time.monotonic()
        if now < self._next_update:
            return
        self._next_update = now + REFRESH_SECONDS
        accuracy = self._accuracy.get(cell, math.nan)
        facts = f"loss {loss:.3g}" + ("" if math.isnan(accuracy) else f" accuracy {accuracy:.1%}")
        self._bars.update(self._lines[cell], completed=done / total, facts=facts)
        steps = sum(self._steps.values())
        facts = f"{self._all - self._left} of {self._all} done, {self.time_left()} left"
        self._bars.update(self._whole, completed=steps, total=max(self._todo, 1), facts=facts)

    def evaluation(self, cell: Cell, accuracy: float) -> None:
        """A run has been evaluated."""
        self._accuracy[cell] = accuracy

    def done(self, cell: Cell) -> None:
        """A run is over."""
        self._left -= 1
        if cell in self._lines:
            self._steps[cell] = (1 - self._first[cell]) * cell.steps
            self._bars.remove_task(self._lines.pop(cell))
        else:
            self._steps[cell] = cell.steps
        accuracy = self._accuracy.get(cell, math.nan)
        outcome = "" if math.isnan(accuracy) else f": {accuracy:.2%}"
        left = f", about {self.time_left()} left" if self._left else ""
        line = f"[{self._all - self._left}/{self._all}] {cell.row.name} {cell.method} seed {cell.seed}{outcome}{left}"
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def time_left(self) -> str:
        """For a person."""
        steps = sum(self._steps.values())
        if not steps:
            return "?"
        return duration((time.monotonic() - self._started) * max(0.0, self._todo - steps) / steps)


def duration(seconds: float) -> str:
    """A time for a person.

    >>> duration(5), duration(100), duration(10_000)
    ('5 s', '2 min', '2 h 47 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
