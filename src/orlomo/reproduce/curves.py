"""Curves of one row: test accuracy and training loss, against virtual time and against epochs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orlomo.records.run import Run
from orlomo.report.plot import draw_runs, figure_files, new_figure

PANELS = (
    ("test_accuracy", "virtual_seconds", "test accuracy (%)", "virtual time"),
    ("test_accuracy", "epoch", "test accuracy (%)", "epochs (equal numbers of gradients)"),
    ("train_loss", "virtual_seconds", "training loss", "virtual time"),
    ("train_loss", "epoch", "training loss", "epochs (equal numbers of gradients)"),
)


WARM_UP = 0.15
"""Share of a run in which accuracy rises so fast that showing it would flatten the rest."""


def curves(runs: dict[str, list[Run]], title: str, path: Path) -> list[Path]:
    """Draw the four panels; `path` without an ending. Writes PNG and SVG."""
    if not any(runs.values()):
        return []
    figure, axes = new_figure(2, 2, (10, 6.4))
    for panel, (column, against, label, below) in zip(axes.flat, PANELS, strict=True):
        draw_runs(panel, runs, column, against)
        panel.set(xlabel=below, ylabel=label)
        if column == "train_loss":
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=_floor(runs))
    axes.flat[0].legend(frameon=False)
    figure.suptitle(title)
    return figure_files(figure, path)


def _floor(runs: dict[str, list[Run]]) -> float:
    """The lowest accuracy, in percent, after the warm-up."""
    values = [
        100 * run.metric_columns["test_accuracy"].astype(float)[int(WARM_UP * len(run.metric_columns["epoch"])) + 1 :]
        for group in runs.values()
        for run in group
    ]
    kept = np.concatenate(values)
    return max(0.0, float(kept.min()) - 1) if len(kept) and np.isfinite(kept).all() else 0.0
