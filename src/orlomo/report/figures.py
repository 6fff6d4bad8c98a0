"""The charts of charts.py as PNG and SVG files, drawn by matplotlib; one colour per method everywhere."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orlomo.files import write_bytes_atomically, writing_to
from orlomo.printing import printable
from orlomo.records.run import Run
from orlomo.records.tables import MetricColumn, headline
from orlomo.report.charts import Drawn, RunView, Spec
from orlomo.report.colours import LIGHT
from orlomo.report.speed import Target

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS, OTHER, STATE_COLOURS = LIGHT["methods"], LIGHT["other"], LIGHT["states"]
"""In a timeline; computing has the method's own colour, absent is an outline."""

STATE_HEIGHTS = {"computing": 0.8, "transfer": 0.4, "waiting": 0.12, "lost work": 0.8, "absent": 0.8}
"""In a timeline: states can be told apart without their colours."""

DASHES = ("solid", "dashed", "dotted", "dashdot")
GRID = 400
"""Points at which the mean of several runs is drawn."""

FEW = 100
"""Up to so many bars in a row have a gap between them."""

LABELLED = 40
"""At most so many rows of a timeline have a label."""


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
                axes.set_title(f"{run['name']}: {run['method']}", fontsize=10, parse_math=False)
                paths += figure_files(figure, folder / run["name"] / spec["name"])
    return paths


def has_columns(spec: Spec, runs: list[RunView]) -> bool:
    """Whether any of the runs has something to draw in this chart."""
    return any(isinstance(run["charts"].get(spec["name"]), dict) for run in runs)


def _columns(spec: Spec, run: RunView) -> Drawn:
    """What the chart draws of a run that has something to draw."""
    columns = run["charts"][spec["name"]]
    assert isinstance(columns, dict)
    return columns


