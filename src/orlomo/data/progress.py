"""Progress while data is fetched, verified and stored. Silent where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from orlomo.printing import printable

Advance = Callable[[int], None]
Advancing = AbstractContextManager[Advance]


class DataProgress:
    """Bars on standard error, one at a time."""

    def __init__(self, quiet: bool = False):
        self._console = Console(stderr=True)
        self._quiet = quiet or not self._console.is_terminal

    def bytes(self, description: str, total: int | None, done: int = 0) -> Advancing:
        """A bar with size, speed and time left; None as the total where it is not known."""
        return self._bar(description, total, done, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())

    def images(self, description: str, total: int) -> Advancing:
        """A bar with numbers and time left."""
        return self._bar(description, total, 0, MofNCompleteColumn(), TimeRemainingColumn())

    @contextmanager
    def waiting(self, description: str) -> Iterator[None]:
        """Something whose progress cannot be seen."""
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True, disable=self._quiet) as bar:
            bar.add_task(printable(description), total=None)
            yield

    @contextmanager
    def _bar(self, description: str, total: int | None, done: int, *columns: ProgressColumn) -> Iterator[Advance]:
        first = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=None))
        with Progress(*first, *columns, console=self._console, expand=True, transient=True, disable=self._quiet) as bar:
            task = bar.add_task(printable(description), total=total, completed=done)
            yield lambda amount: bar.advance(task, amount)
