"""A run's tables in other formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orlomo.errors import ConfigError, RunFolderError, require, unknown_name
from orlomo.files import write_bytes_atomically
from orlomo.records.run import Run
from orlomo.records.tables import Columns


def export(run: Run, kind: str, place: Path, warn: Callable[[str], None] = print) -> list[Path]:
    """Write the run's events and metrics in this format into a folder; the files. A table that is missing is said."""
    if kind not in FORMATS:
        raise unknown_name("format", kind, FORMATS)
    require(
        not (place / "config.toml").exists(), f"{place} is a run, with tables of its own: choose another folder with -o"
    )
    place.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Columns] = {}
    for name in ("events", "metrics"):
        try:
            tables[name] = run.event_columns if name == "events" else run.metric_columns
            if run.is_cut_off(name):
                warn(f"{run.folder}/{name}.csv ends in the middle of a line, which is left out")
        except RunFolderError as error:
            warn(str(error))
    if not tables:
        raise RunFolderError(f"{run.folder} has no table that could be exported")
    return FORMATS[kind](run, tables, place)


def _csv(run: Run, tables: dict[str, Columns], place: Path) -> list[Path]:
    """The tables as they are, without a last line that was cut off."""
    paths = []
    for name in tables:
        content = (run.folder / f"{name}.csv").read_bytes().rpartition(b"\n")
        path = place / f"{name}.csv"
        write_bytes_atomically(path, content[0] + content[1])
        paths.append(path)
    return paths


def _parquet(run: Run, tables: dict[str, Columns], place: Path) -> list[Path]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ConfigError("Parquet needs pyarrow: pip install 'orlomo[parquet]'") from None
    paths = []
    for name, columns in tables.items():
        path = place / f"{name}.parquet"
        parquet.write_table(pyarrow.table(columns), path)
        paths.append(path)
    return paths


def _tensorboard(run: Run, tables: dict[str, Columns], place: Path) -> list[Path]:
    from orlomo.report.tensorboard import TensorBoardWriter, scalars_of, writes_in

    there = f"{place} holds TensorBoard's files already, and TensorBoard would show all of them as one run"
    require(not writes_in(place), f"{there}: choose another folder with -o")
    missing = {"samples", "reports", *scalars_of(run.schema("metrics"))} - set(tables.get("metrics", {}))
    require(
        not missing, f"{run.folder}/metrics.csv has no {', '.join(sorted(missing))}: TensorBoard has nothing to show"
    )
    writer = TensorBoardWriter(place)
    writer.tell(run)
    writer.close()
    return [place]


FORMATS: dict[str, Callable[[Run, dict[str, Columns], Path], list[Path]]] = {
    "csv": _csv,
    "parquet": _parquet,
    "tensorboard": _tensorboard,
}
