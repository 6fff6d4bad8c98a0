"""The table of methods as text: its columns, and all of it in Markdown."""

from __future__ import annotations

import math

from orlomo.records.tables import MetricColumn, first_of_each
from orlomo.report.comparison.rows import MethodTable, Row
from orlomo.report.speed import Speed, ratio_text, time_text
from orlomo.report.summary import markdown, markdown_cell, number_text, with_diverged


def shown_metrics(table: MethodTable) -> list[MetricColumn]:
    """One column per metric that has values, the most important first."""
    every = first_of_each(table.rows[0].measured) if table.rows else []
    return [one for one in every if not all(math.isnan(row.metrics[one.column]) for row in table.rows)]


def target_cell(speed: Speed) -> str:
    """The time to the target with its speed-up, or how many seeds reached it."""
    if math.isnan(speed.to_target):
        return "-"
    if speed.reached < speed.seeds:
        return f"{speed.reached} of {speed.seeds} seeds" if speed.reached else "not reached"
    return _with_ratio(speed.to_target, speed.to_target_speed_up)


def work_cell(speed: Speed) -> str:
    """The time for equal work with its speed-up."""
    return _with_ratio(speed.for_work, speed.for_work_speed_up)


def _with_ratio(seconds: float, speed_up: float) -> str:
    return time_text(seconds) + ("" if math.isnan(speed_up) else f" ({ratio_text(speed_up)})")


def metric_cell(row: Row, one: MetricColumn) -> str:
    """A metric at the end: its mean and its spread."""
    text = one.text(row.metrics[one.column])
    if not math.isnan(row.spreads[one.column]):
        text += f" ± {spread_text(row.spreads[one.column], one)}"
    return with_diverged(text, row.diverged, row.runs)


def spread_text(spread: float, one: MetricColumn) -> str:
    """How far seeds are apart, in the metric's own unit."""
    return f"{100 * spread:.2f}" if one.scale == 100 else f"{one.scale * spread:.2g}"


def columns(table: MethodTable, every_metric: bool = False) -> list[tuple[str, list[str]]]:
    """The table's columns as text: a heading, and one cell per row. Those that would be empty are left out."""
    rows, metrics = table.rows, shown_metrics(table)
    found = [("method", [row.method for row in rows])]
    if table.target is not None:
        found.append((f"to {table.target}", [target_cell(row.speed) for row in rows]))
    if table.speeds.work is not None:
        found.append(("equal work", [work_cell(row.speed) for row in rows]))
    else:
        found.append(("time", [time_text(row.seconds) for row in rows]))
    for one in metrics if every_metric else metrics[:1]:
        found.append((one.label, [metric_cell(row, one) for row in rows]))
    if not metrics:
        found.append(("result", [with_diverged("-", row.diverged, row.runs) for row in rows]))
    found.append(("computing", [number_text(100 * row.computing, ".0f", "%") for row in rows]))
    found.append(("delay 50% / 95% / max", [row.delay_text for row in rows]))
    if any(row.faults for row in rows):
        found.append(("faults", [row.fault_text for row in rows]))
    return found


def markdown_table(table: MethodTable) -> str:
    """The table for a document, with all metrics."""
    found = columns(table, every_metric=True)
    rows = list(zip(*(cells for _, cells in found), strict=True))
    return (
        markdown([heading for heading, _ in found], rows, words=("method", "faults"))
        + f"\n{markdown_cell(table.note)}\n"
    )
