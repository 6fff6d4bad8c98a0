"""Plots: accuracy against virtual time, one colour a method everywhere."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orlomo.records.run import Run

COLOURS = {  # Okabe and Ito's palette: distinct for colour-blind eyes too
    "orlomo": "#D55E00",
    "prsgdm": "#0072B2",
    "al-sgd": "#009E73",
    "local-ormo-da": "#CC79A7",
    "ormo-da": "#E69F00",
    "asgd": "#56B4E9",
    "local-sgd": "#000000",
    "msgd": "#999999",
}
OTHER = "#7f7f7f"
STATE_COLOURS = {"transfer": "#8c96a3", "waiting": "#c9d0d9", "lost work": "#d62728", "absent": "#d62728"}
"""In a timeline; computing has the method's own, and absent only the outline."""

STATE_HEIGHTS = {"computing": 0.8, "transfer": 0.4, "waiting": 0.12, "lost work": 0.8, "absent": 0.8}
"""In a timeline: no eye needs colours to tell them apart."""

POINTS = 400


def accuracy_plot(runs: dict[str, list[Run]], title: str, folder: Path) -> list[Path]:
    """Test accuracy against time: the mean over the seeds, and the range from the worst to the best.

    Tasks without an accuracy are drawn by their training loss. Writes a PNG and an SVG file.
    """
    first = next((run for group in runs.values() for run in group), None)
    if first is None:
        return []
    by_accuracy = not np.isnan(first.metric_columns["test_accuracy"].astype(float)).all()
    column, label = ("test_accuracy", "test accuracy (%)") if by_accuracy else ("train_loss", "training loss")
    figure, axes = new_figure(1, 1, (7, 4.2))
    draw_runs(axes, runs, column, "virtual_seconds")
    if not by_accuracy:
        axes.set_yscale("log")
    step = first.config.cluster.step_seconds
    virtual = f"virtual time (a local step of a fast worker takes {step:g})"
    axes.set(xlabel=virtual if first.config.clock == "virtual" else "seconds", ylabel=label, title=title)
    axes.legend(frameon=False)
    return figure_files(figure, folder / ("accuracy" if by_accuracy else "loss"))


def new_figure(rows: int, columns: int, inches: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its panels."""
    from matplotlib.figure import Figure  # slow to import; and not pyplot, which is the user's own

    figure = Figure(figsize=inches, layout="constrained")
    return figure, figure.subplots(rows, columns)


def draw_runs(axes: Any, runs: dict[str, list[Run]], column: str, against: str) -> None:
    """A curve a method: the mean over its runs and their range, with a dot at the end. Accuracies in percent."""
    for name, group in runs.items():
        if not group:
            continue
        places, curves = _curves(group, column, against, 100.0 if column == "test_accuracy" else 1.0)
        colour = colour_of(name)
        axes.plot(places, curves.mean(axis=0), label=name, color=colour, linewidth=1.8)
        axes.fill_between(places, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        axes.plot(places[-1], curves[:, -1].mean(), "o", color=colour, markersize=5)
    axes.grid(alpha=0.25)


def figure_files(figure: Any, path: Path) -> list[Path]:
    """Write a figure as PNG and SVG; `path` is without an ending."""
    paths = [path.with_name(f"{path.name}.{ending}") for ending in ("png", "svg")]
    for place in paths:
        save_figure(figure, place, place.suffix[1:])
    return paths


def save_figure(figure: Any, place: Any, kind: str) -> None:
    """Write a figure to a file, or to something like one; the same plot gives the same bytes."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "orlomo"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # of a name in other letters: boxes in its place
        figure.savefig(place, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def colour_of(method: str) -> str:
    """A method's colour; grey for one that is not ours."""
    return COLOURS.get(method, OTHER)


def _curves(
    group: list[Run], column: str, against: str, scale: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The runs' curves on one grid, up to where the shortest ends."""
    end = min(float(run.metric_columns[against][-1]) for run in group)
    places = np.linspace(0.0, end, POINTS)
    curves = [
        np.interp(places, run.metric_columns[against], scale * run.metric_columns[column].astype(float))
        for run in group
    ]
    return places, np.stack(curves)
