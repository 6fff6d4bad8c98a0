"""The charts of charts.py as PNG and SVG files, drawn by matplotlib; one colour per method everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orlomo.records.run import Run
from orlomo.records.tables import MetricColumn, headline
from orlomo.report.charts import RunView, Spec
from orlomo.report.drawing.distributions import (
    columns_of,
    draw_audit,
    draw_bands,
    draw_bars,
    draw_dots,
    draw_rows,
    draw_weights,
)
from orlomo.report.drawing.style import colour_of, figure_files, logarithmic, new_figure, plain_text
from orlomo.report.drawing.timelines import draw_timeline, timelines_figure
from orlomo.report.speed import Target

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes

DASHES = ("solid", "dashed", "dotted", "dashdot")
GRID = 400
"""Points at which the mean of several runs is drawn."""


def write_figures(charts: list[Spec], runs: list[RunView], folder: Path) -> list[Path]:
    """All charts of these runs: the curves together, the others in one folder per run."""
    paths = []
    for spec in charts:
        if spec["kind"] == "lines":
            for against in ("seconds", "samples"):
                if has_columns(spec, runs):
                    figure, [axes] = new_figure(1, 1, (7, 4.2))
                    draw_lines(axes, spec, runs, against)
                    paths += figure_files(
                        figure, folder / f"{_file_name(spec['name'].removeprefix('metric-'))}-{against}"
                    )
    for run in runs:
        for spec in charts:
            if spec["kind"] != "lines" and has_columns(spec, [run]):
                tall = 1.5 + 0.22 * len(run["uses"]) if spec["kind"] == "timeline" else 4.2
                figure, [axes] = new_figure(1, 1, (7, min(12.0, max(2.4, tall))))
                DRAWN[spec["kind"]](axes, spec, run)
                figure.suptitle(f"{run['name']}: {run['method']}", fontsize=10, parse_math=False)
                paths += figure_files(figure, folder / run["name"] / spec["name"])
    return paths + _both_timelines(charts, runs, folder)


def _both_timelines(charts: list[Spec], runs: list[RunView], folder: Path) -> list[Path]:
    """A synchronous run above an asynchronous one, where there are both on one clock."""
    for spec in charts:
        drawn = [run for run in runs if spec["kind"] == "timeline" and has_columns(spec, [run])]
        for upper in (run for run in drawn if run["synchronous"]):
            others = [run for run in drawn if not run["synchronous"] and run["clock"] == upper["clock"]]
            if others:
                lower = next((run for run in others if run["method"] == "orlomo"), others[0])
                both = [(_timeline_title(run), run["method"], columns_of(spec, run)) for run in (upper, lower)]
                return figure_files(timelines_figure(both, upper["clock"]), folder / "timelines")
    return []


def _timeline_title(run: RunView) -> str:
    shares = [use["computing"] for use in run["uses"] if isinstance(use["computing"], float)]
    name = run["name"] if run["name"] == run["method"] else f"{run['name']} ({run['method']})"
    return f"{name}: workers computed {sum(shares) / max(1, len(shares)):.0%} of the time"


def has_columns(spec: Spec, runs: list[RunView]) -> bool:
    """Whether any of the runs has something to draw in this chart."""
    return any(isinstance(run["charts"].get(spec["name"]), dict) for run in runs)


def draw_lines(axes: Axes, spec: Spec, runs: list[RunView], against: str) -> None:
    """A metric of runs against `seconds`, `samples` or `epoch`; a legend where there is more than one curve."""
    seen: dict[str, int] = {}
    drawn = [run for run in runs if has_columns(spec, [run])]
    for run in drawn:
        curves = columns_of(spec, run)
        for label, curve in curves.items():
            number = seen[run["method"]] = seen.get(run["method"], -1) + 1
            values = np.array(curve["value"], dtype=float)
            style: dict[str, Any] = {"color": colour_of(run["method"]), "linestyle": DASHES[number % len(DASHES)]}
            style |= {"linewidth": 1.6 + number // len(DASHES), "marker": "" if len(values) > 1 else "o"}
            text = label if len(drawn) == 1 else run["name"] + f", {label}" * (len(curves) > 1)
            axes.plot(curve[against], values, label=_legend(text), **style)
    if spec["log"]:
        logarithmic(axes)
    clocks = {run["clock"] for run in drawn}
    clock = "seconds (virtual where simulated)" if len(clocks) > 1 else clocks.pop()
    axes.set(xlabel=clock if against == "seconds" else against, ylabel=plain_text(spec["y_label"]))
    axes.grid(alpha=0.25)
    if sum(seen.values()) + len(seen) > 1:  # `seen` has each method's last number, counted from 0
        axes.legend(frameon=False)


DRAWN: dict[str, Callable[[Axes, Spec, RunView], None]] = {
    "timeline": lambda axes, spec, run: draw_timeline(axes, columns_of(spec, run), run["method"], run["clock"]),
    "bars": draw_bars,
    "bands": draw_bands,
    "rows": draw_rows,
    "weights": draw_weights,
    "audit": draw_audit,
    "dots": draw_dots,
}


def comparison_figure(runs: dict[str, list[Run]], title: str, folder: Path, target: Target | None = None) -> list[Path]:
    """The most important metric against time: the mean over the seeds, and the range from the worst to the best.

    Writes a PNG and an SVG file.
    """
    first = next((run for group in runs.values() for run in group), None)
    if first is None:
        return []
    one = headline(first.measured, first.metric_columns)
    figure, [axes] = new_figure(1, 1, (7, 4.2))
    draw_means(axes, runs, one, "seconds")
    if one.log:
        logarithmic(axes)
    step = first.config.cluster.step_seconds
    unit = f" (a local step of a fast worker takes {step:g})" if first.virtual else ""
    axes.set(xlabel=first.clock + unit, ylabel=plain_text(one.label + one.unit), title=plain_text(title))
    axes.legend(frameon=False)
    return figure_files(figure, folder / _file_name(one.metric))


def draw_means(axes: Axes, runs: dict[str, list[Run]], one: MetricColumn, against: str) -> None:
    """One curve per method: the mean over its runs and their range, with a dot at the end."""
    for name, group in runs.items():
        if not group:
            continue
        grid, curves = _curves(group, one, against)
        colour = colour_of(name)
        axes.plot(grid, curves.mean(axis=0), label=_legend(name), color=colour, linewidth=1.8)
        axes.fill_between(grid, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        axes.plot(grid[-1], curves[:, -1].mean(), "o", color=colour, markersize=5)
    axes.grid(alpha=0.25)


def _curves(group: list[Run], one: MetricColumn, against: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The runs' curves on one grid, up to where the shortest ends."""
    # Beyond a curve's end np.interp repeats its last value, which would look like a result.
    end = min(float(run.metric_columns[against][-1]) for run in group)
    grid = np.linspace(0.0, end, GRID)
    tables = [run.metric_columns for run in group]
    return grid, np.stack([np.interp(grid, table[against], one.scale * table[one.column]) for table in tables])


def _legend(text: str) -> str:
    """A legend leaves out what begins with an underscore."""
    return plain_text(f" {text}" if text.startswith("_") else text)


def _file_name(metric: str) -> str:
    """The metric's name, as a file's: it comes from the run's folder, and may be anything."""
    return re.sub(r"[^\w-]", "_", metric)
