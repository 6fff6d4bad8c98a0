"""changes.json of a run: which settings were changed when it was continued, and from which event on.

config.toml keeps how the run began. With the changes it decides the result: a replay follows both.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orlomo.config import RunConfig
from orlomo.errors import RunFolderError, require
from orlomo.files import is_there, write_text_atomically
from orlomo.methods.registry import settings_of
from orlomo.reading import read_json
from orlomo.values import Table, build, plain

CHANGES = "changes.json"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of settings with which a run was resumed; None: unchanged.

    `events`: it takes effect after this many events of the trace; `epoch`: the epochs done by then; `time`: when it was
    requested. Rounds in progress keep the learning rate that they started with.

    >>> import orlomo
    >>> run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> run = orlomo.resume(run.folder, epochs=0.2, learning_rate=0.01, jobs=1)
    >>> [change] = run.changes
    >>> change.epochs, change.learning_rate, change.events, str(change)
    (0.2, 0.01, 103, 'from epoch 0.101 (event 103) on: epochs 0.2, learning rate 0.01')
    """

    events: int
    epoch: float
    time: str
    epochs: float | None = None
    learning_rate: float | None = None

    def __str__(self) -> str:
        names = {"epochs": self.epochs, "learning rate": self.learning_rate}
        what = ", ".join(f"{name} {value:g}" for name, value in names.items() if value is not None)
        return f"from epoch {self.epoch:.3g} (event {self.events:,}) on: {what}"


class Stage(NamedTuple):
    """The config from an event on."""

    events: int
    config: RunConfig


def stages(config: RunConfig, changes: Iterable[Change]) -> list[Stage]:
    """The configs that a run has had, the first from event 0 on; of several changes at one event all count."""
    found = [Stage(0, config)]
    for change in changes:
        now = changed(found[-1].config, change.epochs, change.learning_rate)
        if found[-1].events == change.events:
            found.pop()
        found.append(Stage(change.events, now))
    return found


def changed(config: RunConfig, epochs: float | None, learning_rate: float | None) -> RunConfig:
    """The config with other epochs or another learning rate; None: as it is."""
    if learning_rate is not None:
        fixed = "learning_rate" not in settings_of(type(config.method))
        require(not fixed, f"{config.method.name} has no setting learning_rate: it cannot be changed")
        config = dataclasses.replace(config, method=dataclasses.replace(config.method, learning_rate=learning_rate))
    return config if epochs is None else dataclasses.replace(config, epochs=epochs)


def changed_table(table: Table, changes: Iterable[Change]) -> Table:
    """The same for the table of a config.toml, whose method's code need not be there."""
    for change in changes:
        if change.epochs is not None:
            table = {**table, "epochs": change.epochs}
        if change.learning_rate is not None:
            method = table["method"]
            settings = method if isinstance(method, dict) else {"name": method}
            table = {**table, "method": {**settings, "learning_rate": change.learning_rate}}
    return table


def read_changes(folder: Path) -> tuple[Change, ...]:
    """The changes of a run folder, oldest first."""
    path = folder / CHANGES
    if not is_there(path):
        return ()
    try:
        return tuple(build(Change, row, str(path)) for row in read_json(path))
    except (ValueError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path} is damaged: {error}") from None


def write_changes(folder: Path, changes: Sequence[Change]) -> None:
    """In place of those that are there."""
    write_text_atomically(folder / CHANGES, json.dumps(to_json(changes), indent=1) + "\n")


def to_json(changes: Iterable[Change]) -> list[object]:
    """Plain values."""
    return [plain(change) for change in changes]
