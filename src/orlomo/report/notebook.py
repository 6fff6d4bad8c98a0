"""How a run shows itself in a notebook: what it is, its curves and its delays."""

from __future__ import annotations

import html
import io
from typing import Any

import numpy as np

from orlomo.records.run import Run
from orlomo.report.plot import COLOURS, new_figure
from orlomo.report.story import story

CURVES = {"test_accuracy": "test accuracy (%)", "train_loss": "training loss"}


def html_of(run: Run) -> str:
    """A heading, a line of numbers and three small charts, as HTML that needs nothing else."""
    notes: list[str] = []
    told = story(run, run.folder.name, notes)
    title = f"{told['name']}: {told['method']} on {told['task']}, {told['workers']} workers, {told['state']}"
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
    figure, panels = new_figure(1, 3, (11, 2.6))
    colour = COLOURS.get(told["method"])
    for axes, name, label in zip(panels, CURVES, CURVES.values(), strict=False):
        if (curve := told["curves"].get(name)) is not None:
            scale = 100.0 if name == "test_accuracy" else 1.0
            axes.plot(curve["seconds"], scale * np.array(curve["value"], dtype=float), color=colour)
        if name == "train_loss":
            axes.set_yscale("log")
        axes.set(xlabel=told["clock"], ylabel=label)
        axes.grid(alpha=0.25)
    counted = told["delays"]
    panels[2].bar(counted["left"], counted["count"], counted["width"], align="edge", color=colour)
    panels[2].set(xlabel="delay (reports)", ylabel="reports")
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    from matplotlib import pyplot

    pyplot.close(figure)
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]
