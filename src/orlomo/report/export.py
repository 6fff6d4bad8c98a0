"""A run's tables in other formats."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from orlomo.errors import ConfigError, require, unknown_name
from orlomo.records.checkpoint import write_atomically
from orlomo.records.columns import Columns
from orlomo.records.run import Run


def export(run: Run, kind: str, place: Path) -> list[Path]:
    """Write the run's events and metrics in this format into a folder; the files."""
    if kind not in FORMATS:
        raise unknown_name("format", kind, FORMATS)
    require(place.resolve() != run.folder.resolve(), f"{place} is the run itself: choose another folder with -o")
    place.mkdir(parents=True, exist_ok=True)
    return FORMATS[kind](run, place)


def _csv(run: Run, place: Path) -> list[Path]:
    """The tables as they are, without a last line that was cut off."""
    paths = []
    for name in ("events", "metrics"):
        content = (run.folder / f"{name}.csv").read_bytes().rpartition(b"\n")
        path = place / f"{name}.csv"
        write_atomically(path, functools.partial(Path.write_bytes, data=content[0] + content[1]))
        paths.append(path)
    return paths


def _parquet(run: Run, place: Path) -> list[Path]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ConfigError("Parquet needs pyarrow: pip install 'orlomo[parquet]'") from None
    tables: dict[str, Columns] = {"events": run.event_columns, "metrics": run.metric_columns}
    paths = []
    for name, columns in tables.items():
        path = place / f"{name}.parquet"
        parquet.write_table(pyarrow.table(columns), path)
        paths.append(path)
    return paths


def _tensorboard(run: Run, place: Path) -> list[Path]:
    from orlomo.report.tensorboard import TensorBoardWriter, writes_in

    there = f"{place} holds TensorBoard's files already, and TensorBoard would show all of them as one run"
    require(not writes_in(place), f"{there}: choose another folder with -o")
    writer = TensorBoardWriter(place)
    writer.tell(run)
    writer.close()
    return [place]


FORMATS: dict[str, Callable[[Run, Path], list[Path]]] = {
    "csv": _csv,
    "parquet": _parquet,
    "tensorboard": _tensorboard,
}
