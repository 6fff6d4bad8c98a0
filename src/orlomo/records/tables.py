"""The tables of a run, events.csv and metrics.csv: their columns, and how they are written and read.

Floats are written with all their digits, so a file read back holds the same bits. Each column has a declared type: q a
whole number, d a number, s text. A field that is not of its column's type is read as missing: -1, NaN or "".
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.schedule import COLUMNS, DROP, KINDS, REPORT
from orlomo.errors import RunFolderError
from orlomo.files import open_to_read, open_to_write
from orlomo.records.digests import Mark, Seal
from orlomo.records.parsing.blocks import Table
from orlomo.records.parsing.fields import LARGEST

Column: TypeAlias = NDArray[Any]
Columns = dict[str, Column]
Schema = Mapping[str, str]

Row: TypeAlias = dict[str, Any]
"""Values by the name of their column: numbers and text."""

EVENTS: Schema = {**COLUMNS, "kind": "s", "loss": "d"}
"""The columns of events.csv: those of a trace, and the loss of a report."""

LOOP_ROUNDS: Schema = {
    "event": "q",  # the position of its report in events.csv
    "worker": "q",
    "round": "q",
    "epoch": "q",  # of its samples; as `first` and `stop` missing where they are not shared out by the server
    "first": "q",
    "stop": "q",
    "steps": "q",  # that the optimizer made
    "batches": "q",
    "samples": "q",
    "clock": "q",  # optimizer steps folded in before the report
    "checksum": "s",  # of the report
    "rank": "q",  # of the worker
    "chief": "q",  # 1 if it was the worker that saves and prints, else 0
    "welcomed": "q",  # events recorded when this process of the worker was welcomed
}
"""The columns of rounds.csv, of users' own loops: one row per report that was folded in, and the samples it used."""

METRICS: Schema = {
    "iteration": "q",
    "reports": "q",
    "samples": "q",
    "epoch": "d",
    "seconds": "d",  # of the run's own clock: virtual in the simulator, real elsewhere
    "real_seconds": "d",
    "learning_rate": "d",
    "params_checksum": "s",
}
"""The columns of metrics.csv that every run has; those of its metrics come after them."""

DISPENSABLE = ("round", "index", "learning_rate", "real_seconds", "loss", "weight", "local_steps")
"""Columns in which a row may lack its number and still be shown; so may those of metrics."""

ROUNDS = (KINDS[REPORT], KINDS[DROP])
"""Kinds of events that are the end of a round; the others say that a worker joined or left."""

DTYPES = {"q": np.int64, "d": np.float64, "s": object}


@dataclass(frozen=True)
class MetricColumn:
    """What a column of metrics.csv holds, for whatever shows it.

    `label` says it in full (test accuracy), `title` without the data (accuracy); `metric` is the metric's name.
    """

    column: str
    label: str
    metric: str
    title: str
    better: str = "higher"
    scale: float = 1.0
    log: bool = False

    def text(self, value: float) -> str:
        """A value for display.

        >>> MetricColumn("test_accuracy", "test accuracy", "accuracy", "accuracy", scale=100.0).text(0.5)
        '50.00%'
        """
        if math.isnan(value):
            return "-"
        return f"{100 * value:.2f}%" if self.scale == 100 else f"{self.scale * value:.4g}"

    @property
    def unit(self) -> str:
        """What follows a label on an axis."""
        return " (%)" if self.scale == 100 else ""


def metrics_schema(measured: Sequence[MetricColumn]) -> Schema:
    """All columns of the metrics.csv of a run that measures these."""
    return {**METRICS, **{one.column: "d" for one in measured}}


def first_of_each(measured: Sequence[MetricColumn]) -> list[MetricColumn]:
    """One column per metric: on the first of its data sets."""
    return list({one.metric: one for one in reversed(measured)}.values())[::-1]


def headline(measured: Sequence[MetricColumn], values: Row | Columns) -> MetricColumn:
    """The metric to show where there is room for one: the first that has values; the training loss has them always."""
    known = [one for one in measured if one.column in values and not np.isnan(values[one.column]).all()]
    return [*known, *measured][0]


