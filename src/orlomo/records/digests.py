"""Digests of files, and of tables that grow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from orlomo.errors import RunFolderError
from orlomo.files import is_file, open_to_read

MARKS = 16
"""Beginnings of a table that are sealed, at most."""

CHUNK = 1 << 20
"""Bytes that are read at a time."""


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
    seal, begin = Seal(), 0
    with open_to_read(path) as file:
        for mark in marks:
            left = mark.bytes - seal.bytes
            while left and (piece := file.read(min(left, CHUNK))):
                seal.update(piece)
                left -= len(piece)
            if left:
                return None  # it ends here
            if seal.sha256 != mark.sha256:
                end = mark.rows + 1
                return f"line {end}" if begin + 1 >= end else f"lines {begin + 1} to {end}"
            begin = mark.rows + 1
    return None


def lines_in(path: Path, begin: int = 0) -> int:
    """Whole lines of a file from this byte on."""
    lines = 0
    with open_to_read(path) as file:
        file.seek(begin)
        while piece := file.read(CHUNK):
            lines += piece.count(b"\n")
    return lines
