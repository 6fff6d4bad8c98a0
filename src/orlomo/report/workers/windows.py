"""The rounds of a stretch of time, read from the middle of a large events.csv."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from orlomo.errors import RunFolderError
from orlomo.files import open_to_read
from orlomo.records.tables import ROUNDS
from orlomo.report.streaming.rounds import Rounds
from orlomo.report.workers.timeline import round_columns

MOST_LINES = 40_000
"""Lines that are read for one stretch."""

NEAR = 2**16
"""Bytes that are read line by line."""

LONGEST = 2**12
"""Bytes of a line."""


def rounds_between(path: Path, begin: float, end: float, workers: Sequence[int]) -> dict[str, Any] | None:
    """The rounds of these workers, which are sorted, that end between these moments, and those soon after, as
    `timeline.strips` gives them; None where they are too many.

    Events are in their order in time, so that the first one is found by halving.
    """
    try:
        with open_to_read(path) as file:
            names = file.readline(LONGEST).decode("utf-8", "replace").rstrip("\n").split(",")
            places = [names.index(name) for name in ("kind", "worker", "start", "finish", "compute")]
            found = _rows(file, places, begin, 2 * end - begin)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot read {path}: {error}") from None
    if found is None:
        return None
    known, last = set(workers), dict[int, float]()
    columns: list[list[float]] = [[], [], [], [], []]
    for kind, worker, start, finish, compute in found:
        if worker not in known:
            continue
        before = last.get(worker, start)
        last[worker] = finish
        if kind in ROUNDS:
            start = min(max(start, before), finish)
            row = (worker, min(before, start), start, min(compute, finish - start), finish)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    order = np.argsort(np.array(columns[0], dtype=np.int64), kind="stable")
    numbers = [np.array(column, dtype=float)[order] for column in columns[1:]]
    every = Rounds(np.array(columns[0], dtype=np.int64)[order], *numbers)
    return round_columns(every, np.array(workers, dtype=np.int64))


def _rows(
    file: BinaryIO, places: list[int], begin: float, until: float
) -> list[tuple[str, int, float, float, float]] | None:
    """The events from the first that ends at `begin` or later to the first that ends after `until`."""
    low = file.tell()
    high = file.seek(0, 2)
    while high - low > NEAR:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline(LONGEST)  # the rest of a line
        time = math.nan
        while math.isnan(time) and file.tell() < high:
            row = _parsed(file.readline(LONGEST), places)
            time = row[3] if row is not None else math.nan
        low, high = (middle, high) if time < begin else (low, middle)
    file.seek(low)
    if low:
        file.readline(LONGEST)
    found: list[tuple[str, int, float, float, float]] = []
    while line := file.readline(LONGEST):
        row = _parsed(line, places)
        if row is None or not row[3] >= begin:
            continue
        if row[3] > until:
            break
        if len(found) == MOST_LINES:
            return None
        found.append(row)
    return found


def _parsed(line: bytes, places: list[int]) -> tuple[str, int, float, float, float] | None:
    """Kind, worker, start, finish, compute; None for a damaged line. Of an event that is no round, the first and the
    last are not known."""
    fields = line.decode("utf-8", "replace").rstrip("\n").split(",")
    try:
        kind, worker, *times = (fields[place] for place in places)
        start, finish, compute = (float(time) if time else math.nan for time in times)
        whole = kind not in ROUNDS or not (math.isnan(start) or math.isnan(compute))
        return (kind, int(worker), start, finish, compute) if whole and abs(finish) < math.inf else None
    except (IndexError, ValueError):
        return None
