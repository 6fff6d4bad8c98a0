"""Measured without training: the largest delays are the paper's within 15%; the virtual speed-up, its ceiling for fixed
times, and what random times add."""

from __future__ import annotations

import pytest

import orlomo
from orlomo.reproduce import measured
from orlomo.reproduce.experiment import table_of


def test_the_medians_are_within_15_percent_of_the_papers() -> None:
    settings = table_of("table-delay")["delays"]
    paper = dict(zip(settings.pop("slow_over_fast"), settings.pop("paper"), strict=True))
    rows = measured.measure_delays(paper, **{**settings, "seeds": 7})  # 20 take 12 seconds and give the same
    assert {row.ratio: row.paper for row in rows} == {1: 34, 2: 207, 5: 714, 10: 1905, 50: 9449}
    for row in rows:
        assert row.deviation is not None
        assert abs(row.deviation) <= 0.15, row


def test_the_delay_table_and_a_setting_that_is_not_the_papers() -> None:
    [row] = measured.measure_delays({1: None}, workers=2, local_steps=1, iterations=20, seeds=2)
    assert (row.paper, row.deviation) == (None, None)
    text = measured.delay_table([row, measured.DelayRow(50, 16, 8, 15_625, 20, 9206.5, 9155, 9260, 9449)])
    assert text.splitlines()[-1] == "| 50 | 9,449 | 9,206 | 9,155 to 9,260 | -3% |"
    assert len({line.count("|") for line in text.splitlines()}) == 1


def test_delays_of_no_seeds_are_an_error() -> None:
    with pytest.raises(orlomo.OrlomoError, match="seeds"):
        measured.measure_delays({1: None}, seeds=0)


def test_the_ceilings_of_the_presets() -> None:
    rows = measured.measure_speedups(workers=[8], local_steps=[16], epochs=1, seeds=1)
    assert [(row.cluster, row.ceiling) for row in rows] == [
        ("homogeneous", 1.0),
        ("heterogeneous", 1.75),
        ("heterogeneous:4", 3.25),
    ]


def test_random_times_add_to_it() -> None:
    rows = measured.measure_speedups(workers=[16], local_steps=[32], epochs=40, seeds=3)
    assert [row.iterations for row in rows] == [977] * 3  # 40 * 50,000 / (32 * 64), rounded up
    for row in rows:
        assert row.smallest <= row.speedup <= row.largest
        assert row.random_gain > 1.1
    heterogeneous = rows[1].speedup
    assert heterogeneous == pytest.approx(2.2, rel=0.1)  # "2 times faster" in the paper


def test_the_speedup_table() -> None:
    row = measured.SpeedupRow("heterogeneous", 16, 8, 15_625, 5, 2.1, 2.0, 2.2, 1.75)
    text = measured.speedup_table([row])
    assert text.splitlines()[-1] == "| heterogeneous | 16 | 8 | 15,625 | 2.10 | 2.00 to 2.20 | 1.75 | +20% |"
    assert len({line.count("|") for line in text.splitlines()}) == 1


def test_speedups_of_no_seeds_are_an_error() -> None:
    with pytest.raises(orlomo.OrlomoError, match="seeds"):
        measured.measure_speedups(seeds=0)
