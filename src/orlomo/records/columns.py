"""Tables as CSV files: appended line by line, read back as columns by name.

Floats are written with all their digits, so a file read back holds the same bits.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orlomo.errors import RunFolderError

Columns = dict[str, NDArray[Any]]


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
        text = path.read_text()
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None
    complete = text[: text.rfind("\n") + 1]
    rows = list(csv.reader(complete.splitlines()))
    if not rows:
        raise RunFolderError(f"{path} is empty: not even its header was written")
    names, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    return {name: _typed([row[place] for row in body]) for place, name in enumerate(names)}


def _typed(values: list[str]) -> NDArray[Any]:
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except ValueError:
        pass
    try:
        return np.array([float(value) if value else np.nan for value in values], dtype=np.float64)
    except ValueError:
        return np.array(values, dtype=object)
