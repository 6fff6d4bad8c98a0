"""What the workers have done so far, kept as reports come in: for a screen that shows a run while it goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from orlomo.records.tables import ROUNDS, Columns

SHOWN = ("kind", "worker", "delay", "start", "finish", "compute", "samples", "reports", "loss")
"""Of a row of the trace, what is shown."""

BLOCKS = " ▁▂▃▄▅▆▇█"
COLUMNS = 40
"""Width of the delay histogram."""


@dataclass
class Worker:
    """One worker: its rounds, how late it was last, and where its time went."""

    state: str = "at work"
    rounds: int = 0
    delay: int = 0
    computing: float = 0.0
    waiting: float = 0.0
    transfer: float = 0.0
    finish: float | None = None  # of its last round

    def share(self, seconds: float) -> str:
        """Of its time so far."""
        total = self.computing + self.waiting + self.transfer
        return f"{seconds / total:.0%}" if total > 0 else "-"


@dataclass
class Tally:
    """All workers of a run, and how often there was which delay."""

    workers: dict[int, Worker] = field(default_factory=dict)
    delays: Counter[int] = field(default_factory=Counter)
    samples: int = 0

    @classmethod
    def begin(cls, workers: int, kept: Columns | None) -> Tally:
        """With a line for each worker, and what a resumed run has kept."""
        tally = cls({worker: Worker() for worker in range(workers)})
        kept = kept or {}
        names = [name for name in SHOWN if name in kept]
        for values in zip(*(kept[name].tolist() for name in names), strict=True):
            tally.event(dict(zip(names, values, strict=True)))
        return tally

    def event(self, row: dict[str, Any]) -> None:
        """One row of the trace (see `Callback.event`)."""
        worker = self.workers.setdefault(row["worker"], Worker())
        if row["kind"] not in ROUNDS:
            worker.state = {"crash": "lost", "leave": "left"}.get(row["kind"], "at work")
            worker.finish = None
            return
        worker.rounds += 1
        worker.delay = row["delay"]
        before = row["start"] if worker.finish is None else worker.finish  # as in timeline.py
        begin = max(row["start"], before)
        computed = min(row["compute"], row["finish"] - begin)
        worker.computing += computed
        worker.transfer += row["finish"] - begin - computed
        worker.waiting += begin - before
        worker.finish = row["finish"]
        self.delays[row["delay"]] += 1
        self.samples = row.get("samples", 0)

    def table(self, lines: int) -> Table:
        """A line a worker; of more than fit, those that are gone and those that were latest."""
        drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("worker", "", "rounds", "last delay", "computing", "waiting", "transfer"):
            drawn.add_column(name, justify="left" if name in ("worker", "") else "right")
        everybody = list(self.workers.items())
        chosen = everybody
        if len(everybody) > lines:
            ranked = sorted(everybody, key=lambda pair: (pair[1].state == "at work", -pair[1].delay))
            chosen = ranked[: max(1, lines - 1)]
        for number, one in sorted(chosen):
            shares = (one.share(one.computing), one.share(one.waiting), one.share(one.transfer))
            style = "" if one.state == "at work" else "red"
            drawn.add_row(str(number), Text(one.state, style), str(one.rounds), str(one.delay), *shares)
        if len(chosen) < len(everybody):
            drawn.add_row("...", f"and {len(everybody) - len(chosen)} more")
        return drawn

    def histogram(self) -> Text:
        """The delays so far, in one line."""
        delays = dict(self.delays)  # another thread adds to it
        if not delays:
            return Text("")
        largest = max(delays)
        width = -(-(largest + 1) // COLUMNS)
        counts = [0] * (largest // width + 1)
        for delay, count in delays.items():
            counts[delay // width] += count
        top = max(counts)
        bars = "".join(BLOCKS[-(-count * (len(BLOCKS) - 1) // top)] for count in counts)
        return Text.assemble(("delays  0 ", "dim"), bars, (f" {largest}", "dim"))
