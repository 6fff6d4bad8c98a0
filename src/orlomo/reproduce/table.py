"""A finished experiment as tables: ours beside the paper's, at equal numbers of gradients and at equal virtual time.

The caption under a table says what a reader must know beside the numbers: what was scaled, the settings, and what each
column means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orlomo.data.catalog import DATASETS
from orlomo.records.run import Run
from orlomo.report.summary import markdown, mean, number_text, spread, with_diverged
from orlomo.report.terminal.screen import duration
from orlomo.reproduce.experiment import ACCURACY, LOSS, Experiment, Row
from orlomo.reproduce.plan import FEWEST_GROUPS, Cell, Scale, groups
from orlomo.tasks.data import data_size
from orlomo.tasks.task import Task


@dataclass(frozen=True)
class Line:
    """One method in one row of the experiment: means over the seeds, and the spread (sample standard deviation).

    Accuracies in percent, `seconds` virtual. `accuracy_at_equal_time`: at the virtual time at which the first method of
    the row was done, seed by seed.
    """

    task: str
    scenario: str
    workers: int
    local_steps: int
    method: str
    runs: int
    diverged: int
    epochs: float
    batch_size: int
    groups: float
    learning_rate: float
    paper_accuracy: float
    paper_accuracy_spread: float
    accuracy: float
    accuracy_spread: float
    accuracy_at_equal_time: float
    paper_loss: float
    paper_loss_spread: float
    loss: float
    loss_spread: float
    seconds: float
    speed_up: float
    max_delay: int
    real_seconds: float


def lines(results: dict[Cell, Run | None]) -> list[Line]:
    """One line per row and method."""
    table = []
    for row in dict.fromkeys(cell.row for cell in results):
        by_method: dict[str, list[tuple[Cell, Run | None]]] = {}
        for cell, run in results.items():
            if cell.row == row:
                by_method.setdefault(cell.method, []).append((cell, run))
        table += _row_lines(row, by_method)
    return table


def _row_lines(row: Row, by_method: dict[str, list[tuple[Cell, Run | None]]]) -> list[Line]:
    whole = {method: [run for _, run in pairs if run is not None] for method, pairs in by_method.items()}
    first_ends: dict[int, float] = {}  # by seed: seeds have schedules of different lengths
    for run in (run for runs in whole.values() for run in runs):
        end = float(run.metric_columns["seconds"][-1])
        first_ends[run.config.seed] = min(end, first_ends.get(run.config.seed, math.inf))
    base = _pace(whole.get("prsgdm", []))  # NaN without it: no speed-ups then
    table = []
    for method, pairs in by_method.items():
        cell, runs = pairs[0][0], whole[method]
        config = cell.config
        batch = config.batch_size or 0
        # The number of training samples, which the config has only where it was limited.
        size = config.samples or (
            runs[0].metric_columns["samples"][-1] / runs[0].metric_columns["epoch"][-1] if runs else math.nan
        )
        paper_accuracy = row.paper.get("accuracy", {}).get(method, (math.nan, math.nan))
        paper_loss = row.paper.get("loss", {}).get(method, (math.nan, math.nan))
        table.append(
            Line(
                row.task,
                row.scenario,
                row.workers,
                row.local_steps,
                method,
                runs=len(pairs),
                diverged=len(pairs) - len(runs),
                epochs=config.epochs,
                batch_size=batch,
                groups=groups(config.epochs, float(size), batch, row),
                learning_rate=config.method.learning_rate,
                paper_accuracy=paper_accuracy[0],
                paper_accuracy_spread=paper_accuracy[1],
                accuracy=100 * mean(_last(runs, ACCURACY)),
                accuracy_spread=100 * spread(_last(runs, ACCURACY)),
                accuracy_at_equal_time=100 * _mean_at(runs, ACCURACY, first_ends),
                paper_loss=paper_loss[0],
                paper_loss_spread=paper_loss[1],
                loss=mean(_last(runs, LOSS)),
                loss_spread=spread(_last(runs, LOSS)),
                seconds=mean(_last(runs, "seconds")),
                speed_up=_pace(runs) / base,
                max_delay=max((_max_delay(run) for run in runs), default=0),
                real_seconds=mean(_last(runs, "real_seconds")),
            )
        )
    return table


def _last(runs: list[Run], column: str) -> list[float]:
    return [float(run.metric_columns[column][-1]) for run in runs]


def _mean_at(runs: list[Run], column: str, times: dict[int, float]) -> float:
    """The mean of the runs' curves, each at its seed's virtual time; between evaluations by a straight line."""
    tables = [(times[run.config.seed], run.metric_columns) for run in runs]
    return mean([float(np.interp(end, table["seconds"], table[column])) for end, table in tables])


def _pace(runs: list[Run]) -> float:
    """Epochs per virtual second."""
    return mean(_last(runs, "epoch")) / mean(_last(runs, "seconds"))


def _max_delay(run: Run) -> int:
    events = run.some_events("kind", "delay")
    return int(events["delay"][events["kind"] == "report"].max())


HEADINGS = (
    "row",
    "method",
    "paper's accuracy",
    "accuracy, equal gradients",
    "accuracy, equal time",
    "paper's loss",
    "loss",
    "virtual time",
    "speed-up",
    "max delay",
)


def results_table(table: list[Line]) -> str:
    """The table for a document; columns of the paper's numbers are left out where it has none."""
    drawn = [HEADINGS, *(_cells(line) for line in table)]
    kept = [column for column in range(len(HEADINGS)) if any(row[column] not in ("", "-") for row in drawn[1:])]
    if len({line.method for line in table}) == 1:  # nothing to compare with
        kept = [column for column in kept if HEADINGS[column] != "accuracy, equal time"]
    headings, *rows = [[row[column] for column in kept] for row in drawn]
    return markdown(headings, rows, words=("row", "method"))


