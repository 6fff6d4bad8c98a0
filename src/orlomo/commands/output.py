"""What a command prints: its answer to stdout, all else to stderr, also what users' code and other processes print."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import math
import os
import shutil
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from orlomo.errors import Interrupted, OrlomoError
from orlomo.printing import say

INSTALLED = (str(Path(__file__).parents[1]), sys.prefix, sys.base_prefix, "<frozen", "<string>")
"""How the names of files begin that are not the user's."""

_answers: list[str] = []
"""What `print_json` was given while stdout is closed to others."""


def print_json(value: object) -> None:
    """Print a command's answer, once nobody else can print between."""
    _answers.append(json.dumps(_without_nan(value), allow_nan=False))


def _without_nan(value: object) -> object:
    """With None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_lines(lines: Iterable[str]) -> None:
    """Print these lines, with ASCII in place of signs that the encoding of standard output lacks."""
    from orlomo.report.terminal.layout import encodable

    for line in lines:
        say(encodable(line, sys.stdout.encoding))


def print_file(path: Path) -> None:
    """Print a text file as it is, in UTF-8 whatever the terminal's encoding is."""
    sys.stdout.flush()
    if (bytes_out := getattr(sys.stdout, "buffer", None)) is None:  # a text in memory
        sys.stdout.write(path.read_text("utf-8"))
        return
    with path.open("rb") as file:
        shutil.copyfileobj(file, bytes_out)


def never_fail() -> None:
    """What the terminal's encoding lacks is written as an escape: the default for standard output is an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def only_json(wanted: bool, for_good: bool) -> Iterator[None]:
    """Where JSON is wanted, send all that is printed to stderr until the command is done, then print its answer.

    The file descriptor, and not only `sys.stdout`: child processes inherit it, and libraries in C write to it.
    `for_good`: this process ends afterwards, and what is printed at its exit must not come after the answer.
    """
    _answers.clear()
    if not wanted:
        yield
        _print_answers()
        return
    before = sys.stdout
    before.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        yield
    finally:
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)  # what C code has printed waits in a buffer of its own
        os.dup2(kept, 1)
        sys.stdout = before
        _print_answers()
        before.flush()
        if for_good:
            os.dup2(2, 1)
            sys.stdout = sys.stderr
        os.close(kept)


def _print_answers() -> None:
    while _answers:
        print(_answers.pop(0))


def say_error(error: Exception) -> int:
    """Print an error as one line; of a user's own code, and of a mistake in ours, the traceback. The exit code."""
    from orlomo.report.terminal.layout import tell

    if isinstance(error, Interrupted):
        tell(f"orlomo: {error}", sys.stderr)
        return 128 + error.signal_number
    theirs = _users_frames(error)
    if isinstance(error, OrlomoError):
        tell(f"orlomo: {error}", sys.stderr)
        for note in getattr(error, "__notes__", ()):
            say(note, sys.stderr, lines=True)
    elif isinstance(error, OSError) and error.errno is not None and theirs is None:
        tell(f"orlomo: {error.strerror or error}: {_name(error.filename)}", sys.stderr)
    else:
        lines = traceback.format_exception(type(error), error, theirs or error.__traceback__)
        say("".join(lines).rstrip("\n"), sys.stderr, lines=True)
    return 2


def _name(file: object) -> str:
    """The name of a file as an OSError has it."""
    return os.fsdecode(file) if isinstance(file, (str, bytes, os.PathLike)) else "a file"


def _users_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame that is neither of this package nor of one that is installed."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(INSTALLED):
        frames = frames.tb_next
    return frames
