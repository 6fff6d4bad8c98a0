"""Fewer points of a curve that look the same, and parts of a table as one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

POINTS = 1200
"""As many points as can be told apart on a wide screen."""

Column = NDArray[Any]


def thin(values: Column, points: int = POINTS) -> NDArray[np.int64]:
    """The positions of fewer points of a curve: the first, the last, and the extremes of each stretch.

    A line through them looks as one through all. Their values are not distributed as all are.

    >>> thin(np.array([0.0, 1.0, 9.0, 1.0, 0.0, 2.0, -5.0, 2.0]), points=4).tolist()
    [0, 2, 6, 7]
    """
    positions = np.arange(len(values))
    if len(values) <= points:
        return positions
    size = -(-len(values) // max(1, (points - 2) // 2))
    return np.union1d(_extremes(values, positions, size), [0, len(values) - 1])


def _extremes(values: Column, positions: NDArray[np.int64], window: int) -> NDArray[np.int64]:
    """Where the first lowest and the first highest value of each window is; of one without numbers, nothing."""
    windows = positions // window
    firsts = np.flatnonzero(np.concatenate([[True], windows[1:] != windows[:-1]]))
    sizes = np.diff(np.append(firsts, len(values)))
    found = np.zeros(len(values), dtype=bool)
    for extreme in (np.fmin, np.fmax):
        wanted = np.repeat(extreme.reduceat(values, firsts), sizes)
        there = np.flatnonzero(values == wanted)
        of = windows[there]
        found[there[np.concatenate([[True], of[1:] != of[:-1]])] if len(there) else there] = True
    return np.flatnonzero(found)


def joined(parts: list[dict[str, Column]]) -> dict[str, Column]:
    """Parts of a table as one."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
