"""A run's tables as they can be shown: numbers where numbers belong, without the lines that are damaged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.schedule import KINDS
from orlomo.errors import RunFolderError
from orlomo.records.columns import Columns
from orlomo.records.run import EVENT_NAMES, METRIC_NAMES, Run

TABLES = {
    "events": (EVENT_NAMES, ("worker", "iteration", "delay", "group", "eta", "start", "finish", "compute", "behind")),
    "metrics": (METRIC_NAMES, ("reports", "samples", "epoch", "virtual_seconds")),
}
"""The columns of each table, and those in which a line must have a number to be shown."""

DISPENSABLE = ("loss", "learning_rate", "weight", "local_steps", "test_loss", "params_checksum")
"""Columns without which all the rest can be shown."""

WORDS = ("kind", "params_checksum")
"""Columns that are no numbers."""

WHOLE = ("iteration", "worker", "round", "index", "delay", "group", "behind", "local_steps", "reports", "samples")
"""Columns of whole numbers, zero or more."""

LARGEST = 2.0**53
"""Up to which a float holds every whole number."""


def table_of(run: Run, table: str, name: str, notes: list[str]) -> tuple[Columns, int]:
    """The `events` or `metrics` of a run and how many of its lines are damaged; an empty one where there is none.

    What is missing is noted under the run's name.
    """
    path, (names, needed) = run.folder / f"{table}.csv", TABLES[table]
    empty = {column: np.zeros(0) for column in names}
    try:
        lines = path.read_bytes().count(b"\n") - 1 if path.is_file() else 0  # before reading: it may grow
        found = run.event_columns if table == "events" else run.metric_columns
    except RunFolderError as error:
        notes.append(f"{name}: {error}.")
        return empty, 0
    if missing := [column for column in names if column not in found and column not in DISPENSABLE]:
        notes.append(f"{name}: {path.name} has no {', '.join(missing)}.")
        return empty, lines
    if run.is_cut_off(table):
        notes.append(f"{name}: {path.name} ends in the middle of a line, which is left out.")
    rows = len(found[names[0]])
    columns = {column: _typed(found.get(column, np.full(rows, np.nan)), column) for column in names}
    whole = np.ones(rows, dtype=bool)
    if table == "events":
        whole = np.logical_or.reduce([columns["kind"] == kind for kind in KINDS])
    for column in needed:
        applies = columns["kind"] == "report" if table == "events" and column != "worker" else whole
        good = columns[column] >= 0 if column in WHOLE else np.abs(columns[column]) < LARGEST
        whole = whole & (~applies | good)
    damaged = max(lines, rows) - int(whole.sum())
    if damaged:
        notes.append(f"{name}: {damaged} damaged line{'s' * (damaged > 1)} of {path.name} left out.")
    return only(columns, whole), damaged


def only(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    """These rows."""
    return {name: column[chosen] for name, column in columns.items()}


def _typed(column: NDArray[Any], name: str) -> NDArray[Any]:
    """What is no number becomes NaN, or -1 among whole numbers."""
    if name in WORDS:
        return column
    if column.dtype == object:
        column = np.array([_number(text) for text in column.tolist()], dtype=np.float64)
    if name in WHOLE and column.dtype != np.int64:
        known = np.where(np.abs(column) < LARGEST, column, -1.0)  # not NaN either
        column = np.where(known % 1 == 0, known, -1.0).astype(np.int64)
    return column


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
