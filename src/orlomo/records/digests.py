"""Digests of files, and of tables that grow."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from orlomo.errors import RunFolderError
from orlomo.files import is_file, open_to_read

MARKS = 16
"""Beginnings of a table that are sealed, at most."""

CHUNK = 1 << 20
"""Bytes that are read at a time."""

TAIL = 4096
"""Bytes by which it is known that a file has only grown."""


def sha256_of(path: Path) -> str:
    """Of a whole file."""
    with open_to_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The sha256 of those of these files that are there."""
    return {name: sha256_of(folder / name) for name in names if is_file(folder / name)}


class Mark(NamedTuple):
    """The beginning of a table: its header and so many rows, its size, and its sha256."""

    rows: int
    bytes: int
    sha256: str


class Seal:
    """The sha256 of what a table holds: of all of it, and of a few beginnings, by which damage is narrowed down."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self.rows, self.bytes = -1, 0  # the header is no row
        self._marks: list[Mark] = []
        self._stride = 1  # rows between marks

    @classmethod
    def of(cls, file: IO[bytes], size: int, history: Sequence[Mark] = ()) -> Seal:
        """Of the first `size` bytes of a file, which must be those of the last mark where there is a history."""
        seal, left = cls(), size
        while left and (piece := file.read(min(left, CHUNK))):
            seal.update(piece)
            seal.rows += piece.count(b"\n")
            left -= len(piece)
        if left or (history and seal._now() != history[-1]):
            raise RunFolderError("it is not what the run wrote")
        seal._stride = history[0].rows if history and history[0].rows else max(1, seal.rows // MARKS)
        seal._marks = [mark for mark in history if mark.rows and mark.rows % seal._stride == 0]
        return seal

    def add(self, line: bytes) -> None:
        """The header, or the next row."""
        self.update(line)
        self.rows += 1
        if self.rows and self.rows % self._stride == 0:
            self._marks.append(self._now())
            if len(self._marks) == MARKS:
                self._marks = self._marks[1::2]
                self._stride *= 2

    def update(self, piece: bytes) -> None:
        """More of the file, whose rows are not counted."""
        self._sha256.update(piece)
        self.bytes += len(piece)

    def copy(self) -> Seal:
        """One to continue from, without its beginnings."""
        other = Seal()
        other._sha256, other.rows, other.bytes = self._sha256.copy(), self.rows, self.bytes
        return other

    @property
    def sha256(self) -> str:
        """Of all so far."""
        return self._sha256.hexdigest()

    def _now(self) -> Mark:
        return Mark(self.rows, self.bytes, self.sha256)

    def history(self) -> list[Mark]:
        """Some beginnings, shortest first; the last is all of it."""
        now = self._now()
        return [*(mark for mark in self._marks if mark.rows < now.rows), now]


def first_difference(path: Path, marks: Iterable[Mark]) -> str | None:
    """The first lines of a table that are not those of its marks, in words; None where all that are there are."""
    return Comparison().first_difference(path, marks)


class Comparison:
    """Compares a table with its marks; of one that has only grown since, only what is new: for who follows a run."""

    def __init__(self) -> None:
        self._seal, self._line = Seal(), 0  # up to the last mark that was right
        self._known: tuple[int, int, bytes] | None = None

    def first_difference(self, path: Path, marks: Iterable[Mark]) -> str | None:
        """As the function of this name."""
        with open_to_read(path) as file:
            if self._identity(file) != self._known:
                self._seal, self._line = Seal(), 0
            try:
                return self._compare(file, marks)
            finally:
                self._known = self._identity(file)

    def _compare(self, file: IO[bytes], marks: Iterable[Mark]) -> str | None:
        seal = self._seal.copy()
        file.seek(seal.bytes)
        for mark in marks:
            left = mark.bytes - seal.bytes
            if left < 0:
                continue  # compared before
            while left and (piece := file.read(min(left, CHUNK))):
                seal.update(piece)
                left -= len(piece)
            if left:
                return None  # it ends here
            end = mark.rows + 1
            if seal.sha256 != mark.sha256:
                return f"line {end}" if self._line + 1 >= end else f"lines {self._line + 1} to {end}"
            self._seal, self._line = seal.copy(), end
        return None

    def _identity(self, file: IO[bytes]) -> tuple[int, int, bytes]:
        """The file, and its last bytes of what was compared: a run that is resumed may cut it off."""
        status, end = os.fstat(file.fileno()), self._seal.bytes
        file.seek(max(0, end - TAIL))
        return status.st_dev, status.st_ino, file.read(min(TAIL, end))


def lines_in(path: Path, begin: int = 0) -> int:
    """Whole lines of a file from this byte on."""
    lines = 0
    with open_to_read(path) as file:
        file.seek(begin)
        while piece := file.read(CHUNK):
            lines += piece.count(b"\n")
    return lines
