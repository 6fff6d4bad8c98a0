"""Folders and archives as bundles of files. Nothing is unpacked to disk: members are read by the names we expect.

An archive may be made to fill the memory, so nothing in it decides how much is read: a tar file's headers are read
here, each within a limit, and zipfile is given a file that ends where the list of members of a data set would end.
"""

from __future__ import annotations

import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from orlomo.errors import ConfigError, RunFolderError
from orlomo.files import open_to_read

MAX_MEMBERS = 200_000
MAX_UNPACKED_BYTES = 4 * 2**30
"""More than any of our data sets; an archive that claims more is not one of them."""

MAX_LIST_BYTES = 24 * 2**20
"""The list of members at the end of a zip file: the longest, of Tiny-ImageNet's 120,000, takes 15 MB."""

MAX_HEADER_BYTES = 2**14
"""What a tar file says of one member beside its header, such as a long name."""

GZIP = b"\x1f\x8b"
BLOCK = 512
"""A tar file is made of blocks of so many bytes."""
REGULAR = (b"0", b"\0", b"7")
MORE = (b"x", b"g", b"L", b"K")
"""The types of a tar file's members: files, and what is said of the next member."""

UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, NotImplementedError)
"""What reading a damaged archive raises; encrypted members raise RuntimeError, unknown compressions the last."""


class Member(NamedTuple):
    """A regular file in an archive. `at`: where its content is, or what zipfile knows of it."""

    size: int
    position: int
    at: int | zipfile.ZipInfo


class Folder:
    """A folder on disk."""

    def __init__(self, path: Path):
        self.path = path

    def size(self, name: str) -> int | None:
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def read(self, name: str, limit: int) -> bytes:
        with (self.path / name).open("rb") as file:
            return _read(file, limit, self.where(name))

    def names(self, folder: str) -> list[str]:
        path = self.path / folder
        return sorted(entry.name for entry in os.scandir(path) if entry.is_file()) if path.is_dir() else []

    def position(self, name: str) -> int:
        return 0

    def where(self, name: str = "") -> str:
        return str(self.path / name)


class Archive:
    """A tar or zip file, open; its members by their names, of which only regular files count."""

    def __init__(self, path: Path):
        self.path = path
        self._members: dict[str, Member] = {}
        self.folders: dict[str, list[str]] = {}
        self._zip: zipfile.ZipFile | None = None
        try:
            self._opened: IO[bytes] = open_to_read(path, follow=True)
        except RunFolderError as error:
            raise ConfigError(f"{error}: give a folder or an archive") from None
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        self._file: IO[bytes] = self._opened  # unpacked, where all of it is one gzip file
        try:
            if zipfile.is_zipfile(self._file):
                limited = _Limited(self._file, MAX_LIST_BYTES)
                self._zip = zipfile.ZipFile(cast(IO[bytes], limited))
                limited.left = None  # from here on `read` holds each member to its limit
            else:
                self._file.seek(0)
                # By its first bytes. bz2 and lzma are used by none of our data sets.
                packed = self._file.read(2) == GZIP
                self._file.seek(0)
                if packed:
                    self._file = cast(IO[bytes], gzip.GzipFile(fileobj=self._opened))
            self._index()
        except ConfigError:
            self.close()
            raise
        except UNREADABLE as error:
            self.close()
            raise ConfigError(f"{path} is cut off, or not a tar or zip archive: {error}") from None

    def _index(self) -> None:
        total = 0
        for position, (name, size, at) in enumerate(self._list()):
            # By the sizes that the archive claims; `read` holds each member to its limit again.
            total += size
            if position > MAX_MEMBERS or total > MAX_UNPACKED_BYTES:
                raise ConfigError(f"{self.path} is refused: it would unpack to more than any of the data sets")
            path = PurePosixPath(name)
            # Nothing is unpacked by these names, but a name that leads outside, or comes twice, is no honest member.
            if at is None or path.is_absolute() or ".." in path.parts or str(path) in self._members:
                continue
            self._members[str(path)] = Member(size, position, at)
            folder = "" if str(path.parent) == "." else str(path.parent)
            self.folders.setdefault(folder, []).append(path.name)

    def _list(self) -> Iterator[tuple[str, int, int | zipfile.ZipInfo | None]]:
        """The name of each member, its size, and where it is: None for one that is not a regular file."""
        if self._zip is None:
            yield from _tar_members(self._file)
        else:
            for info in self._zip.infolist():
                yield info.filename, info.file_size, None if info.is_dir() else info

    def member(self, name: str) -> Member | None:
        """A member; None where there is none of this name."""
        return self._members.get(name)

    def read(self, name: str, limit: int) -> bytes:
        where = f"{name} in {self.path}"
        try:
            size, _, at = self._members[name]
            if isinstance(at, int):
                self._file.seek(at)
                content = _read(cast(IO[bytes], _Part(self._file, size)), limit, where)
                if len(content) < size:
                    raise EOFError("it is cut off")
                return content
            assert self._zip is not None
            # The others unpack all of what they are given at once, however much it becomes.
            if at.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise NotImplementedError("its compression is not that of zip files")
            with self._zip.open(at) as file:
                return _read(file, limit, where)
        except (*UNREADABLE, KeyError) as error:
            raise ConfigError(f"{where} cannot be read: {error}") from None

    def close(self) -> None:
        if self._zip is not None:
            self._zip.close()
        self._file.close()
        self._opened.close()


