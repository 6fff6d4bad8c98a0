"""The charts of a run, each declared once. The page (web/page.js) and the figures (figures.py) draw what is declared.

A new chart is one more `Chart` in `CHARTS`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import numpy as np

from orlomo.records.tables import only
from orlomo.report.streaming.counting import Spread
from orlomo.report.streaming.over_time import Band
from orlomo.report.streaming.thinning import thin
from orlomo.report.timeline import STATES
from orlomo.report.view import View, ViewTable, numbers

KINDS = ("lines", "timeline", "bars", "bands", "rows", "weights", "audit", "dots")
"""How a chart is drawn. `lines`: one curve per run and data set, all runs together; the others show one run."""

SPOKEN = ("lines", "timeline")
"""The kinds that say so where there is nothing to draw; the others are left out."""

NEEDS = {"reports": "No report yet.", "evaluations": "No evaluation yet."}
"""What a chart can need, and the text that is shown where there is none of it."""

GROUPS_SHOWN = 12
"""The part of the groups that is shown at first: the newest groups, among the newest reports."""

WORKERS_SHOWN = 24
"""Workers that have a row of their own in the chart of their delays: those with the largest; the others share a row."""

BANDS_SHOWN = 64
"""Workers whose delays over time can be chosen: those with the largest."""

QUANTILES = ("number", "low", "middle", "high", "largest", "outliers")

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
        return self.data(view) if rows else NEEDS[self.needs] if self.kind in SPOKEN else None

    def to_json(self) -> Spec:
        """The declaration, for the page."""
        declared = {name: getattr(self, name) for name in Spec.__annotations__}
        return cast(Spec, declared | {"y_label": self.y_label or self.y})


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


def _loss_until_evaluated(view: View) -> Drawn | None:
    # Losses of single reports are noisy: from the first evaluation on, the curves of the metrics are shown instead.
    # The reports of a user's own loop have none.
    losses = view.seen.over_time.losses()
    if len(view.metrics["reports"]) or losses is None or not view.seen.has_losses:
        return None
    return _band(losses)


def _timeline(view: View) -> Drawn:
    columns = {name: numbers(column) for name, column in view.bars._asdict().items()}
    return {"states": list(STATES), **columns}


def _spread(spread: Spread) -> Drawn:
    return {name: numbers(getattr(spread, name)) for name in QUANTILES}


def _band(band: Band) -> Drawn:
    return {"width": band.width, "bin": band.spread.group.tolist(), **_spread(band.spread)}


def _late(data: Callable[[View], Drawn | None]) -> Callable[[View], Drawn | None]:
    """Left out of runs in which no report is late: of synchronous methods, and of one worker."""

    def late(view: View) -> Drawn | None:
        return None if view.config.method.synchronous or not view.seen.delays.max else data(view)

    return late


def _histogram(view: View) -> Drawn:
    found = view.seen.delays.histogram()
    return {**found._asdict(), "rest": found.rest}


def _slowest_first(view: View) -> tuple[list[int], Spread]:
    """The workers, and the spread of each one's delays: the largest median first."""
    workers, found = view.seen.over_time.by_worker()
    order = np.lexsort((workers, -found.largest, -found.high, -found.middle))
    return workers[order].tolist(), Spread(*(column[order] for column in found))


def _delays_over_time(view: View) -> Drawn:
    over_time = view.seen.over_time
    bands = over_time.of_workers()
    chosen = sorted(_slowest_first(view)[0][:BANDS_SHOWN])
    several = len(bands) > 1
    return {
        **_band(over_time.delays()),
        "exact_below": over_time.exact_below,
        "workers": {str(worker): _band(bands[worker]) for worker in chosen} if several else {},
    }


def _delays_of_workers(view: View) -> Drawn:
    workers, found = _slowest_first(view)
    rest: list[int] = []
    if len(workers) > WORKERS_SHOWN:
        workers, rest = workers[: WORKERS_SHOWN - 1], workers[WORKERS_SHOWN - 1 :]
        together = view.seen.over_time.others(rest)
        found = Spread(*(np.append(one[: len(workers)], two) for one, two in zip(found, together, strict=True)))
    labels = [f"worker {worker}" for worker in workers] + [f"{len(rest)} others"] * bool(rest)
    return {"worker": labels, **_spread(found)}


def _weights(view: View) -> Drawn:
    first, last, etas, weights = view.seen.over_time.weights()
    columns = {"delay": first.tolist(), "last": last.tolist(), "number": etas.number.tolist()}
    columns |= {f"eta_{name}": numbers(getattr(etas, name)) for name in ("low", "middle", "high")}
    if view.seen.has_weights:
        place = np.searchsorted(etas.group, weights.group)
        for name in ("low", "middle", "high"):
            column = np.full(len(first), np.nan)
            column[place] = getattr(weights, name)
            columns[f"weight_{name}"] = numbers(column)
    return columns


def _audit(view: View) -> Drawn:
    """The sums of weights in each bin of time (see `OverTime.sums`)."""
    width, used, sums = view.seen.over_time.sums()
    counts = {name: sums.pop(name).astype(np.int64).tolist() for name in ("number", "cut")}
    if not view.seen.has_weights:
        del sums["weight"]
    return {"width": width, "bin": used.tolist(), **counts, **{name: numbers(one) for name, one in sums.items()}}


def _groups(view: View) -> Drawn | None:
    """The newest groups: which report was folded into which, and its weight in the momentum then."""
    if not view.seen.has_weights:
        return None
    recent = view.seen.recent
    newest = recent["group"] + recent["behind"]
    recent = only(recent, newest > newest[-1] - GROUPS_SHOWN)
    return {name: numbers(column) for name, column in recent.items()}


CHARTS = (
    Chart(
        name="timeline",
        title="What each worker did, and when",
        kind="timeline",
        x="begin",
        y="worker",
        needs="reports",
        data=_timeline,
        note="One row per worker. Drag to zoom in, double-click to see all.",
    ),
    Chart(
        name="report_loss",
        title="Loss of the reports",
        kind="bands",
        x="bin",
        y="loss",
        needs="reports",
        data=_loss_until_evaluated,
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
        data=_late(_delays_of_workers),
        note="A report's delay is the number of other reports that were folded in since its worker got its parameters. "
        "The slowest worker comes first.",
        x_label="delay (reports)",
    ),
    Chart(
        name="delays",
        title="How often each delay occurred",
        kind="bars",
        x="left",
        y="counts",
        needs="reports",
        data=_late(_histogram),
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
        data=_late(_delays_over_time),
        y_label="delay (reports)",
    ),
    Chart(
        name="weights",
        title="Weight against delay",
        kind="weights",
        x="delay",
        y="eta",
        needs="reports",
        data=_late(_weights),
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
        data=_late(_audit),
        note="With K workers, the ideal is a weight of 1/K for each report: a sum of 1 for each group of K reports.",
        y_label="share of the ideal sum",
    ),
    Chart(
        name="groups",
        title="The newest groups of the momentum",
        kind="dots",
        x="iteration",
        y="group",
        needs="reports",
        data=_late(_groups),
        note=f"One dot per report of the last {GROUPS_SHOWN} groups. A report belongs to the group of the "
        "parameters that it began from; its weight shrinks with each group that has begun since.",
        x_label="iteration",
        colour="weight",
    ),
)
"""In the order in which they are shown."""
