"""What each worker did when, thinned, and the groups: from events alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orlomo
from orlomo.records.tables import EVENTS, Columns
from orlomo.report.charts import drawn as drawn_charts
from orlomo.report.streaming.thinning import thin
from orlomo.report.timeline import ABSENT, COMPUTING, LOST, STATES, TRANSFER, WAITING, bars, uses
from orlomo.report.view import view_of
from small import classification, settings


def events(*rows: tuple[str, int, float, float, float]) -> Columns:
    """Rows of kind, worker, start, finish, compute."""
    kinds, workers, *times = zip(*rows, strict=True)
    columns: Columns = {"kind": np.array(kinds, dtype=object), "worker": np.array(workers)}
    columns |= {name: np.array(column) for name, column in zip(("start", "finish", "compute"), times, strict=True)}
    return {**columns, "delay": np.zeros(len(rows), dtype=np.int64)}


def drawn(table: Columns, end: float = 0.0, limit: int = 4000) -> list[tuple[int, str, float, float, int]]:
    found = bars(table, end, limit)
    rows = zip(*(column.tolist() for column in found), strict=True)
    return [(worker, STATES[state], begin, end, rounds) for worker, state, begin, end, rounds in rows]


def test_a_round_is_computing_and_transfer_and_between_rounds_one_waits() -> None:
    table = events(("report", 0, 0.0, 3.0, 2.0), ("report", 0, 5.0, 7.0, 2.0))
    assert drawn(table) == [
        (0, "computing", 0.0, 2.0, 1),
        (0, "transfer", 2.0, 3.0, 1),
        (0, "waiting", 3.0, 5.0, 1),
        (0, "computing", 5.0, 7.0, 1),
    ]


def test_a_crash_is_lost_work_and_then_nobody() -> None:
    nan = math.nan
    table = events(
        ("report", 0, 0.0, 1.0, 1.0),
        ("crash", 0, nan, 1.5, nan),
        ("return", 0, nan, 4.0, nan),
        ("report", 0, 4.0, 6.0, 2.0),
    )
    assert drawn(table) == [
        (0, "computing", 0.0, 1.0, 1),
        (0, "lost work", 1.0, 1.5, 1),
        (0, "absent", 1.5, 4.0, 1),
        (0, "computing", 4.0, 6.0, 1),
    ]
    [use] = uses(table, bars(table), 1)
    assert (use.rounds, use.computing, use.absent) == (2, 0.5, 0.5)


def test_a_crash_without_a_return_lasts_to_the_end() -> None:
    nan = math.nan
    table = events(("report", 0, 0.0, 1.0, 1.0), ("crash", 1, nan, 1.5, nan), ("crash", 0, nan, 2.0, nan))
    assert drawn(table, end=5.0) == [
        (0, "computing", 0.0, 1.0, 1),
        (0, "lost work", 1.0, 2.0, 1),
        (0, "absent", 2.0, 5.0, 1),
        (1, "lost work", 0.0, 1.5, 1),
        (1, "absent", 1.5, 5.0, 1),
    ]
    found = uses(table, bars(table, 5.0), 3)
    assert [(use.worker, use.rounds, use.absent) for use in found[:2]] == [(0, 1, 0.8), (1, 0, 1.0)]
    assert (found[2].rounds, math.isnan(found[2].computing)) == (0, True)
    assert drawn(table)[-1] == (1, "lost work", 0.0, 1.5, 1)  # where no worker comes back, a row ends with its crash


def test_at_a_barrier_one_waits_before_the_work_that_a_crash_ends() -> None:
    nan = math.nan
    before = [("report", 0, 0.0, 1.0, 1.0), ("report", 1, 0.0, 3.0, 3.0)]
    table = events(*before, ("crash", 0, nan, 4.0, nan), ("report", 1, 3.0, 6.0, 3.0))
    found = bars(table, end=0.0, synchronous=True)
    own = [(STATES[s], b, e) for w, s, b, e, _ in zip(*(c.tolist() for c in found), strict=True) if w == 0]
    assert own == [("computing", 0.0, 1.0), ("waiting", 1.0, 3.0), ("lost work", 3.0, 4.0)]
    table = events(*before, ("crash", 0, nan, 2.0, nan), ("report", 1, 3.0, 6.0, 3.0))
    found = bars(table, end=0.0, synchronous=True)
    own = [(STATES[s], b, e) for w, s, b, e, _ in zip(*(c.tolist() for c in found), strict=True) if w == 0]
    assert own == [("computing", 0.0, 1.0), ("waiting", 1.0, 2.0)]


@given(st.integers(1, 400), st.integers(1, 6), st.integers(3, 60), st.integers(0, 2**32 - 1))
def test_merging_keeps_every_workers_sums(reports: int, workers: int, limit: int, seed: int) -> None:
    source = np.random.default_rng(seed)
    clock, rows = dict.fromkeys(range(workers), 0.0), []
    for _ in range(reports):
        worker = int(source.integers(workers))
        start = clock[worker] + float(source.choice([0.0, source.exponential()]))
        compute = float(source.exponential() * source.choice([1, 1, 1, 20]))
        clock[worker] = start + compute + float(source.choice([0.0, 0.1]))
        rows.append(("report", worker, start, clock[worker], compute))
    table = events(*rows)
    fine, coarse = bars(table, limit=10 * reports + 10), bars(table, limit=limit)
    for worker in clock:
        for state in (COMPUTING, TRANSFER, WAITING, LOST, ABSENT):
            sums = [
                float((found.end - found.begin)[(found.worker == worker) & (found.state == state)].sum())
                for found in (fine, coarse)
            ]
            assert sums[0] == pytest.approx(sums[1], rel=1e-5, abs=1e-4)
    assert coarse.rounds[coarse.state == COMPUTING].sum() >= reports * 0.99


def test_a_long_round_stays_a_bar_of_its_own() -> None:
    rows = [("report", 0, float(i), i + 1.0, 1.0) for i in range(500)]
    rows += [("report", 0, 500.0, 600.0, 100.0)] + [("report", 0, 600.0 + i, 601.0 + i, 1.0) for i in range(500)]
    found = drawn(events(*rows), limit=30)
    assert len(found) <= 40
    assert (0, "computing", 500.0, 600.0, 1) in found


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=600), st.integers(4, 100))
def test_thinning_keeps_the_ends_and_the_extremes(values: list[float], points: int) -> None:
    column = np.array(values)
    kept = thin(column, points)
    assert len(kept) <= max(points, 4)
    assert kept[0] == 0
    assert kept[-1] == len(values) - 1
    assert column[kept].min() == column.min()
    assert column[kept].max() == column.max()
    assert (np.diff(kept) > 0).all()


def test_thinning_where_there_is_nothing() -> None:
    column = np.full(5000, np.nan)
    column[2500] = 1.0
    assert 2500 in thin(column, 100)
    assert thin(np.zeros(0)).tolist() == []


@pytest.mark.parametrize("faults", [False, True])
def test_groups_are_those_of_the_ledger(faults: bool, tmp_path: Path) -> None:
    """The ledger says how many groups a report was behind when it was folded in; the trace alone must give the same."""
    coming = (
        orlomo.Fault(time=3.0, worker=1, kind="crash"),
        orlomo.Fault(time=9.0, worker=1, kind="return"),
        orlomo.Fault(time=12.0, worker=4, kind="join"),
        orlomo.Fault(time=15.0, worker=0, kind="leave"),
    )
    cluster = orlomo.Cluster(speeds=(orlomo.Speed(law="exponential"),), faults=coming if faults else ())
    run = orlomo.train(
        classification(), settings("orlomo"), workers=4, epochs=20, cluster=cluster, jobs=1, out=tmp_path / "run"
    )
    reported = run.event_columns["kind"] == "report"
    behind = run.event_columns["behind"][reported]
    ledger = run.config.method.server(classification().initial_params(0), 4, classification().size).ledger
    ledger.start(4)
    expected = []
    for kind, worker in zip(run.event_columns["kind"].tolist(), run.event_columns["worker"].tolist(), strict=True):
        if kind == "report":
            expected.append(ledger.receive(worker, 1).fold.behind)
        else:
            (ledger.join if kind in ("join", "return") else ledger.leave)(worker)
    assert behind.tolist() == expected
    _, [shown] = drawn_charts([view_of(run, "run", [])])
    weights = run.event_columns["eta"][reported] * run.config.method.momentum**behind
    groups = shown["charts"]["groups"]
    assert groups["weight"] == pytest.approx(weights[-len(groups["weight"]) :], rel=1e-6)
    if not faults:  # the paper's formula: ceil(t/K) - ceil(ite/K)
        t, index = run.event_columns["iteration"][reported], run.event_columns["index"][reported]
        assert (behind == np.ceil(t / 4) - np.ceil(index / 4)).all()


def test_epochs_are_those_of_the_last_report(tmp_path: Path) -> None:
    """Not of the last evaluation, which may be long ago."""
    run = orlomo.train(classification(), settings("orlomo"), workers=2, epochs=10, jobs=1, out=tmp_path / "run")
    assert view_of(run, "run", []).to_json()["facts"]["epochs"] == pytest.approx(10)
    path = tmp_path / "run" / "metrics.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4]))  # up to the second epoch
    assert view_of(orlomo.load(run.folder), "run", []).to_json()["facts"]["epochs"] == pytest.approx(10)
    path.write_text("".join(lines[:2]))  # the evaluation before the first report has no epochs
    assert view_of(orlomo.load(run.folder), "run", []).to_json()["facts"]["epochs"] is None
    (tmp_path / "run" / "events.csv").write_text(",".join(EVENTS) + "\n")
    assert view_of(orlomo.load(run.folder), "run", []).to_json()["facts"]["epochs"] == 0
