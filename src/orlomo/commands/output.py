"""What a command prints: its answer to stdout, all else to stderr, also what users' code and other processes print."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from orlomo.errors import Interrupted, OrlomoError

INSTALLED = (str(Path(__file__).parents[1]), sys.prefix, sys.base_prefix, "<frozen", "<string>")
"""How the names of files begin that are not the user's."""

_answers: list[str] = []
"""What `print_json` was given while stdout is closed to others."""


def print_json(value: object) -> None:
    """Print a command's answer, once nobody else can print between."""
    _answers.append(json.dumps(value))


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
    if isinstance(error, Interrupted):
        print(f"orlomo: {error}", file=sys.stderr)
        return 128 + error.signal_number
    theirs = _users_frames(error)
    if isinstance(error, OrlomoError):
        print(f"orlomo: {error}", file=sys.stderr)
    elif isinstance(error, OSError) and error.errno is not None and theirs is None:
        print(f"orlomo: {error.strerror or error}: {error.filename or 'a file'}", file=sys.stderr)
    else:
        traceback.print_exception(type(error), error, theirs or error.__traceback__)
    return 2


def _users_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame that is neither of this package nor of one that is installed."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(INSTALLED):
        frames = frames.tb_next
    return frames
