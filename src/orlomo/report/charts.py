"""The charts of a run, each declared once. The page (web/page.js) and the figures (figures.py) draw what is declared.

A new chart is one more `Chart` in `CHARTS`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, cast

import numpy as np

from orlomo.report.drawing.columns import (
    GROUPS_SHOWN,
    audit,
    delays_of_workers,
    delays_over_time,
    groups,
    histogram,
    late,
    loss_until_evaluated,
    weights,
)
from orlomo.report.streaming.rounds import CELLS, ROUNDS_KEPT, most_cells
from orlomo.report.streaming.thinning import thin
from orlomo.report.view import View, ViewTable, numbers
from orlomo.report.workers.timeline import MOST_ROWS, strips

KINDS = ("lines", "timeline", "bars", "bands", "rows", "weights", "audit", "dots")
"""How a chart is drawn. `lines`: one curve per run and data set, all runs together; the others show one run."""

SPOKEN = ("lines", "timeline")
"""The kinds that say so where there is nothing to draw; the others are left out."""

NEEDS = {"reports": "No report yet.", "evaluations": "No evaluation yet."}
"""What a chart can need, and the text that is shown where there is none of it."""

Drawn = dict[str, Any]
"""A chart's columns by name, ready for JSON. Of `lines`: such columns by the curve's label."""


class Spec(TypedDict):
    """A chart's declaration, ready for JSON."""

    name: str
    title: str
    kind: str
    x: str
    y: str
    note: str
    x_label: str
    y_label: str
    colour: str
    log: bool
    section: str | None
    wide: bool


class RunView(ViewTable):
    """A run's view with its charts, ready for JSON: by the chart's name its columns, or why there are none."""

    charts: dict[str, Drawn | str]


@dataclass(frozen=True)
class Chart:
    """One chart.

    Args:
        name: of its files and of its element on the page.
        title: above it.
        kind: one of `KINDS`.
        x, y: the columns that are drawn.
        needs: `reports` or `evaluations`.
        data: gives the columns; or a text that says why there are none; or None where the chart is left out.
        note: a line of explanation.
        x_label: default: the run's clock. `y_label`: default: the column.
        colour: the column that colours the dots.
        log: logarithmic where all values are above zero.
        section: of the page, where it is not that of all charts of this kind.
        wide: as wide as the page.
    """

    name: str
    title: str
    kind: str
    x: str
    y: str
    needs: str
    data: Callable[[View], Drawn | str | None]
    note: str = ""
    x_label: str = ""
    y_label: str = ""
    colour: str = ""
    log: bool = False
    section: str | None = None
    wide: bool = False

    def columns(self, view: View) -> Drawn | str | None:
        """What is drawn of this run, or why nothing is."""
        rows = view.seen.reports if self.needs == "reports" else len(view.metrics["reports"])
        return self.data(view) if rows else NEEDS[self.needs] if self.kind in SPOKEN else None

    def to_json(self) -> Spec:
        """The declaration, for the page."""
        declared = {name: getattr(self, name) for name in Spec.__annotations__}
        return cast(Spec, declared | {"y_label": self.y_label or self.y})


def drawn(views: Sequence[View]) -> tuple[list[Spec], list[RunView]]:
    """The declarations of all charts of these runs, and the runs with what is drawn of them."""
    charts = [*metric_charts(views), *CHARTS]
    charts = [replace(one, data=_sharing(views)) if one.kind == "timeline" else one for one in charts]
    runs: list[RunView] = []
    for view in views:
        columns = {chart.name: chart.columns(view) for chart in charts}
        runs.append({**view.to_json(), "charts": {name: one for name, one in columns.items() if one is not None}})
    return [chart.to_json() for chart in charts], runs


def metric_charts(views: Sequence[View]) -> list[Chart]:
    """One chart per metric that any of the runs has declared."""
    found: dict[str, Chart] = {}
    for view in views:
        for one in view.measured:
            # For a metric on one data set the label names it; for one on several, the legend does.
            alone = sum(other.metric == one.metric for other in view.measured) == 1
            label = one.label if alone else one.title
            chart = Chart(
                name=f"metric-{one.metric}",
                title=label[:1].upper() + label[1:],
                kind="lines",
                x="seconds",
                y="value",
                needs="evaluations",
                data=functools.partial(_curves, one.metric),  # a lambda would see the last metric of the loop
                y_label=label + one.unit,
                log=one.log,
            )
            found.setdefault(chart.name, chart)
    return list(found.values())


