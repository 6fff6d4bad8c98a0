"""The charts of a run, each declared once. The page (web/page.js) and the figures (figures.py) draw what is declared.

A new chart is one more `Chart` in `CHARTS`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from orlomo.records.tables import only
from orlomo.report.streaming.rounds import CELLS, ROUNDS_KEPT
from orlomo.report.streaming.thinning import Counts, thin
from orlomo.report.view import View, ViewTable, numbers
from orlomo.report.workers.timeline import strips

KINDS = ("lines", "dots", "bars", "timeline")
"""How a chart is drawn. `lines`: one curve per run and data set, all runs together; the others show one run."""

NEEDS = {"reports": "No report yet.", "evaluations": "No evaluation yet."}
"""What a chart can need, and the text that is shown where there is none of it."""

GROUPS_SHOWN = 12
"""The part of the groups that is shown at first: the newest groups, among the newest reports."""

BINS = 60

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
        log: logarithmic where all values are above zero. Without it, dots are drawn from zero.
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

    def columns(self, view: View) -> Drawn | str | None:
        """What is drawn of this run, or why nothing is."""
        rows = view.seen.reports if self.needs == "reports" else len(view.metrics["reports"])
        return self.data(view) if rows else NEEDS[self.needs]

    def to_json(self) -> Spec:
        """The declaration, for the page."""
        return {
            "name": self.name,
            "title": self.title,
            "kind": self.kind,
            "x": self.x,
            "y": self.y,
            "note": self.note,
            "x_label": self.x_label,
            "y_label": self.y_label or self.y,
            "colour": self.colour,
            "log": self.log,
        }


def drawn(views: Sequence[View]) -> tuple[list[Spec], list[RunView]]:
    """The declarations of all charts of these runs, and the runs with what is drawn of them."""
    charts = [*metric_charts(views), *CHARTS]
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


def _thinned(*names: str) -> Callable[[View], Drawn]:
    """These columns of the reports, thinned by the last of them (see `IN_CHARTS`)."""

    def data(view: View) -> Drawn:
        kept = view.seen.thinned(names[-1])
        return {name: numbers(kept[name]) for name in names}

    return data


def _loss_until_evaluated(view: View) -> Drawn | None:
    # Losses of single reports are noisy: from the first evaluation on, the curves of the metrics are shown instead.
    # The reports of a user's own loop have none.
    if len(view.metrics["reports"]) or not view.seen.has_losses:
        return None
    return _thinned("finish", "iteration", "loss")(view)


def _timeline(view: View) -> Drawn:
    return strips(view.seen.timeline, view.end, CELLS, ROUNDS_KEPT)


def histogram(counts: Counts) -> dict[str, list[float]]:
    """Counts of whole numbers, in at most `BINS` bins of one width."""
    width, counted = counts.bins(BINS)
    left = (np.arange(len(counted)) * width).tolist()
    return {"left": left, "width": [width] * len(counted), "count": counted.tolist()}


def _groups(view: View) -> Drawn | str:
    """The group that each report was folded into, and its weight in the momentum then; or why there are none."""
    if not view.seen.has_weights:
        return f"{view.config.method.name} keeps no momentum that reports are sorted into."
    recent = view.seen.recent
    newest = recent["group"] + recent["behind"]
    recent = only(recent, newest > newest[-1] - GROUPS_SHOWN)
    # All recent reports are kept: they are what is shown at first, and thinning would leave gaps among them.
    thinned = view.seen.thinned("behind")
    both = {name: np.concatenate([thinned[name], column]) for name, column in recent.items()}
    kept = np.unique(both["position"], return_index=True)[1]
    # Shown at first: the newest groups, together with late reports, which belong to older groups.
    shown = {name: [int(recent[name].min()), int(recent[name].max())] for name in ("iteration", "group")}
    columns = ("iteration", "worker", "group", "behind", "delay", "weight")
    return {"shown": shown, **{name: numbers(both[name][kept]) for name in columns}}


CHARTS = (
    Chart(
        name="report_loss",
        title="Loss of each report",
        kind="dots",
        x="finish",
        y="loss",
        needs="reports",
        data=_loss_until_evaluated,
        note="One dot per report, until there is an evaluation.",
        y_label="loss of each report",
        log=True,
    ),
    Chart(
        name="timeline",
        title="What each worker did, and when",
        kind="timeline",
        x="begin",
        y="worker",
        needs="reports",
        data=_timeline,
    ),
    Chart(
        name="delays",
        title="Delays",
        kind="bars",
        x="left",
        y="count",
        needs="reports",
        data=lambda view: histogram(view.seen.delays),
        note="How many other reports were folded in between a worker's parameters and its report.",
        x_label="delay (reports)",
        y_label="reports",
    ),
    Chart(
        name="delay",
        title="Delay over time",
        kind="dots",
        x="finish",
        y="delay",
        needs="reports",
        data=_thinned("finish", "iteration", "worker", "delay"),
        note="One dot per report; of crowded stretches only the extremes.",
    ),
    Chart(
        name="eta",
        title="Weight of a report (η)",
        kind="dots",
        x="finish",
        y="eta",
        needs="reports",
        data=_thinned("finish", "iteration", "delay", "eta"),
        note="What each report's change was multiplied by: less for late reports.",
        y_label="η",
    ),
    Chart(
        name="groups",
        title="Groups in the momentum",
        kind="dots",
        x="iteration",
        y="group",
        needs="reports",
        data=_groups,
        note="Each report is folded into the group of the parameters it began from; its weight in the momentum shrinks "
        "with each group it is behind.",
        x_label="iteration",
        colour="weight",
    ),
)
"""In the order in which they are shown."""
