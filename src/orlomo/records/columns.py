"""Tables as CSV files: appended line by line, read back as columns by name.

Floats are written with all their digits, so a file read back holds the same bits.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orlomo.errors import RunFolderError

Columns = dict[str, NDArray[Any]]

MANY = 1000
"""Rows beyond which a table is read in a faster way."""


class TableWriter:
    """Appends rows to a CSV file; what lies beyond `keep_bytes` (written after the last checkpoint) is cut off.

    Rows wait in memory for a flush; those that a full disk does not take wait for a later one.
    """

    def __init__(self, path: Path, names: Iterable[str], keep_bytes: int | None = None):
        self._names = list(names)
        self._file = path.open("r+b" if keep_bytes is not None and path.exists() else "w+b", buffering=0)
        self._waiting = bytearray()
        self._file.truncate(keep_bytes or 0)
        self._file.seek(0, os.SEEK_END)
        if not keep_bytes:
            self._waiting += (",".join(self._names) + "\n").encode()

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row; a missing value is an empty field."""
        self._waiting += (",".join(_text(row.get(name)) for name in self._names) + "\n").encode()

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


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if value != value else repr(value)
    return str(value)


def read_columns(path: Path) -> Columns:
    """The columns of a CSV file; a last line that was cut off is left out.

    Whole numbers become int64, numbers float64 (an empty field is NaN), anything else text.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None
    header, end, body = content[: content.rfind(b"\n") + 1].decode("utf-8", "replace").partition("\n")
    if not end:
        raise RunFolderError(f"{path} is empty: not even its header was written")
    names = header.split(",")
    if body.count("\n") > MANY:
        with contextlib.suppress(ValueError):
            return _read_many(names, body)
    try:
        return _read(names, body.splitlines())
    except (OverflowError, csv.Error) as error:
        raise RunFolderError(f"{path} is damaged: {error}") from None


def is_cut_off(path: Path) -> bool:
    """Whether the file ends in the middle of a line."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read() not in (b"", b"\n")


def frame(columns: Columns) -> Any:
    """A pandas frame of copies where pandas is installed, else the columns themselves."""
    try:
        import pandas
    except ImportError:
        return columns
    return pandas.DataFrame(columns)


def _read(names: list[str], lines: list[str]) -> Columns:
    rows = [row for row in csv.reader(lines) if len(row) == len(names)]
    return {name: _typed([row[place] for row in rows]) for place, name in enumerate(names)}


def _read_many(names: list[str], body: str) -> Columns:
    """Several times faster: what columns hold is guessed from the first rows. A ValueError if that was wrong."""
    first = _read(names, body[:100_000].splitlines()[:-1])
    kinds = [(name, column.dtype) for name, column in first.items()]
    filled = body.replace(",,", ",nan,").replace(",,", ",nan,").replace(",\n", ",nan\n")
    rows = np.loadtxt(io.StringIO(filled), dtype=kinds, delimiter=",", comments=None)
    columns = {name: np.ascontiguousarray(rows[name]) for name in names}
    for column in columns.values():
        if column.dtype == object:
            column[column == "nan"] = ""
    return columns


def _typed(values: list[str]) -> NDArray[Any]:
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except ValueError:
        pass
    try:
        return np.array([float(value) if value else np.nan for value in values], dtype=np.float64)
    except ValueError:
        return np.array(values, dtype=object)
