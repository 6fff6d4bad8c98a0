"""Colours, and figures as files: what all pictures drawn by matplotlib share."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from orlomo.files import write_bytes_atomically, writing_to
from orlomo.printing import printable
from orlomo.report.colours import LIGHT, Palette

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HATCHES = {"waiting": "/////", "lost work": "xxxx", "absent": "..."}
"""States that are drawn as a pattern: they can be told apart without their colours."""


def plain_text(text: str) -> str:
    """A text that is drawn as it is: between dollars it would be mathematics."""
    return printable(text).replace("$", r"\$")


def new_figure(rows: int, columns: int, inches: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, row by row."""
    from matplotlib.figure import Figure  # not pyplot: its state belongs to the user

    figure = Figure(figsize=inches, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def figure_files(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and SVG; `path` is without an ending."""
    paths = [path.with_name(f"{path.name}.{ending}") for ending in ("png", "svg")]
    for one in paths:
        drawn = io.BytesIO()
        save_figure(figure, drawn, one.suffix[1:])
        with writing_to(one.parent):
            one.parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomically(one, drawn.getvalue())
    return paths


def save_figure(figure: Figure, file: IO[str] | IO[bytes], kind: str) -> None:
    """Write a figure to a file; the same plot gives the same bytes."""
    from matplotlib import rc_context

    # Without a salt the ids in an SVG file are random.
    with rc_context({"svg.hashsalt": "orlomo"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # letters that the font does not have become boxes
        figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def colour_of(method: str, palette: Palette = LIGHT) -> str:
    """A method's colour; grey for one that is not ours."""
    return palette["methods"].get(method, palette["other"])


def logarithmic(axes: Axes) -> None:
    """Make the y axis logarithmic, where all that is drawn is above zero."""
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()])
    if (drawn[~np.isnan(drawn)] > 0).all():
        axes.set_yscale("log")
