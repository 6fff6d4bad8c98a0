"""The files that we read and write: opened without following links, written whole or not at all, deleted by our names.

A run folder may come from somebody else, and any name in it may be a link to a file of the user's, or no file at all.
Files of a run are therefore opened here: a link in place of one is an error, and so is anything but a regular file
(reading from a FIFO would wait for ever). Folders in a run folder go through `subfolder`. Whoever can change the folder
while a command runs is not kept out: see SECURITY.md.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from safetensors import SafetensorError

from orlomo.errors import RunFolderError

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)

TEXT_BYTES = 16 << 20
"""The largest text file that is read whole."""

SMALL = 1 << 16
"""Read at least, also where a file is said to be shorter: some file systems do not know."""

TEMPORARY = re.compile(r"\..+\.[0-9a-f]+\.tmp")
"""Names of files that are being written."""


def open_to_read(path: Path, follow: bool = False) -> io.BufferedReader:
    """A file, to be read. `follow`: also through a link, for what the user has named."""
    return open(_opened(path, os.O_RDONLY | (0 if follow else NO_LINK)), "rb")


def open_to_write(path: Path, keep: bool = True) -> io.FileIO:
    """A file to be written in place, made where it is missing; without `keep` it is emptied.

    Unbuffered: what `write` returns is what the disk has taken.
    """
    descriptor = _opened(path, os.O_RDWR | os.O_CREAT | NO_LINK)
    try:
        # A hard link: a copy of the folder that shares its files, or another file of the user's.
        if os.fstat(descriptor).st_nlink > 1:
            raise RunFolderError(f"{path} has a second name elsewhere, a hard link: put a copy in its place")
        if not keep:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return open(descriptor, "r+b", buffering=0)


def _opened(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | NO_WAIT | BINARY, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK) and path.is_symlink():
            raise RunFolderError(f"{path} is a link: put the file itself in its place") from None
        if error.errno in (errno.ENXIO, errno.EISDIR, errno.ENODEV):
            raise RunFolderError(f"{path} is not a regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunFolderError(f"{path} is not a regular file")
    return descriptor


def read_bytes(path: Path, limit: int = TEXT_BYTES, follow: bool = False) -> bytes:
    """All of a file; one that is larger than the limit is an error."""
    with open_to_read(path, follow) as file:
        size = os.fstat(file.fileno()).st_size
        # Not more than there is: Python makes room at once for as much as is asked for.
        content = b"" if size > limit else file.read(min(limit, max(size, SMALL)) + 1)
    if max(size, len(content)) > limit:
        raise RunFolderError(f"{path} is larger than such a file can be: {size:,} bytes, at most {limit:,}")
    return content


def read_text(path: Path, limit: int = TEXT_BYTES, follow: bool = False) -> str:
    """All of a text file, in UTF-8."""
    try:
        return read_bytes(path, limit, follow).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RunFolderError(
            f"{path} is not text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        ) from None


def is_there(path: Path) -> bool:
    """Whether there is anything of this name, be it a link that leads nowhere."""
    return os.path.lexists(path)


def is_file(path: Path) -> bool:
    """Whether there is a regular file of this name, and no link."""
    with contextlib.suppress(OSError, ValueError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def check_file(path: Path) -> None:
    """Raise unless `path` is a regular file, and no link."""
    open_to_read(path).close()


@contextlib.contextmanager
def name_to_read(path: Path) -> Iterator[Path]:
    """For libraries that open files by their names: one of this file, which is a regular one.

    A file's own name may be bytes that are no UTF-8, which safetensors refuses.
    """
    with open_to_read(path) as file:
        opened = Path(f"/proc/self/fd/{file.fileno()}")
        yield opened if opened.exists() else path


def subfolder(folder: Path, name: str, make: bool = False) -> Path:
    """A folder in a folder of ours. A link in its place is an error; `make`: made where it is missing."""
    path = folder / name
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        if make:
            path.mkdir(parents=True, exist_ok=True)
        return path
    if not stat.S_ISDIR(mode):
        what = "a link" if stat.S_ISLNK(mode) else "no folder"
        raise RunFolderError(f"{path} is {what}: remove it, or put the folder itself in its place")
    return path


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a temporary file, then move it to `path`: readers see the old file or the new, never a part.

    A link at `path` is replaced, not followed.
    """
    # Random and exclusive: nobody can put a link there first.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | BINARY, 0o666))
    try:
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
    sync_folder(path.parent)


def check_target(path: Path) -> None:
    """Refuse what the user has named for a file to be written, where it is something else: it would be replaced."""
    if path.is_dir():
        raise RunFolderError(f"{path} is a folder: give a file's name with --out")
    if path.exists() and not path.is_file():
        raise RunFolderError(f"{path} is not a regular file: give a file's name with --out, or - for standard output")


def sync_folder(folder: Path) -> None:
    """A new name must be on the disk too, not only the content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file, in UTF-8, all of it or nothing."""
    write_bytes_atomically(path, text.encode("utf-8"))


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Write a file, all of it or nothing."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def remove(path: Path) -> None:
    """Remove a file, or a link; where there is none, nothing."""
    path.unlink(missing_ok=True)


def temporary_files(folder: Path) -> list[Path]:
    """What is being written in this folder, or was when its process was killed."""
    return [path for path in folder.glob(".*.tmp") if TEMPORARY.fullmatch(path.name) and is_file(path)]


def remove_temporary_files(folder: Path) -> None:
    """Remove what a process that was killed left half-written. Only for the process that holds the folder's lock."""
    for path in temporary_files(folder):
        remove(path)


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
