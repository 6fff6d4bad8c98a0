"""Archives and pickles that are small and ask for much: made and read in a process that has little memory.

Run by test_bombs.py, which reads what it prints: for each its name and the error, as JSON.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from orlomo.data import bundles
from orlomo.data.binary_forms import read_batch
from orlomo.data.bundles import Archive
from orlomo.errors import OrlomoError

SPARE_BYTES = 96 << 20
"""Of memory, beyond what the process has when it begins."""

HUGE = 700 << 20
UNPACKED = 128 << 20
"""What files claim to hold, and what they do hold."""


def header(kind: bytes, size: int, name: str = "member") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def sparse(path: Path, begin: bytes, size: int, end: bytes = b"") -> Path:
    """A file with zeros between its begin and its end, which take no room on the disk."""
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(size)
        file.seek(size)
        file.write(end)
    return path


def packed(path: Path, *parts: tuple[bytes, int]) -> Path:
    """A gzip file of these bytes, each repeated so many times."""
    with gzip.open(path, "wb", 1) as file:
        for part, times in parts:
            for _ in range(times):
                file.write(part)
    return path


def zipped(path: Path, compression: int) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file, file.open("batch_1.bin", "w") as member:
        for _ in range(UNPACKED >> 22):
            member.write(bytes(1 << 22))
    return path


def archives(folder: Path) -> dict[str, Callable[[], Path]]:
    mebibyte, directory = bytes(1 << 20), header(tarfile.DIRTYPE, 0)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, HUGE, 0, 0)
    own = folder / "own"
    os.mkfifo(own)
    return {
        "pax header": lambda: sparse(folder / "1", header(b"x", HUGE), HUGE),
        "pax header, packed": lambda: packed(folder / "2", (header(b"x", HUGE), 1), (mebibyte, 64)),
        "global header": lambda: sparse(folder / "3", header(b"g", HUGE), HUGE),
        "long name": lambda: sparse(folder / "4", header(b"L", HUGE), HUGE),
        "size in binary": lambda: sparse(folder / "5", header(b"0", 1 << 62), 4096),
        "digits": lambda: packed(folder / "6", (header(b"x", 8192), 1), (b"1" * 8192, 1)),
        "folders": lambda: packed(folder / "7", (directory, 2010)),
        "headers": lambda: packed(folder / "8", (header(b"x", 512) + b"11 path=ab\n".ljust(512, b"\0"), 2010)),
        "list of a zip file": lambda: sparse(folder / "9", b"", HUGE, end),
        "bz2 in a zip file": lambda: zipped(folder / "10", zipfile.ZIP_BZIP2),
        "deflate in a zip file": lambda: zipped(folder / "12", zipfile.ZIP_DEFLATED),
        "file": lambda: packed(folder / "13", (header(b"0", UNPACKED, "batch_1.bin"), 1), (mebibyte, UNPACKED >> 20)),
        "FIFO": lambda: own,
        "device": lambda: Path("/dev/zero"),
    }


def pickles() -> dict[str, bytes]:
    text = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"q\1" + b"X\6\0\0\0latin1q\2"
    return {
        "memo": b"\x80\2}r" + struct.pack("<I", 1 << 28) + b".",
        "memo as text": b"}p268435456\n.",
        "length": b"\x80\4}\x8e" + struct.pack("<Q", 1 << 40) + b"abc.",
        "frame": b"\x80\4\x95" + struct.pack("<Q", 1 << 40) + b"}.",
        "the same text": b"\x80\2" + text + b"c_codecs\nencode\nh\1h\2\x86R" * 1000 + b"}.",
        "lists": b"\x80\2" + b"]" * (2 << 20) + b"}.",
        "a key of tuples": b"\x80\2}K\1" + b"\x85" * 200_000 + b"Ns.",
        "a value of tuples": b"\x80\2}U\1aK\1" + b"\x85" * 200_000 + b"s.",
        "digits": b"I" + b"9" * (1 << 20) + b"\n.",
        "marks": b"(" * 200_000 + b".",
    }


def answer(call: Callable[[], object]) -> str:
    try:
        return f"read: {type(call()).__name__}"
    except OrlomoError as error:
        return f"refused: {error}"
    except MemoryError:
        return "MEMORY"


def made_and_read(make: Callable[[], Path]) -> bytes:
    archive = Archive(make())
    try:
        return archive.read("batch_1.bin", 1 << 20)
    finally:
        archive.close()


def main(folder: Path) -> None:
    made = archives(folder)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    bundles.MAX_MEMBERS = 2000  # so that more of them are made in no time
    answers = {name: answer(partial(made_and_read, make)) for name, make in made.items()}
    for name, content in pickles().items():
        answers[f"pickle: {name}"] = answer(partial(read_batch, content, "batch"))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
