"""A run folder: what a run writes, and how to read it back. Every file in it is readable without this package.

config.toml            the resolved configuration, with which the run began
changes.json           settings that were changed when it was continued, where any were
events.csv             one row per event: which worker reported when, its delay and weight (see clusters/schedule.py)
metrics.csv            one row per evaluation
rounds.csv             of a user's own loop: one row per report that was folded in, with the samples it used
metrics.json           what its metrics are: label, which direction is better, how to show them
data.json              where workers have data of their own: what each of them trains on
checkpoints/           safetensors + JSON
best.safetensors       the model of the best evaluation, where a callback keeps it; best.json: its metrics
model.safetensors      the trained model's state dict, at the end
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from orlomo import config as configuration
from orlomo.config import RunConfig
from orlomo.errors import ConfigError, RunFolderError
from orlomo.errors import warn as warn_in_python
from orlomo.files import check_file, is_file, is_there
from orlomo.locks import is_being_written
from orlomo.methods.method import Method
from orlomo.methods.registry import CUSTOM
from orlomo.records import best as best_model
from orlomo.records import checkpoint as checkpoints
from orlomo.records import folders
from orlomo.records.best import Best, Build
from orlomo.records.changes import CHANGES, Change, changed_table, read_changes, to_json
from orlomo.records.checkpoint import Checkpoint, Values
from orlomo.records.digests import sha256_of
from orlomo.records.seals import Finding, Seals
from orlomo.records.tables import (
    EVENTS,
    LOOP_ROUNDS,
    Columns,
    MetricColumn,
    Row,
    Schema,
    empty,
    frame,
    is_cut_off,
    metrics_schema,
    read_table,
)
from orlomo.values import path_of


class Run:
    """A run, finished or not, read from its folder.

    `params` are the trained parameters, `events` the trace of all reports, `metrics` the evaluations.

    >>> import orlomo
    >>> run = orlomo.train("quadratic", workers=2, epochs=0.5, jobs=1, out=getfixture("tmp_path") / "run")
    >>> run.finished, run.state, run.config.method.name, len(run.params)
    (True, 'finished', 'orlomo', 32)
    """

    def __init__(self, folder: Path | str, warn: Callable[[str], None] = warn_in_python):
        """`warn`: called with what is wrong in the folder, when it matters; else it is an `OrlomoWarning`."""
        self.folder = path_of(folder, "the run's folder").absolute()  # the process may change its directory
        if not is_there(self.folder / "config.toml"):
            raise folders.no_run(self.folder)
        table = configuration.read(self.folder / "config.toml", follow=False)
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
        self.changes: tuple[Change, ...] = read_changes(self.folder)
        # Without the method's code: a run can be read, and shown, where its file is missing.
        now = changed_table(table, self.changes)
        self.config: RunConfig = configuration.from_table(now, str(self.folder / "config.toml"), code=False)
        self._warn, self._said = warn, dict[str, None]()
        self._fits = True  # what else is in the folder fits the checkpoint

    def __reduce__(self) -> tuple[type[Run], tuple[Path]]:
        """Pickled and copied as its folder: a run is read from there."""
        return Run, (self.folder,)

    def runnable_config(self, method: Method | None = None, call: str = "resume") -> RunConfig:
        """The initial config, with the method's code loaded; a method that only exists in Python must be passed."""
        table = self._table["method"] if isinstance(self._table["method"], dict) else {}
        if method is None and CUSTOM in (table.get("name"), table.get("schedule")):
            what = "a method that" if table.get("name") == CUSTOM else "whose schedule is a function that"
            raise ConfigError(
                f"{self.folder} trains with {self.config.method.name}, {what} only Python has: "
                f"give it, as in orlomo.{call}({str(self.folder)!r}, method=...)"
            )
        return configuration.from_table(self._table, str(self.folder / "config.toml"), method=method)

    def changed_code(self, config: RunConfig) -> list[str]:
        """Those of `task` and `method` whose file has changed since the run started."""
        now = configuration.code_digests(config)  # without those whose file is not here, about which nothing is known
        recorded = self._table.get("code", {})
        return [what for what, digest in recorded.items() if now.get(what, digest) != digest]

    @cached_property
    def seals(self) -> Seals:
        """What the newest checkpoint says of the other files."""
        return Seals(self.folder, len(self.changes), is_being_written(self.folder))

    def findings(self, *names: str) -> list[Finding]:
        """What is wrong with these files, and with how the run was configured, by the seals in its newest checkpoint.

        Each file is read when it is first asked for, and once. What this returns is not warned of again.
        """
        found = self.seals.find((folders.CONFIG, CHANGES, *names))
        self._said |= {f"{self.folder}/{finding}": None for finding in found}
        return found

    def _say(self, *names: str) -> None:
        """Warn of what is wrong with these files, once."""
        for finding in self.seals.find((folders.CONFIG, CHANGES, *names)):
            self._say_once(f"{self.folder}/{finding}")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said[text] = None
            self._warn(text)

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is whole and that the other files fit; if they fit none, the newest whole one."""
        found, passed, self._fits = self.seals.choose()
        for text in passed if self._fits else passed[:1]:
            self._say_once(f"{text}; {'using the one before it' if self._fits else 'none of its checkpoints fits'}")
        if found is not None and found.values["config_sha256"] != sha256_of(self.folder / folders.CONFIG):
            raise RunFolderError(f"{self.folder}/config.toml was changed after the run began: restore it")
        if found is not None and (known := found.values.get("changes", [])) != to_json(self.changes)[: len(known)]:
            raise RunFolderError(f"{self.folder}/changes.json was changed by hand: restore it")
        return found

    @property
    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, whether or not the other files fit it."""
        return checkpoints.load_newest(self.folder / folders.CHECKPOINTS, self._say_once)

    @property
    def fitting(self) -> Checkpoint | None:
        """The checkpoint, where the other files fit it; where they fit none, an error: nothing can be continued."""
        found = self.checkpoint
        if not self._fits:
            [text, *_] = self._said or [f"{self.folder} has no whole checkpoint"]
            raise RunFolderError(f"{text}: restore it, or begin again in another folder")
        return found

    @property
    def resumable(self) -> Checkpoint | None:
        """The checkpoint that a resume continues from; None: the run begins (again)."""
        saved = self.fitting
        if saved is None or (saved.position == 0 and self._new_changes):  # nothing has happened: they count from w_0
            return None
        return dataclasses.replace(saved, values={**saved.values, "stopped": self.stopped})

    @property
    def _new_changes(self) -> tuple[Change, ...]:
        """Those made since the newest checkpoint."""
        return () if self.checkpoint is None else self.changes[len(self.checkpoint.values.get("changes", [])) :]

    @property
    def finished(self) -> bool:
        """Whether the run is complete and all its files are there."""
        # The checkpoint says so last (see training._finish), but a user may have removed the model since.
        return self.checkpoint is not None and self._is_done(self.checkpoint.values)

    def _is_done(self, values: Values) -> bool:
        # A change after the end means that the run continues.
        at_end = values.get("finished") and len(values.get("changes", [])) == len(self.changes)
        return bool(at_end) and is_file(self.folder / folders.MODEL)

    @property
    def stopped(self) -> str | None:
        """Why a callback stopped the run early; None if none did. Such a run is finished."""
        if self.checkpoint is None or any(change.epochs is not None for change in self._new_changes):
            return None  # with other epochs it continues
        reason: str | None = self.checkpoint.values.get("stopped")
        return reason

    def model(self, build: Build = None) -> nn.Module:
        """The trained model in evaluation mode: its parameters, frozen ones too, and its buffers.

        Built-in tasks and those named by `FILE.py:NAME` are built again. A run folder holds no code: for a Task that
        only exists in Python, pass `build`: the Task, its `model` function, or a module to load into.

        >>> import torch, orlomo
        >>> task = orlomo.Task(model=lambda: torch.nn.Linear(4, 1), train_data=torch.randn(32, 4), batch_size=8,
        ...                    loss=lambda model, batch: model(batch).square().mean())
        >>> run = orlomo.train(task, "asgd", workers=2, epochs=1, jobs=1, out=getfixture("tmp_path") / "run")
        >>> bool((run.model(task).weight.flatten() == run.params[:4]).all())
        True
        >>> run = orlomo.train("digits", workers=2, epochs=0.5, jobs=1, out=getfixture("tmp_path") / "digits")
        >>> run.model().training
        False
        """
        path = self._model_path
        if self.config.is_loop and build is None:
            raise ConfigError(
                f"{self.folder} trained your own loop: give what makes its model, as in run.model(MyModel)"
            )
        self._say(folders.MODEL)
        return best_model.load_model(path, build, self.config.task, self.config.seed, self.config.is_loop)

    def load_into(self, model: nn.Module | Sequence[nn.Module]) -> None:
        """Load the trained parameters into this module, or into the list of modules that were attached together.

        For your own loop, these are the trained parameters and the buffers; frozen parameters are left as they are.

        >>> import torch, orlomo
        >>> run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
        >>> model = orlomo.task("quadratic").model()
        >>> run.load_into(model)
        >>> bool(torch.nn.utils.parameters_to_vector(model.parameters()).equal(run.params))
        True
        """
        path = self._model_path
        self._say(folders.MODEL)
        best_model.load_state(path, model, self.config.is_loop)

    @property
    def _model_path(self) -> Path:
        path = self.folder / folders.MODEL
        if not is_there(path):
            command = folders.resume_command(self.folder)
            raise RunFolderError(f"{self.folder} is not finished and has no model yet: `{command}`")
        check_file(path)
        return path

    @property
    def best(self) -> Best | None:
        """The best model, `run.best.model()`, and `run.best.metrics`; None unless a callback such as
        `orlomo.KeepBest` kept one."""
        self._say(best_model.BEST)
        return best_model.read_best(self.folder, self.config.task, self.config.seed)

    @property
    def state(self) -> str:
        """`running`, `finished` or `stopped`, by a look at the folder: nothing large is read or verified."""
        if is_being_written(self.folder):
            return "running"
        done = self._is_done(checkpoints.newest_values(self.folder / folders.CHECKPOINTS))
        return "finished" if done else "stopped"

    def is_cut_off(self, table: str) -> bool:
        """Whether `events`, `metrics` or `rounds` ends in the middle of a line although no process is writing it."""
        return self.state != "running" and is_cut_off(self.folder / f"{table}.csv")

    @property
    def params(self) -> Tensor:
        """The server's parameters: at the end, or at the newest checkpoint."""
        if self.checkpoint is None:
            raise RunFolderError(f"{self.folder} has no checkpoint yet")
        return self.checkpoint.params

    @property
    def virtual(self) -> bool:
        """Whether the run's own clock, the `seconds` of its tables, is that of the simulator."""
        return self.config.clock == "virtual"

    @property
    def clock(self) -> str:
        """What the run's `seconds` are, for display."""
        return "virtual seconds" if self.virtual else "seconds"

    @cached_property
    def measured(self) -> tuple[MetricColumn, ...]:
        """What the run's metrics are, in the order in which they are shown; the first is the most important."""
        self._say(folders.MEASURED)
        return folders.read_measured(self.folder, may_be_none=self.config.is_loop)

    @cached_property
    def worker_data(self) -> list[dict[str, Any]]:
        """What each worker trains on (`worker`, `data`, `samples`, `batch_size`); empty where all have the same."""
        self._say(folders.WORKER_DATA)
        return folders.read_worker_data(self.folder)

    def schema(self, table: str) -> Schema:
        """The columns of `events`, `metrics` or `rounds` and their types."""
        known = {"events": EVENTS, "rounds": LOOP_ROUNDS}
        return known[table] if table in known else metrics_schema(self.measured)

    @cached_property
    def event_columns(self) -> Columns:
        """The trace, numpy arrays by name."""
        self._say("events.csv")
        return read_table(self.folder / "events.csv", EVENTS)

    def some_events(self, *names: str) -> Columns:
        """Only these columns of the trace, which saves memory in large runs; a missing one is an error."""
        self._say("events.csv")
        return read_table(self.folder / "events.csv", EVENTS, names)

    @cached_property
    def metric_columns(self) -> Columns:
        """The evaluations, numpy arrays by name."""
        self._say("metrics.csv")
        return read_table(self.folder / "metrics.csv", self.schema("metrics"))

    @cached_property
    def round_columns(self) -> Columns:
        """The rounds of a user's own loop, numpy arrays by name; without a row where the run is of a Task."""
        self._say(folders.ROUNDS_FILE)
        path = self.folder / folders.ROUNDS_FILE
        return read_table(path, LOOP_ROUNDS) if is_there(path) else empty(LOOP_ROUNDS)

    @property
    def metric_rows(self) -> list[Row]:
        """The evaluations, one dict per row."""
        columns = {name: column.tolist() for name, column in self.metric_columns.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    @property
    def events(self) -> Any:
        """The trace: a pandas frame where pandas is installed, else numpy arrays by name."""
        return frame(self.event_columns)

    @property
    def metrics(self) -> Any:
        """The evaluations: a pandas frame where pandas is installed, else numpy arrays by name."""
        return frame(self.metric_columns)

    @property
    def rounds(self) -> Any:
        """The rounds of a user's own loop: a pandas frame where pandas is installed, else numpy arrays by name."""
        return frame(self.round_columns)

    def __repr__(self) -> str:
        state = f"stopped: {self.stopped}" if self.stopped else "finished" if self.finished else "not finished"
        return f"Run({str(self.folder)!r}, {self.config.method.name} on {self.config.task}, {state})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        from orlomo.report.web.notebook import html_of  # it reads runs itself

        return html_of(self)