def _cells(line: Line) -> tuple[str, ...]:
    accuracy = _with_spread(line.accuracy, line.accuracy_spread)
    return (
        f"{line.task} {line.scenario} K={line.workers} S={line.local_steps}",
        line.method,
        _with_spread(line.paper_accuracy, line.paper_accuracy_spread),
        with_diverged(accuracy, line.diverged, line.runs),
        _with_spread(line.accuracy_at_equal_time, math.nan),
        _with_spread(line.paper_loss, line.paper_loss_spread),
        _with_spread(line.loss, line.loss_spread, 3),
        number_text(line.seconds, ".0f"),
        number_text(line.speed_up, ".2f", "x"),
        str(line.max_delay) if line.diverged < line.runs else "-",
    )


def _with_spread(value: float, spread: float, digits: int = 2) -> str:
    form = f".{digits}f"
    return number_text(value, form) + ("" if math.isnan(value) or math.isnan(spread) else f" ± {spread:{form}}")


def is_sample(name: str, task: Task) -> bool:
    """Whether only a part of the task's data set is stored here."""
    whole = [dataset.counts["train"] for dataset in DATASETS.values() if f"{name}-".startswith(f"{dataset.name}-")]
    return any(task.size < count for count in whole)


def caption(experiment: Experiment, scale: Scale, tasks: dict[str, Task], table: list[Line], seeds: int) -> str:
    """The caption of a table, as a list in Markdown."""
    recipe = experiment.recipe
    points = []
    epochs = sorted({line.epochs for line in table})
    if scale.epochs != 1:
        shown = " or ".join(f"{value:g}" for value in epochs)
        points.append(
            f"Scaled: {shown} epochs in place of {recipe.epochs:g} (scale {scale.epochs}); the learning rate drops at "
            "the same fractions of the run."
        )
    fewer = [name for name, task in tasks.items() if scale.images is not None and scale.images < task.size]
    if fewer:
        points.append(f"Scaled: {scale.images} training images of {', '.join(fewer)} in place of all.")
    smaller = sorted({line.batch_size for line in table} - {recipe.batch_size})
    if smaller:
        shown = " or ".join(map(str, smaller))
        points.append(
            f"Scaled: batch {shown} in place of {recipe.batch_size} where fewer than {FEWEST_GROUPS} groups (T/K) "
            "would have been left."
        )
    few = [line for line in table if line.groups < FEWEST_GROUPS]
    if few:
        points.append(f"Some rows have only {min(line.groups for line in few):.2g} groups: too few to show the method.")
    if seeds != experiment.seeds:
        points.append(f"Scaled: {seeds} seed{'s' if seeds > 1 else ''} in place of {experiment.seeds}.")
    samples = [name for name, task in tasks.items() if is_sample(name, task)]
    if samples:
        points.append(f"Scaled: of {', '.join(samples)} only a sample of the images is stored here.")
    if not points:
        points.append("Nothing was scaled: the paper's recipe in full.")
    for name, task in tasks.items():
        tested = sum(map(data_size, task.test_sets.values()))
        points.append(f"Data: {name} has {task.size} training and {tested} test images here.")
    used = ", ".join(f"{line.method} {line.learning_rate:g}" for line in {line.method: line for line in table}.values())
    points.append(
        f"Learning rates: {used}. The paper gives none; {experiment.how_chosen}. "
        f"Momentum {recipe.momentum:g}, weight decay {recipe.weight_decay:g}."
    )
    points.append(
        "Equal gradients: at the end of each run, after the same number of gradients (a synchronous method also "
        "completes its last barrier). Equal time: at the virtual time "
        "at which the first method of the row had finished. Virtual time 1: a local step of a fast worker. "
        "Speed-up: gradients per virtual second against prsgdm."
    )
    points.append(
        "Loss: of the server's parameters on up to 2,000 training images, each seed's own, without augmentation; "
        "BatchNorm statistics recalibrated."
    )
    if experiment.note:
        points.append(experiment.note)
    seconds = sum(line.real_seconds * (line.runs - line.diverged) for line in table if line.diverged < line.runs)
    points.append(f"Real time of all runs, one after another: {duration(seconds)}.")
    return "\n".join(f"- {point}" for point in points) + "\n"