class _Limited(io.RawIOBase):
    """A file from which so many bytes can be read; `left` None: any number."""

    def __init__(self, file: IO[bytes], left: int):
        self._file, self.left = file, cast("int | None", left)

    def read(self, size: int | None = -1) -> bytes:
        if self.left is None:
            return self._file.read(-1 if size is None else size)
        wanted = self.left + 1 if size is None or size < 0 else size
        content = self._file.read(min(wanted, self.left + 1))
        self.left -= len(content)
        if self.left < 0:
            raise ValueError("its list of members is longer than that of any of the data sets")
        return content

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


class _Part:
    """The next `size` bytes of a file."""

    def __init__(self, file: IO[bytes], size: int):
        self._file, self._size = file, size

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, self._size))


def _tar_members(file: IO[bytes]) -> Iterator[tuple[str, int, int | None]]:
    """The name of each member of a tar file, its size, and where its content is: None for one that is no file."""
    at, said = 0, dict[str, bytes]()
    while True:
        file.seek(at)
        header = file.read(BLOCK)
        if not header.strip(b"\0"):  # two empty blocks, or nothing, are the end
            if at == 0:
                raise ValueError("it has no members")
            return
        if len(header) < BLOCK or _number(header[148:156]) != sum(header) - sum(header[148:156]) + 8 * ord(" "):
            raise ValueError(f"at byte {at:,} is not a member")
        size, kind, first = _number(header[124:136]), header[156:157], at + BLOCK
        if kind in MORE:
            if size > MAX_HEADER_BYTES:
                raise ValueError(f"what it says of the member at byte {at:,} takes {size:,} bytes")
            content = file.read(size)
            if kind == b"L":
                said["path"] = content.partition(b"\0")[0]
            elif kind == b"x":
                said |= _records(content)
            at = first + -(-size // BLOCK) * BLOCK
            yield "", BLOCK + size, None
            continue
        prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
        short = header[:100].partition(b"\0")[0]
        name = said.get("path", prefix + b"/" + short if prefix else short).decode("utf-8", "surrogateescape")
        size = _decimal(said["size"]) if "size" in said else size
        said = {}
        yield name, size, first if kind in REGULAR and not name.endswith("/") else None
        # Folders and links have no content, whatever their size says.
        at = first + (-(-size // BLOCK) * BLOCK if kind not in b"123456" else 0)


def _number(field: bytes) -> int:
    """A number in a tar header: octal digits, or in binary where the first bit is set."""
    if field[:1] in (b"\x80", b"\xff"):
        found = int.from_bytes(field[1:], "big", signed=field[0] == 0xFF)
    else:
        found = int(field.split(b"\0")[0].strip() or b"0", 8)
    if found < 0:
        raise ValueError("a negative size")
    return found


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 20:
        raise ValueError(f"the size {text[:20]!r}")
    return int(text)


def _records(content: bytes) -> dict[str, bytes]:
    """What a pax header says: records of `LENGTH NAME=VALUE` and a line feed, where LENGTH is of all that."""
    found, at = {}, 0
    while at < len(content) and content[at]:
        digits, space, _ = content[at : at + 8].partition(b" ")
        length = _decimal(digits) if space else 0
        name, equals, value = content[at + len(digits) + 1 : at + length - 1].partition(b"=")
        if not equals or at + length > len(content):
            raise ValueError("a damaged header")
        found[name.decode("utf-8", "replace")] = value
        at += length
    return found


class ArchiveFolder:
    """A folder inside an open archive."""

    def __init__(self, archive: Archive, folder: str):
        self.archive = archive
        self.folder = folder

    def size(self, name: str) -> int | None:
        found = self.archive.member(self._full(name))
        return found.size if found else None

    def read(self, name: str, limit: int) -> bytes:
        return self.archive.read(self._full(name), limit)

    def names(self, folder: str) -> list[str]:
        return sorted(self.archive.folders.get(self._full(folder), []))

    def position(self, name: str) -> int:
        found = self.archive.member(self._full(name))
        return found.position if found else 0

    def where(self, name: str = "") -> str:
        return f"{self._full(name)} in {self.archive.path}" if name else str(self.archive.path)

    def _full(self, name: str) -> str:
        return f"{self.folder}/{name}" if self.folder else name


@contextmanager
def archive_folders(path: Path) -> Iterator[list[ArchiveFolder]]:
    """The folders of an archive that have files in them or below, the outermost first."""
    archive = Archive(path)
    try:
        parents = {str(parent) for folder in archive.folders for parent in PurePosixPath(folder).parents}
        found = {*archive.folders, *parents} - {"."} | {""}
        yield [ArchiveFolder(archive, folder) for folder in sorted(found, key=lambda name: (name.count("/"), name))]
    finally:
        archive.close()


def _read(file: IO[bytes], limit: int, where: str) -> bytes:
    # One byte more than allowed shows that there is more, and reads no further.
    content = file.read(limit + 1)
    if len(content) > limit:
        raise ConfigError(f"{where} is refused: it is longer than {limit} bytes")
    return content
