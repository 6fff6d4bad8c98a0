"""Colours, and figures as files: what all pictures drawn by matplotlib share."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orlomo.files import write_bytes_atomically, writing_to
from orlomo.printing import printable

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {  # Okabe and Ito's palette: distinct for colour-blind eyes too
    "orlomo": "#D55E00",
    "prsgdm": "#0072B2",
    "al-sgd": "#009E73",
    "local-ormo-da": "#CC79A7",
    "ormo-da": "#E69F00",
    "asgd": "#56B4E9",
    "local-sgd": "#000000",
    "msgd": "#999999",
}
OTHER = "#7f7f7f"
STATE_COLOURS = {"transfer": "#77828f", "waiting": "#77828f", "lost work": "#d62728", "absent": "#77828f"}
"""In a timeline; computing has the method's own colour. What is not work is hatched or crossed in its colour."""

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


def colour_of(method: str) -> str:
    """A method's colour; grey for one that is not ours."""
    return COLOURS.get(method, OTHER)
