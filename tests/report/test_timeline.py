"""What each worker did when, thinned, and the groups: from events alone."""

from __future__ import annotations

import html
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st

import orlomo
from orlomo.records.tables import EVENTS, Columns
from orlomo.report.charts import drawn as drawn_charts
from orlomo.report.drawing.timelines import DARK, LIGHT, hero_figure
from orlomo.report.streaming import rounds as streaming
from orlomo.report.streaming.rounds import STATES, Timeline
from orlomo.report.streaming.thinning import thin
from orlomo.report.streaming.workers import grouped
from orlomo.report.view import view_of
from orlomo.report.workers.happened import happened
from orlomo.report.workers.timeline import away, bars, codes, column_of, round_bars, strips, uses
from small import classification, settings


def events(*rows: tuple[str, int, float, float, float]) -> Columns:
    """Rows of kind, worker, start, finish, compute."""
    kinds, workers, *times = zip(*rows, strict=True)
    columns: Columns = {"kind": np.array(kinds, dtype=object), "worker": np.array(workers)}
    columns |= {name: np.array(column) for name, column in zip(("start", "finish", "compute"), times, strict=True)}
    return {**columns, "delay": np.zeros(len(rows), dtype=np.int64)}


def drawn(table: Columns, end: float = 0.0, synchronous: bool = False) -> list[tuple[int, str, float, float]]:
    rows = zip(*(column.tolist() for column in bars(table, end, synchronous)), strict=True)
    return [(worker, STATES[state], begin, end) for worker, state, begin, end in rows]


def test_a_round_is_computing_and_transfer_and_between_rounds_one_waits() -> None:
    table = events(("report", 0, 0.0, 3.0, 2.0), ("report", 0, 5.0, 7.0, 2.0))
    assert drawn(table) == [
        (0, "computing", 0.0, 2.0),
        (0, "transfer", 2.0, 3.0),
        (0, "waiting", 3.0, 5.0),
        (0, "computing", 5.0, 7.0),
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
        (0, "computing", 0.0, 1.0),
        (0, "lost work", 1.0, 1.5),
        (0, "absent", 1.5, 4.0),
        (0, "computing", 4.0, 6.0),
    ]
    [use] = uses(table, 1)
    assert (use.rounds, use.computing, use.round_seconds) == (2, 0.5, 1.5)
    assert (use.lost, use.absent) == pytest.approx((0.5 / 6, 2.5 / 6))


def test_a_crash_without_a_return_lasts_to_the_end() -> None:
    nan = math.nan
    table = events(("report", 0, 0.0, 1.0, 1.0), ("crash", 1, nan, 1.5, nan), ("crash", 0, nan, 2.0, nan))
    assert drawn(table, end=5.0) == [
        (0, "computing", 0.0, 1.0),
        (0, "lost work", 1.0, 2.0),
        (0, "absent", 2.0, 5.0),
        (1, "lost work", 0.0, 1.5),
        (1, "absent", 1.5, 5.0),
    ]
    found = uses(table, 3, 5.0)
    assert [(use.worker, use.rounds, use.lost + use.absent) for use in found[:2]] == [(0, 1, 0.8), (1, 0, 1.0)]
    assert (found[2].rounds, math.isnan(found[2].computing)) == (0, True)
    assert drawn(table)[-1] == (1, "lost work", 0.0, 1.5)  # where no worker comes back, a row ends with its crash


def test_at_a_barrier_one_waits_before_the_work_that_a_crash_ends() -> None:
    nan = math.nan
    before = [("report", 0, 0.0, 1.0, 1.0), ("report", 1, 0.0, 3.0, 3.0)]
    table = events(*before, ("crash", 0, nan, 4.0, nan), ("report", 1, 3.0, 6.0, 3.0))
    assert [row[1:] for row in drawn(table, synchronous=True) if row[0] == 0] == [
        ("computing", 0.0, 1.0),
        ("waiting", 1.0, 3.0),
        ("lost work", 3.0, 4.0),
    ]
    table = events(*before, ("crash", 0, nan, 2.0, nan), ("report", 1, 3.0, 6.0, 3.0))
    own = [row[1:] for row in drawn(table, synchronous=True) if row[0] == 0]
    assert own == [("computing", 0.0, 1.0), ("waiting", 1.0, 2.0)]


