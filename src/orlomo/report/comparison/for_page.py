"""The table of methods for the page, ready for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from orlomo.report.comparison.rows import MethodTable
from orlomo.report.comparison.texts import metric_cell, shown_metrics, target_cell, work_cell
from orlomo.report.speed import Curve
from orlomo.report.view import View


class TargetTable(TypedDict):
    """The metric that times are measured by, ready for JSON: `records` has what times to any target need."""

    label: str
    metric: str
    value: float | None
    percent: bool
    higher: bool
    reference: int | None
    records: list[dict[str, list[float | None]]]


class RowTable(TypedDict):
    """A row, ready for JSON; `runs` are positions among the runs that are shown."""

    method: str
    name: str
    runs: list[int]
    seeds: int
    to_target: str
    equal_work: str
    final: dict[str, str]
    computing: float | None
    delays: str
    faults: str


def target_json(table: MethodTable, views: Sequence[View]) -> TargetTable | None:
    """For the page, which measures again when its reader chooses another target; None: there is nothing to measure."""
    one = table.metric
    if one is None or len({view.config.task for view in views}) > 1:
        return None
    records = [Curve.of(view.metrics, one).records(one) for view in views]
    names = [row.method for row in table.rows]
    return {
        "label": one.label,
        "metric": one.metric,
        "value": None if table.target is None else table.target.value,
        "percent": one.scale == 100,
        "higher": one.better == "higher",
        "reference": None if table.speeds.reference is None else names.index(table.speeds.reference),
        "records": [{"seconds": curve.seconds.tolist(), "value": curve.values.tolist()} for curve in records],
    }


def row_json(table: MethodTable, views: Sequence[View]) -> list[RowTable]:
    """For the page."""
    metrics = shown_metrics(table)
    positions = {id(view): number for number, view in enumerate(views)}
    return [
        {
            "method": row.method,
            "name": row.name,
            "runs": [positions[id(view)] for view in row.views],
            "seeds": row.runs,
            "to_target": target_cell(row.speed),
            "equal_work": work_cell(row.speed) if table.speeds.work is not None else "-",
            "final": {one.label: metric_cell(row, one) for one in metrics},
            "computing": None if math.isnan(row.computing) else row.computing,
            "delays": row.delay_text,
            "faults": row.fault_text,
        }
        for row in table.rows
    ]
