"""A run in a few numbers, and runs of one method over several seeds in one row of a table."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from orlomo.printing import printable
from orlomo.records.run import Run
from orlomo.records.tables import MetricColumn, first_of_each

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class Summary:
    """The end of a run; NaN: not known.

    `metrics` are those of the last evaluation, by column; `seconds` are of the run's own clock.
    """

    folder: str
    task: str
    method: str
    seed: int
    finished: bool
    reports: int
    epochs: float
    measured: tuple[MetricColumn, ...]
    metrics: dict[str, float]
    clock: str
    seconds: float
    real_seconds: float
    mean_delay: float
    max_delay: int
    params_checksum: str

    def to_json(self) -> dict[str, object]:
        """Plain values; NaN becomes None."""
        return without_nan(_flat(self))

    def line(self) -> str:
        """For display: one value per metric."""
        values = [(one, self.metrics[one.column]) for one in first_of_each(self.measured)]
        parts = [f"{one.label} {one.text(value)}" for one, value in values if not math.isnan(value)]
        parts += [f"{self.clock} {self.seconds:.1f}"] if self.clock.startswith("virtual") else []
        parts += [f"mean delay {self.mean_delay:.1f}", f"max delay {self.max_delay}"]
        return f"{self.method} on {self.task}: {', '.join(parts)}, real time {self.real_seconds:.1f} s"


def summarise(run: Run) -> Summary:
    """The last evaluation of a run and its delays."""
    metrics, events = run.metric_columns, run.some_events("kind", "delay", "finish")
    delays = events["delay"][events["kind"] == "report"]
    checkpoint = run.checkpoint

    # A loop of the user's own may have no evaluation: then what the trace and the checkpoint say.
    otherwise = {"seconds": float(events["finish"][-1]) if len(events["finish"]) else math.nan}
    if checkpoint is not None:
        otherwise["real_seconds"] = float(checkpoint.values.get("real_seconds", math.nan))

    def last(name: str) -> float:
        return float(metrics[name][-1]) if len(metrics["iteration"]) else otherwise.get(name, math.nan)

    return Summary(
        folder=str(run.folder),
        task=run.config.task,
        method=run.config.method.name,
        seed=run.config.seed,
        finished=run.finished,
        reports=len(delays),
        epochs=last("epoch"),
        measured=run.measured,
        metrics={one.column: last(one.column) for one in run.measured},
        clock=run.clock,
        seconds=last("seconds"),
        real_seconds=last("real_seconds"),
        mean_delay=float(delays.mean()) if len(delays) else math.nan,
        max_delay=int(delays.max()) if len(delays) else 0,
        params_checksum=checkpoint.values.get("params_checksum", "") if checkpoint else "",
    )


@dataclass(frozen=True)
class Row:
    """One method over its seeds: means, and for metrics the spread (sample standard deviation), by column."""

    method: str
    runs: int
    diverged: int
    measured: tuple[MetricColumn, ...]
    metrics: dict[str, float]
    spreads: dict[str, float]
    seconds: float
    speed_up: float
    mean_delay: float
    max_delay: int

    def values(self) -> dict[str, object]:
        """One value per column of a file."""
        return _flat(self)


def _flat(row: Summary | Row) -> dict[str, object]:
    """A dataclass's fields, with one entry per metric and per spread."""
    found: dict[str, object] = {}
    for name, value in vars(row).items():
        if name == "metrics":
            found |= value
        elif name == "spreads":
            found |= {f"{column}_spread": spread for column, spread in value.items()}
        elif name != "measured":
            found[name] = value
    return found


def rows(results: dict[str, list[Summary | None]], reference: str | None) -> list[Row]:
    """One row per method; None stands for a run that diverged.

    A speed-up is a ratio of epochs per second of the runs' clock, not of total times: a synchronous run ends on a full
    barrier, and so may take a few more samples than an asynchronous one.
    """
    finished = {name: [one for one in summaries if one is not None] for name, summaries in results.items()}
    measured = next((one.measured for done in finished.values() for one in done), ())
    base = _pace(finished[reference]) if reference else math.nan
    table = []
    for name, done in finished.items():
        values = {one.column: [summary.metrics[one.column] for summary in done] for one in measured}
        table.append(
            Row(
                method=name,
                runs=len(results[name]),
                diverged=len(results[name]) - len(done),
                measured=measured,
                metrics={column: mean(own) for column, own in values.items()},
                spreads={column: spread(own) for column, own in values.items()},
                seconds=mean([summary.seconds for summary in done]),
                speed_up=_pace(done) / base,
                mean_delay=mean([summary.mean_delay for summary in done]),
                max_delay=max((summary.max_delay for summary in done), default=0),
            )
        )
    return table


