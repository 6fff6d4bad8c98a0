"""Reproduce a table of the paper: every row, method and seed; then the table, the CSV file and the curves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from orlomo.errors import ConfigError, require
from orlomo.files import write_atomically, write_text_atomically, writing_to
from orlomo.records.run import Run
from orlomo.report.drawing.style import figure_files, new_figure, plain_text
from orlomo.report.figures import draw_means
from orlomo.report.summary import columns_of, without_nan, write_rows
from orlomo.report.terminal.screen import ProgressDisplay
from orlomo.reproduce.experiment import ACCURACY, LOSS, Experiment, choose_rows
from orlomo.reproduce.plan import Cell, Scale, cells
from orlomo.reproduce.runner import run_cells
from orlomo.reproduce.table import Line, caption, lines, results_table
from orlomo.reproduce.tuning import tuned
from orlomo.tasks.registry import task
from orlomo.tasks.task import Task


@dataclass(frozen=True)
class Reproduction:
    """The result: one line per row and method, and the files."""

    lines: list[Line]
    text: str
    folder: Path
    files: list[Path]

    def to_json(self) -> dict[str, object]:
        """Plain values; NaN becomes None."""
        return {"folder": str(self.folder), "lines": [without_nan(asdict(line)) for line in self.lines]}


def reproduce(
    experiment: Experiment,
    scale: Scale,
    folder: Path,
    *,
    jobs: int,
    device: str,
    progress: ProgressDisplay,
    warn: Callable[[str], None],
) -> Reproduction:
    """Run what is not there yet, then write tables and curves into the scale's folder."""
    rows = choose_rows(experiment.rows, list(scale.rows))
    # Loaded first: missing data is an error before anything is trained.
    needed = {name: task(name) for name in dict.fromkeys(row.task for row in rows)}
    experiment = tuned(experiment, folder)
    folder = folder / scale.name
    try:
        wanted = cells(experiment, scale, needed, folder, device)
    except (TypeError, ZeroDivisionError) as error:  # the file's values are first computed with here
        raise ConfigError(f"{experiment.name}: a value in its file is of the wrong kind: {error}") from None
    require(bool(wanted), f"{experiment.name} has no rows, or no methods")
    results = run_cells(wanted, needed, jobs, progress, warn)
    return write(experiment, scale, needed, results, folder)


def write(
    experiment: Experiment,
    scale: Scale,
    needed: dict[str, Task],
    results: dict[Cell, Run | None],
    folder: Path,
) -> Reproduction:
    """The files of a finished experiment; a part of it has its own, beside those of the whole."""
    table = lines(results)
    seeds = max(cell.seed for cell in results) + 1
    text = f"# {experiment.title}\n\n{results_table(table)}\n{caption(experiment, scale, needed, table, seeds)}"
    result = Reproduction(table, text, folder, [])
    # A part does not overwrite the table of the whole.
    stem = f"table-{scale.chosen}" if scale.chosen else "table"
    contents = {f"{stem}.md": text, f"{stem}.json": json.dumps(result.to_json(), indent=1)}
    with writing_to(folder):
        for name, content in contents.items():
            write_text_atomically(folder / name, content)
        write_atomically(folder / f"{stem}.csv", lambda path: write_rows(path, [columns_of(line) for line in table]))
    result.files.extend(folder / f"{stem}.{ending}" for ending in ("md", "csv", "json"))
    part = f"-{scale.part_of_a_row}" if scale.part_of_a_row else ""
    for row in dict.fromkeys(cell.row for cell in results):
        runs: dict[str, list[Run]] = {}
        for cell, run in results.items():
            if cell.row == row and run is not None:
                runs.setdefault(cell.method, []).append(run)
        result.files.extend(curves(runs, row.title, folder / f"curves-{row.name}{part}"))
    return result


AGAINST = {"seconds": "virtual time", "epoch": "epochs (equal numbers of gradients)"}

WARM_UP = 0.15
"""Share of a run in which accuracy rises so fast that showing it would flatten the rest."""


def curves(runs: dict[str, list[Run]], title: str, path: Path) -> list[Path]:
    """Draw accuracy and loss against time and epochs, as PNG and SVG; `path` is without an ending."""
    first = next((run for group in runs.values() for run in group), None)
    if first is None:
        return []
    measured = {one.column: one for one in first.measured}
    panels = [(measured[column], against) for column in (ACCURACY, LOSS) for against in AGAINST]
    figure, axes = new_figure(2, 2, (10, 6.4))
    for panel, (one, against) in zip(axes, panels, strict=True):
        draw_means(panel, runs, one, against)
        panel.set(xlabel=AGAINST[against], ylabel=one.label + one.unit)
        if one.log:
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=_floor(runs))
    axes[0].legend(frameon=False)
    figure.suptitle(plain_text(title))
    return figure_files(figure, path)


def _floor(runs: dict[str, list[Run]]) -> float:
    """The lowest accuracy, in percent, after the warm-up."""
    tables = [run.metric_columns for group in runs.values() for run in group]
    kept = np.concatenate([100 * table[ACCURACY][int(WARM_UP * len(table["epoch"])) + 1 :] for table in tables])
    return max(0.0, float(kept.min()) - 1) if len(kept) and np.isfinite(kept).all() else 0.0
