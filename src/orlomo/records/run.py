"""A run folder: what a run writes, and how to read it back. Every file in it is readable without this package.

config.toml            the resolved configuration
events.csv             one line an event: who reported when, with what delay and weight (see cluster/schedule.py)
metrics.csv            one line an evaluation
checkpoints/           safetensors + JSON
model.safetensors      the trained model's state dict, at the end
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import struct
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from orlomo import config as configuration
from orlomo.clusters.schedule import COLUMNS, KINDS
from orlomo.config import RunConfig
from orlomo.errors import ConfigError, RunFolderError
from orlomo.methods.method import Method
from orlomo.methods.registry import CUSTOM
from orlomo.records import checkpoint as checkpoints
from orlomo.records.checkpoint import Checkpoint, write_atomically
from orlomo.records.columns import Columns, TableWriter, frame, is_cut_off, read_columns

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]

EVENT_NAMES = (*COLUMNS, "loss")
METRIC_NAMES = (
    "iteration",
    "reports",
    "samples",
    "epoch",
    "virtual_seconds",
    "real_seconds",
    "learning_rate",
    "train_loss",
    "test_loss",
    "test_accuracy",
    "params_checksum",
)
DISK_RETRY_SECONDS = 10.0
"""Until what a full disk did not take is tried again."""

CHECKPOINT_SHARE = 0.05
"""Largest share of the time that checkpoints may take."""


_ours: weakref.WeakValueDictionary[str, IO[bytes]] = weakref.WeakValueDictionary()
"""The locks that this process holds, by folder."""

LINUX = sys.platform == "linux"

FLOCK = struct.Struct("hhqqi")
"""Linux's struct flock."""


class Run:
    """A run, finished or not, read from its folder."""

    def __init__(self, folder: Path | str, warn: Callable[[str], None] = lambda text: None):
        self.folder = Path(folder)
        if not (self.folder / "config.toml").is_file():
            raise RunFolderError(f"{self.folder} is not a run: there is no config.toml in it")
        table = configuration.read(self.folder / "config.toml")
        if missing := {"task", "method"} - set(table):
            raise RunFolderError(
                f"{self.folder}/config.toml is not whole: it has no {' and no '.join(sorted(missing))}"
            )
        if table.get("format") != configuration.FORMAT:
            raise RunFolderError(
                f"{self.folder} was made by another version of orlomo (format {table.get('format', 1)} of run folders, "
                f"this is {configuration.FORMAT}): use that version"
            )
        self._table = table
        self.config: RunConfig = configuration.from_table(table, str(self.folder / "config.toml"), code=False)
        self._warn = warn

    def runnable_config(self, method: Method | None = None) -> RunConfig:
        """The config with the method's code loaded; one that only Python has must be given."""
        name = self._table["method"].get("name") if isinstance(self._table["method"], dict) else None
        if name == CUSTOM and method is None:
            raise ConfigError(
                f"{self.folder} trains with {self.config.method.name}, a method that only Python has: "
                f"give it, as in orlomo.resume({str(self.folder)!r}, method=...)"
            )
        return configuration.from_table(self._table, str(self.folder / "config.toml"), method=method)

    def changed_code(self, config: RunConfig) -> list[str]:
        """Of `task` and `method`, those whose file is not what it was when the run began."""
        now = configuration.code_digests(config)
        recorded = self._table.get("code", {})
        return [what for what, digest in recorded.items() if now.get(what, digest) != digest]

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, and whose events and metrics are there."""
        found = checkpoints.load_newest(self.folder / "checkpoints", self._warn, self._check_tables)
        if found is not None and found.values["config_sha256"] != config_sha256(self.folder):
            raise RunFolderError(f"{self.folder}/config.toml was changed after the run began: restore it")
        return found

    def _check_tables(self, found: Checkpoint) -> None:
        for name, size in found.values["files"].items():
            path = self.folder / f"{name}.csv"
            if not path.is_file() or path.stat().st_size < size:
                raise RunFolderError(f"{path} has lost lines that checkpoint {found.position} counts on")

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end and all its files are there."""
        done = self.checkpoint is not None and bool(self.checkpoint.values["finished"])
        return done and (self.folder / "model.safetensors").is_file()

    @property
    def state(self) -> str:
        """`running`, `finished` or `stopped`, by a look at the folder: nothing large is read or verified."""
        if is_being_written(self.folder):
            return "running"
        done = checkpoints.finished(self.folder / "checkpoints") and (self.folder / "model.safetensors").is_file()
        return "finished" if done else "stopped"

    def is_cut_off(self, table: str) -> bool:
        """Whether `events` or `metrics` ends in the middle of a line, and nobody is writing the rest."""
        return self.state != "running" and is_cut_off(self.folder / f"{table}.csv")

    @property
    def unsaved(self) -> Columns:
        """The events after the newest checkpoint, which a resume computes again."""
        position = 0 if self.checkpoint is None else self.checkpoint.position
        return {name: column[position:] for name, column in self.event_columns.items()}

    @property
    def params(self) -> Tensor:
        """The server's parameters: at the end, or at the newest checkpoint."""
        if self.checkpoint is None:
            raise RunFolderError(f"{self.folder} has no checkpoint yet")
        return self.checkpoint.tensors["server.params"]

    @cached_property
    def event_columns(self) -> Columns:
        """The trace, numpy arrays by name."""
        return read_columns(self.folder / "events.csv")

    @cached_property
    def metric_columns(self) -> Columns:
        """The evaluations, numpy arrays by name."""
        return read_columns(self.folder / "metrics.csv")

    @property
    def events(self) -> Any:
        """The trace: a pandas frame where pandas is installed, else numpy arrays by name."""
        return frame(self.event_columns)

    @property
    def metrics(self) -> Any:
        """The evaluations: a pandas frame where pandas is installed, else numpy arrays by name."""
        return frame(self.metric_columns)

    def __repr__(self) -> str:
        state = "finished" if self.finished else "not finished"
        return f"Run({str(self.folder)!r}, {self.config.method.name} on {self.config.task}, {state})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        from orlomo.report.notebook import html_of  # it reads runs itself

        return html_of(self)


