"""What a run has put into its folder, by name: removed where nothing was begun, and never anything else."""

from __future__ import annotations

import contextlib
import os
import re
from contextlib import closing
from pathlib import Path

from orlomo.errors import RunFolderError
from orlomo.files import TEMPORARY, is_there, open_to_read, remove, short, subfolder, temporary_files
from orlomo.locks import NAME as LOCK
from orlomo.locks import lock
from orlomo.records.best import NEXT, READABLE
from orlomo.records.changes import CHANGES
from orlomo.records.folders import (
    CHECKPOINTS,
    CONFIG,
    CONTROL,
    MEASURED,
    MODEL,
    REQUEST_NAME,
    ROUNDS_FILE,
    WORKER_DATA,
    read_measured,
)
from orlomo.trust import SIGNATURE

BEFORE = (MEASURED, WORKER_DATA, SIGNATURE)
"""What is written before config.toml, with which a folder becomes a run."""

WRITTEN = {*BEFORE, CONFIG, CHANGES, READABLE, NEXT, MODEL}
"""What is written whole or not at all: to a temporary file first."""

INSIDE = {
    CONTROL: REQUEST_NAME,
    "tensorboard": re.compile(r"events\.out\.tfevents\..+"),
}
"""Names of our files in the folders that a run has before its first checkpoint."""

LONGEST_LINE = 1 << 16


def half_written(folder: Path) -> list[Path]:
    """What a process that was killed has left of files that it was writing. None of an export that is under way."""
    return [path for path in temporary_files(folder) if path.name[1:].rsplit(".", 2)[0] in WRITTEN]


def is_unbegun(folder: Path) -> bool:
    """Whether there is nothing in this folder, or only what a process left that was killed before config.toml."""
    try:
        found = {entry.name: entry.is_file(follow_symlinks=False) for entry in os.scandir(folder)}
    except OSError:
        return False
    rest = found.keys() - {path.name for path in half_written(folder)} - ({LOCK} if found.get(LOCK) else set())
    if not rest:
        return True
    # Other programs, too, have files of these names: metrics.json is written first, and says whose they are.
    if not rest <= {*BEFORE} or not all(found[name] for name in rest) or MEASURED not in rest:
        return False
    with contextlib.suppress(RunFolderError):
        read_measured(folder)
        return True
    return False


def check_begun(folder: Path) -> None:
    """Where a process was killed before its run had begun, remove what it left, and say that there is no run."""
    if is_there(folder / CONFIG) or folder.is_symlink() or not is_unbegun(folder):
        return
    with closing(lock(folder)):
        _remove_rest(folder)
    rest = "is removed" if not folder.exists() else "is empty now"
    raise RunFolderError(f"nothing was started in {short(folder)}, which {rest}: start it again")


def forget_if_empty(folder: Path) -> None:
    """Remove a run that ended before its first report: there is nothing in it to resume."""
    if is_there(folder / "log.txt"):
        return  # it says why
    if is_there(folder / CHECKPOINTS) or has_rows(folder / "events.csv"):
        return
    # What cannot be removed, or another process has taken up, is a run still: it can be resumed, and begins again.
    with contextlib.suppress(OSError, RunFolderError), closing(lock(folder)):
        for name, ours in INSIDE.items():
            _remove_inside(subfolder(folder, name), ours)
        for name in ("events.csv", "metrics.csv", ROUNDS_FILE):
            remove(folder / name)
        remove(folder / CONFIG)  # before the rest, without which it would be no whole run
        _remove_rest(folder)


def has_rows(path: Path) -> bool:
    """Whether there is more than the header in a table."""
    try:
        with open_to_read(path) as file:
            return file.readline(LONGEST_LINE).endswith(b"\n") and bool(file.read(1))
    except FileNotFoundError:
        return False


def _remove_inside(folder: Path, ours: re.Pattern[str]) -> None:
    if not is_there(folder):
        return
    for entry in list(os.scandir(folder)):
        if ours.fullmatch(entry.name) or TEMPORARY.fullmatch(entry.name):
            remove(Path(entry.path))
    folder.rmdir()


def _remove_rest(folder: Path) -> None:
    """What is written before config.toml, files half written, and the folder itself if nothing else is in it."""
    # metrics.json is the last but the lock: by it the others are known to be ours.
    for path in (*half_written(folder), *(folder / name for name in (WORKER_DATA, SIGNATURE, MEASURED, LOCK))):
        remove(path)
    with contextlib.suppress(OSError):  # it is not empty: what is in it is somebody else's
        folder.rmdir()
