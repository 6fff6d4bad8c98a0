"""The charts of charts.py as PNG and SVG files, drawn by matplotlib; one colour per method everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orlomo.records.run import Run
from orlomo.records.tables import MetricColumn, headline
from orlomo.report.charts import RunView, Spec
from orlomo.report.comparison.for_page import RowTable
from orlomo.report.drawing.curves import MOST_NAMES, Drawn, draw_curves, draw_target, method_curves
from orlomo.report.drawing.distributions import (
    columns_of,
    draw_audit,
    draw_bands,
    draw_bars,
    draw_dots,
    draw_rows,
    draw_weights,
)
from orlomo.report.drawing.style import figure_files, new_figure, plain_text
from orlomo.report.drawing.timelines import draw_timeline, timelines_figure
from orlomo.report.speed import Target

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes


def write_figures(
    charts: list[Spec], runs: list[RunView], folder: Path, methods: Sequence[RowTable] | None = None
) -> list[Path]:
    """All charts of these runs: the curves together, the seeds of each of `methods` as a band; the others by run."""
    paths = []
    for spec in charts:
        if spec["kind"] == "lines":
            for against in ("seconds", "samples"):
                if has_columns(spec, runs):
                    figure, [axes] = new_figure(1, 1, (7, 4.2))
                    draw_lines(axes, spec, runs, against, methods)
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


def draw_lines(
    axes: Axes, spec: Spec, runs: list[RunView], against: str, methods: Sequence[RowTable] | None = None
) -> None:
    """A metric of runs against `seconds`, `samples` or `epoch`; of methods, the seeds of each as a band."""
    drawn = [run for run in runs if has_columns(spec, [run])]
    groups = [(run["name"], [run]) for run in runs] if methods is None else _groups(methods, runs)
    curves = []
    for name, group in groups:
        tables = [columns_of(spec, run) for run in group if has_columns(spec, [run])]
        labels = list(dict.fromkeys(label for table in tables for label in table))
        for label in labels:
            seeds = [
                (np.array(table[label][against], dtype=float), np.array(table[label]["value"], dtype=float))
                for table in tables
                if label in table
            ]
            text = label if len(groups) == 1 else name + f", {label}" * (len(labels) > 1)
            curves.append(Drawn.of(text, group[0]["method"], seeds))
    known = [curve for curve in curves if curve is not None]
    draw_curves(axes, known, spec["log"])
    clocks = {run["clock"] for run in drawn}
    clock = "seconds (virtual where simulated)" if len(clocks) > 1 else clocks.pop()
    axes.set(xlabel=clock if against == "seconds" else against, ylabel=plain_text(spec["y_label"]))
    if len(known) > MOST_NAMES:
        axes.legend(frameon=False)


def _groups(methods: Sequence[RowTable], runs: list[RunView]) -> list[tuple[str, list[RunView]]]:
    """The runs of each method."""
    return [(row["method"], [runs[place] for place in row["runs"]]) for row in methods if row["runs"]]


DRAWN: dict[str, Callable[[Axes, Spec, RunView], None]] = {
    "timeline": lambda axes, spec, run: draw_timeline(axes, columns_of(spec, run), run["method"], run["clock"]),
    "bars": draw_bars,
    "bands": draw_bands,
    "rows": draw_rows,
    "weights": draw_weights,
    "audit": draw_audit,
    "dots": draw_dots,
}


def comparison_figure(
    runs: dict[str, list[Run]],
    title: str,
    folder: Path,
    target: Target | None = None,
    times: Mapping[str, float] | None = None,
) -> list[Path]:
    """The most important metric against time: the mean over the seeds, and the range from the worst to the best.

    `times`: when each method reached the target. Writes a PNG and an SVG file.
    """
    first = next((run for group in runs.values() for run in group), None)
    if first is None:
        return []
    one = headline(first.measured, first.metric_columns) if target is None else target.metric
    figure, [axes] = new_figure(1, 1, (7.6, 4.2))
    curves = method_curves(runs, one, "seconds")
    draw_curves(axes, curves, one.log, percent=one.scale == 100 and one.better == "higher")
    if target is not None:
        draw_target(axes, target, times or {})
    step = first.config.cluster.step_seconds
    unit = f" (a local step of a fast worker takes {step:g})" if first.virtual else ""
    axes.set(xlabel=first.clock + unit, ylabel=plain_text(one.label + one.unit))
    axes.set_title(plain_text(title), loc="left", fontsize=11)
    if len(curves) > MOST_NAMES:
        axes.legend(frameon=False)
    return figure_files(figure, folder / _file_name(one.metric))


def draw_means(axes: Axes, runs: dict[str, list[Run]], one: MetricColumn, against: str) -> None:
    """One curve per method: the mean over its runs and their range; the names are for a legend."""
    draw_curves(axes, method_curves(runs, one, against), log=False, named=False)


def _file_name(metric: str) -> str:
    """The metric's name, as a file's: it comes from the run's folder, and may be anything."""
    return re.sub(r"[^\w-]", "_", metric)
