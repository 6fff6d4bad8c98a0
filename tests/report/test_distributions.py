"""What is drawn of many values is distributed as they are: quantiles, counts and sums are those of all reports."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st
from numpy.typing import NDArray

import orlomo
from orlomo.clusters.schedule import KINDS, REPORT
from orlomo.report import figures
from orlomo.report.charts import drawn
from orlomo.report.drawing.columns import QUANTILES, WORKERS_SHOWN
from orlomo.report.drawing.style import new_figure
from orlomo.report.streaming import counting
from orlomo.report.streaming.counting import NUMBERS, WHOLES, Code, Counts, Grouped, Spread, histogram, spread
from orlomo.report.streaming.over_time import BINS, OverTime
from orlomo.report.streaming.workers import grouped
from orlomo.report.view import view_of
from small import classification, settings

Column = NDArray[Any]


def exact(values: Column) -> dict[str, float]:
    """From all values, sorted: the quantile of q% is the smallest that at least q% do not exceed."""
    ranked = sorted(values.tolist())
    low, middle, high = (ranked[math.ceil(len(ranked) * q / 100) - 1] for q in (5, 50, 95))
    outliers = sum(value > 2 * abs(high) for value in ranked)
    return dict(zip(QUANTILES, (len(ranked), low, middle, high, ranked[-1], outliers), strict=True))


def same(found: Spread, groups: Column, values: Column, error: float = 0.0) -> None:
    assert found.group.tolist() == np.unique(groups).tolist()
    for place, group in enumerate(found.group.tolist()):
        expected = exact(values[groups == group])
        for name in QUANTILES if not error else QUANTILES[:-1]:
            assert getattr(found, name)[place] == pytest.approx(expected[name], rel=error, abs=0.0), (name, group)


pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**14 - 1) | st.integers(0, 30)), min_size=1, max_size=300)


@given(pairs, st.integers(1, 50))
def test_quantiles_are_those_of_the_values(values: list[tuple[int, int]], block: int) -> None:
    groups, column = np.array(values).T
    counted = Grouped(WHOLES)
    for begin in range(0, len(column), block):
        counted.add(groups[begin : begin + block], column[begin : begin + block])
    same(spread(counted.table()), groups, column)
    same(spread(counted.table(lambda group: group // 2)), groups // 2, column)


@trying(max_examples=40)
@given(st.lists(st.integers(0, 2**62), min_size=30, max_size=300), st.sampled_from([NUMBERS, WHOLES]))
def test_values_that_lose_digits_lose_no_more_than_is_said(values: list[int], code: Code) -> None:
    column = np.array(values, dtype=np.int64 if code is WHOLES else np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "MOST", 20)
        counted = Grouped(code)
        for begin in range(0, len(column), 7):
            counted.add(np.zeros(len(column[begin : begin + 7]), dtype=np.int64), column[begin : begin + 7])
        found = spread(counted.table())
    assert len(values) < 60 or counted.bits < code.bits
    same(found, np.zeros(len(column), dtype=np.int64), column, error=2.0 ** (1 - counted.bits))
    small = np.array([0, 1, 7, 31])
    assert WHOLES.decode(WHOLES.coarser(WHOLES.encode(small), counting.FEWEST_BITS)).tolist() == small.tolist()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2))
def test_codes_are_in_the_order_of_the_numbers(values: list[float]) -> None:
    column = np.sort(np.array(values))
    codes = NUMBERS.encode(column)
    assert (np.diff(codes) >= 0).all()
    assert codes.min() >= 0
    assert codes.max() < 2**NUMBERS.width
    normal = (np.abs(column) > 1e-300) & (np.abs(column) < 1e300)
    assert NUMBERS.decode(codes)[normal] == pytest.approx(column[normal], rel=1e-5, abs=0.0)


@given(st.dictionaries(st.integers(0, 3000) | st.integers(0, 20), st.integers(1, 500), min_size=1), st.integers(4, 60))
def test_a_histogram_ends_at_the_99_percent_quantile_and_counts_the_rest(counted: dict[int, int], most: int) -> None:
    values = np.array(sorted(counted))
    counts = np.array([counted[value] for value in values.tolist()])
    found = histogram(values, counts, most)
    assert len(found.left) <= most
    assert sum(found.counts) + found.above == counts.sum()
    assert found.above <= counts.sum() / 100
    assert found.largest == values[-1]
    assert found.above == counts[values > found.limit].sum()
    for left, count in zip(found.left, found.counts, strict=True):
        assert count == counts[(values >= left) & (values < left + found.width)].sum()
    if not found.above:
        assert found.rest == ""
    all_values = Counts()
    all_values.add(np.repeat(values, counts))
    assert all_values.histogram(most) == found
    assert all_values.quantile(95) == exact(np.repeat(values, counts))["high"]


def test_few_large_delays_do_not_flatten_a_histogram() -> None:
    values, counts = np.array([*range(30), 1691]), np.array([400] * 30 + [65])
    found = histogram(values, counts)
    assert found.rest == "65 above 29, the largest 1,691"
    assert found.counts == [400] * 30


@pytest.fixture(scope="module")
def trace() -> dict[str, Column]:
    """About as many reports as a long run has, with large outliers, and workers that come and go."""
    times = tuple(orlomo.Speed(law="lognormal:3", factor=factor) for factor in (1.0, 1.0, 4.0, 9.0))
    faults = tuple(
        orlomo.Fault(time=100.0 * number + 7, worker=number % 16, kind="leave" if number % 2 else "crash")
        for number in range(1, 9)
    )
    found = orlomo.trace("orlomo", workers=16, iterations=60_000, cluster=orlomo.Cluster(speeds=times, faults=faults))
    return {name: np.asarray(column) for name, column in found.columns.items()}


def over_time(columns: dict[str, Column], block: int) -> tuple[OverTime, dict[str, Column]]:
    """What is added up, block by block, and the reports."""
    leaves = np.array([kind in ("crash", "leave") for kind in KINDS])[columns["kind"]]
    present = 16 - np.cumsum(leaves)
    reports = np.flatnonzero(columns["kind"] == REPORT)
    own = {name: column[reports] for name, column in columns.items()} | {"present": present[reports]}
    found = OverTime()
    for begin in range(0, len(reports), block):
        part = {name: column[begin : begin + block] for name, column in own.items()}
        found.add(grouped(part["worker"]), part["present"], part)
    return found, own


@pytest.mark.parametrize("block", [1000, 17_000])
def test_bands_are_the_quantiles_of_a_large_trace(trace: dict[str, Column], block: int) -> None:
    found, reports = over_time(trace, block)
    band = found.delays()
    assert BINS // 2 <= band.spread.group[-1] + 1 <= BINS
    same(band.spread, np.floor(reports["finish"] / band.width).astype(int), reports["delay"])
    assert band.spread.outliers.sum() > 0
    assert band.end == reports["finish"].max()
    bands = found.of_workers(range(16))
    assert sorted(bands) == list(range(16))
    for worker, one in bands.items():
        own = reports["worker"] == worker
        same(one.spread, np.floor(reports["finish"][own] / one.width).astype(int), reports["delay"][own])
    workers, every = found.by_worker()
    place = np.argsort(workers)
    same(
        Spread(*(column[place] for column in every))._replace(group=workers[place]), reports["worker"], reports["delay"]
    )
    both = np.isin(reports["worker"], [2, 5, 11])
    same(found.others([2, 5, 11]), np.ones(both.sum(), dtype=int), reports["delay"][both])
    assert found.exact_below == 2**14


def test_weights_are_those_of_their_delays(trace: dict[str, Column]) -> None:
    found, reports = over_time(trace, 7000)
    first, last, etas, weights = found.weights()
    assert len(first) <= 80
    assert etas.number.sum() == weights.number.sum() == len(reports["delay"])
    ranges = np.searchsorted(first, reports["delay"], side="right") - 1
    assert (reports["delay"] <= last[ranges]).all()
    for one, name in ((etas, "eta"), (weights, "weight")):
        same(one._replace(group=np.arange(len(first))), ranges, reports[name], error=1e-5)


def test_sums_of_weights_are_those_of_all_reports(trace: dict[str, Column]) -> None:
    found, reports = over_time(trace, 7000)
    width, used, sums = found.sums()
    bins = np.floor(reports["finish"] / width).astype(int)
    assert used.tolist() == np.unique(bins).tolist()
    full = 1 / reports["present"]
    columns = {"number": np.ones(len(bins)), "full": full, "eta": reports["eta"], "weight": reports["weight"]}
    for name, column in (columns | {"cut": reports["eta"] < full * (1 - 1e-9)}).items():
        assert sums[name] == pytest.approx(np.bincount(bins, column)[used], rel=1e-9)
    # The rule of Theorem 1: 1/K up to a delay of 2K.
    assert sums["cut"].sum() == (reports["delay"] > 2 * reports["present"]).sum() > 0


def test_figures_draw_the_quantiles(tmp_path: Path) -> None:
    """Of the run's own reports, not of fewer."""
    cluster = orlomo.Cluster(speeds=(orlomo.Speed(law="exponential"), orlomo.Speed(factor=4.0)))
    task = classification()
    run = orlomo.train(
        task, settings("orlomo"), workers=WORKERS_SHOWN + 6, epochs=40, cluster=cluster, jobs=1, out=tmp_path / "run"
    )
    charts, [shown] = drawn([view_of(run, "run", [])])
    specs = {chart["name"]: chart for chart in charts}
    columns: Any = shown["charts"]["delay"]
    events = run.event_columns
    delays, times = events["delay"], events["finish"]
    bins = np.floor(times / columns["width"]).astype(int)
    for name in QUANTILES:
        assert columns[name] == [exact(delays[bins == one])[name] for one in columns["bin"]]
    [axes] = new_figure(1, 1, (4, 3))[1]
    figures.DRAWN["bands"](axes, specs["delay"], shown)
    [median] = axes.get_lines()[:1]
    assert median.get_ydata()[::2].tolist() == columns["middle"]
    [area] = axes.patches
    assert area.get_data().values.tolist() == columns["high"]
    assert area.get_data().baseline.tolist() == columns["low"]
    rows: Any = shown["charts"]["worker_delays"]
    assert rows["worker"][-1] == "7 others"
    assert len(rows["worker"]) == WORKERS_SHOWN
    assert sum(rows["number"]) == len(delays)
    for label, middle in zip(rows["worker"][:-1], rows["middle"][:-1], strict=True):
        own = delays[events["worker"] == int(label.removeprefix("worker "))]
        assert middle == exact(own)["middle"]
    assert rows["middle"][:-1] == sorted(rows["middle"][:-1], reverse=True)
    for kind in ("rows", "weights", "audit", "bars"):
        [name] = [name for name, spec in specs.items() if spec["kind"] == kind]
        figures.DRAWN[kind](new_figure(1, 1, (4, 3))[1][0], specs[name], shown)


def test_charts_without_a_delay_are_left_out(runs: list[orlomo.Run]) -> None:
    _, shown = drawn([view_of(run, run.folder.name, []) for run in runs])
    late = {"delays", "delay", "worker_delays", "weights", "audit", "groups"}
    assert late <= set(shown[0]["charts"])
    assert not late & set(shown[1]["charts"])  # synchronous


def test_present_workers_are_those_of_the_ledger(runs: list[orlomo.Run]) -> None:
    """With a crash and a return: a full weight is 1/K of the workers that are there, so nothing counts as cut."""
    _, [shown] = drawn([view_of(runs[0], "run", [])])
    columns: Any = shown["charts"]["audit"]
    events = runs[0].event_columns
    late = events["delay"][events["kind"] == "report"] > 2 * 3
    assert sum(columns["cut"]) <= late.sum()
    if not late.any():
        assert columns["eta"] == pytest.approx(columns["full"])