def test_those_that_have_reported_wait_for_the_last_barrier() -> None:
    table = events(("report", 0, 0.0, 1.0, 1.0), ("report", 1, 0.0, 3.0, 3.0))
    assert (0, "waiting", 1.0, 3.0) in drawn(table, synchronous=True)
    assert (0, "waiting", 1.0, 3.0) not in drawn(table)


def random_events(reports: int, workers: int, seed: int) -> Columns:
    """Rounds of very unequal length, with waiting and transfer, and now and then a crash."""
    source = np.random.default_rng(seed)
    clock, rows = np.zeros(workers), []
    for _ in range(reports):
        worker = int(clock.argmin())
        start = clock[worker] + float(source.choice([0.0, source.exponential()]))
        compute = float(source.exponential() * source.choice([1, 1, 1, 20]))
        if source.random() < 0.02:
            rows += [("crash", worker, math.nan, start, math.nan), ("return", worker, math.nan, start + 2, math.nan)]
            start += 2
        clock[worker] = start + compute + float(source.choice([0.0, 0.1]))
        rows.append(("report", worker, start, clock[worker], compute))
    return events(*rows)


@trying(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(1, 6), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_each_cell_has_the_seconds_of_the_rounds_in_it(reports: int, workers: int, block: int, seed: int) -> None:
    """Whatever the blocks in which the events came: each cell is the sum of what the exact bars have in it."""
    table = random_events(reports, workers, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "CELLS", 16)
        seen = Timeline()
        kinds = codes(table)
        for first in range(0, len(kinds), block):
            part = slice(first, first + block)
            times = (table[name][part] for name in ("start", "finish", "compute"))
            seen.add(grouped(table["worker"][part]), kinds[part], *times)
    known = seen.workers
    found, done = seen.seconds(known), seen.rounds_per_cell(known)
    width, count = seen.cells.width, found.shape[-1]
    assert count / 2 * width <= seen.cells.last < count * width
    expected = np.zeros_like(found)
    rounds = seen.rounds
    assert rounds is not None
    edges = np.arange(count + 1) * width
    for worker, state, begin, end in zip(*round_bars(rounds), strict=True):
        inside = np.minimum(end, edges[1:]) - np.maximum(begin, edges[:-1])
        expected[np.searchsorted(known, worker), state] += np.maximum(inside, 0.0)
    assert found == pytest.approx(expected, abs=1e-6 * seen.cells.last)
    reported = table["kind"] == "report"
    assert done.sum() == reported.sum()
    for row, worker in enumerate(known.tolist()):
        ends = table["finish"][reported & (table["worker"] == worker)]
        assert done[row].tolist() == np.histogram(ends, edges)[0].tolist()


def test_strips_keep_the_shares_and_the_rounds() -> None:
    """What is drawn of a cell is the share of each state in it; merging cells keeps the sums."""
    table = random_events(2000, 3, 7)
    seen = Timeline()
    seen.add(grouped(table["worker"]), codes(table), *(table[name] for name in ("start", "finish", "compute")))
    for cells in (512, 64):
        found = strips(seen, 0.0, cells, 4000)
        seconds = seen.seconds(seen.workers)
        seconds = seconds.reshape(*seconds.shape[:2], cells, -1).sum(axis=-1)[..., : found["cells"]]
        shares = np.stack([column_of(found["shares"][state], "u1") for state in STATES[:3]]) / 255
        shares = shares.reshape(3, len(found["workers"]), found["cells"]).swapaxes(0, 1)
        total = seconds.sum(axis=1, keepdims=True)
        assert shares == pytest.approx(seconds / np.where(total > 0, total, 1.0), abs=0.5 / 255 + 1e-6)
    gone = away(seen, 0.0)
    assert found["away"]["begin"] == pytest.approx(gone.begin.tolist(), rel=1e-6)
    assert {STATES[state] for state in found["away"]["state"]} == {"lost work", "absent"}
    rounds = seen.rounds
    assert rounds is not None
    assert column_of(found["each"]["finish"], "<f4").tolist() == pytest.approx(rounds.finish.tolist(), rel=1e-6)
    assert "each" not in strips(seen, 0.0, 64, 1999)  # too many


def test_of_very_many_workers_the_slowest_are_drawn() -> None:
    times = [1.0 + (worker % 97 == 5) * 9 for worker in range(1000)]
    table = events(*(("report", worker, 0.0, time, time) for worker, time in enumerate(times)))
    seen = Timeline()
    seen.add(grouped(table["worker"]), codes(table), *(table[name] for name in ("start", "finish", "compute")))
    found = strips(seen, 0.0, 512, 4000)
    assert found["all_workers"] == 1000
    assert len(found["workers"]) == 256
    assert {worker for worker in range(1000) if worker % 97 == 5} <= set(found["workers"])


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


def test_the_hero_picture_says_what_the_runs_say(tmp_path: Path) -> None:
    """Of two simulated runs: the seconds, their ratio and the shares that are drawn as text are the runs' own."""
    cluster = orlomo.Cluster(speeds=(orlomo.Speed(law="fixed"), orlomo.Speed(count=1, factor=4.0, law="fixed")))
    runs = [
        orlomo.train(
            classification(), settings(name), workers=4, epochs=15, cluster=cluster, jobs=1, out=tmp_path / name
        )
        for name in ("prsgdm", "orlomo")
    ]
    for theme in (LIGHT, DARK):
        png, svg = hero_figure(runs[0], runs[1], tmp_path / "hero", theme)
        assert png.read_bytes().startswith(b"\x89PNG")
    texts = html.unescape(svg.read_text())  # matplotlib writes each text as a comment beside its glyphs
    ends = [float(run.event_columns["finish"][-1]) for run in runs]
    share = [np.mean([use.computing for use in uses(run.event_columns, 4, ends[0], run is runs[0])]) for run in runs]
    assert f"Synchronous (prsgdm): workers computed {share[0]:.0%} of the time" in texts
    assert f"Asynchronous (orlomo): workers computed {share[1]:.0%} of the time" in texts
    assert f"15 epochs in {ends[1]:.1f} virtual seconds" in texts
    assert f"instead of {ends[0]:.0f}: {ends[0] / ends[1]:.1f} times as fast" in texts
    assert "worker 3 (4.0x slower)" in texts
    with pytest.raises(orlomo.OrlomoError, match="is not a run of a synchronous method"):
        hero_figure(runs[1], runs[1], tmp_path / "hero")


def test_changes_of_settings_and_a_stop_are_among_the_events(tmp_path: Path) -> None:
    faults = (orlomo.Fault(time=3.0, worker=1, kind="crash"), orlomo.Fault(time=9.0, worker=1, kind="return"))
    run = orlomo.train(
        classification(),
        settings("orlomo"),
        workers=2,
        epochs=5,
        cluster=orlomo.Cluster(faults=faults),
        jobs=1,
        out=tmp_path / "run",
    )
    run = orlomo.resume(run.folder, task=classification(), epochs=8, learning_rate=0.01, jobs=1)
    view = view_of(run, "run", [])
    [change] = run.changes
    crash, back, changed = view.happened
    assert (crash["kind"], crash["time"], crash["text"]) == ("crash", 3.0, "worker 1 crashed")
    assert (back["kind"], back["text"]) == ("return", "worker 1 came back after 6 virtual seconds")
    assert changed["time"] == run.event_columns["finish"][change.events - 1]
    assert changed["text"] == f"settings were changed {change}"
    assert view.to_json()["membership"] == "2 workers, 1 crashed and came back"
    stopped = happened(view.seen.timeline, "seconds", [], {}, "the loss has not improved", 12.0)[-1]
    assert (stopped["kind"], stopped["time"]) == ("stop", 12.0)