class RunRecorder:
    """Writes a run folder while the run goes on."""

    def __init__(
        self,
        folder: Path,
        checkpoint_seconds: float,
        resumed: Checkpoint | None = None,
        full_disk: Callable[[str], None] | None = None,
    ):
        """`full_disk`: told when rows cannot be written; they are kept and tried again. None: that is an error."""
        self.folder = folder
        self._full_disk = full_disk
        self._lock = lock(folder)
        kept = resumed.values["files"] if resumed else {"events": 0, "metrics": 0}
        with writing_to(folder):
            self._events = TableWriter(folder / "events.csv", EVENT_NAMES, kept["events"])
            self._metrics = TableWriter(folder / "metrics.csv", METRIC_NAMES, kept["metrics"])
        self._interval = checkpoint_seconds
        self._next_checkpoint = time.monotonic() + checkpoint_seconds
        self._next_flush = 0.0

    def event(self, row: dict[str, Any]) -> None:
        """One event, as a row of the schedule with its loss."""
        self._events.append({**row, "kind": KINDS[row["kind"]]})
        if time.monotonic() > self._next_flush:
            self._flush()

    def metric(self, row: dict[str, Any]) -> None:
        """One evaluation."""
        self._metrics.append(row)
        self._flush()

    def _flush(self) -> None:
        self._next_flush = time.monotonic() + 1.0
        try:
            with writing_to(self.folder, self._full_disk is not None):
                self._events.flush()
                self._metrics.flush()
        except RunFolderError as error:
            if self._full_disk is None:
                raise
            self._next_flush = time.monotonic() + DISK_RETRY_SECONDS
            self._full_disk(f"{error}; training goes on, next try in {DISK_RETRY_SECONDS:g} s")

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() >= self._next_checkpoint

    def save(self, position: int, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Write a checkpoint; a full disk is an error that says so, and the checkpoints before it stay."""
        begin = time.monotonic()
        self._next_checkpoint = begin + DISK_RETRY_SECONDS  # if this one fails
        with writing_to(self.folder, self._full_disk is not None):
            files = {"events": self._events.sync(), "metrics": self._metrics.sync()}
            full = {**values, "files": files, "config_sha256": config_sha256(self.folder)}
            checkpoints.save(self.folder / "checkpoints", Checkpoint(position, tensors, full))
        end = time.monotonic()
        self._next_checkpoint = end + max(self._interval, (end - begin) / CHECKPOINT_SHARE)

    def model(self, state: dict[str, Tensor]) -> None:
        """Write the trained model's state dict."""
        tensors = {name: tensor.clone().contiguous() for name, tensor in state.items()}  # tied weights share memory
        with writing_to(self.folder, self._full_disk is not None):
            write_atomically(self.folder / "model.safetensors", lambda path: save_file(tensors, path))

    def close(self) -> None:
        """Close the files. What a full disk does not take came after the last checkpoint, and is computed again."""
        for table in (self._events, self._metrics):
            with contextlib.suppress(OSError):
                table.close()
        self._lock.close()


def create_folder(folder: Path, config: RunConfig) -> None:
    """Make a new run folder; one that holds a run already is an error."""
    if (folder / "config.toml").exists():
        raise RunFolderError(f"{folder} holds a run already: `{resume_command(folder)}`, or choose another --out")
    if folder.exists() and (not folder.is_dir() or any(not path.name.startswith(".") for path in folder.iterdir())):
        raise RunFolderError(f"{folder} exists and is not a run: choose another --out")
    text = configuration.write(config, format=configuration.FORMAT, code=configuration.code_digests(config))
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "config.toml", lambda path: checkpoints.write_text(path, text))


