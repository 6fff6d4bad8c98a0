"""Reproduce a table of the paper: every row, method and seed; then the table, the CSV file and the curves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orlomo import tasks
from orlomo.records.checkpoint import write_atomically, write_text
from orlomo.records.run import Run
from orlomo.report.summary import without_nan, write_rows
from orlomo.reproduce.caption import caption
from orlomo.reproduce.curves import curves
from orlomo.reproduce.experiment import Experiment, choose_rows
from orlomo.reproduce.plan import Cell, Scale, cells
from orlomo.reproduce.progress import CellProgress
from orlomo.reproduce.runner import run_cells
from orlomo.reproduce.table import Line, lines, markdown
from orlomo.reproduce.tuning import rates_for


@dataclass(frozen=True)
class Reproduction:
    """What came out: a line a row and method, and the files."""

    lines: list[Line]
    text: str
    folder: Path
    files: list[Path]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"folder": str(self.folder), "lines": [without_nan(asdict(line)) for line in self.lines]}


def reproduce(
    experiment: Experiment,
    scale: Scale,
    folder: Path,
    *,
    jobs: int,
    device: str,
    progress: CellProgress,
    warn: Callable[[str], None],
) -> Reproduction:
    """Run what is not there yet, then write tables and curves into the scale's folder."""
    rows = choose_rows(experiment.rows, list(scale.rows))
    needed = {name: tasks.task(name) for name in dict.fromkeys(row.task for row in rows)}
    rates = rates_for(experiment, folder)
    place = folder / scale.name
    wanted = cells(experiment, scale, needed, rates, place, device)
    results = run_cells(wanted, needed, jobs, progress, warn)
    return write(experiment, scale, rates, results, place)


def write(
    experiment: Experiment, scale: Scale, rates: dict[str, float], results: dict[Cell, Run | None], folder: Path
) -> Reproduction:
    """The files of a finished experiment."""
    table = lines(results)
    seeds = max(cell.seed for cell in results) + 1
    used = {cell.method: rates[cell.method] for cell in results}
    text = f"# {experiment.title}\n\n{markdown(table)}\n{caption(experiment, scale, used, table, seeds)}"
    result = Reproduction(table, text, folder, [])
    contents = {"table.md": text, "table.json": json.dumps(result.to_json(), indent=1)}
    for name, content in contents.items():
        write_atomically(folder / name, lambda path, content=content: write_text(path, content))  # type: ignore[misc]
    write_atomically(folder / "table.csv", lambda path: write_rows(path, table))
    result.files.extend(folder / name for name in ("table.md", "table.csv", "table.json"))
    for row in dict.fromkeys(cell.row for cell in results):
        runs: dict[str, list[Run]] = {}
        for cell, run in results.items():
            if cell.row == row and run is not None:
                runs.setdefault(cell.method, []).append(run)
        result.files.extend(curves(runs, row.title, folder / f"curves-{row.name}"))
    return result
