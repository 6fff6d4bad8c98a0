"""Plots: accuracy against virtual time, one colour a method everywhere."""

from __future__ import annotations

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
POINTS = 400


def accuracy_plot(runs: dict[str, list[Run]], title: str, folder: Path) -> list[Path]:
    """Test accuracy against time: the mean over the seeds, and the range from the worst to the best.

    Tasks without an accuracy are drawn by their training loss. Writes a PNG and an SVG file.
    """
    first = next((run for group in runs.values() for run in group), None)
    if first is None:
        return []
    by_accuracy = not np.isnan(first.metrics["test_accuracy"].astype(float)).all()
    column, label = ("test_accuracy", "test accuracy (%)") if by_accuracy else ("train_loss", "training loss")
    figure, axes = new_figure(1, 1, (7, 4.2))
    draw_runs(axes, runs, column, "virtual_seconds")
    if not by_accuracy:
        axes.set_yscale("log")
    step = first.config.cluster.step_seconds
    virtual = f"virtual time (a local step of a fast worker takes {step:g})"
    axes.set(xlabel=virtual if first.config.engine == "simulated" else "seconds", ylabel=label, title=title)
    axes.legend(frameon=False)
    return figure_files(figure, folder / ("accuracy" if by_accuracy else "loss"))


def new_figure(rows: int, columns: int, inches: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its panels."""
    import matplotlib  # slow to import

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "orlomo"  # the same plot gives the same file
    from matplotlib import pyplot

    return pyplot.subplots(rows, columns, figsize=inches, layout="constrained")


def draw_runs(axes: Any, runs: dict[str, list[Run]], column: str, against: str) -> None:
    """A curve a method: the mean over its runs and their range, with a dot at the end. Accuracies in percent."""
    for name, group in runs.items():
        if not group:
            continue
        places, curves = _curves(group, column, against, 100.0 if column == "test_accuracy" else 1.0)
        colour = COLOURS.get(name)
        axes.plot(places, curves.mean(axis=0), label=name, color=colour, linewidth=1.8)
        axes.fill_between(places, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        axes.plot(places[-1], curves[:, -1].mean(), "o", color=colour, markersize=5)
    axes.grid(alpha=0.25)


def figure_files(figure: Any, path: Path) -> list[Path]:
    """Write a figure as PNG and SVG; `path` is without an ending."""
    from matplotlib import pyplot

    paths = [path.with_name(f"{path.name}.{ending}") for ending in ("png", "svg")]
    for place in paths:
        figure.savefig(place, dpi=150, metadata={"Date": None} if place.suffix == ".svg" else None)
    pyplot.close(figure)
    return paths


def _curves(
    group: list[Run], column: str, against: str, scale: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The runs' curves on one grid, up to where the shortest ends."""
    end = min(float(run.metrics[against][-1]) for run in group)
    places = np.linspace(0.0, end, POINTS)
    curves = [np.interp(places, run.metrics[against], scale * run.metrics[column].astype(float)) for run in group]
    return places, np.stack(curves)
