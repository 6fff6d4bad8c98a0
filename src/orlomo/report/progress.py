"""Progress for a person at a terminal: a bar with time left, loss and accuracy. Silent where there is no terminal."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

REFRESH_SECONDS = 0.1


class TerminalProgress:
    """A progress bar on standard error; use it as a context manager.

    With `runs`, several runs follow one another under one bar: call `begin` for each.
    """

    def __init__(self, quiet: bool = False, runs: int = 1):
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True)),
            TextColumn("left"),
            TextColumn("{task.fields[facts]}"),
            console=console,
            expand=True,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._runs = runs
        self._done_runs = 0
        self._overall = self._bar.add_task("all runs", total=runs, facts="", visible=runs > 1)
        self._current = self._bar.add_task("training", total=None, facts="")
        self._loss = math.nan
        self._accuracy = math.nan
        self._next_update = 0.0

    def __enter__(self) -> TerminalProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, description: str) -> None:
        """The next run starts."""
        self._loss = self._accuracy = math.nan
        self._bar.reset(self._current, description=description, total=None, facts="")

    def end(self) -> None:
        """The run is over."""
        self._done_runs += 1
        self._bar.update(self._overall, completed=self._done_runs)

    def report(self, done: int, total: int, loss: float) -> None:
        """One more report has been folded in."""
        self._loss = loss if math.isnan(self._loss) else 0.9 * self._loss + 0.1 * loss
        now = time.monotonic()
        if now < self._next_update and done < total:
            return
        self._next_update = now + REFRESH_SECONDS
        facts = f"loss {self._loss:.3g}"
        if not math.isnan(self._accuracy):
            facts += f" accuracy {self._accuracy:.1%}"
        self._bar.update(self._current, completed=done, total=total, facts=facts)
        self._bar.update(self._overall, completed=self._done_runs + done / total)

    def evaluation(self, row: dict[str, Any]) -> None:
        """An evaluation has come in."""
        self._accuracy = row["test_accuracy"]


def warn(text: str) -> None:
    """A line that a person should see; above the bar where there is one."""
    print(f"orlomo: warning: {text}", file=sys.stderr)
