"""Curves of metrics, drawn by matplotlib: the seeds of a method as a band, names beside the curves, a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orlomo.records.run import Run
from orlomo.records.tables import MetricColumn
from orlomo.report.drawing.style import colour_of, logarithmic, plain_text
from orlomo.report.speed import Target

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes

DASHES = ("solid", "dashed", "dotted", "dashdot")

MOST_NAMES = 8
"""Curves that have their names at their ends; more have a legend."""

MOST_POINTS = 2000
"""Points of a curve over several seeds."""

GAP = 11.0
"""Points between two names."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """A curve: the mean of its seeds, and the range from the lowest to the highest."""

    name: str
    method: str
    x: Floats
    mean: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, name: str, method: str, seeds: Sequence[tuple[Floats, Floats]]) -> Drawn | None:
        """From the evaluations of each seed, up to where the first of them ends; None where there are none.

        Between two evaluations by a straight line. Beyond a curve's end nothing is known.
        """
        known = [(x[finite], y[finite]) for x, y in seeds for finite in [np.isfinite(x) & np.isfinite(y)]]
        known = [(x, y) for x, y in known if len(x)]
        if not known:
            return None
        end = min(float(x[-1]) for x, _ in known)
        grid = np.unique(np.concatenate([x for x, _ in known]))
        grid = grid[grid <= end]
        if len(grid) > MOST_POINTS:
            grid = grid[np.unique(np.linspace(0, len(grid) - 1, MOST_POINTS).astype(int))]
        values = np.stack([np.interp(grid, x, y) for x, y in known])
        return cls(name, method, grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def method_curves(runs: Mapping[str, Sequence[Run]], one: MetricColumn, against: str) -> list[Drawn]:
    """One curve per method that has runs."""
    found = []
    for name, group in runs.items():
        seeds = [
            (run.metric_columns[against].astype(float), one.scale * run.metric_columns[one.column]) for run in group
        ]
        found.append(Drawn.of(name, name, seeds))
    return [curve for curve in found if curve is not None]


def draw_curves(axes: Axes, curves: Sequence[Drawn], log: bool, named: bool = True, percent: bool = False) -> None:
    """Draw them, with their names at their ends, or where there are many of them, or without `named`, for a legend.

    `percent`: shares of which more is better; near 100 the axis is logarithmic towards 100. Where the first evaluations
    would flatten all the rest, the axis is cut, and says so.
    """
    seen: dict[str, int] = {}
    styles: list[dict[str, Any]] = []
    for curve in curves:
        number = seen[curve.method] = seen.get(curve.method, -1) + 1
        styles.append({"color": colour_of(curve.method), "linestyle": DASHES[number % len(DASHES)]})
        width, marker = 1.8 + number // len(DASHES), "" if len(curve.x) > 1 else "o"
        axes.plot(curve.x, curve.mean, label=legend_text(curve.name), linewidth=width, marker=marker, **styles[-1])
        if (curve.high > curve.low).any():
            axes.fill_between(curve.x, curve.low, curve.high, color=styles[-1]["color"], alpha=0.16, linewidth=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if log:
        logarithmic(axes)
    elif named and curves and not (percent and _towards_100(axes, curves)):
        _cut(axes, curves)
    if named and 1 < len(curves) <= MOST_NAMES:
        axes.set_xlim(left=min(0.0, *(float(curve.x[0]) for curve in curves)))
        _names(axes, curves, styles)


def _towards_100(axes: Axes, curves: Sequence[Drawn]) -> bool:
    """Make the axis logarithmic in what is missing to 100, where the best is near it; whether it was."""
    low, high = (min(float(c.low.min()) for c in curves), max(float(c.high.max()) for c in curves))
    if not 90 <= high < 100:
        return False
    axes.set_yscale("function", functions=(lambda y: -np.log10(100.0 - y), lambda z: 100.0 - 10.0**-z))
    ticks = [100 - one / 10**tens for tens in range(4) for one in (100, 50, 20)]
    axes.set_ylim(100 - 1.1 * (100 - low), 100 - (100 - high) / 1.15)
    axes.set_yticks([tick for tick in ticks if low - 1 <= tick <= high + 0.5 * (100 - high)])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.6g}")
    text = "the axis is logarithmic towards 100"
    axes.text(0.99, 0.01, text, transform=axes.transAxes, fontsize=8, color="#566173", ha="right", va="bottom")
    return True


def _cut(axes: Axes, curves: Sequence[Drawn]) -> None:
    """Begin the axis where the last two thirds of every curve lie, where that is less than two thirds of it all."""
    low, high = (float(extreme(getattr(curve, name))) for curve in [_joined(curves)] for name, extreme in _EXTREMES)
    later = min(float(curve.low[curve.x >= curve.x[-1] / 3].min()) for curve in curves)
    begin = later - 0.08 * (high - later)
    step = 10.0 ** np.floor(np.log10(high - begin)) if high > begin else 1.0
    begin = float(np.floor(begin / step) * step)
    if begin - low > 0.35 * (high - low):
        axes.set_ylim(begin, high + 0.06 * (high - begin))
        text = f"the axis begins at {begin:.3g}"
        axes.text(0.99, 0.01, text, transform=axes.transAxes, fontsize=8, color="#566173", ha="right", va="bottom")


_EXTREMES = (("low", np.min), ("high", np.max))


def _joined(curves: Sequence[Drawn]) -> Drawn:
    parts = [np.concatenate([getattr(curve, name) for curve in curves]) for name in ("x", "mean", "low", "high")]
    return Drawn("", "", *parts)


def _names(axes: Axes, curves: Sequence[Drawn], styles: Sequence[Mapping[str, Any]]) -> None:
    """Write the names at the ends of the curves, apart from one another."""
    transform = axes.transScale  # of the axes' scales alone
    bottom, top = (float(transform.transform((1.0, limit))[1]) for limit in axes.get_ylim())
    ends = [
        (float(transform.transform((1.0, float(curve.mean[-1])))[1]) - bottom) / ((top - bottom) or 1.0)
        for curve in curves
    ]
    figure, spec = axes.get_figure(root=True), axes.get_subplotspec()
    rows = 1 if spec is None else spec.get_gridspec().nrows
    height = 0.78 * 72 * (4.2 if figure is None else figure.get_figheight()) / rows  # of the axes, about
    gap = GAP / height
    last = max(float(curve.x[-1]) for curve in curves)
    near = [[abs(float(one.x[-1] - other.x[-1])) < 0.25 * last for other in curves] for one in curves]
    order = np.argsort(ends, kind="stable").tolist()
    places = list(ends)
    for place, number in enumerate(order):  # from below: no two at about the same time closer than the gap
        places[number] = max([places[number], *(places[o] + gap for o in order[:place] if near[number][o])])
    for place in reversed(range(len(order))):
        number = order[place]
        above = [places[other] - gap for other in order[place + 1 :] if near[number][other]]
        places[number] = min([places[number], 1.0 + gap / 2, *above])
    for number, (curve, style) in enumerate(zip(curves, styles, strict=True)):
        shift = (places[number] - ends[number]) * height
        where = (float(curve.x[-1]), float(curve.mean[-1]))
        box = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.6}
        axes.annotate(
            plain_text(curve.name),
            where,
            (5, shift),
            textcoords="offset points",
            color=style["color"],
            fontsize=9,
            va="center",
            annotation_clip=False,
            bbox=box,
        )
        axes.plot(*where, "o", color=style["color"], markersize=4)


def draw_target(axes: Axes, target: Target, times: Mapping[str, float]) -> None:
    """The target as a line, and a dot where each method reaches it: its time, by its name; where it is in sight."""
    low, high = axes.get_ylim()
    if not low <= target.value <= high:
        return
    axes.axhline(target.value, color="#566173", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(
        f"target {target}", (0.0, target.value), (4, 4), axes.get_yaxis_transform(), "offset points", fontsize=8
    )
    for method, seconds in times.items():
        axes.plot(seconds, target.value, "o", markersize=7, markerfacecolor="white", markeredgecolor=colour_of(method))


def legend_text(text: str) -> str:
    """A legend leaves out what begins with an underscore."""
    return plain_text(f" {text}" if text.startswith("_") else text)
