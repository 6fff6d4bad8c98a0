"""An experiment of the paper, read from `experiments/NAME.toml`: its rows, its recipe and the paper's numbers."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orlomo.config import read
from orlomo.errors import ConfigError, require, unknown_name
from orlomo.trust import Code, code_in

METRICS = ("accuracy", "loss")
"""What the paper's tables report."""

ACCURACY, LOSS = "test_accuracy", "train_loss"
"""The columns of our metrics.csv that hold it."""

Table = dict[str, Any]
"""The content of an experiment's file: whatever its author wrote. Wrong types are reported where they are used."""


@dataclass(frozen=True)
class Row:
    """One line of a table: a task, a scenario, K and S, and what the paper reports for each method.

    `paper`: metric -> method -> (mean, spread); accuracies in percent.
    """

    task: str
    scenario: str
    workers: int
    local_steps: int
    # Not compared, so that rows can be keys: a dict has no hash.
    paper: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """For names of folders and files."""
        return re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.task}-{self.scenario}-K{self.workers}-S{self.local_steps}")

    @property
    def title(self) -> str:
        """For display."""
        return f"{self.task}, {self.scenario}, K={self.workers}, S={self.local_steps}"


@dataclass(frozen=True)
class Recipe:
    """How every run of an experiment is trained."""

    epochs: float
    drops: tuple[float, ...]
    batch_size: int
    momentum: float
    weight_decay: float


@dataclass(frozen=True)
class Tuning:
    """The rows and the short recipe on which learning rates are chosen."""

    rows: tuple[Row, ...]
    epochs: float
    batch_size: int
    held_out: float


@dataclass(frozen=True)
class Experiment:
    """A table of the paper. `scenarios`: name -> cluster preset."""

    name: str
    title: str
    note: str
    methods: tuple[str, ...]
    seeds: int
    scenarios: dict[str, str]
    recipe: Recipe
    grid: dict[str, tuple[float, ...]]
    tuning: Tuning
    learning_rates: dict[str, float]
    how_chosen: str
    rows: tuple[Row, ...]


def _files() -> dict[str, Path]:
    """Every experiment's file, by name. `experiments/` in the working folder goes before those of the package."""
    packaged = Path(__file__).parent / "experiments"
    # A checkout has them beside `src`; the wheel has them in the package.
    folders = [packaged if packaged.is_dir() else Path(__file__).parents[3] / "experiments", Path("experiments")]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}


def names() -> dict[str, str]:
    """Every experiment and its title."""
    titles = {}
    for name, path in sorted(_files().items()):
        with contextlib.suppress(ConfigError):  # a file that is no experiment
            titles[name] = read(path).get("title")
    return {name: str(title) for name, title in titles.items() if title}


def table_of(name: str) -> Table:
    """The content of an experiment's file, by the experiment's name or the file's path."""
    if name.endswith(".toml") or os.sep in name:
        return read(Path(name))
    files = _files()
    if name not in files:
        raise unknown_name("experiment", name, files)
    return read(files[name])


def experiment(name: str) -> Experiment:
    """The experiment of a table of accuracies.

    >>> [row.title for row in experiment("table-resnet20").rows][:1]
    ['cifar10-resnet20, homogeneous, K=8, S=8']
    """
    table = table_of(name)
    try:
        rates = table["learning_rates"]
        tuning = rates["tuning"]
        recipe = table["recipe"]
        return Experiment(
            name=Path(name).stem,
            title=table["title"],
            note=table.get("note", ""),
            methods=tuple(table["methods"]),
            seeds=table["seeds"],
            scenarios=table["scenarios"],
            recipe=Recipe(**{**recipe, "drops": tuple(recipe["drops"])}),
            grid={method: tuple(values) for method, values in rates["grid"].items()},
            tuning=Tuning(
                tuple(Row(tuning["task"], tuning["scenario"], **row) for row in tuning["rows"]),
                tuning["epochs"],
                tuning["batch_size"],
                tuning["held_out"],
            ),
            learning_rates=rates["chosen"],
            how_chosen=rates["how"],
            rows=tuple(_rows(table)),
        )
    except (KeyError, TypeError) as error:
        raise ConfigError(f"experiment {name}: {error} is missing or wrong") from None


def code_of(experiment: Experiment, methods: Collection[str] | None) -> list[Code]:
    """The code that an experiment's file names. `methods`: those that the user has named instead of the file's."""
    tasks = dict.fromkeys(row.task for row in (*experiment.rows, *experiment.tuning.rows))
    found = [code for task in tasks for code in code_in({"task": task})]
    return found + [
        code for name in (experiment.methods if methods is None else ()) for code in code_in({"method": name})
    ]


def _rows(table: Table) -> list[Row]:
    """The rows as written, or all combinations under [grid] where there are no numbers to write."""
    rows = [_row(row) for row in table.get("rows", [])]
    grid = table.get("grid")
    if grid is not None:
        rows += [
            Row(task, scenario, workers, steps)
            for task in grid["tasks"]
            for scenario in table["scenarios"]
            for workers in grid["workers"]
            for steps in grid["local_steps"]
        ]
    return rows


def _row(table: Table) -> Row:
    paper = {
        metric: {
            method: (float(values[0]), float(values[1]) if len(values) > 1 else math.nan)
            for method, values in table[metric].items()
        }
        for metric in METRICS
        if metric in table
    }
    return Row(table["task"], table["scenario"], table["workers"], table["local_steps"], paper)


def choose_rows(rows: tuple[Row, ...], filters: list[str]) -> list[Row]:
    """The rows that match any of the filters, each a list such as `K=16,S=32,heterogeneous,cifar10`.

    >>> rows = experiment("table-resnet20").rows
    >>> len(choose_rows(rows, ["K=16,S=32"])), len(choose_rows(rows, ["K=8,S=8,cifar10,heterogeneous"]))
    (4, 1)
    """
    if not filters:
        return list(rows)
    wanted = [[word.strip() for word in text.split(",") if word.strip()] for text in filters]
    chosen = [row for row in rows if any(all(_matches(row, word) for word in words) for words in wanted)]
    known = sorted({f"K={r.workers}" for r in rows} | {f"S={r.local_steps}" for r in rows})
    known += sorted({r.scenario for r in rows} | {r.task for r in rows})
    # A word that matches nothing is a mistake even where another filter matches.
    for word in (word for words in wanted for word in words):
        require(any(_matches(row, word) for row in rows), f"--rows {word} matches no row; there are {', '.join(known)}")
    require(bool(chosen), f"--rows {' '.join(filters)}: no row matches all of these")
    return chosen


def wanted_rows(rows: tuple[Row, ...], filters: list[str], default: list[str]) -> list[str]:
    """The filters for the rows to run. One that matches rows outside the default ones too is narrowed to these."""
    if not filters or not default:
        return filters or default
    usual, wanted = choose_rows(rows, default), []
    for text in filters:
        matches = [row in usual for row in choose_rows(rows, [text])]
        wanted += [f"{text},{word}" for word in default] if any(matches) and not all(matches) else [text]
    return wanted


def _matches(row: Row, word: str) -> bool:
    key, equals, value = word.partition("=")
    if equals:
        return {"K": str(row.workers), "S": str(row.local_steps)}.get(key) == value
    # `cifar10` stands for all tasks on its images, such as `cifar10-resnet20`; `cifar1` for none.
    return word in (row.scenario, row.task) or row.task.startswith(word + "-")
