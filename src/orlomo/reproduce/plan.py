"""Which runs an experiment needs, at the scale asked for."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from orlomo.comparing import settings_for
from orlomo.config import RunConfig, from_table
from orlomo.errors import ConfigError, require, require_at_most, unknown_name
from orlomo.methods.registry import method_class
from orlomo.report.comparison.groups import label
from orlomo.reproduce.experiment import Experiment, Recipe, Row, choose_rows
from orlomo.tasks.task import Task

FEWEST_GROUPS = 40
"""Momentum needs this many groups (T/K) to show what it does: where there would be fewer, the batch is made smaller."""

SMALLEST_BATCH = 8


@dataclass(frozen=True)
class Scale:
    """What is asked for in place of the paper's full experiment."""

    epochs: Fraction = Fraction(1)  # exact: it names a folder
    images: int | None = None
    seeds: int | None = None
    methods: tuple[str, ...] | None = None
    rows: tuple[str, ...] = ()

    @property
    def chosen(self) -> str:
        """For a file's name: which part of the experiment this is; empty for the whole."""
        return "-".join(part for part in (_for_a_file(" or ".join(self.rows)), self.part_of_a_row) if part)

    @property
    def part_of_a_row(self) -> str:
        """The part of `chosen` that leaves out methods or seeds of each row."""
        return _for_a_file(" ".join([*(self.methods or ()), *([f"{self.seeds}-seeds"] if self.seeds else [])]))

    @property
    def name(self) -> str:
        """For a folder's name: runs of different scales are kept apart."""
        parts = ["full" if self.epochs == 1 else f"scale-{self.epochs.numerator}-{self.epochs.denominator}"]
        return "-".join(parts + ([f"{self.images}-images"] if self.images else []))


def _for_a_file(words: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", words.replace("=", ""))


@dataclass(frozen=True)
class Cell:
    """One run."""

    row: Row
    method: str
    seed: int
    config: RunConfig
    folder: Path
    steps: int  # local steps of all workers together: what the run costs


def scale_of(text: str) -> Fraction:
    """A scale such as 1/16 or 0.5.

    >>> scale_of("1/16")
    Fraction(1, 16)
    """
    try:
        scale = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"--scale must be a number such as 1/16, not {text}") from None
    require(0 < scale <= 1, f"--scale must be above 0 and at most 1, not {text}")
    return scale


def cells(experiment: Experiment, scale: Scale, tasks: dict[str, Task], folder: Path, device: str) -> list[Cell]:
    """The runs, seed by seed, so that the whole table is there with one seed first."""
    methods = scale.methods or experiment.methods
    for method in methods:
        if method not in experiment.learning_rates:
            raise unknown_name(f"method of {experiment.name}", method, experiment.methods)
        method_class(method)  # an unknown name is an error
    seeds = experiment.seeds if scale.seeds is None else scale.seeds
    require(seeds >= 1, f"--seeds must be at least 1, not {seeds}")
    require_at_most(seeds, 1000, "--seeds")
    return [
        _cell(experiment, scale, row, method, seed, tasks[row.task], folder, device)
        for seed in range(seeds)
        for row in choose_rows(experiment.rows, list(scale.rows))
        for method in methods
    ]


def _cell(
    experiment: Experiment,
    scale: Scale,
    row: Row,
    method: str,
    seed: int,
    task: Task,
    folder: Path,
    device: str,
) -> Cell:
    size = task.size if scale.images is None else min(scale.images, task.size)
    recipe, rate = scaled(experiment.recipe, scale.epochs, row, size), experiment.learning_rates[method]
    config = run_config(experiment, row, method, recipe, rate, seed, device)
    if size < task.size:  # else not set, so that the config is that of a run on all images
        config = dataclasses.replace(config, samples=size)
    own = folder / row.name / f"{label(method)}-lr{rate:g}-seed{seed}"
    return Cell(row, method, seed, config, own, math.ceil(recipe.epochs * size / recipe.batch_size))


def scaled(recipe: Recipe, scale: Fraction, row: Row, size: int) -> Recipe:
    """The recipe with fewer epochs, the drops at the same fractions, and a batch small enough for enough groups.

    >>> recipe = Recipe(160, (80, 120), 64, 0.9, 0.001)
    >>> scaled(recipe, Fraction(1, 20), Row("", "", 8, 32), 50_000)
    Recipe(epochs=8.0, drops=(4.0, 6.0), batch_size=32, momentum=0.9, weight_decay=0.001)
    """
    epochs = float(recipe.epochs * scale)
    drops = tuple(float(drop * scale) for drop in recipe.drops)
    # A smaller batch makes more rounds of the same epochs, and so more groups.
    batch = recipe.batch_size
    while groups(epochs, size, batch, row) < FEWEST_GROUPS and batch // 2 >= SMALLEST_BATCH:
        batch //= 2
    return dataclasses.replace(recipe, epochs=epochs, drops=drops, batch_size=batch)


def groups(epochs: float, size: float, batch_size: int, row: Row) -> float:
    """T/K: how often the server's momentum is applied."""
    return epochs * size / (batch_size * row.local_steps * row.workers)


def run_config(
    experiment: Experiment, row: Row, method: str, recipe: Recipe, rate: float, seed: int, device: str
) -> RunConfig:
    """One run's config."""
    if row.scenario not in experiment.scenarios:
        raise unknown_name(f"scenario of {experiment.name}", row.scenario, experiment.scenarios)
    # One recipe for all methods; `settings_for` leaves out what a method does not have.
    settings = {
        "learning_rate": rate,
        "momentum": recipe.momentum,
        "local_steps": row.local_steps,
        "weight_decay": recipe.weight_decay,
        "schedule": "step:" + ",".join(f"{drop:g}" for drop in recipe.drops) if recipe.drops else "constant",
    }
    table = {
        "task": row.task,
        "cluster": experiment.scenarios[row.scenario],
        "workers": row.workers,
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size,
        "seed": seed,
        "device": device,
        "evaluate_every": max(min(1.0, recipe.epochs / 8), recipe.epochs / 40),  # 8 to 40 points on each curve
        "method": {"name": method, **settings_for(method, settings)},
    }
    return from_table(table, experiment.name)