class TableWriter:
    """Appends rows to a CSV file; what lies beyond `keep_bytes` (written after the last checkpoint) is cut off.

    Rows wait in memory for a flush; those that a full disk does not take wait for a later one. `history`: the marks of
    what is kept, where they are known: a file that is another is an error.
    """

    def __init__(self, path: Path, names: Iterable[str], keep_bytes: int | None = None, history: Sequence[Mark] = ()):
        self._names = list(names)
        # Unbuffered: what `write` returns is what the disk has taken, and the rest is tried again.
        self._file = open_to_write(path)
        self._waiting = bytearray()
        try:
            self.seal = Seal.of(self._file, keep_bytes or 0, history)
        except RunFolderError as error:
            self._file.close()
            raise RunFolderError(f"{path} cannot be continued: {error}") from None
        self._file.truncate(keep_bytes or 0)
        self._file.seek(0, os.SEEK_END)
        if not keep_bytes:
            self._add(self._names)

    def append(self, row: Mapping[str, object]) -> None:
        """Add one row; a missing value is an empty field."""
        self._add(_text(row.get(name)) for name in self._names)

    def _add(self, fields: Iterable[str]) -> None:
        line = (",".join(fields) + "\n").encode()
        self._waiting += line
        self.seal.add(line)

    def flush(self) -> None:
        """Make the rows visible to readers."""
        while self._waiting:
            del self._waiting[: self._file.write(self._waiting)]

    def sync(self) -> int:
        """Make the rows durable; their size in bytes."""
        self.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Write what waits, and close."""
        try:
            self.flush()
        finally:
            self._file.close()


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if value != value else repr(value)
    return str(value)


def read_table(path: Path, schema: Schema, names: Iterable[str] | None = None) -> Columns:
    """The columns of a CSV file, by their declared types; a last line that was cut off is left out.

    A column that is not declared is text. Lines with too many or too few fields are left out, too (see
    `parsing/blocks.py`, which reads large tables without keeping them). `names`: only these columns. One of these, or
    else of those that are declared, that is not there is an error.
    """
    return read_counted(path, schema, names)[0]


def read_counted(path: Path, schema: Schema, names: Iterable[str] | None = None) -> tuple[Columns, int]:
    """As `read_table`, and the number of lines, also of those that are left out."""
    table = Table(path, schema)
    chosen = list(dict.fromkeys(table.names if names is None else names))
    if missing := [name for name in (schema if names is None else chosen) if name not in table.names]:
        raise RunFolderError(f"{path} has no column {', '.join(missing)}")
    parts: list[Columns] = [empty({name: schema.get(name, "s") for name in chosen})]
    lines = 0
    for part, count in table.read(lambda block: ({name: block.column(name) for name in chosen}, block.lines)):
        parts.append(part)
        lines += count
    # Column by column, so that no more than one of them is in memory twice.
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in chosen}, lines


def is_cut_off(path: Path) -> bool:
    """Whether the file ends in the middle of a line."""
    with open_to_read(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read() not in (b"", b"\n")


def usable(columns: Columns, schema: Schema, kinds: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
    """Which rows can be shown: those of a known kind that have their numbers.

    `kinds` of events: positions in `KINDS`, or -1, in place of the column.
    """
    events = "kind" in schema
    if kinds is not None:
        good, rounds = kinds >= 0, (kinds == REPORT) | (kinds == DROP)
    elif events:
        good, rounds = np.isin(columns["kind"], KINDS), np.isin(columns["kind"], ROUNDS)
    else:
        good = np.ones(len(next(iter(columns.values()))), dtype=bool)
    others = ~rounds if events else ~good
    for name, kind in schema.items():
        if kind == "s" or name in DISPENSABLE or (not events and name not in METRICS):
            continue
        there = columns[name] >= 0 if kind == "q" else np.abs(columns[name]) < LARGEST
        # A worker that comes or goes has no round, and so no number in the other columns.
        good &= there | others if events and name != "worker" else there
    return good


def only(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    """These rows."""
    return {name: column[chosen] for name, column in columns.items()}


def empty(schema: Schema) -> Columns:
    """A table without a row."""
    return {name: np.zeros(0, dtype=DTYPES[kind]) for name, kind in schema.items()}


def frame(columns: Columns) -> Any:
    """A pandas frame of copies where pandas is installed, else the columns themselves."""
    try:
        import pandas
    except ImportError:
        return columns
    return pandas.DataFrame(columns)
