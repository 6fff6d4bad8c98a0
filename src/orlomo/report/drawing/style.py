"""Colours, and texts that are drawn as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orlomo.printing import printable
from orlomo.report.colours import LIGHT

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes

COLOURS, OTHER = LIGHT["methods"], LIGHT["other"]


def colour_of(method: str) -> str:
    """A method's colour; grey for one that is not ours."""
    return COLOURS.get(method, OTHER)


def plain_text(text: str) -> str:
    """A text that is drawn as it is: between dollars it would be mathematics."""
    return printable(text).replace("$", r"\$")


def logarithmic(axes: Axes) -> None:
    """Make the y axis logarithmic, where all that is drawn is above zero."""
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()])
    if (drawn[~np.isnan(drawn)] > 0).all():
        axes.set_yscale("log")
