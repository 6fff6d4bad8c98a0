"""Delays, weights and losses of many reports: histograms, bands of quantiles, rows, and sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orlomo.report.charts import Drawn, RunView, Spec
from orlomo.report.drawing.style import colour_of, logarithmic, plain_text

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes

Numbers = NDArray[np.float64]

SHARES = (("weight", "in time", 1.0), ("eta", "late, in its place", 0.55), ("full", "cut for its delay", 0.0))
"""Of the ideal sum of weights: each column up to its own sum, what is between it and the one before, how dark."""


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
        # As wide as four bars, two bars away: it has another scale.
        where = left[-1] + width * 5
        more: dict[str, Any] = {"color": "none", "edgecolor": colour, "hatch": "////", "linewidth": 0.8}
        axes.bar(where, columns["above"], 3 * width, **more)
        axes.annotate(
            columns["rest"], (where, columns["above"]), (0, 5), textcoords="offset points", ha="right", fontsize=8
        )
    _named(axes, spec, run)
    axes.grid(alpha=0.25, axis="y")


def draw_bands(axes: Axes, spec: Spec, run: RunView) -> None:
    """In each bin of time the middle 90%, the median, and a dot where some lie far above."""
    columns, colour = columns_of(spec, run), colour_of(run["method"])
    edges, (low, middle, high) = steps(columns, "low", "middle", "high")
    axes.stairs(high, edges, baseline=low, fill=True, color=colour, alpha=0.25, label="5% to 95%")
    x = np.repeat(edges, 2)[1:-1]
    axes.plot(x, np.repeat(middle, 2), color=colour, linewidth=1.4, label="median")
    many = np.array(columns["outliers"])
    if many.any():
        centres = (np.array(columns["bin"]) + 0.5) * columns["width"]
        text = f"largest, where above twice the 95% ({many.sum():,} reports)"
        tops = np.array(columns["largest"], dtype=float)
        axes.plot(centres[many > 0], tops[many > 0], ".", color=colour, markersize=4, label=text)
    _named(axes, spec, run)
    if spec["log"]:
        logarithmic(axes)
    else:
        axes.set_ylim(0, None)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
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
    axes.barh(rows, high - low + 0.4, 0.55, low - 0.2, color=colour, alpha=0.3, label="5% to 95%")
    axes.plot(middle, rows, "|", color=colour, markersize=9, markeredgewidth=2.5, label="median")
    axes.plot(largest, rows, ".", color=colour, markersize=4, label="largest")
    axes.set_yticks(rows, [plain_text(label) for label in columns["worker"]])
    axes.invert_yaxis()
    axes.set(xlabel=plain_text(spec["x_label"]))
    if largest.max() > 10 * max(high.max(), 1):
        axes.set_xscale("symlog", linthresh=max(1.0, float(high.max())))
    axes.set_xlim(-0.4, None)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
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
    if x[-1] > 60:
        axes.set_xscale("symlog", linthresh=10)
    axes.set_ylim(0, None)
    _named(axes, spec, run)
    axes.legend(frameon=False, fontsize=8, markerscale=0.6)
    axes.grid(alpha=0.25)


def draw_audit(axes: Axes, spec: Spec, run: RunView) -> None:
    """In each bin of time what became of the ideal sum of weights."""
    columns, colour = columns_of(spec, run), colour_of(run["method"])
    shown = [one for one in SHARES if one[0] in columns]
    edges, sums = steps(columns, *(name for name, _, _ in shown))
    ideal = np.nansum(sums[-1])
    below = np.zeros(len(edges) - 1)
    for (_, label, dark), column in zip(shown, sums, strict=True):
        own = np.nansum(column - below)
        style: dict[str, Any] = {"color": colour, "alpha": dark} if dark else {"facecolor": "none", "hatch": "////"}
        style |= {"edgecolor": colour, "linewidth": 0.3, "label": f"{label}: {own:,.4g} ({own / ideal:.1%})"}
        axes.stairs(column / sums[-1], edges, baseline=below / sums[-1], fill=True, **style)
        below = column
    _named(axes, spec, run)
    axes.set_ylim(0, None)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))


def draw_dots(axes: Axes, spec: Spec, run: RunView) -> None:
    """One dot per report, with the colour of its value in one column."""
    columns = columns_of(spec, run)
    coloured = axes.scatter(columns[spec["x"]], columns[spec["y"]], c=columns[spec["colour"]], cmap="cividis_r")
    axes.figure.colorbar(coloured, label=spec["colour"])
    _named(axes, spec, run)
    axes.grid(alpha=0.25)


def _named(axes: Axes, spec: Spec, run: RunView) -> None:
    axes.set(xlabel=plain_text(spec["x_label"] or run["clock"]), ylabel=plain_text(spec["y_label"]))
