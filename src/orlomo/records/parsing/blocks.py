"""A CSV file in blocks of whole lines, of which only the columns that are asked for are read.

Lines end with a newline, fields with a comma; nothing is quoted. A last line without its newline was cut off and is
left out; so are lines with too many or too few fields, empty ones, and those longer than `LONGEST`.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from orlomo.errors import RunFolderError
from orlomo.files import open_to_read
from orlomo.records.parsing.fields import PADDING, WORD, Bytes, Positions, floats, keys, wholes

S = TypeVar("S")
T = TypeVar("T")

Column = NDArray[Any]

BLOCK = 2**21
"""Bytes that are read at once: smaller ones take more calls, larger ones more memory."""

LONGEST = 2**20
"""Bytes of a line."""

THREADS = min(4, os.cpu_count() or 1)

COMMA, POINT, NEWLINE = (np.uint8(ord(character)) for character in ",.\n")
SEARCHED = 2**14
"""Bytes at the end of a block in which the end of its last line is searched for first."""

UNWRITTEN = "is empty: not even its header was written"


class Block:
    """Whole lines of a table. `lines`: how many, also of those that are left out; `rows`: of those that are not."""

    def __init__(self, text: Bytes, stop: int, names: Sequence[str], schema: Mapping[str, str]):
        self._text, self._schema = text, schema
        self._numbers = {name: number for number, name in enumerate(names)}
        self._ends: dict[int, Positions] = {}
        marked = text[PADDING - 1 : stop]  # from the newline before the first line to the last one
        mask = marked == NEWLINE
        self.lines = int(np.count_nonzero(mask)) - 1
        mask |= marked == COMMA
        mask |= marked == POINT
        self._marks = np.flatnonzero(mask)
        kinds = marked[self._marks]
        self._marks += PADDING - 1
        # One row per line: where the line before ends, and where each field ends; as positions in `_marks`.
        self._table = _regular(np.flatnonzero(kinds != POINT), kinds, self._marks, len(names), self.lines)
        self.rows = self._table.shape[1]

    def column(self, name: str, rows: Positions | None = None) -> Column:
        """A column by its declared type; of these rows."""
        kind = self._schema.get(name, "s")
        begin, point, end = self._fields(name, rows, kind == "d")
        if kind == "q":
            return wholes(self._text, begin, end)
        return floats(self._text, begin, point, end) if kind == "d" else self._words(begin, end)

    def keys(self, name: str) -> NDArray[np.uint64]:
        """A column of words of up to eight characters, as numbers (see `fields.key`)."""
        begin, _, end = self._fields(name, None, points=False)
        return keys(self._text, begin, end)

    def _fields(self, name: str, rows: Positions | None, points: bool) -> tuple[Positions, Positions, Positions]:
        """Where fields begin, where they have their only point (else, and without `points`, their end), and end."""
        number = self._numbers[name]
        before, last = self._table[number], self._table[number + 1]
        if rows is None:
            begin, end = self._end(number) + 1, self._end(number + 1)
        else:
            before, last = before[rows], last[rows]
            begin, end = self._marks[before] + 1, self._marks[last]
        return begin, np.where(last - before == 2, self._marks[last - 1], end) if points else end, end

    def _end(self, number: int) -> Positions:
        """Where the fields of a column end; kept, because those of the next one begin there."""
        if number not in self._ends:
            self._ends[number] = self._marks[self._table[number]]
        return self._ends[number]

    def _words(self, begin: Positions, end: Positions) -> NDArray[np.object_]:
        if (end - begin <= WORD).all() and self._text.all():  # few different words, and none with a zero byte
            words, which = np.unique(keys(self._text, begin, end), return_inverse=True)
            texts = [int(word).to_bytes(WORD, "little").rstrip(b"\0") for word in words.tolist()]
            return np.array([text.decode("utf-8", "replace") for text in texts] or [""], dtype=object)[which]
        content = self._text.tobytes()
        pairs = zip(begin.tolist(), end.tolist(), strict=True)
        found = np.empty(len(begin), dtype=object)
        found[:] = [content[first:last].decode("utf-8", "replace") for first, last in pairs]
        return found


class Table:
    """A CSV file that is being read, by its declared types: q a whole number, d a number, s text.

    `names`: of its columns. `position`: bytes up to the end of the last whole line that was read; where reading
    continues with what was added since. `cut_off`: whether something comes after that. `saw` is called with all that
    is read.
    """

    def __init__(
        self,
        path: Path,
        schema: Mapping[str, str],
        *,
        saw: Callable[[memoryview], object] | None = None,
        block: int = 0,
    ):
        self.path, self.schema = path, schema
        self._saw, self._block = saw, block or BLOCK
        with self._open() as file:
            header = file.readline(LONGEST)
        if not header.endswith(b"\n"):
            raise RunFolderError(
                f"{path} {UNWRITTEN}"
                if len(header) < LONGEST
                else f"{path} is damaged: its first line is longer than {LONGEST:,} bytes"
            )
        self.names = header[:-1].decode("utf-8", "replace").split(",")
        self.position, self.cut_off = len(header), False
        self._seen = self.position
        if saw is not None:
            saw(memoryview(header))

    def read(self, work: Callable[[Block], T]) -> Iterator[T]:
        """What `work` makes of each block, in order, from where reading ended before; on several threads."""
        return in_order(self._texts(), lambda text: work(Block(*text, self.names, self.schema)))

    def _open(self) -> BinaryIO:
        try:
            return open_to_read(self.path)
        except OSError as error:
            raise RunFolderError(f"cannot read {self.path}: {error.strerror}") from None

    def _texts(self) -> Iterator[tuple[Bytes, int]]:
        """Whole lines, between padding, and where they end."""
        with self._open() as file:
            file.seek(self.position)
            rest, dropped = np.zeros(0, dtype=np.uint8), 0  # of a line whose end is not read yet
            while True:
                begin = PADDING + len(rest)
                text = np.empty(begin + self._block + PADDING, dtype=np.uint8)
                text[:PADDING] = NEWLINE
                text[PADDING:begin] = rest
                stop = begin + self._fill(file, text[begin : begin + self._block])
                if stop == begin:
                    break
                text[stop:] = NEWLINE
                end = begin + _after_last_newline(text[begin:stop])
                if end == begin:
                    # A line that is too long is left out: of what it has beyond that, nothing is kept.
                    rest = text[PADDING:stop][: LONGEST + 1]
                    dropped += stop - PADDING - len(rest)
                    continue
                self.position += end - PADDING + dropped
                rest, dropped = text[end:stop].copy(), 0
                yield text, end
            self.cut_off = len(rest) > 0

    def _fill(self, file: BinaryIO, space: Bytes) -> int:
        """Read into this space; how many bytes there were."""
        try:
            place, count = file.tell(), file.readinto(space.data)  # type: ignore[attr-defined]
        except OSError as error:
            raise RunFolderError(f"cannot read {self.path}: {error.strerror}") from None
        new = max(0, place + count - self._seen)
        if self._saw is not None and new:  # the beginning of a last line is read again once its end is there
            self._saw(space[count - new : count].data)
        self._seen += new
        return int(count)


def _regular(ends: Positions, kinds: Bytes, marks: Positions, fields: int, lines: int) -> Positions:
    """Of the lines that have so many fields, are not empty and not too long: where they and their fields end."""
    if len(ends) == fields * lines + 1 and fields > 1 and (kinds[ends[::fields]] == NEWLINE).all():
        good = np.diff(marks[ends[::fields]]) <= LONGEST
        if good.all():
            return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(ends, fields + 1)[::fields].T)
    newlines = np.flatnonzero(kinds[ends] == NEWLINE)
    lengths = np.diff(marks[ends[newlines]])
    good = (np.diff(newlines) == fields) & (lengths > 1) & (lengths <= LONGEST)
    chosen: Positions = ends[newlines[:-1][good] + np.arange(fields + 1)[:, None]]
    return chosen


def in_order(items: Iterable[S], work: Callable[[S], T]) -> Iterator[T]:
    """What `work` makes of each item, in the order of the items; several threads are at work at a time."""
    source = iter(items)
    first = list(itertools.islice(source, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(THREADS, "orlomo-tables") as pool:
        for item in itertools.chain(first, source):
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _after_last_newline(text: Bytes) -> int:
    """The position after the last newline; 0 where there is none."""
    near = max(0, len(text) - SEARCHED)
    found = text[near:].tobytes().rfind(b"\n")
    if found < 0 and near:
        return text[:near].tobytes().rfind(b"\n") + 1
    return near + found + 1 if found >= 0 else 0