@contextlib.contextmanager
def writing_to(folder: Path, goes_on: bool = False) -> Iterator[None]:
    """Turn what a disk says when it will not take a file into an error of ours, which ends the run or `goes_on`."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = str(error)
        number = re.search(r"os error (\d+)", reason)  # safetensors puts the system's number into a sentence
        if number or isinstance(error, OSError):
            reason = os.strerror(int(number[1]) if number else error.errno or 0)  # type: ignore[union-attr]
        if (folder / "config.toml").exists() and not goes_on:
            reason += f"; {'free some space and ' if 'space' in reason else ''}`{resume_command(folder)}`"
        raise RunFolderError(f"cannot write to {folder}: {reason}") from None


def resume_command(folder: Path) -> str:
    """What to type to go on with a run."""
    return f"orlomo resume {shlex.quote(str(folder))}"


def config_sha256(folder: Path) -> str:
    """The checksum of a run's config.toml."""
    return hashlib.sha256((folder / "config.toml").read_bytes()).hexdigest()


def lock(folder: Path) -> IO[bytes]:
    """Keep other processes from writing to this run; closing the file, or dying, lets them."""
    with writing_to(folder):
        file = (folder / ".lock").open("wb")
    if fcntl is not None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, not inherited by the jobs
        except OSError:
            file.close()
            raise RunFolderError(f"{folder} is being written by another process: wait for it, or stop it") from None
    _ours[str(folder.resolve())] = file
    return file


def is_being_written(folder: Path) -> bool:
    """Whether a process holds the run. On Linux this only asks: nothing is written, nobody kept from taking it."""
    own = _ours.get(str(folder.resolve()))
    if own is not None and not own.closed:
        return True  # and to open and close the file again would let the lock go
    try:
        with (folder / ".lock").open("rb" if LINUX else "r+b") as file:
            if LINUX:
                answer = fcntl.fcntl(file, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
                return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
            elif fcntl is not None:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # elsewhere one must try
    except BlockingIOError:
        return True
    except OSError:  # there is no such file, or no right to it
        return False
    return False
