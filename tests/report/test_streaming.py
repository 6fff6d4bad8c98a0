"""Events in blocks: what is shown does not depend on where a block ends, nor memory on how many events there are."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st

import orlomo
from orlomo.clusters.schedule import KINDS
from orlomo.records.parsing import blocks
from orlomo.records.tables import EVENTS, read_table
from orlomo.report.streaming import rounds
from orlomo.report.streaming.counting import COUNTED, Counts
from orlomo.report.streaming.events import RECENT, EventReader
from orlomo.report.web.page import page_content
from orlomo.report.workers.timeline import strips, uses, uses_of
from small import classification, settings

HEADER = ",".join(EVENTS) + "\n"
ROUNDS = ("report", "drop")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> orlomo.Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    faults = (orlomo.Fault(time=5.3, worker=1, kind="crash"), orlomo.Fault(time=9.0, worker=1, kind="return"))
    cluster = orlomo.Cluster(faults=faults, speeds=(orlomo.Speed(law="exponential"),))
    return orlomo.train(classification(), settings("orlomo"), workers=3, epochs=60, cluster=cluster, jobs=1, out=folder)


def rows(count: int, workers: int, seed: int, changes: float = 0.02) -> list[str]:
    """Lines of a trace of workers that compute, wait, crash and return; a few rounds are very long."""
    source = np.random.default_rng(seed)
    clock, here = np.zeros(workers), np.ones(workers, dtype=bool)
    found = []
    for t in range(count):
        worker = int(clock.argmin())
        if source.random() < changes:
            kind = ["return", "join", "crash", "leave"][2 * int(here[worker]) + int(source.integers(2))]
            here[worker] = not here[worker]
            clock[worker] += source.exponential()
            found.append(f"{kind},{t},{worker},,,,,,,,{clock[worker]},,,,,")
            continue
        start = clock[worker] + source.choice([0.0, source.exponential()])
        compute = source.exponential() * source.choice([1, 1, 1, 30])
        clock[worker] = start + compute + source.choice([0.0, 0.1])
        kind, delay = source.choice(ROUNDS, p=[0.95, 0.05]), int(source.geometric(0.2))
        numbers = f"{t},{worker},{t // workers},{t},{delay},{t // workers},{1 / (1 + delay)},0.1"
        times = f"{start},{clock[worker]},{compute}"
        found.append(f"{kind},{numbers},{times},{delay // workers},{source.random()},2,{source.exponential()}")
    return found


def read(path: Path, block: int = 0, monkeypatch: pytest.MonkeyPatch | None = None) -> EventReader:
    reader = EventReader(path)
    if monkeypatch is not None:
        monkeypatch.setattr(blocks, "BLOCK", block)
    reader.update(synchronous=False, losses=True, steps=True)
    return reader


@trying(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 600),
    workers=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
    block=st.integers(60, 9000),
)
def test_blocks_add_up_to_the_whole(count: int, workers: int, seed: int, block: int, tmp_path: Path) -> None:
    """With so little memory that rounds are merged several times."""
    path = tmp_path / "events.csv"
    path.write_text(HEADER + "\n".join([*rows(count, workers, seed), "report,1,2", ""]))
    columns = read_table(path, EVENTS)
    is_report, is_round = columns["kind"] == "report", np.isin(columns["kind"], ROUNDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "CELLS", 16)
        patch.setattr(rounds, "ROUNDS_KEPT", 100)
        events = read(path, block, patch).events
        seen = strips(events.timeline, 0.0, 16, 100)
        assert strips(events.timeline, 0.0, 16, 100) == seen
    assert (events.lines, events.whole, events.reports) == (count + 1, count, is_report.sum())
    delays = columns["delay"][is_report]
    assert (events.delays.sum, events.delays.max) == (delays.sum(), delays.max(initial=0))
    assert ("each" in seen) == (is_round.sum() <= 100)
    for one, other in zip(uses_of(events.workers, events.timeline, workers, 0.0), uses(columns, workers), strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-4, nan_ok=True)
    for worker in range(workers):
        own = (columns["worker"] == worker) & is_round
        assert events.workers.of(worker)[-1] == columns["local_steps"][own].sum()
    if is_report.any():
        for column, values in events.recent.items():
            assert np.array_equal(values, columns[column][is_report][-RECENT:])


def test_a_page_is_the_same_from_blocks_of_any_size(run: orlomo.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = page_content([orlomo.Run(run.folder)])
    for block in (100, 2999, 10_000):
        monkeypatch.setattr(blocks, "BLOCK", block)
        assert page_content([orlomo.Run(run.folder)]) == whole


def test_absurd_numbers_cost_nothing(run: orlomo.Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / "run"))
    huge = 2**62
    with (folder / "events.csv").open("a") as file:
        for worker, delay in ((10**15, 3), (2**63 - 1, 10**15), (1, huge), (2, huge), (1, huge)):
            numbers = f"{huge},{worker},{huge},{huge},{delay},{huge},0.1,0.1,900.0,901.0,1.0,{huge - 1},0.1,{huge}"
            file.write(f"report,{numbers},1.0\n")
        file.write(f"crash,{huge},{10**16},,,,,,,,902.0,,,,,\n")
    tracemalloc.start()
    content = page_content([orlomo.Run(folder)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6
    [shown] = content["runs"]
    json.dumps(shown, allow_nan=False)
    assert shown["facts"]["max_delay"] == huge
    assert [use["worker"] for use in shown["uses"]] == [0, 1, 2, 10**15, 10**16, 2**63 - 1]
    counted = shown["charts"]["delays"]
    assert isinstance(counted, dict)
    assert sum(counted["counts"]) + counted["above"] == shown["facts"]["reports"]
    assert len(counted["counts"]) <= 60


@trying(max_examples=40)
@given(st.lists(st.integers(0, 2**62) | st.integers(0, 300), min_size=1, max_size=50))
def test_counts_are_exact(values: list[int]) -> None:
    counts = Counts()
    for begin in range(0, len(values), 7):
        counts.add(np.array(values[begin : begin + 7]))
    found, many = counts.table()
    assert many.sum() == len(values)
    assert found[-1] == max(values)
    if max(values) < COUNTED:
        assert dict(zip(found.tolist(), many.tolist(), strict=True)) == Counter(values)
    assert (counts.number, counts.sum, counts.max) == (len(values), sum(values), max(values))


def test_memory_does_not_grow_with_the_events(run: orlomo.Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / "run"))
    lines = (folder / "events.csv").read_text().splitlines(keepends=True)
    some = "".join(lines[1:]) * (2500 // len(lines) + 1)

    def peak(times: int) -> float:
        (folder / "events.csv").write_text(lines[0] + some * times)
        tracemalloc.start()
        shown = page_content([orlomo.Run(folder)])["runs"][0]["facts"]["reports"]
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert shown == sum(line.startswith("report") for line in some.splitlines()) * times
        return found / 1e6

    once, thrice = peak(60), peak(180)  # about 150,000 and 450,000 events, of 20 and 60 MB: more than are read at once
    assert thrice < once + 12
    assert thrice < 120


def test_only_what_is_new_is_read(run: orlomo.Run, tmp_path: Path) -> None:
    path, whole = tmp_path / "events.csv", (run.folder / "events.csv").read_bytes()
    seen: list[bytes] = []
    reader = EventReader(path, saw=lambda part: seen.append(bytes(part)))

    def update() -> tuple[int, int]:
        seen.clear()
        reader.update(synchronous=False, losses=False, steps=False)
        fresh = EventReader(path)
        fresh.update(synchronous=False, losses=False, steps=False)
        assert strips(reader.events.timeline, 0.0, 512, 10**4) == strips(fresh.events.timeline, 0.0, 512, 10**4)
        ours, others = reader.events.over_time, fresh.events.over_time
        assert all(map(np.array_equal, ours.delays().spread, others.delays().spread))
        assert all(map(np.array_equal, ours.weights()[2], others.weights()[2]))
        assert all(map(np.allclose, ours.sums()[2].values(), others.sums()[2].values()))
        assert reader.events.lines == fresh.events.lines
        return sum(map(len, seen)), reader.events.whole

    path.write_bytes(whole[:5000])
    assert update()[0] == 5000
    assert update()[0] == 0
    with path.open("ab") as file:
        file.write(whole[5000:9000])
    assert update()[0] == 4000
    with path.open("ab") as file:
        file.write(whole[9000:])
    assert update() == (len(whole) - 9000, whole.count(b"\n") - 1)
    # A run that is resumed cuts off what came after its checkpoint, and goes on in another way.
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:100], *lines[50:], *lines[50:]]))
    assert update()[0] == path.stat().st_size
    assert set(KINDS) > {"report", "crash"}


def test_a_page_does_not_grow_without_end(run: orlomo.Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / "run"))
    with (folder / "events.csv").open("a") as file:
        for number in range(500):
            file.write(f"{'crash' if number % 2 else 'return'},9,0,,,,,,,,{900 + number},,,,,\n")
        for number in range(40):
            file.write(f"report,9,{100 + number},1,1,1,1,0.1,0.1,900.0,901.0,1.0,0,0.1,2,1.0\n")
    monkeypatch.setattr("orlomo.report.streaming.events.MOST_CHANGES", 100)
    monkeypatch.setattr("orlomo.report.streaming.events.MOST_WORKERS", 13)
    seen = []
    for block in (100, 3000, 10**6):
        monkeypatch.setattr(blocks, "BLOCK", block)
        content = page_content([orlomo.Run(folder)])
        seen.append(content)
        assert any("402 more crashes, returns, joins and departures are not drawn" in note for note in content["notes"])
        assert any("30 damaged lines of events.csv left out" in note for note in content["notes"])
        assert [use["worker"] for use in content["runs"][0]["uses"]] == [0, 1, 2, *range(100, 110)]
    assert seen[0] == seen[1] == seen[2]
