"""How a run shows itself in a notebook: what it is, its curves and its delays."""

from __future__ import annotations

import html
import io
from typing import Any

from orlomo.records.run import Run
from orlomo.report.charts import drawn
from orlomo.report.figures import DRAWN, draw_lines, has_curves, new_figure, save_figure
from orlomo.report.view import view_of

BESIDE = ("report_loss", "delays")
"""The charts that are shown beside the metrics."""


def html_of(run: Run) -> str:
    """A heading, a line of numbers and a few small charts, as HTML that needs nothing else."""
    notes: list[str] = []
    view = view_of(run, run.folder.resolve().name, notes)
    charts, [shown] = drawn([view])
    several = "s" * (shown["workers"] != 1)
    title = f"{view.name}: {shown['method']} on {shown['task']}, {shown['workers']} worker{several}, {view.state}"
    facts = shown["facts"]
    numbers = [f"{facts['reports']:,} reports"]
    numbers += [f"{one.label} {one.text(value)}" for one, value in view.last_values() if value == value]
    if facts["mean_delay"] is not None:
        numbers.append(f"delay {facts['mean_delay']:.1f}, at most {facts['max_delay']}")
    lines = [f"<b>{html.escape(title)}</b>", html.escape(", ".join(numbers)), *map(html.escape, notes)]
    return "<div>" + "<br>".join(lines) + (_charts(charts, shown) if facts["reports"] else "") + "</div>"


def _charts(charts: list[dict[str, Any]], run: dict[str, Any]) -> str:
    wanted = [spec for spec in charts if spec["kind"] == "lines" or spec["name"] in BESIDE]
    wanted = [spec for spec in wanted if has_curves(spec, [run])]
    figure, panels = new_figure(1, len(wanted), (3.7 * len(wanted), 2.6))
    for axes, spec in zip([panels] if len(wanted) == 1 else panels, wanted, strict=True):
        if spec["kind"] == "lines":
            draw_lines(axes, spec, [run], "seconds")
        else:
            DRAWN[spec["kind"]](axes, spec, run)
    text = io.StringIO()
    save_figure(figure, text, "svg")
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
