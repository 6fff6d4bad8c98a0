"""A run in a few numbers, and what tables of numbers are written with."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

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
        values = {name: value for name, value in vars(self).items() if name not in ("measured", "metrics")}
        return without_nan({**values, **self.metrics})

    @property
    def results(self) -> list[str]:
        """For display: one value per metric."""
        values = [(one, self.metrics[one.column]) for one in first_of_each(self.measured)]
        return [f"{one.label} {one.text(value)}" for one, value in values if not math.isnan(value)]

    def line(self) -> str:
        """For display: one value per metric."""
        parts = self.results
        parts += [f"{self.clock} {self.seconds:.1f}"] if self.clock.startswith("virtual") else []
        parts += [f"mean delay {self.mean_delay:.1f}", f"max delay {self.max_delay}"]
        return f"{self.method} on {self.task}: {', '.join(parts)}, real time {self.real_seconds:.1f} s"


def summarise(run: Run) -> Summary:
    """The last evaluation of a run and its delays."""
    metrics, events = run.metric_columns, run.some_events("kind", "delay", "finish")
    delays = events["delay"][events["kind"] == "report"]
    checkpoint = run.checkpoint

    # The user's own loop may have no evaluation: then what the trace and the checkpoint say.
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


def mean(values: list[float]) -> float:
    """NaN of none."""
    return float(np.mean(values)) if values else math.nan


def spread(values: list[float]) -> float:
    """The sample standard deviation; NaN of fewer than two."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = ()) -> str:
    """A table in Markdown; the columns named in `words` are aligned left, the others, of numbers, right.

    >>> print(markdown(["method", "loss"], [["orlomo", "0.1"]], words=["method"]), end="")
    | method | loss |
    |---|---:|
    | orlomo | 0.1 |
    """
    rule = "|" + "".join("---|" if heading in words else "---:|" for heading in headings)
    drawn = ["| " + " | ".join(map(markdown_cell, row)) + " |" for row in (headings, *rows)]
    return "\n".join([drawn[0], rule, *drawn[1:]]) + "\n"


def markdown_cell(text: str) -> str:
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