def _pace(done: list[Summary]) -> float:
    # All epochs over all seconds; in a mean of ratios a short run would count as much as a long one.
    return mean([one.epochs for one in done]) / mean([one.seconds for one in done])


def mean(values: list[float]) -> float:
    """NaN of none."""
    return float(np.mean(values)) if values else math.nan


def spread(values: list[float]) -> float:
    """The sample standard deviation; NaN of fewer than two."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


CAPTION = "time: {kind}, to the end of the run; speed-up: {kind} time for the same number of samples"


def shown_metrics(table: list[Row]) -> list[MetricColumn]:
    """One column per metric that has values."""
    every = first_of_each(table[0].measured)
    return [one for one in every if not all(math.isnan(row.metrics[one.column]) for row in table)]


def headings(table: list[Row]) -> tuple[str, ...]:
    """The headings of the table's columns."""
    labels = [one.label for one in shown_metrics(table)]
    return ("method", *(labels or ["result"]), "time", "speed-up", "mean delay", "max delay")


def cells(row: Row, shown: list[MetricColumn]) -> tuple[str, ...]:
    """A row as text, one cell per heading."""
    metrics = [one.text(row.metrics[one.column]) for one in shown] or ["-"]
    # There is space for one spread: that of the first, the most important metric.
    if shown and not math.isnan(row.spreads[shown[0].column]):
        metrics[0] += f" ± {shown[0].text(row.spreads[shown[0].column]).removesuffix('%')}"
    metrics[0] = with_diverged(metrics[0], row.diverged, row.runs)
    return (
        row.method,
        *metrics,
        number_text(row.seconds, ".0f"),
        number_text(row.speed_up, ".2f", "x"),
        number_text(row.mean_delay, ".1f"),
        "-" if row.diverged == row.runs else str(row.max_delay),
    )


def terminal_table(table: list[Row], title: str, kind: str = "virtual") -> Table:
    """The table for a terminal; `kind` of time."""
    drawn = Table(
        title=Text(printable(title)),
        caption=CAPTION.format(kind=kind),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for heading in headings(table):
        drawn.add_column(Text(printable(heading)), justify="left" if heading == "method" else "right", no_wrap=True)
    for row in table:
        drawn.add_row(*(Text(printable(cell)) for cell in cells(row, shown_metrics(table))))
    return drawn


def markdown_table(table: list[Row]) -> str:
    """The table for a document."""
    shown = shown_metrics(table)
    return markdown(headings(table), [cells(row, shown) for row in table], words=("method",))


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = ()) -> str:
    """A table in Markdown; the columns named in `words` are aligned left, the others, of numbers, right.

    >>> print(markdown(["method", "loss"], [["orlomo", "0.1"]], words=["method"]), end="")
    | method | loss |
    |---|---:|
    | orlomo | 0.1 |
    """
    rule = "|" + "".join("---|" if heading in words else "---:|" for heading in headings)
    drawn = ["| " + " | ".join(map(_cell, row)) + " |" for row in (headings, *rows)]
    return "\n".join([drawn[0], rule, *drawn[1:]]) + "\n"


def _cell(text: str) -> str:
    """A text that neither ends its cell nor is markup."""
    return re.sub(r"[\\|`*<>\[\]]", r"\\\g<0>", printable(text))


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Rows of one kind as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writerow({name: printable(name) for name in rows[0]})
        writer.writerows({k: printable(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows)


def columns_of(row: DataclassInstance) -> dict[str, object]:
    """A dataclass's fields and properties."""
    properties = [name for name, value in vars(type(row)).items() if isinstance(value, property)]
    return {**asdict(row), **{name: getattr(row, name) for name in properties}}


def without_nan(values: Mapping[str, object]) -> dict[str, object]:
    """With None for NaN and infinity, which JSON does not have."""
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}


def with_diverged(text: str, diverged: int, runs: int) -> str:
    """A cell of a table, preceded by how many of its runs diverged, where any did."""
    if not diverged:
        return text
    return f"{diverged} of {runs} diverged" + (f"; {text}" if diverged < runs else "")


def number_text(value: float, form: str, unit: str = "") -> str:
    """A number for display; a dash for NaN."""
    return "-" if math.isnan(value) else format(value, form) + unit
