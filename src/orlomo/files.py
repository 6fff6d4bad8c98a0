"""Atomic writes, and locks for folders that only one process at a time may write to."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from safetensors import SafetensorError

from orlomo.errors import RunFolderError

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]

LINUX = sys.platform == "linux"

FLOCK = struct.Struct("hhqqi")
"""Linux's struct flock."""

_ours: weakref.WeakValueDictionary[str, IO[bytes]] = weakref.WeakValueDictionary()
"""The locks that this process holds, by folder."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a temporary file, then move it to `path`: readers see the old file or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        write(temporary)
        temporary.chmod(mode)  # safetensors makes files that only their owner can read
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # Only after fsync: a renamed file whose content is not on the disk may be empty after a power cut.
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)  # the new name must be on the disk too, not only the content
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file, in UTF-8, all of it or nothing."""
    write_bytes_atomically(path, text.encode("utf-8"))


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Write a file, all of it or nothing."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def remove_temporary_files(folder: Path) -> None:
    """Remove what a process that was killed left half-written. Only for the process that holds the folder's lock."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def short(path: Path) -> str:
    """A path as a user would type it here: without the working directory, where that is the beginning."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path != here and path.is_relative_to(here) else str(path)


@contextlib.contextmanager
def writing_to(folder: Path, command: str = "") -> Iterator[None]:
    """Turn errors of writing to a folder into a `RunFolderError`; `command`: what to type once it is solved."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = str(error)
        number = re.search(r"os error (\d+)", reason)  # safetensors puts the system's number into a sentence
        if number or isinstance(error, OSError):
            reason = os.strerror(int(number[1]) if number else error.errno or 0)  # type: ignore[union-attr]
        if command:
            reason += f"; {'free some space and ' if 'space' in reason else ''}`{command}`"
        raise RunFolderError(f"cannot write to {folder}: {reason}") from None


def lock(folder: Path) -> IO[bytes]:
    """Keep other processes from writing to this folder; the lock ends when the file is closed or the process ends."""
    with writing_to(folder):
        file = (folder / ".lock").open("wb")
    if fcntl is not None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, child processes do not inherit it
        except OSError:
            file.close()
            raise RunFolderError(f"{folder} is being written by another process: wait for it, or stop it") from None
    _ours[str(folder.resolve())] = file
    return file


def is_being_written(folder: Path) -> bool:
    """Whether a process holds the folder's lock. On Linux this only asks: it never keeps a process from taking it."""
    own = _ours.get(str(folder.resolve()))
    if own is not None and not own.closed:
        return True  # to open and close the file once more would release this process's lock
    try:
        with (folder / ".lock").open("rb" if LINUX else "r+b") as file:
            if LINUX:
                answer = fcntl.fcntl(file, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
                return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
            elif fcntl is not None:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # elsewhere the only way to know is to try
    except BlockingIOError:
        return True
    except OSError:  # no such file, or no permission
        return False
    return False
