"""Locks of folders that only one process at a time may write to."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import sys
import weakref
from pathlib import Path

from orlomo.errors import RunFolderError
from orlomo.files import open_to_read, open_to_write, writing_to

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
LINUX = sys.platform == "linux"

FLOCK = struct.Struct("hhqqi")
"""Linux's struct flock."""

_ours: weakref.WeakValueDictionary[str, io.FileIO] = weakref.WeakValueDictionary()
"""The locks that this process holds, by folder."""


def lock(folder: Path) -> io.FileIO:
    """Keep other processes from writing to this folder; the lock ends when the file is closed or the process ends."""
    with writing_to(folder):
        file = open_to_write(folder / NAME)
    if fcntl is not None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, child processes do not inherit it
        except OSError:
            with contextlib.closing(file):
                raise RunFolderError(_why_held(folder, file)) from None
    _ours[str(folder.resolve())] = file
    return file


def _why_held(folder: Path, file: io.IOBase) -> str:
    if LINUX and not _holder(file, fcntl.F_RDLCK) and (reader := _holder(file, fcntl.F_WRLCK)):
        # A shared lock, which no process of ours takes: anyone who can read the file can.
        held = f"process {reader}, which is not a run, holds a lock on {folder / NAME}"
        return f"{held}: end it, or use a copy of the folder"
    return f"{folder} is being written by another process: wait for it, or stop it"


def is_being_written(folder: Path) -> bool:
    """Whether a process holds the folder's lock. On Linux this only asks: it never keeps a process from taking it."""
    own = _ours.get(str(folder.resolve()))
    if own is not None and not own.closed:
        return True  # to open and close the file once more would release this process's lock
    try:
        with open_to_read(folder / NAME) if LINUX else open_to_write(folder / NAME) as file:
            if LINUX:
                return _holder(file, fcntl.F_RDLCK) is not None
            elif fcntl is not None:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # elsewhere the only way to know is to try
    except BlockingIOError:
        return True
    except (OSError, RunFolderError):  # no such file, no permission, or no file of ours
        return False
    return False


def _holder(file: io.IOBase, kind: int) -> int | None:
    """The process whose lock keeps this one from a lock of this kind; None: there is none.

    Only a write lock keeps others from a read lock.
    """
    answer = FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)))
    return None if answer[0] == fcntl.F_UNLCK else answer[4]
