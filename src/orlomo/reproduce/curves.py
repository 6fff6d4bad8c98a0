"""Curves of one row: test accuracy and training loss, against virtual time and against epochs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orlomo.records.run import Run
from orlomo.report.figures import draw_means, figure_files, new_figure
from orlomo.reproduce.experiment import ACCURACY, LOSS

AGAINST = {"seconds": "virtual time", "epoch": "epochs (equal numbers of gradients)"}

WARM_UP = 0.15
"""Share of a run in which accuracy rises so fast that showing it would flatten the rest."""


def curves(runs: dict[str, list[Run]], title: str, path: Path) -> list[Path]:
    """Draw the four panels; `path` without an ending. Writes PNG and SVG."""
    first = next((run for group in runs.values() for run in group), None)
    if first is None:
        return []
    measured = {one.column: one for one in first.measured}
    panels = [(measured[column], against) for column in (ACCURACY, LOSS) for against in AGAINST]
    figure, axes = new_figure(2, 2, (10, 6.4))
    for panel, (one, against) in zip(axes.flat, panels, strict=True):
        draw_means(panel, runs, one, against)
        panel.set(xlabel=AGAINST[against], ylabel=one.label + one.unit)
        if one.log:
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=_floor(runs))
    axes.flat[0].legend(frameon=False)
    figure.suptitle(title)
    return figure_files(figure, path)


def _floor(runs: dict[str, list[Run]]) -> float:
    """The lowest accuracy, in percent, after the warm-up."""
    tables = [run.metric_columns for group in runs.values() for run in group]
    kept = np.concatenate([100 * table[ACCURACY][int(WARM_UP * len(table["epoch"])) + 1 :] for table in tables])
    return max(0.0, float(kept.min()) - 1) if len(kept) and np.isfinite(kept).all() else 0.0
