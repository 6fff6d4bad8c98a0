"""Folders and archives as bundles of files. Nothing is unpacked to disk: members are read by the names we expect."""

from __future__ import annotations

import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from orlomo.errors import ConfigError

MAX_MEMBERS = 500_000
MAX_UNPACKED_BYTES = 4 * 2**30
"""More than any of our data sets; an archive that claims more is not one of them."""

GZIP = b"\x1f\x8b"
UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)
"""What reading a damaged archive raises; encrypted members raise RuntimeError, unknown compressions the last."""


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
        self._tar: tarfile.TarFile | None = None
        self._zip: zipfile.ZipFile | None = None
        self._members: dict[str, tuple[int, int, tarfile.TarInfo | zipfile.ZipInfo]] = {}
        self.folders: dict[str, list[str]] = {}
        try:
            if zipfile.is_zipfile(path):
                self._zip = zipfile.ZipFile(path)
            else:
                # By its first bytes: "r:*" would also try bz2 and lzma, which none of our data sets uses.
                with path.open("rb") as file:
                    mode: Literal["r:gz", "r:"] = "r:gz" if file.read(2) == GZIP else "r:"
                self._tar = tarfile.open(path, mode)  # noqa: SIM115 (closed by `close`)
            self._index()
        except ConfigError:
            self.close()
            raise
        except UNREADABLE as error:
            self.close()
            raise ConfigError(f"{path} is cut off, or not a tar or zip archive: {error}") from None

    def _index(self) -> None:
        total = 0
        for position, (name, size, member) in enumerate(self._list()):
            # By the sizes that the archive claims; `read` holds each member to its limit again.
            total += size
            if position > MAX_MEMBERS or total > MAX_UNPACKED_BYTES:
                raise ConfigError(f"{self.path} is refused: it would unpack to more than any of the data sets")
            path = PurePosixPath(name)
            # Nothing is unpacked by these names, but a name that leads outside, or comes twice, is no honest member.
            if path.is_absolute() or ".." in path.parts or str(path) in self._members:
                continue
            self._members[str(path)] = (size, position, member)
            folder = "" if str(path.parent) == "." else str(path.parent)
            self.folders.setdefault(folder, []).append(path.name)

    def _list(self) -> Iterator[tuple[str, int, tarfile.TarInfo | zipfile.ZipInfo]]:
        if self._zip is not None:
            yield from ((info.filename, info.file_size, info) for info in self._zip.infolist() if not info.is_dir())
        elif self._tar is not None:
            yield from ((info.name, info.size, info) for info in self._tar if info.isreg())

    def member(self, name: str) -> tuple[int, int] | None:
        """A member's size and position; None where there is none."""
        found = self._members.get(name)
        return found and found[:2]

    def read(self, name: str, limit: int) -> bytes:
        where = f"{name} in {self.path}"
        try:
            with self._open(name) as file:
                return _read(file, limit, where)
        except (*UNREADABLE, KeyError) as error:
            raise ConfigError(f"{where} cannot be read: {error}") from None

    def _open(self, name: str) -> IO[bytes]:
        info = self._members[name][2]
        if isinstance(info, zipfile.ZipInfo):
            assert self._zip is not None
            return self._zip.open(info)
        assert self._tar is not None
        file = self._tar.extractfile(info)
        assert file is not None, "only regular files are members"
        return file

    def close(self) -> None:
        for file in (self._tar, self._zip):
            if file is not None:
                file.close()


class ArchiveFolder:
    """A folder inside an open archive."""

    def __init__(self, archive: Archive, folder: str):
        self.archive = archive
        self.folder = folder

    def size(self, name: str) -> int | None:
        found = self.archive.member(self._full(name))
        return found[0] if found else None

    def read(self, name: str, limit: int) -> bytes:
        return self.archive.read(self._full(name), limit)

    def names(self, folder: str) -> list[str]:
        return sorted(self.archive.folders.get(self._full(folder), []))

    def position(self, name: str) -> int:
        found = self.archive.member(self._full(name))
        return found[1] if found else 0

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
