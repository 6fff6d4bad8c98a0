"""The charts of the report page as PNG and SVG files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orlomo.records.run import Run
from orlomo.report.page import told_of
from orlomo.report.plot import COLOURS, figure_files, new_figure

STATE_COLOURS = {"transfer": "#8c96a3", "waiting": "#c9d0d9", "lost work": "#d62728", "absent": "none"}
DASHES = ("solid", "dashed", "dotted", "dashdot")

Story = dict[str, Any]


def write_figures(folders: Sequence[Path], place: Path) -> list[Path]:
    """All charts of these runs, in files named after chart and run."""
    stories = told_of([Run(folder) for folder in folders])["runs"]
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, column in (("accuracy", "test_accuracy"), ("loss", "train_loss")):
        for against in ("seconds", "samples"):
            if any(column in story["curves"] for story in stories):
                figure, axes = new_figure(1, 1, (7, 4.2))
                _curves(axes, stories, column, against)
                paths += figure_files(figure, place / f"{name}-{against}")
    charts: dict[str, Callable[[Any, Story], None]] = {
        "timeline": _timeline,
        "delays": _delays,
        "delay": lambda axes, story: _dots(axes, story, "delay", "delay"),
        "eta": lambda axes, story: _dots(axes, story, "eta", "η"),
        "groups": _groups,
    }
    for story in stories:
        for name, draw in charts.items():
            if story["facts"]["reports"] and (name != "groups" or story["groups"]):
                tall = 1.5 + 0.22 * len(story["uses"]) if name == "timeline" else 4.2
                figure, axes = new_figure(1, 1, (7, min(12.0, max(2.4, tall))))
                draw(axes, story)
                axes.set_title(f"{story['name']}: {story['method']}", fontsize=10)
                paths += figure_files(figure, place / f"{name}-{story['name'].replace('/', '-')}")
    return paths


def _curves(axes: Any, stories: list[Story], column: str, against: str) -> None:
    scale = 100.0 if column == "test_accuracy" else 1.0
    seen: dict[str, int] = {}
    for story in stories:
        if (curve := story["curves"].get(column)) is None:
            continue
        number = seen[story["method"]] = seen.get(story["method"], -1) + 1
        values = scale * np.array(curve["value"], dtype=float)
        style = {"color": COLOURS.get(story["method"]), "linestyle": DASHES[number % len(DASHES)]}
        axes.plot(curve[against], values, label=story["name"], linewidth=1.6, **style)
    label = "test accuracy (%)" if column == "test_accuracy" else "training loss"
    if column != "test_accuracy":
        axes.set_yscale("log")
    clocks = {story["clock"] for story in stories}
    clock = "seconds (virtual where simulated)" if len(clocks) > 1 else clocks.pop()
    axes.set(xlabel=clock if against == "seconds" else against, ylabel=label)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def _timeline(axes: Any, story: Story) -> None:
    bars = {name: np.array(column) for name, column in story["timeline"].items()}
    colours = {"computing": COLOURS.get(story["method"]), **STATE_COLOURS}
    for code, state in enumerate(story["timeline"]["states"]):
        own = bars["state"] == code
        if own.any():
            more = (
                {"hatch": "///", "edgecolor": "#d62728", "linewidth": 0.5} if state in ("lost work", "absent") else {}
            )
            widths = bars["end"][own] - bars["begin"][own]
            axes.barh(bars["worker"][own], widths, 0.8, bars["begin"][own], label=state, color=colours[state], **more)
    axes.invert_yaxis()
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel=story["clock"], ylabel="worker")
    axes.figure.legend(frameon=False, ncols=5, loc="outside lower left", fontsize=8)


def _delays(axes: Any, story: Story) -> None:
    counted = story["delays"]
    axes.bar(counted["left"], counted["count"], counted["width"], align="edge", color=COLOURS.get(story["method"]))
    axes.set(xlabel="delay (reports)", ylabel="reports")
    axes.grid(alpha=0.25, axis="y")


def _dots(axes: Any, story: Story, column: str, label: str) -> None:
    dots = story[column]
    axes.plot(dots["finish"], dots[column], ".", markersize=3, alpha=0.6, color=COLOURS.get(story["method"]))
    axes.set(xlabel=story["clock"], ylabel=label, ylim=(0, None))
    axes.grid(alpha=0.25)


def _groups(axes: Any, story: Story) -> None:
    groups = {name: np.array(column) for name, column in story["groups"].items()}
    first, last = story["groups"]["shown"]
    shown = groups["group"] + groups["behind"] >= first
    drawn = axes.scatter(
        groups["iteration"][shown], groups["group"][shown], c=groups["weight"][shown], cmap="cividis_r"
    )
    axes.set(xlabel="iteration", ylabel="group", ylim=(first - 0.7, last + 0.7))
    axes.figure.colorbar(drawn, label="weight in the momentum")
    axes.grid(alpha=0.25)
