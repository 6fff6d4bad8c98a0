"""What is printed while a screen is shown, by this process and by those that it starts: it appears above the screen.

All of it goes through one pipe: a thread reads the lines and has the screen show them. Worker processes keep the pipe
as long as they live, so it stays open; while no screen is shown, what comes through it is written as it is.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import sys
import threading
from collections.abc import Callable
from typing import IO

from rich.console import Console, ConsoleDimensions

AT_ONCE = 65536
"""Bytes that are read together."""

PATIENCE_SECONDS = 0.3
"""After which a line without an end is shown: a question, for example."""


class ErrorConsole(Console):
    """The terminal of standard error, also while file descriptor 2 is the pipe."""

    def __init__(self, file: IO[str]):
        super().__init__(file=file)

    def _get_size(self) -> ConsoleDimensions:
        try:
            now = os.get_terminal_size(self.file.fileno())
        except OSError:
            return Console.size.fget(self)  # type: ignore[attr-defined,no-any-return]
        wanted = [os.environ.get(name, "") for name in ("COLUMNS", "LINES")]
        columns, lines = (int(text) if text.isdigit() else size for text, size in zip(wanted, now, strict=True))
        return ConsoleDimensions(columns or 80, lines or 24)

    size = property(_get_size)


class Output:
    """The pipe. There is one for the whole process, made when the first screen is shown: `output`."""

    def __init__(self) -> None:
        self.terminal = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="backslashreplace")
        self._read, self._write = os.pipe()
        self._before: dict[int, int] = {}
        self._show: Callable[[str], None] | None = None
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._part = ""
        self._lock = threading.Lock()
        threading.Thread(target=self._forward, daemon=True).start()

    def divert(self, show: Callable[[str], None]) -> None:
        """From here on, have these lines shown: all that is written to standard error, and to standard output where
        that is a terminal too."""
        self._flush()
        with self._lock:
            self._show = show
        for number in (1, 2):
            if os.isatty(number):
                self._before[number] = os.dup(number)
                os.dup2(self._write, number)

    def restore(self) -> None:
        """What was written so far is shown, and all else as it is."""
        self._flush()
        for number, before in self._before.items():
            os.dup2(before, number)
            os.close(before)
        self._before.clear()
        with self._lock:
            while self._has_more(0.0):
                self._take()
            self._end_line()
            self._show = None

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()

    def _has_more(self, seconds: float | None) -> bool:
        return bool(select.select([self._read], [], [], seconds)[0])

    def _forward(self) -> None:
        while True:
            more = self._has_more(PATIENCE_SECONDS if self._part else None)
            with self._lock:
                if not more:
                    self._end_line()
                elif self._has_more(0.0):  # not where `restore` has taken it
                    self._take()

    def _take(self) -> None:
        content = os.read(self._read, AT_ONCE)
        if self._show is None:
            os.write(self.terminal.fileno(), content)
            return
        *lines, self._part = re.split("\r?\n", self._part + self._decode(content))
        for line in lines:
            self._put(_last(line))
        self._part = _last(self._part)

    def _end_line(self) -> None:
        if self._part:
            self._put(self._part)
        self._part = ""

    def _put(self, line: str) -> None:
        try:
            if self._show is not None:
                self._show(line)
        except Exception:  # the thread must continue: where nobody reads the pipe, whoever prints waits for ever
            self.terminal.write(f"{line}\n")


def _last(line: str) -> str:
    r"""A line as it is in the end: progress bars write it again and again.

    >>> _last("10%\r20%\r30%")
    '30%'
    """
    return line.rstrip("\r").rpartition("\r")[2]


_made: list[Output] = []


def output() -> Output | None:
    """The pipe of this process; None where standard error is no terminal, or not the one that processes inherit."""
    try:
        inherited = sys.stderr.fileno() == 2 and os.isatty(2)
    except (AttributeError, OSError, ValueError):
        return None
    if not inherited:
        return None
    if not _made:
        _made.append(Output())
    return _made[0]
