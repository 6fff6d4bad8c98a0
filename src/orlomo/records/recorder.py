"""Writing a run folder while the run is under way: rows of its tables, checkpoints, models."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from torch import Tensor

from orlomo import config as configuration
from orlomo import trust
from orlomo.clusters.schedule import KINDS
from orlomo.config import RunConfig
from orlomo.errors import RunFolderError
from orlomo.files import is_there, remove, short, write_text_atomically, writing_to
from orlomo.locks import lock
from orlomo.records import best as best_model
from orlomo.records import checkpoint as checkpoints
from orlomo.records.changes import CHANGES, read_changes, to_json
from orlomo.records.checkpoint import Checkpoint, Values
from orlomo.records.digests import digests, sha256_of
from orlomo.records.folders import (
    CHECKPOINTS,
    CONFIG,
    MEASURED,
    MODEL,
    ROUNDS_FILE,
    WORKER_DATA,
    read_measured,
    resume_command,
)
from orlomo.records.leftovers import half_written, is_unbegun
from orlomo.records.run import Run
from orlomo.records.seals import Sealed, sealed_in
from orlomo.records.tables import EVENTS, LOOP_ROUNDS, MetricColumn, Row, TableWriter, metrics_schema

DISK_RETRY_SECONDS = 10.0
"""Until what a full disk did not take is tried again."""

CHECKPOINT_SHARE = 0.05
"""Largest share of the time that checkpoints may take."""


class RunRecorder:
    """Writes a run folder while the run is under way. One process at a time: the folder is locked."""

    def __init__(
        self,
        folder: Path,
        checkpoint_seconds: float,
        resumed: Checkpoint | None = None,
        full_disk: Callable[[str], None] | None = None,
    ):
        """`full_disk`: called when rows cannot be written; they are kept and tried again. None: that is an error."""
        self.folder = folder
        self._full_disk = full_disk
        self._command = resume_command(folder) if full_disk is None else ""
        self._lock = lock(folder)
        # What a killed process wrote after its last checkpoint is cut off: it is computed again.
        kept = resumed.values["files"] if resumed else {"events": 0, "metrics": 0}
        sealed = sealed_in(resumed.values) if resumed else Sealed()
        columns = metrics_schema(read_measured(folder))
        with writing_to(folder, resume_command(folder)):
            _remove_half_written(folder)
            checkpoints.remove_after(folder / CHECKPOINTS, resumed.position if resumed else -1)
            self._events = TableWriter(folder / "events.csv", EVENTS, kept["events"], sealed.table("events"))
            self._metrics = TableWriter(folder / "metrics.csv", columns, kept["metrics"], sealed.table("metrics"))
            self._rounds: TableWriter | None = None
            run = Run(folder)
            if run.config.is_loop or is_there(folder / ROUNDS_FILE):
                size, history = kept.get("rounds", 0), sealed.table("rounds")
                self._rounds = TableWriter(folder / ROUNDS_FILE, LOOP_ROUNDS, size, history)
            for table in self._tables.values():
                table.flush()  # the headers are written at once: a table is never empty for long
            # The models' digests are those of when they were written.
            self._sealed = dict(sealed.files) | digests(folder, (MEASURED, WORKER_DATA))
            best_model.settle(folder, run.metric_rows if resumed else [])
            if resumed and not sealed.there:  # it began with a version that sealed nothing
                self._sealed |= digests(folder, (MODEL, best_model.BEST))
        self._changes = to_json(read_changes(folder))
        self._interval = checkpoint_seconds
        self._next_checkpoint = time.monotonic() + checkpoint_seconds
        self._next_flush = 0.0

    def event(self, row: Row) -> None:
        """One event, as a row of the schedule with its loss."""
        self._events.append({**row, "kind": KINDS[row["kind"]]})
        if time.monotonic() > self._next_flush:
            self._flush()

    def metric(self, row: Row) -> None:
        """One evaluation."""
        self._metrics.append(row)
        self._flush()

    def round(self, row: Row) -> None:
        """One report of a user's loop that was folded in, after its event; see `LOOP_ROUNDS`."""
        if self._rounds is None:
            with writing_to(self.folder, self._command):
                self._rounds = TableWriter(self.folder / ROUNDS_FILE, LOOP_ROUNDS)
        self._rounds.append(row)

    @property
    def _tables(self) -> dict[str, TableWriter]:
        # The events first: what is read of the other tables while the run continues refers to them.
        tables = {"events": self._events, "metrics": self._metrics}
        return tables if self._rounds is None else {**tables, "rounds": self._rounds}

    def _flush(self) -> None:
        self._next_flush = time.monotonic() + 1.0
        try:
            with writing_to(self.folder, self._command):
                for table in self._tables.values():
                    table.flush()
        except RunFolderError as error:
            if self._full_disk is None:
                raise
            self._next_flush = time.monotonic() + DISK_RETRY_SECONDS
            self._full_disk(f"{error}; training continues, next try in {DISK_RETRY_SECONDS:g} s")

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() >= self._next_checkpoint

    def save(self, position: int, tensors: dict[str, Tensor], values: Values) -> None:
        """Write a checkpoint; a full disk is an error that says so, and the checkpoints before it stay."""
        begin = time.monotonic()
        self._next_checkpoint = begin + DISK_RETRY_SECONDS  # if this one fails
        with writing_to(self.folder, self._command):
            # The rows must be on the disk before a checkpoint that counts on them.
            files = {name: table.sync() for name, table in self._tables.items()}
            facts = {"files": files, "config_sha256": sha256_of(self.folder / CONFIG), "changes": self._changes}
            tables = {name: table.seal.history() for name, table in self._tables.items()}
            facts["sealed"] = {"tables": tables, "files": self._sealed | digests(self.folder, (CHANGES,))}
            full = {**values, **facts}
            checkpoints.save(self.folder / CHECKPOINTS, Checkpoint(position, tensors, full))
            best_model.put_in_place(self.folder)
        end = time.monotonic()
        # A large model on a slow disk: the interval grows, so that training gets 95% of the time.
        self._next_checkpoint = end + max(self._interval, (end - begin) / CHECKPOINT_SHARE)

    def model(self, state: dict[str, Tensor]) -> None:
        """Write the trained model's state dict."""
        with writing_to(self.folder, self._command):
            best_model.save_state(self.folder / MODEL, state)
            self._sealed |= digests(self.folder, (MODEL,))

    def best(self, state: dict[str, Tensor], metrics: Row) -> None:
        """Write the state dict of the best model so far, which is the run's once a checkpoint is written."""
        with writing_to(self.folder, self._command):
            best_model.write_next(self.folder, state, metrics)
            self._sealed[best_model.BEST] = sha256_of(self.folder / best_model.NEXT)

    def close(self) -> None:
        """Close the files. What a full disk does not take came after the last checkpoint, and is computed again."""
        for table in self._tables.values():
            with contextlib.suppress(OSError):
                table.close()
        self._lock.close()


