"""The charts of the report page as PNG and SVG files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from orlomo.report.plot import STATE_COLOURS, STATE_HEIGHTS, colour_of, figure_files, new_figure

DASHES = ("solid", "dashed", "dotted", "dashdot")
LABELS = {
    "test_accuracy": "test accuracy (%)",
    "train_loss": "training loss",
    "loss": "loss of each report",
    "delay": "delay",
    "eta": "η",
}

FEW = 100
"""Bars of a row that are drawn apart from one another."""

LABELLED = 40
"""Rows of a timeline that have room for a label."""

Story = dict[str, Any]


def write_figures(stories: list[Story], place: Path) -> list[Path]:
    """All charts of these runs (see story.py): the curves together, the others in a folder a run."""
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, column in (("accuracy", "test_accuracy"), ("loss", "train_loss")):
        for against in ("seconds", "samples"):
            if any(column in story["curves"] for story in stories):
                figure, axes = new_figure(1, 1, (7, 4.2))
                draw_curves(axes, stories, column, against)
                paths += figure_files(figure, place / f"{name}-{against}")
    charts: dict[str, Callable[[Any, Story], None]] = {
        "timeline": _timeline,
        "delays": draw_delays,
        "loss": lambda axes, story: draw_dots(axes, story, "loss"),
        "delay": lambda axes, story: draw_dots(axes, story, "delay"),
        "eta": lambda axes, story: draw_dots(axes, story, "eta"),
        "groups": _groups,
    }
    for story in stories:
        left_out = {"loss"} if "train_loss" in story["curves"] else set()
        left_out |= {"groups"} if isinstance(story["groups"], str) else set()
        (place / story["name"]).mkdir(parents=True, exist_ok=True)
        for name, draw in charts.items():
            if story["facts"]["reports"] and name not in left_out:
                tall = 1.5 + 0.22 * len(story["uses"]) if name == "timeline" else 4.2
                figure, axes = new_figure(1, 1, (7, min(12.0, max(2.4, tall))))
                draw(axes, story)
                axes.set_title(f"{story['name']}: {story['method']}", fontsize=10, parse_math=False)
                paths += figure_files(figure, place / story["name"] / name)
    return paths


def draw_curves(axes: Any, stories: list[Story], column: str, against: str) -> None:
    """Accuracy or loss of runs against `seconds`, `samples` or `epoch`; a legend where there is more than one."""
    scale = 100.0 if column == "test_accuracy" else 1.0
    seen: dict[str, int] = {}
    for story in stories:
        if (curve := story["curves"].get(column)) is None:
            continue
        number = seen[story["method"]] = seen.get(story["method"], -1) + 1
        values = scale * np.array(curve["value"], dtype=float)
        style: dict[str, Any] = {"color": colour_of(story["method"]), "linestyle": DASHES[number % len(DASHES)]}
        style |= {"linewidth": 1.6 + number // len(DASHES), "marker": "" if len(values) > 1 else "o"}
        label = story["name"].replace("$", r"\$")
        axes.plot(curve[against], values, label=f" {label}" if label.startswith("_") else label, **style)
    if column != "test_accuracy":
        _logarithmic(axes)
    clocks = {story["clock"] for story in stories}
    clock = "seconds (virtual where simulated)" if len(clocks) > 1 else clocks.pop()
    axes.set(xlabel=clock if against == "seconds" else against, ylabel=LABELS[column])
    axes.grid(alpha=0.25)
    if len(stories) > 1:
        axes.legend(frameon=False)


def draw_delays(axes: Any, story: Story) -> None:
    """How often there was which delay."""
    counted = {name: np.array(column, dtype=float) for name, column in story["delays"].items()}
    middle = counted["left"] + (counted["width"] - 1) / 2
    axes.bar(middle, counted["count"], counted["width"], color=colour_of(story["method"]))
    axes.set(xlabel="delay (reports)", ylabel="reports")
    axes.grid(alpha=0.25, axis="y")


def _timeline(axes: Any, story: Story) -> None:
    bars = {name: np.array(column) for name, column in story["timeline"].items()}
    workers, rows = np.unique(bars["worker"], return_inverse=True)
    edge = 0.3 if len(rows) < FEW * len(workers) else 0.0  # between rounds
    for code, state in enumerate(story["timeline"]["states"]):
        own = bars["state"] == code
        if own.any():
            colour = STATE_COLOURS.get(state, colour_of(story["method"]))
            more: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "linewidth": edge, "snap": False}
            if state in ("lost work", "absent"):
                hatch = {"lost work": "////", "absent": "xxx"}[state]
                more = {"hatch": hatch, "facecolor": "none", "edgecolor": colour, "linewidth": 0.5}
            widths = bars["end"][own] - bars["begin"][own]
            axes.barh(rows[own], widths, STATE_HEIGHTS[state], bars["begin"][own], label=state, **more)
    axes.invert_yaxis()
    labelled = np.arange(0, len(workers), -(-len(workers) // LABELLED))
    axes.set_yticks(labelled, workers[labelled])
    axes.set(xlabel=story["clock"], ylabel="worker")
    axes.figure.legend(frameon=False, ncols=5, loc="outside lower left", fontsize=8)


def draw_dots(axes: Any, story: Story, column: str) -> None:
    """A dot a report: its `delay`, `eta` or `loss` against time."""
    dots = story[column]
    values = np.array(dots[column], dtype=float)
    axes.plot(dots["finish"], values, ".", markersize=3, alpha=0.6, color=colour_of(story["method"]))
    axes.set(xlabel=story["clock"], ylabel=LABELS[column])
    if column == "loss":
        _logarithmic(axes)
    else:
        axes.set_ylim(0, None)
    axes.grid(alpha=0.25)


def _logarithmic(axes: Any) -> None:
    """Where all that is drawn is above zero."""
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()])
    if (drawn[~np.isnan(drawn)] > 0).all():
        axes.set_yscale("log")


def _groups(axes: Any, story: Story) -> None:
    groups = {name: np.array(column) for name, column in story["groups"].items() if name != "shown"}
    begin, end = story["groups"]["shown"]["iteration"]
    lowest, highest = story["groups"]["shown"]["group"]
    own = (groups["iteration"] >= begin) & (groups["iteration"] <= end)
    drawn = axes.scatter(groups["iteration"][own], groups["group"][own], c=groups["weight"][own], cmap="cividis_r")
    axes.set(xlabel="iteration", ylabel="group", xlim=(begin - 1, end + 1), ylim=(lowest - 0.7, highest + 0.7))
    axes.figure.colorbar(drawn, label="weight in the momentum")
    axes.grid(alpha=0.25)