def draw_lines(axes: Axes, spec: Spec, runs: list[RunView], against: str) -> None:
    """A metric of runs against `seconds`, `samples` or `epoch`; a legend where there is more than one curve."""
    seen: dict[str, int] = {}
    drawn = [run for run in runs if has_columns(spec, [run])]
    for run in drawn:
        curves = _columns(spec, run)
        for label, curve in curves.items():
            number = seen[run["method"]] = seen.get(run["method"], -1) + 1
            values = np.array(curve["value"], dtype=float)
            style: dict[str, Any] = {"color": colour_of(run["method"]), "linestyle": DASHES[number % len(DASHES)]}
            style |= {"linewidth": 1.6 + number // len(DASHES), "marker": "" if len(values) > 1 else "o"}
            text = label if len(drawn) == 1 else run["name"] + f", {label}" * (len(curves) > 1)
            axes.plot(curve[against], values, label=_legend(text), **style)
    if spec["log"]:
        _logarithmic(axes)
    clocks = {run["clock"] for run in drawn}
    clock = "seconds (virtual where simulated)" if len(clocks) > 1 else clocks.pop()
    axes.set(xlabel=clock if against == "seconds" else against, ylabel=plain_text(spec["y_label"]))
    axes.grid(alpha=0.25)
    if sum(seen.values()) + len(seen) > 1:  # `seen` has each method's last number, counted from 0
        axes.legend(frameon=False)


def draw_bars(axes: Axes, spec: Spec, run: RunView) -> None:
    """Bars beside one another: from `x`, each `width` whole numbers wide."""
    bars = {name: np.array(column, dtype=float) for name, column in _columns(spec, run).items()}
    middle = bars[spec["x"]] + (bars["width"] - 1) / 2
    axes.bar(middle, bars[spec["y"]], bars["width"], color=colour_of(run["method"]))
    axes.set(xlabel=spec["x_label"] or run["clock"], ylabel=plain_text(spec["y_label"]))
    axes.grid(alpha=0.25, axis="y")


def draw_dots(axes: Axes, spec: Spec, run: RunView) -> None:
    """One dot per row, coloured where the chart has a column for that."""
    columns = _columns(spec, run)
    x, y = (np.array(columns[name], dtype=float) for name in (spec["x"], spec["y"]))
    shown = columns.get("shown", {})  # what the page shows at first, and a picture at all
    kept = np.ones(len(x), dtype=bool)
    if spec["x"] in shown:
        kept = (x >= shown[spec["x"]][0]) & (x <= shown[spec["x"]][1])
    if spec["colour"]:
        coloured = axes.scatter(x[kept], y[kept], c=np.array(columns[spec["colour"]])[kept], cmap="cividis_r")
        axes.figure.colorbar(coloured, label=spec["colour"])
    else:
        axes.plot(x[kept], y[kept], ".", markersize=3, alpha=0.6, color=colour_of(run["method"]))
    axes.set(xlabel=spec["x_label"] or run["clock"], ylabel=plain_text(spec["y_label"]))
    if shown:
        (left, right), (low, high) = shown[spec["x"]], shown[spec["y"]]
        axes.set(xlim=(left - 1, right + 1), ylim=(low - 0.7, high + 0.7))
    elif spec["log"]:
        _logarithmic(axes)
    else:
        axes.set_ylim(0, None)
    axes.grid(alpha=0.25)


def draw_timeline(axes: Axes, spec: Spec, run: RunView) -> None:
    """One row per worker, one bar per stretch of time."""
    columns = _columns(spec, run)
    bars = {name: np.array(column) for name, column in columns.items()}
    workers, rows = np.unique(bars["worker"], return_inverse=True)
    edge = 0.3 if len(rows) < FEW * len(workers) else 0.0  # between rounds
    for code, state in enumerate(columns["states"]):
        own = bars["state"] == code
        if own.any():
            colour = STATE_COLOURS.get(state, colour_of(run["method"]))
            # Snapped to whole pixels, narrow bars would be too wide and hide others.
            more: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "linewidth": edge, "snap": False}
            if state in ("lost work", "absent"):
                hatch = {"lost work": "////", "absent": "xxx"}[state]
                more = {"hatch": hatch, "facecolor": "none", "edgecolor": colour, "linewidth": 0.5}
            widths = bars["end"][own] - bars["begin"][own]
            axes.barh(rows[own], widths, STATE_HEIGHTS[state], bars["begin"][own], label=state, **more)
    axes.invert_yaxis()
    labelled = np.arange(0, len(workers), -(-len(workers) // LABELLED))
    axes.set_yticks(labelled, workers[labelled])
    axes.set(xlabel=run["clock"], ylabel=plain_text(spec["y_label"]))
    axes.figure.legend(frameon=False, ncols=5, loc="outside lower left", fontsize=8)


DRAWN: dict[str, Callable[[Axes, Spec, RunView], None]] = {
    "bars": draw_bars,
    "dots": draw_dots,
    "timeline": draw_timeline,
}


def _logarithmic(axes: Axes) -> None:
    """Make the y axis logarithmic, where all that is drawn is above zero."""
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()])
    if (drawn[~np.isnan(drawn)] > 0).all():
        axes.set_yscale("log")


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
        _logarithmic(axes)
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


def plain_text(text: str) -> str:
    """A text that is drawn as it is: between dollars it would be mathematics."""
    return printable(text).replace("$", r"\$")


def _legend(text: str) -> str:
    """A legend leaves out what begins with an underscore."""
    return plain_text(f" {text}" if text.startswith("_") else text)


def _file_name(metric: str) -> str:
    """The metric's name, as a file's: it comes from the run's folder, and may be anything."""
    return re.sub(r"[^\w-]", "_", metric)


def new_figure(rows: int, columns: int, inches: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, row by row."""
    from matplotlib.figure import Figure  # not pyplot: its state belongs to the user

    figure = Figure(figsize=inches, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def figure_files(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and SVG; `path` is without an ending."""
    paths = [path.with_name(f"{path.name}.{ending}") for ending in ("png", "svg")]
    for one in paths:
        drawn = io.BytesIO()
        save_figure(figure, drawn, one.suffix[1:])
        with writing_to(one.parent):
            one.parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomically(one, drawn.getvalue())
    return paths


def save_figure(figure: Figure, file: IO[str] | IO[bytes], kind: str) -> None:
    """Write a figure to a file; the same plot gives the same bytes."""
    from matplotlib import rc_context

    # Without a salt the ids in an SVG file are random.
    with rc_context({"svg.hashsalt": "orlomo"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # letters that the font does not have become boxes
        figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def colour_of(method: str) -> str:
    """A method's colour; grey for one that is not ours."""
    return COLOURS.get(method, OTHER)
