"""The colours of methods and of workers' states, on light and on dark ground: the page and the figures share them.

Every colour has a contrast of 3:1 or more with its ground, and people with any kind of colour blindness
can tell all methods apart (tests/report/test_colours.py computes both).
"""

from __future__ import annotations

from typing import TypedDict


class Palette(TypedDict):
    """Colours on one ground. `states`: of a timeline; computing has the method's own colour."""

    ground: list[str]
    methods: dict[str, str]
    other: str
    states: dict[str, str]


LIGHT: Palette = {
    "ground": ["#FFFFFF", "#F5F6F8"],
    "methods": {
        "orlomo": "#C23001",
        "prsgdm": "#0E6BB8",
        "al-sgd": "#0E6251",
        "local-ormo-da": "#A73F8E",
        "ormo-da": "#A9801A",
        "asgd": "#2B93C9",
        "local-sgd": "#222A35",
        "msgd": "#7D8590",
    },
    "other": "#5F6875",
    "states": {"transfer": "#6F7B8A", "waiting": "#7F8A98", "lost work": "#1B2330", "absent": "#566173"},
}
DARK: Palette = {
    "ground": ["#171C24", "#0F1319"],
    "methods": {
        "orlomo": "#F87E4E",
        "prsgdm": "#4DA3FF",
        "al-sgd": "#8AC593",
        "local-ormo-da": "#E38AC4",
        "ormo-da": "#E5BA4C",
        "asgd": "#7CD1F8",
        "local-sgd": "#F0F3F7",
        "msgd": "#97998E",
    },
    "other": "#B4BECB",
    "states": {"transfer": "#94A0B0", "waiting": "#8592A3", "lost work": "#E7EBF1", "absent": "#A0ACBC"},
}
