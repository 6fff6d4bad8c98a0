"""Choose learning rates: one grid per method, one short run per rate, judged on held-out training samples."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import tomli_w

from orlomo.config import read
from orlomo.errors import ConfigError, require, unknown_name
from orlomo.files import write_text_atomically, writing_to
from orlomo.records.run import Run
from orlomo.report.comparison.groups import label
from orlomo.report.terminal.screen import ProgressDisplay
from orlomo.reproduce.experiment import ACCURACY, Experiment
from orlomo.reproduce.plan import Cell, run_config
from orlomo.reproduce.runner import run_cells
from orlomo.tasks.task import Task

FILE = "learning-rates.toml"


def tuning_cells(experiment: Experiment, methods: tuple[str, ...], task: Task, folder: Path, device: str) -> list[Cell]:
    """The runs of the grid."""
    tuning = experiment.tuning
    share = tuning.epochs / experiment.recipe.epochs  # the learning rate drops at the same fractions of the run
    recipe = dataclasses.replace(
        experiment.recipe,
        epochs=float(tuning.epochs),
        drops=tuple(drop * share for drop in experiment.recipe.drops),
        batch_size=tuning.batch_size,
    )
    cells = []
    trained = task.size - round(tuning.held_out * task.size)
    steps = math.ceil(tuning.epochs * trained / tuning.batch_size)
    for method in methods:
        if method not in experiment.grid:
            raise unknown_name(f"method of {experiment.name}", method, experiment.grid)
    for row, method in itertools.product(tuning.rows, methods):
        for rate in experiment.grid[method]:
            config = run_config(experiment, row, method, recipe, rate, 0, device)
            config = dataclasses.replace(config, held_out=tuning.held_out, evaluate_every=float(tuning.epochs))
            own = folder / "tuning" / row.name / f"{label(method)}-lr{rate:g}"
            cells.append(Cell(row, method, 0, config, own, steps))
    return cells


def tune(
    experiment: Experiment,
    methods: tuple[str, ...],
    task: Task,
    folder: Path,
    *,
    jobs: int,
    device: str,
    progress: ProgressDisplay,
    warn: Callable[[str], None],
) -> Path:
    """Run the grid, choose by the mean over the rows, and write FILE: the chosen rates, and each one's accuracies."""
    cells = tuning_cells(experiment, methods, task, folder, device)
    results = run_cells(cells, {cell.row.task: task for cell in cells}, jobs, progress, warn)
    tried: dict[str, dict[str, list[float]]] = {}
    for cell, run in results.items():
        accuracies = tried.setdefault(cell.method, {}).setdefault(f"{cell.config.method.learning_rate:g}", [])
        accuracies.append(held_out_accuracy(run))
    known = read(folder / FILE) if (folder / FILE).is_file() else {}  # an earlier call may have tuned other methods
    chosen = dict(known.get("chosen", {}))
    for method, by_rate in tried.items():
        best = max(by_rate, key=lambda rate: (sum(by_rate[rate]), -float(rate)))  # of equals, the smallest rate
        require(sum(by_rate[best]) > 0, f"every learning rate of {method} diverged: give smaller ones in the grid")
        chosen[method] = float(best)
        # Beyond an edge there may be a better rate; of one or two rates each is at an edge.
        ordered = [float(rate) for rate in by_rate]
        if len(ordered) > 2 and float(best) in (min(ordered), max(ordered)):
            warn(f"{method}: {best} is at the edge of its grid; a wider grid may find a better one")
    text = tomli_w.dumps({"chosen": chosen, "held_out_accuracy": {**known.get("held_out_accuracy", {}), **tried}})
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(folder / FILE, text)
    return folder / FILE


def held_out_accuracy(run: Run | None) -> float:
    """In percent; 0 for a run that diverged."""
    return 0.0 if run is None else round(100 * float(run.metric_columns[ACCURACY][-1]), 2)


def tuned(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment with the learning rates that were tuned in this folder, where there are any."""
    if not (folder / FILE).is_file():
        return experiment
    chosen = read(folder / FILE).get("chosen")
    if not isinstance(chosen, dict):
        raise ConfigError(f"{folder / FILE} has no table `chosen`: remove it, or tune again")
    rates = {**experiment.learning_rates, **chosen}
    how = f"chosen on held-out training images by --tune, see {FILE}"
    if others := set(experiment.learning_rates) - set(chosen):
        how = f"{', '.join(sorted(chosen))}: {how}; {', '.join(sorted(others))}: {experiment.how_chosen}"
    return dataclasses.replace(experiment, learning_rates=rates, how_chosen=how)
