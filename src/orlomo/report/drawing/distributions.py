"""Delays, weights and losses of many reports: histograms, bands of quantiles, rows, and sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from orlomo.report.charts import Drawn, RunView, Spec
from orlomo.report.drawing.style import colour_of, logarithmic, plain_text

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes

Numbers = NDArray[np.float64]

SHARES = (
    ("weight", "entered the momentum", 0.9),
    ("eta", "had decayed when it came", 0.45),
    ("full", "cut for the delay", 0.0),
)
"""Of the ideal sum of weights: a column, what lies between it and the one before, and how dark that is."""

FAR = 4
"""An axis is logarithmic where the largest value is so many times above the 95% quantiles."""

MARKS = (0, 1, 3, 10, 30, 100, 300, 1000, 3000, *(10**power for power in range(4, 19)))


def columns_of(spec: Spec, run: RunView) -> Drawn:
    """What the chart draws of a run that has something to draw."""
    columns = run["charts"][spec["name"]]
    assert isinstance(columns, dict)
    return columns


def draw_bars(axes: Axes, spec: Spec, run: RunView) -> None:
    """A histogram; what lies beyond its last bar is said, and drawn as one hatched bar."""
    columns, colour = columns_of(spec, run), colour_of(run["method"])
    left, width = np.array(columns["left"], dtype=float), columns["width"]
    axes.bar(left + (width - 1) / 2, columns["counts"], width, color=colour, edgecolor="white", linewidth=0.5)
    if columns["above"]:
        # Apart from the others: it has no place on the axis.
        apart = max(2.0, len(left) / 10) * width
        more: dict[str, Any] = {"facecolor": "none", "edgecolor": colour, "hatch": "////", "linewidth": 0.8}
        axes.bar(left[-1] + width + apart, columns["above"], apart / 2, **more)
        axes.text(0.99, 0.95, columns["rest"], transform=axes.transAxes, ha="right", va="top", fontsize=9)
        axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= columns["limit"]])
    _named(axes, spec, run)
    axes.grid(alpha=0.25, axis="y")


def draw_bands(axes: Axes, spec: Spec, run: RunView) -> None:
    """In each bin of time the middle 90%, the median, and a dot where some lie far above."""
    columns, colour = columns_of(spec, run), colour_of(run["method"])
    edges, (low, middle, high) = steps(columns, "low", "middle", "high")
    if not spec["log"]:
        _far(axes, "y", columns)
    axes.stairs(high, edges, baseline=low, fill=True, color=colour, alpha=0.25, label="5% to 95%")
    x = np.repeat(edges, 2)[1:-1]
    axes.plot(x, np.repeat(middle, 2), color=colour, linewidth=1.4, label="median")
    many = np.array(columns["outliers"])
    if many.any():
        centres = (np.array(columns["bin"]) + 0.5) * columns["width"]
        tops = np.array(columns["largest"], dtype=float)
        text = f"above twice the 95%: {many.sum():,} reports, up to {tops.max():,.10g}"
        axes.plot(centres[many > 0], tops[many > 0], ".", color=colour, markersize=4, label=text)
    _named(axes, spec, run)
    if spec["log"]:
        logarithmic(axes)
    else:
        axes.set_ylim(0, None)
    _legend(axes)
    axes.grid(alpha=0.25)


def steps(columns: Drawn, *names: str) -> tuple[Numbers, list[Numbers]]:
    """The edges of all bins from the first to the last, and the columns with NaN in bins without reports."""
    bins = np.array(columns["bin"])
    count = int(bins[-1] - bins[0]) + 1
    edges = np.minimum((bins[0] + np.arange(count + 1)) * columns["width"], columns["end"])
    found = []
    for name in names:
        column = np.full(count, np.nan)
        column[bins - bins[0]] = np.array(columns[name], dtype=float)
        found.append(column)
    return edges, found


def draw_rows(axes: Axes, spec: Spec, run: RunView) -> None:
    """One row per worker: the middle 90%, the median, the largest."""
    columns, colour = columns_of(spec, run), colour_of(run["method"])
    rows = np.arange(len(columns["worker"]))
    low, middle, high, largest = (np.array(columns[name], dtype=float) for name in ("low", "middle", "high", "largest"))
    _far(axes, "x", columns)
    axes.barh(rows, high - low + 0.4, 0.55, np.maximum(0, low - 0.2), color=colour, alpha=0.3, label="5% to 95%")
    axes.plot(middle, rows, "|", color=colour, markersize=9, markeredgewidth=2.5, label="median")
    axes.plot(largest, rows, ".", color=colour, markersize=4, label="largest")
    axes.set_yticks(rows, [plain_text(label) for label in columns["worker"]])
    axes.invert_yaxis()
    axes.set(xlabel=plain_text(spec["x_label"]), xlim=(0, None))
    _legend(axes)
    axes.grid(alpha=0.25, axis="x")


def draw_weights(axes: Axes, spec: Spec, run: RunView) -> None:
    """For each delay the median of its weights and their middle 90%; the more reports, the larger the dot."""
    columns, colour = columns_of(spec, run), colour_of(run["method"])
    x = (np.array(columns["delay"], dtype=float) + np.array(columns["last"], dtype=float)) / 2
    sizes = 8 + 90 * np.sqrt(np.array(columns["number"]) / max(columns["number"]))
    kinds = {"eta": ("o", "none", "η"), "weight": ("D", colour, "weight in the momentum")}
    for name, (marker, face, label) in kinds.items():
        if f"{name}_middle" not in columns:
            continue
        low, middle, high = (np.array(columns[f"{name}_{part}"], dtype=float) for part in ("low", "middle", "high"))
        axes.vlines(x, low, high, color=colour, alpha=0.4, linewidth=1.5)
        axes.scatter(x, middle, sizes, marker=marker, facecolors=face, edgecolors=colour, linewidths=1.2, label=label)
    if columns["last"][-1] > 60:
        _widen(axes, "x", columns["last"][-1])
    axes.set_ylim(0, None)
    _named(axes, spec, run)
    axes.legend(frameon=False, fontsize=8, markerscale=0.6)
    axes.grid(alpha=0.25)


def draw_audit(axes: Axes, spec: Spec, run: RunView) -> None:
    """In each bin of time what became of the ideal sum of weights."""
    columns, colour = columns_of(spec, run), colour_of(run["method"])
    shown = [one for one in SHARES if one[0] in columns and (one[0] != "full" or any(columns["cut"]))]
    edges, sums = steps(columns, *(name for name, _, _ in shown))
    [full] = steps(columns, "full")[1]
    ideal = np.nansum(full)
    below = np.zeros(len(edges) - 1)
    for (_, label, dark), column in zip(shown, sums, strict=True):
        label = label if "weight" in columns or not dark else "applied"
        own = np.nansum(column - below)
        style: dict[str, Any] = {"color": colour, "alpha": dark} if dark else {"facecolor": "none", "hatch": "////"}
        style |= {"edgecolor": colour, "linewidth": 0.3, "label": f"{label}: {own:,.4g} ({own / ideal:.1%})"}
        axes.stairs(column / full, edges, baseline=below / full, fill=True, **style)
        below = column
    _named(axes, spec, run)
    axes.set_ylim(0, None)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    _legend(axes, columns=2)


def draw_dots(axes: Axes, spec: Spec, run: RunView) -> None:
    """One dot per report, with the colour of its value in one column where one is named."""
    columns = columns_of(spec, run)
    values = columns[spec["colour"]] if spec["colour"] else None
    coloured = axes.scatter(columns[spec["x"]], columns[spec["y"]], 16, values, cmap="cividis_r" if values else None)
    if values:
        axes.figure.colorbar(coloured, label=spec["colour"])
    _named(axes, spec, run)
    axes.grid(alpha=0.25)


def _far(axes: Axes, axis: Literal["x", "y"], columns: Drawn) -> None:
    """Where a few values are very large, make an axis logarithmic."""
    if max(columns["largest"]) > FAR * max(3, *columns["high"]):
        _widen(axes, axis, max(columns["largest"]))


def _widen(axes: Axes, axis: Literal["x", "y"], largest: float) -> None:
    """A scale of log(1 + value), which has a place for 0."""
    scale, one = (axes.set_xscale, axes.xaxis) if axis == "x" else (axes.set_yscale, axes.yaxis)
    scale("function", functions=(lambda value: np.log1p(np.maximum(value, 0)), np.expm1))
    marks = [mark for mark in MARKS if mark <= 1.2 * largest]
    one.set_ticks(marks, [f"{mark:,}" for mark in marks])


def _legend(axes: Axes, columns: int = 3) -> None:
    axes.legend(frameon=False, fontsize=8, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1))


def _named(axes: Axes, spec: Spec, run: RunView) -> None:
    for axis in (axes.xaxis, *([] if spec["log"] else [axes.yaxis])):
        axis.set_major_formatter("{x:,.10g}")
    axes.set(xlabel=plain_text(spec["x_label"] or run["clock"]), ylabel=plain_text(spec["y_label"]))
