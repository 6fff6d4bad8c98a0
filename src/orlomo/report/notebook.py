"""How a run shows itself in a notebook: what it is, its curves and its delays."""

from __future__ import annotations

import html
import io
from typing import Any

from orlomo.records.run import Run
from orlomo.report.figures import draw_curves, draw_delays, draw_dots
from orlomo.report.plot import new_figure, save_figure
from orlomo.report.story import story


def html_of(run: Run) -> str:
    """A heading, a line of numbers and a few small charts, as HTML that needs nothing else."""
    notes: list[str] = []
    told = story(run, run.folder.resolve().name, notes)
    title = (
        f"{told['name']}: {told['method']} on {told['task']}, {told['workers']} worker{'s' * (told['workers'] != 1)}, "
    )
    title += told["state"]
    facts = told["facts"]
    numbers = [f"{facts['reports']:,} reports"]
    if facts["test_accuracy"] is not None:
        numbers.append(f"test accuracy {facts['test_accuracy']:.2%}")
    if facts["train_loss"] is not None:
        numbers.append(f"training loss {facts['train_loss']:.4g}")
    if facts["mean_delay"] is not None:
        numbers.append(f"delay {facts['mean_delay']:.1f}, at most {facts['max_delay']}")
    lines = [f"<b>{html.escape(title)}</b>", html.escape(", ".join(numbers)), *map(html.escape, notes)]
    return "<div>" + "<br>".join(lines) + (_charts(told) if facts["reports"] else "") + "</div>"


def _charts(told: dict[str, Any]) -> str:
    names = list(told["curves"]) or ["loss"]
    figure, panels = new_figure(1, len(names) + 1, (3.7 * (len(names) + 1), 2.6))
    for axes, name in zip(panels, names, strict=False):
        if name == "loss":  # no evaluation yet
            draw_dots(axes, told, name)
        else:
            draw_curves(axes, [told], name, "seconds")
    draw_delays(panels[-1], told)
    text = io.StringIO()
    save_figure(figure, text, "svg")
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]
