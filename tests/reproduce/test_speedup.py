"""The virtual speed-up: its ceiling for fixed times, and what random times add."""

from __future__ import annotations

import pytest

import orlomo
from orlomo.reproduce import speedup


def test_the_ceilings_of_the_presets() -> None:
    rows = speedup.measure(workers=[8], local_steps=[16], epochs=1, seeds=1)
    assert [(row.cluster, row.ceiling) for row in rows] == [
        ("homogeneous", 1.0),
        ("heterogeneous", 1.75),
        ("heterogeneous:4", 3.25),
    ]


def test_random_times_add_to_it() -> None:
    rows = speedup.measure(workers=[16], local_steps=[32], epochs=40, seeds=3)
    assert [row.iterations for row in rows] == [977] * 3  # 40 * 50,000 / (32 * 64), rounded up
    for row in rows:
        assert row.smallest <= row.speedup <= row.largest
        assert row.random_gain > 1.1
    heterogeneous = rows[1].speedup
    assert heterogeneous == pytest.approx(2.2, rel=0.1)  # "2 times faster" in the paper


def test_the_table() -> None:
    row = speedup.SpeedupRow("heterogeneous", 16, 8, 15_625, 5, 2.1, 2.0, 2.2, 1.75)
    text = speedup.markdown([row])
    assert text.splitlines()[-1] == "| heterogeneous | 16 | 8 | 15,625 | 2.10 | 2.00 to 2.20 | 1.75 | +20% |"
    assert len({line.count("|") for line in text.splitlines()}) == 1


def test_no_seeds_is_an_error() -> None:
    with pytest.raises(orlomo.OrlomoError, match="seeds"):
        speedup.measure(seeds=0)
