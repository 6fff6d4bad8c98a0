"""The colours of the page and the figures: contrast with the ground, and telling them apart with any colour vision."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import orlomo
from orlomo.report.colours import DARK, LIGHT, Palette

CSS = (Path(orlomo.__file__).parent / "report/web/page.css").read_text("utf-8")

VISION = {  # Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
    "all three cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
APART = 0.075
"""The smallest distance of two methods' colours in OKLab, where 0.02 is about what can just be seen."""


def linear(colour: str) -> NDArray[np.float64]:
    """Linear RGB of #rrggbb."""
    parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    light, dark = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def oklab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    """OKLab of linear RGB (Ottosson, 2020)."""
    cones = [[0.4122215, 0.5363325, 0.051446], [0.2119035, 0.6806995, 0.107397], [0.0883025, 0.2817188, 0.6299787]]
    last = [[0.2104543, 0.7936178, -0.004072], [1.9779985, -2.4285922, 0.4505937], [0.025904, 0.7827718, -0.8086758]]
    return np.array(last) @ np.cbrt(np.array(cones) @ np.clip(rgb, 0, 1))


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_stands_out_from_its_ground(palette: Palette) -> None:
    colours = [*palette["methods"].values(), palette["other"], *palette["states"].values()]
    assert {c: g for c in colours for g in palette["ground"] if contrast(c, g) < 3} == {}


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_methods_can_be_told_apart_with_any_colour_vision(palette: Palette, vision: str) -> None:
    seen = {name: oklab(np.array(VISION[vision]) @ linear(colour)) for name, colour in palette["methods"].items()}
    close = {(a, b) for a, b in itertools.combinations(seen, 2) if np.linalg.norm(seen[a] - seen[b]) < APART}
    assert close == set()


@pytest.mark.parametrize(("palette", "theme"), [(LIGHT, ":root {"), (DARK, ':root[data-theme="dark"] {')])
def test_the_page_has_these_grounds_and_texts_that_can_be_read(palette: Palette, theme: str) -> None:
    block = CSS[CSS.index(theme) :].partition("}")[0]
    variables = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))
    assert [variables["panel"].upper(), variables["back"].upper()] == palette["ground"]
    for text, ground in itertools.product(("fore", "dim", "accent", "alert", "good"), ("panel", "back")):
        assert contrast(variables[text], variables[ground]) >= 4.5, (text, ground)
    assert contrast(variables["alert"], variables["alert-back"]) >= 4.5
    assert contrast(variables["focus"], variables["panel"]) >= 3