def _curves(metric: str, view: View) -> Drawn | str:
    """A metric's curves, one per data set, each against time, samples and epochs."""
    found = {}
    own = [one for one in view.measured if one.metric == metric]
    for one in own:
        values = one.scale * view.metrics[one.column]
        if not np.isnan(values).all():
            kept = thin(values)
            wanted = {name: view.metrics[name] for name in ("seconds", "samples", "epoch")}
            found[one.label] = {name: numbers(column[kept]) for name, column in {**wanted, "value": values}.items()}
    return found or f"This task has no {own[0].title if own else metric}."


def _timeline(view: View, cells: int = CELLS, rounds: int = ROUNDS_KEPT) -> Drawn:
    return strips(view.seen.timeline, view.end, cells, rounds)


def _sharing(views: Sequence[View]) -> Callable[[View], Drawn]:
    """The timelines of runs that are on one page: all of them together have no more cells and rounds than one can."""
    rows = sum(min(MOST_ROWS, len(view.seen.timeline.workers)) for view in views)
    return functools.partial(_timeline, cells=most_cells(rows), rounds=ROUNDS_KEPT // max(1, len(views)))


CHARTS = (
    Chart(
        name="timeline",
        title="What each worker did, and when",
        kind="timeline",
        x="begin",
        y="worker",
        needs="reports",
        data=_timeline,
        wide=True,
    ),
    Chart(
        name="report_loss",
        title="Loss of the reports",
        kind="bands",
        x="bin",
        y="loss",
        needs="reports",
        data=loss_until_evaluated,
        section="curves",
        note="Until the first evaluation.",
        log=True,
    ),
    Chart(
        name="worker_delays",
        title="Delays of each worker",
        kind="rows",
        x="middle",
        y="worker",
        needs="reports",
        data=late(delays_of_workers),
        note="A report's delay is the number of other reports that were folded in since its worker got its parameters. "
        "Workers with the largest delays come first.",
        x_label="delay (reports)",
    ),
    Chart(
        name="delays",
        title="How often each delay occurred",
        kind="bars",
        x="left",
        y="counts",
        needs="reports",
        data=late(histogram),
        x_label="delay (reports)",
        y_label="reports",
    ),
    Chart(
        name="delay",
        title="Delay over time",
        kind="bands",
        x="bin",
        y="delay",
        needs="reports",
        data=late(delays_over_time),
        wide=True,
        y_label="delay (reports)",
    ),
    Chart(
        name="weights",
        title="Weight against delay",
        kind="weights",
        x="delay",
        y="eta",
        needs="reports",
        data=late(weights),
        section="weights",
        note="η is what a report's change of the parameters is multiplied by. A report that comes b groups late enters "
        "the momentum with η · βᵇ, as if it had come in time.",
        x_label="delay (reports)",
        y_label="weight",
    ),
    Chart(
        name="audit",
        title="Where the weight of the reports went",
        kind="audit",
        x="bin",
        y="share",
        needs="reports",
        data=late(audit),
        section="weights",
        note="With K workers, the ideal is a weight of 1/K for each report: a sum of 1 for each group of K reports. "
        "Zoom in to choose a stretch of time. Reports that are still being computed are not counted.",
        y_label="share of the ideal sum",
    ),
    Chart(
        name="groups",
        title="The newest groups of the momentum",
        kind="dots",
        x="iteration",
        y="group",
        needs="reports",
        data=late(groups),
        section="audit",
        wide=True,
        note=f"One dot per report of the last {GROUPS_SHOWN} groups. A report belongs to the group of the "
        "parameters that it began from; its weight shrinks with each group that has begun since.",
        x_label="iteration",
        colour="weight",
    ),
)
"""In the order in which they are shown."""
