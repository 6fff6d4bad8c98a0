"""The cell of a notebook that shows a run: its story, its numbers and a few small charts."""

from __future__ import annotations

import html
import io

from orlomo.printing import printable
from orlomo.records.run import Run
from orlomo.report.charts import RunView, Spec, drawn
from orlomo.report.comparison.groups import by_method
from orlomo.report.comparison.rows import method_table
from orlomo.report.drawing.style import new_figure, save_figure
from orlomo.report.figures import DRAWN, draw_lines, has_columns
from orlomo.report.story import story_of
from orlomo.report.view import View, view_of

BESIDE = ("report_loss", "delays")
"""The charts that a notebook shows beside the metrics."""

CELL = (
    "max-width:1000px;padding:12px 16px;border:1px solid #dde2e9;border-radius:10px;background:#fff;color:#1b2330;"
    "font:14px/1.5 system-ui,sans-serif"
)
DIM = "color:#566173"
ALERT = "color:#a3211a"


def html_of(run: Run) -> str:
    """A run in a notebook."""
    notes: list[str] = []
    view = view_of(run, run.folder.resolve().name, notes)
    charts, [shown] = drawn([view])
    title = f"{view.name}: {shown['method']} on {shown['task']}, {shown['membership']}, {view.state}"
    begun = bool(shown["facts"]["reports"])
    parts = [_text("b", title)]
    if begun:
        parts += [_text("div", sentence) for sentence in story_of(method_table(by_method([view])))]
    parts.append(_text("div", _numbers(view, shown), DIM))
    parts += [_text("div", note, ALERT) for note in notes]
    return f'<div style="{CELL}">' + "".join(parts) + (_charts(charts, shown) if begun else "") + "</div>"


def _text(element: str, text: str, style: str = "") -> str:
    return f'<{element} style="{style}">{html.escape(printable(text))}</{element}>'


def _numbers(view: View, shown: RunView) -> str:
    """The newest values in one line."""
    facts = shown["facts"]
    numbers = [f"{facts['reports']:,} reports"]
    numbers += [f"{one.label} {one.text(value)}" for one, value in view.last_values() if value == value]
    if facts["mean_delay"] is not None:
        numbers.append(f"delay {facts['mean_delay']:.1f}, at most {facts['max_delay']}")
    return ", ".join(numbers)


def _charts(charts: list[Spec], run: RunView) -> str:
    """The curves and the delays beside one another, the timeline below."""
    drawn = [spec for spec in charts if has_columns(spec, [run])]
    beside = [spec for spec in drawn if spec["kind"] == "lines" or spec["name"] in BESIDE]
    below = [spec for spec in drawn if spec["kind"] == "timeline"]
    tall = min(5.0, 1.2 + 0.2 * len(run["uses"]))
    rows = [(beside, (3.7 * len(beside), 2.6)), (below, (3.7 * max(2, len(beside)), tall))]
    return "".join(_row(specs, run, inches) for specs, inches in rows if specs)


def _row(specs: list[Spec], run: RunView, inches: tuple[float, float]) -> str:
    figure, panels = new_figure(1, len(specs), inches)
    for axes, spec in zip(panels, specs, strict=True):
        if spec["kind"] == "lines":
            draw_lines(axes, spec, [run], "seconds")
        else:
            DRAWN[spec["kind"]](axes, spec, run)
    text = io.StringIO()
    save_figure(figure, text, "svg")
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]  # HTML does not take the XML header
    label = html.escape(", ".join(spec["title"] for spec in specs), quote=True)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" style="max-width:100%;height:auto" ', 1)
