"""One run on a display: what is known of it while it is under way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from orlomo.printing import printable
from orlomo.records.tables import Columns, Row
from orlomo.report.terminal.totals import Totals

if TYPE_CHECKING:
    from orlomo.report.terminal.screen import ProgressDisplay


class RunProgress:
    """One run on a display, from `ProgressDisplay.add`. `steps`: how much it counts in the time left of all runs."""

    def __init__(self, display: ProgressDisplay, name: str, steps: float):
        self.name, self.steps = printable(name), steps
        self.totals = Totals()
        self.reports, self.total = 0, 0
        self.evaluated = ""
        self.is_virtual = False
        self.first: tuple[int, int] | None = None  # reports and samples at the first report of this process
        self._display = display
        self._loss = math.nan

    def begin(
        self, workers: int, total: int, kept: Columns | None, synchronous: bool = False, virtual: bool = True
    ) -> None:
        """The run begins, or continues with what it has kept of its trace; `total` reports are planned.

        `virtual`: its clock; else its workers must be started.
        """
        self.totals = Totals.begin(workers, kept, synchronous=synchronous, starting=not virtual)
        self.total, self.is_virtual = total, virtual

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
    def share(self) -> float:
        """Of the planned reports, those that are in."""
        return min(1.0, self.reports / self.total) if self.total else 0.0

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
    def counted(self) -> str:
        """The reports so far."""
        return f"{self.reports:,} of {self.total:,} reports" if self.total else f"{self.reports:,} reports"

    @property
    def facts(self) -> list[str]:
        """The loss, smoothed, and the newest evaluation."""
        loss = "" if math.isnan(self._loss) else f"loss {self._loss:.3g}"  # the user's own loop reports none
        return [part for part in (loss, self.evaluated) if part]

    @property
    def clock(self) -> list[str]:
        """The time so far where the clock is virtual."""
        return [f"{self.totals.seconds:,.0f} virtual s"] if self.is_virtual and self.reports else []
