"""Which folders are runs, and what is in them by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from orlomo.errors import RunFolderError
from orlomo.files import is_there, short
from orlomo.printing import quoted
from orlomo.reading import read_json
from orlomo.records.tables import MetricColumn
from orlomo.values import build

CONFIG = "config.toml"
MEASURED = "metrics.json"
WORKER_DATA = "data.json"
ROUNDS_FILE = "rounds.csv"
MODEL = "model.safetensors"
CHECKPOINTS = "checkpoints"
CONTROL = "control"

REQUEST_NAME = re.compile(r"[0-9]{20}-[0-9a-f]{8}\.(json|answer)")
"""Names of requests to a run and of its answers: the time in nanoseconds and a random number."""


def runs_in(folder: Path) -> list[Path]:
    """The folders below this one, at most two deep, that are runs: what `compare` and `reproduce` write."""
    return sorted({path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{CONFIG}")})


def no_run(folder: Path) -> RunFolderError:
    """What to say of a folder without config.toml."""
    shown = short(folder)
    if not folder.exists():
        return RunFolderError(f"{shown} is not a run: there is no such folder")
    if not folder.is_dir():
        inside = (folder.parent / CONFIG).is_file()
        return RunFolderError(f"{shown} is a file: give the run's folder{f', {short(folder.parent)}' * inside}")
    runs = [str(run.relative_to(folder)) for run in runs_in(folder)]
    if not runs:
        return RunFolderError(f"{shown} is not a run: there is no config.toml in it")
    named = ", ".join(runs[:8]) + (f" and {len(runs) - 8} more" if len(runs) > 8 else "")
    return RunFolderError(f"{shown} is a folder of {len(runs)} runs, not a run: choose one of {named}")


def resume_command(folder: Path, task: str = "") -> str:
    """What to type to continue a run; in Python for a task that only Python has."""
    if task == "custom":
        return f"orlomo.resume({short(folder)!r}, task=...)"
    return f"orlomo resume {quoted(short(folder))}"


def read_measured(folder: Path, may_be_none: bool = True) -> tuple[MetricColumn, ...]:
    """The metrics.json of a run. `may_be_none`: of a loop, since a task has its loss at least."""
    path = folder / MEASURED
    try:
        found = tuple(build(MetricColumn, one, str(path)) for one in read_json(path))
        if found or may_be_none:
            return found
        raise RunFolderError(f"{path} is damaged: it describes no metric")
    except (TypeError, AttributeError):
        raise RunFolderError(f"{path} is damaged: it does not describe the columns of metrics.csv") from None


def read_worker_data(folder: Path) -> list[dict[str, Any]]:
    """The data.json of a run: what each worker trains on; empty where there is none."""
    path = folder / WORKER_DATA
    if not is_there(path):
        return []
    try:
        found = [{key: row[key] for key in ("worker", "data", "samples", "batch_size")} for row in read_json(path)]
        good = all(type(row[key]) is int and row[key] >= 1 for row in found for key in ("samples", "batch_size"))
        good = good and all(type(row["worker"]) is int and isinstance(row["data"], str) for row in found)
    except (TypeError, KeyError):
        good = False
    if not good:
        raise RunFolderError(f"{path} is damaged: it does not say who trains on what")
    return found
