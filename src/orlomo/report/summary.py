"""A run in a few numbers, and runs of one method over several seeds in one row of a table."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from orlomo.records.run import Run


@dataclass(frozen=True)
class Summary:
    """The end of a run. NaN where there is nothing to say."""

    folder: str
    task: str
    method: str
    seed: int
    finished: bool
    reports: int
    epochs: float
    test_accuracy: float
    train_loss: float
    virtual_seconds: float
    real_seconds: float
    mean_delay: float
    max_delay: int
    params_checksum: str

    def to_json(self) -> dict[str, Any]:
        """Plain values; NaN becomes None."""
        return without_nan(asdict(self))


def summarise(run: Run) -> Summary:
    """The last evaluation of a run and its delays."""
    metrics, events = run.metric_columns, run.event_columns
    delays = events["delay"][events["kind"] == "report"] if len(events["kind"]) else np.zeros(0)
    checkpoint = run.checkpoint

    def last(name: str) -> Any:
        return metrics[name][-1].item() if len(metrics["iteration"]) else math.nan

    return Summary(
        folder=str(run.folder),
        task=run.config.task,
        method=run.config.method.name,
        seed=run.config.seed,
        finished=run.finished,
        reports=len(delays),
        epochs=float(last("epoch")),
        test_accuracy=float(last("test_accuracy")),
        train_loss=float(last("train_loss")),
        virtual_seconds=float(last("virtual_seconds")),
        real_seconds=float(last("real_seconds")),
        mean_delay=float(delays.mean()) if len(delays) else math.nan,
        max_delay=int(delays.max()) if len(delays) else 0,
        params_checksum=checkpoint.values["params_checksum"] if checkpoint else "",
    )


@dataclass(frozen=True)
class Row:
    """One method over its seeds: means, and the spread (sample standard deviation) of the accuracy."""

    method: str
    runs: int
    diverged: int
    accuracy: float
    accuracy_spread: float
    train_loss: float
    virtual_seconds: float
    speed_up: float
    mean_delay: float
    max_delay: int


def rows(results: dict[str, list[Summary | None]], reference: str | None) -> list[Row]:
    """A row a method; None stands for a run that diverged.

    A speed-up is a ratio of epochs per virtual second: a synchronous run ends on a full barrier, and so may take a
    few more samples than an asynchronous one.
    """
    base = _pace(results[reference]) if reference else math.nan
    table = []
    for name, summaries in results.items():
        done = [summary for summary in summaries if summary is not None]
        accuracies = [summary.test_accuracy for summary in done]
        table.append(
            Row(
                method=name,
                runs=len(summaries),
                diverged=len(summaries) - len(done),
                accuracy=_mean(summaries, "test_accuracy"),
                accuracy_spread=float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else math.nan,
                train_loss=_mean(summaries, "train_loss"),
                virtual_seconds=_mean(summaries, "virtual_seconds"),
                speed_up=_pace(summaries) / base,
                mean_delay=_mean(summaries, "mean_delay"),
                max_delay=max((summary.max_delay for summary in done), default=0),
            )
        )
    return table


def _pace(summaries: list[Summary | None]) -> float:
    return _mean(summaries, "epochs") / _mean(summaries, "virtual_seconds")


def _mean(summaries: list[Summary | None], name: str) -> float:
    values = [getattr(summary, name) for summary in summaries if summary is not None]
    return float(np.mean(values)) if values else math.nan


HEADINGS = ("method", "test accuracy", "loss", "time", "speed-up", "mean delay", "max delay")

CAPTION = "time: {kind}, to the end of the run; speed-up: {kind} time for the same number of samples"


def cells(row: Row) -> tuple[str, ...]:
    """A row as text, one cell a heading."""
    accuracy = _text(row.accuracy, ".2%")
    if not math.isnan(row.accuracy_spread):
        accuracy += f" ± {100 * row.accuracy_spread:.2f}"
    if row.diverged:
        accuracy = f"{row.diverged} of {row.runs} diverged" + (f"; {accuracy}" if row.diverged < row.runs else "")
    return (
        row.method,
        accuracy,
        _text(row.train_loss, ".4f"),
        _text(row.virtual_seconds, ".0f"),
        _text(row.speed_up, ".2f", "x"),
        _text(row.mean_delay, ".1f"),
        "-" if row.diverged == row.runs else str(row.max_delay),
    )


def terminal_table(table: list[Row], title: str, kind: str = "virtual") -> Table:
    """The table for a terminal; `kind` of time."""
    drawn = Table(
        title=title,
        caption=CAPTION.format(kind=kind),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for heading in HEADINGS:
        drawn.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for row in table:
        drawn.add_row(*cells(row))
    return drawn


def markdown_table(table: list[Row]) -> str:
    """The table for a document."""
    return markdown(HEADINGS, map(cells, table), words=("method",))


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = ()) -> str:
    """A table in Markdown; the columns named in `words` stand to the left, those of numbers to the right.

    >>> print(markdown(["method", "loss"], [["orlomo", "0.1"]], words=["method"]), end="")
    | method | loss |
    |---|---:|
    | orlomo | 0.1 |
    """
    rule = "|" + "".join("---|" if heading in words else "---:|" for heading in headings)
    drawn = ["| " + " | ".join(row) + " |" for row in (headings, *rows)]
    return "\n".join([drawn[0], rule, *drawn[1:]]) + "\n"


def write_rows(path: Path, rows: Sequence[Any]) -> None:
    """Dataclasses of one kind as a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(columns_of(rows[0])))
        writer.writeheader()
        writer.writerows(columns_of(row) for row in rows)


def columns_of(row: Any) -> dict[str, Any]:
    """A dataclass's fields and properties."""
    properties = [name for name, value in vars(type(row)).items() if isinstance(value, property)]
    return {**asdict(row), **{name: getattr(row, name) for name in properties}}


def without_nan(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: None instead."""
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}


def _text(value: float, form: str, unit: str = "") -> str:
    return "-" if math.isnan(value) else format(value, form) + unit