def _remove_half_written(folder: Path) -> None:
    for path in half_written(folder):
        remove(path)


def tidy(run: Run) -> None:
    """Finish what a process that was killed when its run was complete had left to do: the best model, old files."""
    folder, saves = run.folder, run.folder / "checkpoints"
    if not (is_there(folder / best_model.NEXT) or half_written(folder) or checkpoints.dispensable(saves)):
        return
    with writing_to(folder), contextlib.closing(lock(folder)):
        _remove_half_written(folder)
        checkpoints.remove_dispensable(saves)
        best_model.settle(folder, run.metric_rows)


def create_folder(
    folder: Path,
    config: RunConfig,
    measured: Iterable[MetricColumn],
    data: list[dict[str, object]] | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> None:
    """Make a new run folder for a run that measures these; one that holds a run already is an error.

    `data`: one row per worker, where each trains on data of its own.
    """
    if is_there(folder / "config.toml"):
        raise RunFolderError(
            f"{short(folder)} holds a run already: `{resume_command(folder)}`, or choose another --out"
        )
    if folder.exists() and not is_unbegun(folder):
        raise RunFolderError(f"{short(folder)} exists and is not a run: choose another --out")
    text = configuration.write(config, format=configuration.FORMAT, code=configuration.code_digests(config))
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # Locked until it is a run: else another process may take what is in it for what a killed one left.
    with writing_to(folder), contextlib.closing(lock(folder)):
        _remove_half_written(folder)
        description = json.dumps([dataclasses.asdict(one) for one in measured], indent=1)
        write_text_atomically(folder / MEASURED, description + "\n")  # first: by it the others are known to be ours
        for left in (WORKER_DATA, trust.SIGNATURE):  # of a process that was killed
            remove(folder / left)
        if data:
            write_text_atomically(folder / WORKER_DATA, json.dumps(data, indent=1) + "\n")
        if (unsigned := trust.sign(folder, text, configuration.to_table(config))) is not None:
            warn(unsigned)
        write_text_atomically(folder / "config.toml", text)  # last: with it the folder is a run


def free_folder(config: RunConfig, task: str) -> Path:
    """A new folder under `runs/`, named after the task, the method and the seed."""
    name = f"{Path(task.partition(':')[0]).stem}-{config.method.name}-seed{config.seed}"
    for number in range(1, 10_000):
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not folder.exists():
            return folder
    raise RunFolderError("runs/ is full of runs of this name: give a folder with --out")
