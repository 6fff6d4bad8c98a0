"""A run for other tools: its tables as CSV or Parquet, its evaluations and delays for TensorBoard."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from orlomo.engines.callbacks import Callback, RunHandle
from orlomo.errors import ConfigError, RunFolderError, require, unknown_name
from orlomo.files import is_there, open_to_read, subfolder, write_atomically, write_bytes_atomically, writing_to
from orlomo.printing import say
from orlomo.records.folders import MEASURED, ROUNDS_FILE
from orlomo.records.parsing.blocks import Table
from orlomo.records.run import Run
from orlomo.records.tables import METRICS, Columns, Row
from orlomo.report.streaming.thinning import joined

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

COPIED = 1 << 20
"""Bytes that are copied at a time."""

GROUPED = 500_000
"""Rows that are written to a Parquet file at a time."""

OWN_SCALARS = ("learning_rate", "epoch")
"""The columns that every run has which are drawn beside its metrics."""


def export(run: Run, kind: str, folder: Path | None = None, warn: Callable[[str], None] = say) -> list[Path]:
    """Write the run's tables in this format into a folder (default: one in the run's own).

    Returns the files; warns of missing events or metrics. A link in place of a file is replaced.
    """
    if kind not in FORMATS:
        raise unknown_name("format", kind, FORMATS)
    folder = subfolder(run.folder, kind) if folder is None else folder
    require(
        not (folder / "config.toml").exists(),
        f"{folder} is a run, with tables of its own: choose another folder with -o",
    )
    tables: dict[str, Table] = {}
    rounds = ("rounds",) * (run.config.is_loop or is_there(run.folder / ROUNDS_FILE))  # others have none
    for finding in run.findings(MEASURED, *(f"{name}.csv" for name in ("events", "metrics", *rounds))):
        warn(f"{run.folder}/{finding}")
    for name in ("events", "metrics", *rounds):
        try:
            tables[name] = Table(run.folder / f"{name}.csv", run.schema(name))
            if run.is_cut_off(name):
                warn(f"{run.folder}/{name}.csv ends in the middle of a line, which is left out")
        except RunFolderError as error:
            warn(str(error))
    if not tables:
        raise RunFolderError(f"{run.folder} has no table that could be exported")
    made = not folder.exists()
    try:
        with writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            return FORMATS[kind](run, tables, folder)
    except BaseException:
        if made:
            with contextlib.suppress(OSError):  # as where some of the files are there
                folder.rmdir()
        raise


def _csv(run: Run, tables: dict[str, Table], folder: Path) -> list[Path]:
    """The tables as they are, without a last line that was cut off."""
    paths = []
    for name in tables:
        path = folder / f"{name}.csv"
        write_atomically(path, functools.partial(_copy_lines, run.folder / path.name))
        paths.append(path)
    return paths


def _copy_lines(source: Path, target: Path) -> None:
    with open_to_read(source) as file, target.open("wb") as copy:
        size = file.seek(0, os.SEEK_END)
        end = size  # after the last whole line, which is looked for from the end on
        while end > 0:
            begin = max(0, end - COPIED)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                end = begin + found + 1
                break
            end = begin
        file.seek(0)
        while end > 0 and (piece := file.read(min(COPIED, end))):
            copy.write(piece)
            end -= len(piece)


def _parquet(run: Run, tables: dict[str, Table], folder: Path) -> list[Path]:
    try:
        import pyarrow.parquet as _  # noqa: F401
    except ImportError:
        raise ConfigError("Parquet needs pyarrow: pip install 'orlomo[parquet]'") from None
    paths = []
    for name, table in tables.items():
        path = folder / f"{name}.parquet"
        write_atomically(path, functools.partial(_write_parquet, table))
        paths.append(path)
    return paths


def _write_parquet(table: Table, target: Path) -> None:
    """Write a table's rows as they are read: it may be larger than the memory."""
    import pyarrow
    from pyarrow import parquet

    names = list(dict.fromkeys(table.names))
    types = {"q": pyarrow.int64(), "d": pyarrow.float64(), "s": pyarrow.string()}
    schema = pyarrow.schema([(name, types[table.schema.get(name, "s")]) for name in names])
    # pyarrow would not take every file's name.
    with target.open("wb") as file, parquet.ParquetWriter(file, schema) as writer:
        waiting: list[Columns] = []
        rows = 0
        for part, count in table.read(lambda block: ({name: block.column(name) for name in names}, block.rows)):
            waiting.append(part)
            rows += count
            if rows >= GROUPED:
                writer.write_table(pyarrow.table(joined(waiting), schema))
                waiting, rows = [], 0
        if waiting:
            writer.write_table(pyarrow.table(joined(waiting), schema))


