"""A folder in the system's temporary folder that does not outlive its process for long, even where that is killed.

Libraries put sockets and logs there that must have names: Ray its sessions, multiprocessing the sockets of a data
loader. The folder goes when its process ends. One whose process was killed is removed by the next process that makes
one: its lock is free then.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

from orlomo.files import NO_LINK

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]

PREFIX = "orlomo-tmp-"
LOCK = "owner.lock"
SHARED = Path("/dev/shm")
"""Where Linux keeps semaphores that have names."""

NAME = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")


class TemporaryFolder:
    """A folder of this process alone, readable by this user alone. Removed by `close`, and at the process's end.

    >>> with TemporaryFolder() as folder:
    ...     folder.path.is_dir()
    True
    >>> folder.path.exists()
    False
    """

    def __init__(self) -> None:
        remove_abandoned()
        while True:
            path = Path(tempfile.mkdtemp(prefix=PREFIX))
            handle = _taken(path, os.O_CREAT)
            if handle is not None:  # else another process has just removed it, as one that was abandoned
                break
        self.path = path
        self._remove = weakref.finalize(self, _remove_own, path, handle, os.getpid())

    def __enter__(self) -> TemporaryFolder:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove it, with all that is in it."""
        self._remove()


def remove_abandoned() -> None:
    """Remove the folders of processes of this user that were killed."""
    place = Path(tempfile.gettempdir())
    names = [name for name in os.listdir(place) if NAME.fullmatch(name)] if fcntl else []  # else nobody can say
    for name in names:
        with contextlib.suppress(OSError):
            _remove_abandoned(place / name)


def _remove_abandoned(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    try:
        handle = _taken(path)
    except FileNotFoundError:  # killed before it was locked. Only if it is empty: else it is no folder of ours
        path.rmdir()
        return
    if handle is not None:
        _remove(path, handle)


def _taken(path: Path, flags: int = 0) -> int | None:
    """The lock of a folder, which keeps it from being removed by others; None: others have it, or it is gone."""
    try:
        handle = os.open(path / LOCK, os.O_RDWR | NO_LINK | flags, 0o600)
    except FileNotFoundError:
        if flags:
            return None
        raise
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between the two lines above another process may have had the lock, and removed the file.
        if os.path.samestat(os.fstat(handle), os.lstat(path / LOCK)):
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


def _remove_own(path: Path, handle: int, process: int) -> None:
    if os.getpid() == process:  # not a child that was forked
        _remove(path, handle)


def _remove(path: Path, handle: int) -> None:
    with contextlib.suppress(OSError):
        for semaphore in SHARED.glob(f"sem.{path.name}-*"):
            semaphore.unlink()
    # The lock goes last: killed in the middle, the next process does it again.
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != LOCK:
                os.unlink(entry.path)
        if os.listdir(path) == [LOCK]:
            os.unlink(path / LOCK)
            path.rmdir()
    os.close(handle)
