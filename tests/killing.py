"""Kill -9 by count: this process dies at the N-th thing that it does to the files of a folder.

What is counted: every file made, written, cut, synced, renamed and removed, every folder made and removed. It is killed
before that, after it, or, of what is written, when half of the bytes are there.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Point(NamedTuple):
    """Where to kill: before, after or half through (`half`) the operation of this number, counted from 0."""

    number: int
    when: str


class Killer:
    """Counts what this process does to the files below a folder, from `install` on, and kills it at a point."""

    def __init__(self, folder: Path, point: Point | None = None):
        self.folder, self.point = f"{folder}", point
        self.done: list[tuple[str, str]] = []  # what was done, and to which file

    def install(self) -> None:
        """In this process, for good."""
        for name in ("fsync", "ftruncate", "unlink", "remove", "rmdir", "mkdir"):
            setattr(os, name, self._counted(name, getattr(os, name)))
        for name in ("replace", "rename"):
            setattr(os, name, self._counted(name, getattr(os, name), 1))
        os.open = self._opening(os.open)
        builtins.open = io.open = functools.partial(_open, self)  # type: ignore[assignment]
        from orlomo.records import best, checkpoint

        for module in (best, checkpoint):
            module.save_file = functools.partial(self._save, module.save_file)  # type: ignore[attr-defined]

    def is_ours(self, path: str) -> bool:
        """Whether it is the folder, or in it."""
        return path == self.folder or path.startswith(f"{self.folder}/")

    def count(self, kind: str, target: Any, act: Callable[[], Any], half: Callable[[], object] | None = None) -> Any:
        """Do this, unless it is what the process dies at."""
        path = path_of(target)
        if not self.is_ours(path):
            return act()
        point, number = self.point, len(self.done)
        self.done.append((kind, os.path.relpath(path, self.folder)))
        when = point.when if point is not None and point.number == number else ""
        if when == "before":
            die()
        if when == "half" and half is not None:
            half()
            die()
        try:
            return act()
        finally:
            if when:
                die()

    def _counted(self, name: str, original: Callable[..., Any], position: int = 0) -> Callable[..., Any]:
        @functools.wraps(original)
        def counted(*arguments: Any, **more: Any) -> Any:
            return self.count(name, arguments[position], lambda: original(*arguments, **more))

        return counted

    def _opening(self, original: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(original)
        def counted(path: Any, flags: int, *arguments: Any, **more: Any) -> int:
            if flags & os.O_CREAT and not os.path.lexists(path):
                return int(self.count("create", path, lambda: original(path, flags, *arguments, **more)))
            return original(path, flags, *arguments, **more)

        return counted

    def _save(self, original: Callable[..., None], tensors: Any, path: Path, *rest: Any) -> None:
        def half() -> None:
            original(tensors, path, *rest)
            os.truncate(path, os.path.getsize(path) // 2)

        self.count("write", path, lambda: original(tensors, path, *rest), half)


class _File(io.FileIO):
    """A file whose writes are counted."""

    killer: Killer

    def write(self, content: Any, /) -> int:
        def half() -> None:
            io.FileIO.write(self, bytes(content)[: len(content) // 2])

        return int(self.killer.count("write", self.fileno(), lambda: super(_File, self).write(content), half))

    def truncate(self, size: int | None = None, /) -> int:
        return int(self.killer.count("truncate", self.fileno(), lambda: super(_File, self).truncate(size)))


def _open(killer: Killer, file: Any, mode: str = "r", buffering: int = -1, *text: Any, **more: Any) -> Any:
    """As `open`, with a file whose writes are counted where it is written."""
    if not set(mode) & set("wax+") or not killer.is_ours(path_of(file)):
        return _original_open(file, mode, buffering, *text, **more)
    binary = mode.replace("b", "").replace("t", "")
    make = functools.partial(_File, file, binary, more.pop("closefd", True))
    new = not isinstance(file, int) and not os.path.lexists(file)
    raw = killer.count("create", file, make) if new else make()
    raw.killer = killer
    if buffering == 0:
        return raw
    buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    return buffered if "b" in mode else io.TextIOWrapper(buffered, *text, **more)  # type: ignore[arg-type]


_original_open = io.open


def path_of(target: Any) -> str:
    """Of a path, or of an open file."""
    return os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.path.abspath(os.fspath(target))


def die() -> None:
    """As by `kill -9`: nothing is closed, nothing written that waits in memory."""
    os.kill(os.getpid(), signal.SIGKILL)
