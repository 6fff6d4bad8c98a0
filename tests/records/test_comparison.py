"""A table that grows is compared with its marks only where it is new, and from the beginning where it was changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from orlomo.records import digests
from orlomo.records.digests import Comparison, Mark


def mark(content: bytes) -> Mark:
    return Mark(content.count(b"\n") - 1, len(content), hashlib.sha256(content).hexdigest())


def test_only_what_is_new_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lines = tmp_path / "t.csv", [b"header\n", *(f"row {n}\n".encode() for n in range(2000))]
    hashed = 0
    update = digests.Seal.update

    def counted(seal: digests.Seal, piece: bytes) -> None:
        nonlocal hashed
        hashed += len(piece)
        update(seal, piece)

    monkeypatch.setattr(digests.Seal, "update", counted)
    comparison = Comparison()

    def compare(*ends: int) -> tuple[str | None, int]:
        before = hashed
        return comparison.first_difference(path, [mark(b"".join(lines[:end])) for end in ends]), hashed - before

    def size(begin: int, end: int) -> int:
        return len(b"".join(lines[begin:end]))

    path.write_bytes(b"".join(lines[:1000]))
    assert compare(500, 900) == (None, size(0, 900))
    assert compare(500, 900) == (None, 0)
    path.write_bytes(b"".join(lines))
    assert compare(500, 1500) == (None, size(900, 1500))
    assert compare(1600, 2000) == (None, size(1500, 2000))
    # Cut off, and continued in another way: all of it is compared again.
    path.write_bytes(b"".join([*lines[:1200], b"other\n", *lines[1201:]]).ljust(size(0, 2001)))
    found, read = compare(1000, 1500, 2000)
    assert (found, read) == ("lines 1001 to 1500", size(0, 1500))
    path.write_bytes(b"".join(lines[:700]))
    assert compare(500, 1500) == (None, size(0, 700))  # what is there is right
    path.write_bytes(b"".join([lines[0], b"x", *lines[1:]]))
    assert compare(500, 1500) == ("lines 1 to 500", size(0, 500))
