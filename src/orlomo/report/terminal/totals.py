"""What the workers of a run have done so far: running totals, added up as events come in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from orlomo.records.tables import EVENTS, ROUNDS, Columns, Row

SHOWN = ("kind", "worker", "delay", "start", "finish", "compute", "samples", "reports", "loss")
"""What a display reads of an event (see `Callback.event`)."""

RECORDED = tuple(name for name in SHOWN if name in EVENTS)
"""Those that are columns of events.csv."""

AT_ONCE = 10_000
"""Rows of what a resumed run has kept that are looked at together."""

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII_BLOCKS = " .:-=+*#@"
"""From none to the most: for any terminal, and for one that has only ASCII."""

COLUMNS = 40
"""Width of the delay histogram."""


@dataclass
class WorkerTotals:
    """One worker: its rounds, its last delay, and how it spent its time."""

    state: str = "at work"
    rounds: int = 0
    delay: int = 0
    computing: float = 0.0
    waiting: float = 0.0
    transfer: float = 0.0
    finish: float | None = None  # of its last round

    def share(self, seconds: float) -> str:
        """These seconds as a share of the worker's time so far."""
        total = self.computing + self.waiting + self.transfer
        return f"{seconds / total:.0%}" if total > 0 else "-"


@dataclass
class Totals:
    """The running totals of all workers of a run, and how often each delay occurred."""

    workers: dict[int, WorkerTotals] = field(default_factory=dict)
    delays: Counter[int] = field(default_factory=Counter)
    samples: int = 0

    @classmethod
    def begin(cls, workers: int, kept: Columns | None) -> Totals:
        """One row per worker, and the events that a resumed run has kept."""
        totals = cls({worker: WorkerTotals() for worker in range(workers)})
        kept = kept or {}
        names = [name for name in SHOWN if name in kept]
        # Not all rows at once: as Python's numbers they would need several times the memory.
        for begin in range(0, len(kept["kind"]) if names else 0, AT_ONCE):
            for values in zip(*(kept[name][begin : begin + AT_ONCE].tolist() for name in names), strict=True):
                totals.event(dict(zip(names, values, strict=True)))
        return totals

    def event(self, row: Row) -> None:
        """Add one row of the trace (see `Callback.event`)."""
        worker = self.workers.setdefault(row["worker"], WorkerTotals())
        if row["kind"] not in ROUNDS:
            worker.state = {"crash": "lost", "leave": "left"}.get(row["kind"], "at work")
            worker.finish = None
            return
        worker.rounds += 1
        worker.delay = row["delay"]
        # The same rule as in timeline.py: what is neither computing nor waiting for an assignment is transfer. Real
        # clocks overlap a little, so a round begins at the end of the one before at the earliest.
        before = row["start"] if worker.finish is None else worker.finish
        begin = max(row["start"], before)
        computed = min(row["compute"], row["finish"] - begin)
        worker.computing += computed
        worker.transfer += row["finish"] - begin - computed
        worker.waiting += begin - before
        worker.finish = row["finish"]
        self.delays[row["delay"]] += 1
        self.samples = row.get("samples", 0)

    def table(self, lines: int) -> Table:
        """One row per worker; where not all fit, the workers that are gone and those with the largest delays."""
        drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("worker", "", "rounds", "last delay", "computing", "waiting", "transfer"):
            drawn.add_column(name, justify="left" if name in ("worker", "") else "right")
        workers = list(self.workers.items())  # a copy: the display's thread draws while the run adds workers
        chosen = workers
        if len(workers) > lines:
            ranked = sorted(workers, key=lambda pair: (pair[1].state == "at work", -pair[1].delay))
            chosen = ranked[: max(1, lines - 1)]
        for number, one in sorted(chosen, key=lambda pair: pair[0]):
            shares = (one.share(one.computing), one.share(one.waiting), one.share(one.transfer))
            style = "" if one.state == "at work" else "red"
            drawn.add_row(str(number), Text(one.state, style), str(one.rounds), str(one.delay), *shares)
        if len(chosen) < len(workers):
            drawn.add_row("...", f"and {len(workers) - len(chosen)} more")
        return drawn

    def histogram(self, blocks: str = BLOCKS) -> Text:
        """The delays so far, in one line."""
        delays = dict(self.delays)  # a copy, as above
        if not delays:
            return Text("")
        largest = max(delays)
        width = -(-(largest + 1) // COLUMNS)
        counts = [0] * (largest // width + 1)
        for delay, count in delays.items():
            counts[delay // width] += count
        top = max(counts)
        bars = "".join(blocks[-(-count * (len(blocks) - 1) // top)] for count in counts)
        return Text.assemble(("delays  0 ", "dim"), bars, (f" {largest}", "dim"))
