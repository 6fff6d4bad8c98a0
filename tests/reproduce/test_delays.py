"""The largest delays are the paper's, within 15%."""

from __future__ import annotations

import pytest

import orlomo
from orlomo.reproduce import delays
from orlomo.reproduce.experiment import table_of


def test_the_medians_are_within_15_percent_of_the_papers() -> None:
    settings = table_of("table-delay")["delays"]
    paper = dict(zip(settings.pop("slow_over_fast"), settings.pop("paper"), strict=True))
    rows = delays.measure(paper, **{**settings, "seeds": 7})  # 20 take 12 seconds and give the same
    assert {row.ratio: row.paper for row in rows} == {1: 34, 2: 207, 5: 714, 10: 1905, 50: 9449}
    for row in rows:
        assert row.deviation is not None
        assert abs(row.deviation) <= 0.15, row


def test_the_table_and_a_setting_that_is_not_the_papers() -> None:
    [row] = delays.measure({1: None}, workers=2, local_steps=1, iterations=20, seeds=2)
    assert (row.paper, row.deviation) == (None, None)
    text = delays.markdown([row, delays.DelayRow(50, 16, 8, 15_625, 20, 9206.5, 9155, 9260, 9449)])
    assert text.splitlines()[-1] == "| 50 | 9,449 | 9,206 | 9,155 to 9,260 | -3% |"
    assert len({line.count("|") for line in text.splitlines()}) == 1


def test_no_seeds_is_an_error() -> None:
    with pytest.raises(orlomo.OrlomoError, match="seeds"):
        delays.measure({1: None}, seeds=0)
