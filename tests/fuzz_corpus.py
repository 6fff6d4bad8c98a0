"""Small run folders of every kind, as bytes in memory: what the fuzz damages."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orlomo
from orlomo.errors import Interrupted
from orlomo.records.tables import Row
from small import call_cli
from small_loops import loop

SHARES = '''
"""Two workers with data of their own."""
import torch
import orlomo


def task():
    inputs = torch.linspace(-1, 1, 64).reshape(16, 4)
    return orlomo.Task(
        model=lambda: torch.nn.Linear(4, 1),
        train_data=orlomo.PerWorker([inputs, inputs[:8]]),
        test_data=inputs[8:],
        loss=lambda model, batch: model(batch).square().mean(),
        batch_size=4,
    )
'''

Files = dict[str, bytes]
"""The regular files of a folder, by their path in it."""


class StopAt(orlomo.Callback):
    """Ctrl-C at a report."""

    def __init__(self, reports: int):
        self._reports = reports

    def event(self, row: Row) -> None:
        if row["reports"] == self._reports:
            signal.raise_signal(signal.SIGINT)


class CopyAt(orlomo.Callback):
    """A copy of the folder as it is at a report: what `kill -9` leaves there."""

    def __init__(self, folder: Path, reports: int):
        self._folder, self._reports = folder, reports

    def event(self, row: Row) -> None:
        if row["reports"] == self._reports:
            shutil.copytree(self._folder, self._folder.with_name(f"{self._folder.name}-killed"))


@contextlib.contextmanager
def even_clock() -> Iterator[None]:
    """Each look at the clock is a millisecond after the one before: the records are the same bytes every time."""
    ticks = itertools.count(1000)
    with patch.object(time, "monotonic", lambda: next(ticks) / 1000):
        yield


def make(folder: Path) -> dict[str, Files]:
    """The runs, made in this folder, by name."""
    (folder / "shares.py").write_text(SHARES)
    quiet: dict[str, Any] = {"jobs": 1, "warn": lambda text: None}
    small: dict[str, Any] = {"workers": 2, "epochs": 0.02, "evaluate_every": 0.005, **quiet}
    # These first: modules that are loaded while the clock is another one may keep it.
    orlomo.launch(loop, orlomo.OrLoMo(local_steps=4), workers=2, engine="simulated", out=folder / "loop", **quiet)
    orlomo.train("quadratic", "asgd", engine="processes", **{**small, "jobs": None}, out=folder / "processes")
    words = ["--workers=2", "--epochs=0.02", "--methods=asgd", "--jobs=1", "--quiet"]
    assert call_cli("compare", "quadratic", *words, "--out", "compared", folder=folder).returncode == 0
    for picture in ("loss.png", "loss.svg"):
        (folder / "compared" / picture).unlink()
    with even_clock():
        best = orlomo.KeepBest("train_loss")
        orlomo.train("quadratic", "asgd", **small, out=folder / "finished", callbacks=[best])
        orlomo.resume(folder / "finished", epochs=0.03, learning_rate=0.01, callbacks=[best], **quiet)
        _stop_twice(folder / "stopped", {**small, "epochs": 0.05}, quiet)
        settings = {**small, "epochs": 4, "evaluate_every": 1.0}
        orlomo.train(f"{folder}/shares.py:task", orlomo.ALSGD(local_steps=1), **settings, out=folder / "shares")
    names = {"stopped-killed": "unfinished"}
    made = ("finished", "stopped-killed", "shares", "compared", "loop", "processes")
    found = {names.get(name, name): files_of(folder / name) for name in made}
    return {**found, "old": _unsealed(found["finished"])}


def _unsealed(files: Files) -> Files:
    """A run as versions before seals wrote it."""
    found = dict(files)
    for name, text in files.items():
        if name.startswith("checkpoints/") and name.endswith(".json"):
            content = json.loads(text)
            content["values"].pop("sealed", None)
            content["sha256"] = seal({key: value for key, value in content.items() if key != "sha256"})
            found[name] = json.dumps(content, indent=1).encode()
    return found


def seal(content: dict[str, Any]) -> str:
    """The checksum that the JSON file of a checkpoint carries."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _stop_twice(out: Path, settings: dict[str, Any], quiet: dict[str, Any]) -> None:
    """A run that was stopped twice, and killed with rows after its last checkpoint."""
    best, method = orlomo.KeepBest("train_loss"), orlomo.OrLoMo(local_steps=2)
    with contextlib.suppress(Interrupted):
        orlomo.train("quadratic", method, **settings, out=out, callbacks=[StopAt(6), best])
    with contextlib.suppress(Interrupted):
        orlomo.resume(out, callbacks=[StopAt(12), best], **quiet)
    orlomo.resume(out, callbacks=[best, CopyAt(out, 18)], **quiet)


def files_of(folder: Path) -> Files:
    """What is in a folder of nothing but files and folders."""
    paths = [Path(where) / name for where, _, names in os.walk(folder) for name in names]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(paths)}


def write(folder: Path, files: Files) -> None:
    """Let a folder hold these files and nothing else; what is as it should be stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (mode, content) in snapshot(folder).items():
        path = folder / name
        inside = stat.S_ISDIR(mode) and any(one.startswith(f"{name}/") for one in files)
        own = stat.S_ISREG(mode) and content == files.get(name) and path.stat().st_nlink == 1
        if not inside and not own and os.path.lexists(path):
            remove(path)
    for name, wanted in files.items():
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wanted)


def remove(path: Path) -> None:
    """Whatever it is; what a link names stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """All that is in a folder, and links as links: to compare before with after."""
    found: dict[str, tuple[int, bytes | str | None]] = {}
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                facts = entry.stat(follow_symlinks=False)
                content: bytes | str | None = None
                if stat.S_ISREG(facts.st_mode):
                    content = Path(entry.path).read_bytes()
                elif stat.S_ISLNK(facts.st_mode):
                    content = os.readlink(entry.path)
                elif stat.S_ISDIR(facts.st_mode):
                    waiting.append(Path(entry.path))
                found[os.path.relpath(entry.path, folder)] = (facts.st_mode, content)
    return found