def _tensorboard(run: Run, tables: dict[str, Table], folder: Path) -> list[Path]:
    there = f"{folder} holds TensorBoard's files already, and TensorBoard would show all of them as one run"
    require(not writes_in(folder), f"{there}: choose another folder with -o")
    missing = {"samples", "reports", *scalars_of(run.schema("metrics"))} - set(
        tables["metrics"].names if "metrics" in tables else ()
    )
    require(
        not missing, f"{run.folder}/metrics.csv has no {', '.join(sorted(missing))}: TensorBoard has nothing to show"
    )
    with tempfile.TemporaryDirectory() as place, writing_to(Path(place)):  # whole, or not at all
        writer = TensorBoardWriter(Path(place), lambda text: None)
        writer.write_run(run)
        writer.close()
        if writer.error is not None:
            raise writer.error
        contents = {path.name: path.read_bytes() for path in writes_in(Path(place))}
    for name, content in contents.items():
        write_bytes_atomically(folder / name, content)
    return [folder]


FORMATS: dict[str, Callable[[Run, dict[str, Table], Path], list[Path]]] = {
    "csv": _csv,
    "parquet": _parquet,
    "tensorboard": _tensorboard,
}


def summary_writer() -> type[SummaryWriter]:
    """PyTorch's writer of TensorBoard's files."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("TensorBoard is not installed: pip install 'orlomo[tensorboard]'") from None
    return SummaryWriter


class TensorBoardWriter(Callback):
    """Writes while a run is at work, at every evaluation."""

    watches_only = True

    def __init__(self, folder: Path, warn: Callable[[str], None] = say):
        utf_8 = str(folder).encode("utf-8", "ignore").decode() == str(folder)
        require(utf_8, f"TensorBoard takes names in UTF-8 only, and {folder} is none: leave out tensorboard")
        self._writer: SummaryWriter | None = summary_writer()(str(folder))  # None: the disk was full
        self.error: OSError | None = None  # why it is not written to the end
        self._warn = warn
        # Delay and eta of reports, until an evaluation comes; those that a run has recorded already as an array.
        self._waiting: list[tuple[int, float]] | NDArray[np.float64] = []
        self._reports = 0  # those that are written

    def event(self, row: Row) -> None:
        """A row of the trace."""
        if row["kind"] == "report":
            if not isinstance(self._waiting, list):
                self._waiting = [(int(delay), eta) for delay, eta in self._waiting.tolist()]
            self._waiting.append((int(row["delay"]), float(row["eta"])))

    def started(self, run: RunHandle) -> None:
        """What a continued run has kept is written first."""
        if run.kept is not None:
            self.write_run(run.kept)

    def evaluation(self, row: Row) -> None:
        """The numbers of an evaluation, and the delays of the reports between the one before and this."""
        # The simulator computes on while it evaluates: later reports may be waiting, which belong to the next row.
        count = max(0, int(row["reports"]) - self._reports)
        self._reports = int(row["reports"])
        new, self._waiting = self._waiting[:count], self._waiting[count:]
        if self._writer is None:
            return
        try:
            self._write(self._writer, row, new)
        except OSError as error:  # a full disk is no reason to end a run
            self._warn(f"TensorBoard's files are no longer written: {error}; `orlomo export` makes them afterwards")
            self._writer, self.error = None, error

    @staticmethod
    def _write(writer: SummaryWriter, row: Row, new: list[tuple[int, float]] | NDArray[np.float64]) -> None:
        step = int(row["samples"])
        for name in scalars_of(row):
            if not math.isnan(float(row[name])):
                writer.add_scalar(f"evaluation/{name}", float(row[name]), step)
        if len(new):
            delays, etas = np.array(new).T
            writer.add_histogram("delay", delays, step)
            writer.add_scalar("delay/mean", delays.mean(), step)
            writer.add_scalar("delay/max", delays.max(), step)
            writer.add_scalar("eta/mean", etas.mean(), step)
        writer.flush()

    def write_run(self, run: Run) -> None:
        """Write what a run has recorded so far."""
        with contextlib.suppress(RunFolderError, KeyError):  # the evaluations can be shown without the delays
            events = run.some_events("kind", "delay", "eta")
            reports = events["kind"] == "report"
            self._waiting = np.column_stack([events["delay"][reports], events["eta"][reports]])
        declared = run.schema("metrics")  # other columns, which metrics.json does not have, are text
        for row in run.metric_rows:
            self.evaluation({name: value for name, value in row.items() if name in declared})

    def finished(self, run: Run) -> None:
        """The run is over."""
        self.close()

    def close(self) -> None:
        """Close the files."""
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                self.error = error


def scalars_of(row: Iterable[str]) -> list[str]:
    """The columns of an evaluation that TensorBoard shows."""
    return [name for name in row if name not in METRICS or name in OWN_SCALARS]


def writes_in(folder: Path) -> list[Path]:
    """TensorBoard's files in this folder."""
    return sorted(folder.glob("events.out.tfevents*"))
