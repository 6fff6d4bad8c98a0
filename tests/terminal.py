"""A command at a real terminal, for the tests of what it shows there."""

from __future__ import annotations

import codecs
import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path


class Screen:
    """What a terminal shows: a line of text for each line of the screen, and what has moved off its top.

    It obeys what rich and argparse write: new lines, carriage returns, movements of the cursor, erasing.
    """

    def __init__(self, columns: int):
        self.columns, self.lines, self.row, self.column = columns, [""], 0, 0
        self._rest = ""

    def write(self, text: str) -> None:
        """What a program writes."""
        text, self._rest = self._rest + text, ""
        cut = re.search(r"\x1b(\[[0-9;?]*)?$", text)
        if cut:
            text, self._rest = text[: cut.start()], cut[0]
        for control, letter in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z])|(.)", text, re.DOTALL):
            if control:
                self._obey(control[-1], control[2:-1])
            elif letter == "\r":
                self.column = 0
            elif letter == "\n":
                self._move(self.row + 1)
            else:
                assert letter.isprintable(), f"a terminal would obey {letter!r}"
                self._put(letter)

    def _put(self, letter: str) -> None:
        if self.column == self.columns:  # as terminals do: only the next letter begins a new line
            self._move(self.row + 1)
            self.column = 0
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
        self.column += 1

    def _move(self, row: int) -> None:
        self.row = max(0, row)
        self.lines += [""] * (self.row + 1 - len(self.lines))

    def _obey(self, letter: str, number: str) -> None:
        if letter == "A":
            self._move(self.row - int(number or 1))
        elif letter == "K":
            self.lines[self.row] = "" if number == "2" else self.lines[self.row][: self.column]
        else:
            assert letter in "mhl", f"the terminal of the tests does not know {number}{letter}"

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


def frames(
    *words: object,
    folder: Path,
    columns: int = 110,
    lines: int = 30,
    seconds: float = 240.0,
    program: str = "",
    **more: str,
) -> list[str]:
    """The pictures that a terminal of this size shows one after another of `orlomo ...`, which must succeed.

    `program`: in Python, in place of `orlomo`; `more`: variables of the environment.
    """
    primary, secondary = pty.openpty()
    termios.tcsetwinsize(secondary, (lines, columns))
    command = [sys.executable, *(("-c", program) if program else ("-m", "orlomo")), *map(str, words)]
    inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "FORCE_COLOR")}
    environment = {**inherited, "TERM": "xterm-256color", **more}
    process = subprocess.Popen(
        command, cwd=folder, stderr=secondary, stdout=secondary, stdin=secondary, env=environment
    )
    os.close(secondary)
    screen, until, found = Screen(columns), time.monotonic() + seconds, [""]
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    try:
        while time.monotonic() < until:
            if select.select([primary], [], [], 0.2)[0]:
                try:
                    screen.write(decode(os.read(primary, 65536)))
                except OSError:  # the other end is closed
                    break
                if screen.text != found[-1]:
                    found.append(screen.text)
        assert process.wait(10) == 0, screen.text
    finally:
        process.kill()
        os.close(primary)
    return found


def shown_at_a_terminal(*words: object, folder: Path) -> str:
    """All that is shown there of `orlomo ...`, one picture after another."""
    return "\n".join(frames(*words, folder=folder))


@contextlib.contextmanager
def at_a_terminal(typed: str) -> Iterator[list[str]]:
    """Within, standard input and error of this process are a terminal at which this was typed; what is shown there
    is in the list afterwards."""
    primary, secondary = pty.openpty()
    os.write(primary, typed.encode())
    content: list[bytes] = []
    shown: list[str] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while True:
                content.append(os.read(primary, 65536))

    reader = threading.Thread(target=read)
    reader.start()
    before = sys.stdin, sys.stderr
    with open(secondary) as sys.stdin, open(os.dup(secondary), "w") as sys.stderr:
        try:
            yield shown
        finally:
            sys.stdin, sys.stderr = before
    reader.join()
    os.close(primary)
    shown.append(b"".join(content).decode())
