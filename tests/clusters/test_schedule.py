"""Schedules: exact event logs, the sum of delays, faults, links, and the paper's delay table."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orlomo
from orlomo.clusters.schedule import KINDS, Continued, EventQueue, Schedule, make_schedule
from orlomo.errors import ConfigError
from orlomo.methods.registry import METHODS, method_class

FIXED = (orlomo.Speed(count=1, factor=1, law="fixed"), orlomo.Speed(count=1, factor=3, law="fixed"))


def log(events: Schedule) -> list[tuple[object, ...]]:
    names = ("kind", "iteration", "worker", "index", "delay", "finish")
    rows = zip(*(events[name].tolist() for name in names), strict=True)
    return [(KINDS[kind], *rest) for kind, *rest in rows]


def test_the_exact_log_of_two_workers() -> None:
    cluster = orlomo.Cluster(speeds=FIXED)
    method = orlomo.OrLoMo(local_steps=2)
    assert log(orlomo.trace(method, workers=2, iterations=5, cluster=cluster)) == [
        ("report", 0, 0, 0, 0, 2.0),
        ("report", 1, 0, 1, 0, 4.0),
        ("report", 2, 1, 0, 2, 6.0),  # at equal times the one sent first comes first
        ("report", 3, 0, 2, 1, 6.0),
        ("report", 4, 0, 4, 0, 8.0),
    ]


def test_the_exact_log_of_a_barrier() -> None:
    events = orlomo.trace(orlomo.PRSGDm(local_steps=2), workers=2, iterations=3, cluster=orlomo.Cluster(speeds=FIXED))
    assert log(events) == [
        ("report", 0, 0, 0, 0, 2.0),
        ("report", 0, 1, 0, 0, 6.0),
        ("report", 1, 0, 1, 0, 8.0),
        ("report", 1, 1, 1, 0, 12.0),  # a barrier that has begun is finished
    ]


def test_faults_in_the_log() -> None:
    faults = (
        orlomo.Fault(time=5, worker=1, kind="crash"),
        orlomo.Fault(time=7, worker=1, kind="return"),
        orlomo.Fault(time=7, worker=2, kind="join"),
        orlomo.Fault(time=9, worker=0, kind="leave"),
    )
    cluster = orlomo.Cluster(speeds=FIXED, faults=faults)
    events = orlomo.trace(orlomo.OrLoMo(local_steps=2), workers=2, iterations=7, cluster=cluster)
    assert log(events) == [
        ("report", 0, 0, 0, 0, 2.0),
        ("report", 1, 0, 1, 0, 4.0),
        ("crash", 2, 1, -1, -1, 5.0),  # worker 1 would have reported at 6
        ("report", 2, 0, 2, 0, 6.0),
        ("return", 3, 1, -1, -1, 7.0),
        ("join", 3, 2, -1, -1, 7.0),
        ("report", 3, 0, 3, 0, 8.0),
        ("report", 4, 2, 3, 1, 9.0),
        ("report", 5, 0, 4, 1, 10.0),  # it reports what it had in hand, and goes
        ("leave", 6, 0, -1, -1, 10.0),
        ("report", 6, 2, 5, 1, 11.0),
    ]
    assert events["round"].tolist()[7] == 0


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_barrier_or_a_queue_survives_crashes(name: str) -> None:
    workers = method_class(name).max_workers or 3
    last = workers - 1
    faults = (orlomo.Fault(time=20, worker=last, kind="crash"), orlomo.Fault(time=60, worker=last, kind="return"))
    events = orlomo.trace(orlomo.method(name), workers=workers, iterations=20, cluster=orlomo.Cluster(faults=faults))
    assert events.reports.sum() >= 20


def test_everyone_gone_is_an_error_before_anything_is_computed() -> None:
    cluster = orlomo.Cluster(faults=(orlomo.Fault(time=3, worker=0, kind="crash"),))
    with pytest.raises(orlomo.OrlomoError, match="every worker is gone at time 3"):
        orlomo.trace(workers=1, iterations=10, cluster=cluster)
    cluster = orlomo.Cluster(faults=(orlomo.Fault(time=3, worker=8, kind="leave"),))
    with pytest.raises(orlomo.OrlomoError, match="leave at time 3: worker 8 cannot leave"):
        orlomo.trace(workers=1, iterations=10, cluster=cluster)


def test_bytes_and_latency_cost_time() -> None:
    link = {"latency_seconds": 0.5, "bytes_per_second": 100.0}
    cluster = orlomo.Cluster(speeds=(orlomo.Speed(law="fixed"),), **link)
    times = {}
    for name in ("al-sgd", "orlomo", "prsgdm"):
        method = orlomo.method(name, local_steps=4)
        times[name] = float(orlomo.trace(method, workers=1, iterations=1, cluster=cluster, parameters=25)["finish"][0])
    # 4 steps, twice the latency, and 2, 3 or 4 vectors of 25 numbers of 4 bytes
    assert times == {"al-sgd": 7.0, "orlomo": 8.0, "prsgdm": 9.0}


@settings(max_examples=40)
@given(
    st.integers(1, 12),
    st.integers(1, 300),
    st.sampled_from(["homogeneous", "heterogeneous:4", "slow-worker:50"]),
    st.integers(0, 99),
)
def test_sum_of_delays_and_eta(workers: int, iterations: int, cluster: str, seed: int) -> None:
    events = orlomo.trace(workers=workers, iterations=iterations, cluster=cluster, seed=seed)
    t, worker, delay = events["iteration"], events["worker"], events["delay"]
    last = [max([-1, *t[worker == k].tolist()]) + 1 for k in range(workers)]  # ite(T, k)
    assert delay.sum() + sum(iterations - ite for ite in last) == (workers - 1) * iterations
    expected = np.where(delay <= 2 * workers, 1 / workers, 1 / np.maximum(delay, 1))
    assert np.array_equal(events["eta"], expected)
    assert np.array_equal(events["group"], np.ceil(events["index"] / workers))
    assert (np.diff(events["finish"]) >= 0).all()


def test_a_large_trace_keeps_the_identity() -> None:
    workers, iterations = 5_000, 50_000
    events = orlomo.trace(workers=workers, iterations=iterations, cluster="heterogeneous")
    last = np.zeros(workers, dtype=np.int64)
    last[events["worker"]] = events["iteration"] + 1  # the newest of each worker stays
    assert events["delay"].sum() + (iterations - last).sum() == (workers - 1) * iterations


@pytest.mark.parametrize(("ratio", "paper"), [(1, 34), (2, 207), (5, 714), (10, 1905), (50, 9449)])
def test_maximum_delays_are_near_the_papers_table(ratio: int, paper: int) -> None:
    method = orlomo.OrLoMo(local_steps=8)
    largest = [
        orlomo.trace(method, workers=16, iterations=15_625, cluster=f"slow-worker:{ratio}", seed=seed)["delay"].max()
        for seed in range(5)
    ]
    assert math.isclose(float(np.median(largest)), paper, rel_tol=0.25)


def test_the_asynchronous_ceiling() -> None:
    """With fixed times the throughput ratio is max(t) * sum(1/t) / K."""
    speeds = (orlomo.Speed(share=0.75, law="fixed"), orlomo.Speed(share=0.25, factor=2, law="fixed"))
    cluster = orlomo.Cluster(speeds=speeds)
    a = orlomo.trace("orlomo", workers=16, iterations=16 * 500, cluster=cluster)["finish"][-1]
    b = orlomo.trace("prsgdm", workers=16, iterations=16 * 500, cluster=cluster)["finish"][-1]
    assert b / a == pytest.approx(1.75, rel=0.01)


TIMES = st.one_of(st.floats(0, 10), st.sampled_from([0.0, 1.0, 2.0, 1e9]))


@given(
    st.sampled_from([1e-3, 0.5, 1.0, 1e6]),
    st.lists(TIMES, min_size=1, max_size=30),
    st.lists(st.tuples(TIMES, st.integers(0, 1)), max_size=60),
)
def test_the_event_queue_is_one_heap(width: float, first: list[float], later: list[tuple[float, int]]) -> None:
    queue, heap = EventQueue(width), []
    for serial, time in enumerate(first):
        queue.push((time, 1, serial))
        heapq.heappush(heap, (time, 1, serial))
    for serial, (delay, priority) in enumerate(later, start=len(first)):
        event = queue.pop()
        assert event == heapq.heappop(heap)
        following = (event[0] + delay, priority, serial)  # never before what was popped
        queue.push(following)
        heapq.heappush(heap, following)
    while heap:
        assert queue.pop() == heapq.heappop(heap)
    assert not queue


@pytest.mark.parametrize("events", [4, 10**18])
def test_a_change_that_the_run_does_not_come_to_is_refused(events: int) -> None:
    method = orlomo.ASGD()
    changes = [Continued(2, method, 3), Continued(events, method, 9)]
    with pytest.raises(ConfigError, match=rf"has a change at event {events:,}, but the run before it ends at 3"):
        make_schedule(method, orlomo.Cluster(), workers=2, samples=3, batch_size=1, changes=changes)
