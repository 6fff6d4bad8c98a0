"""Which folders are runs."""

from __future__ import annotations

from pathlib import Path

from orlomo.errors import RunFolderError
from orlomo.files import short


def runs_in(folder: Path) -> list[Path]:
    """The folders below this one, at most two deep, that are runs: what `compare` and `reproduce` write."""
    return sorted({path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/config.toml")})


def no_run(folder: Path) -> RunFolderError:
    """What to say of a folder without config.toml."""
    shown = short(folder)
    if not folder.exists():
        return RunFolderError(f"{shown} is not a run: there is no such folder")
    if not folder.is_dir():
        inside = (folder.parent / "config.toml").is_file()
        return RunFolderError(f"{shown} is a file: give the run's folder{f', {short(folder.parent)}' * inside}")
    runs = [str(run.relative_to(folder)) for run in runs_in(folder)]
    if not runs:
        return RunFolderError(f"{shown} is not a run: there is no config.toml in it")
    named = ", ".join(runs[:8]) + (f" and {len(runs) - 8} more" if len(runs) > 8 else "")
    return RunFolderError(f"{shown} is a folder of {len(runs)} runs, not a run: choose one of {named}")
