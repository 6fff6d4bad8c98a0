"""The event queue gives the order of one heap, whatever the width of its buckets."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from orlomo.clusters.queue import EventQueue

TIMES = st.one_of(st.floats(0, 10), st.sampled_from([0.0, 1.0, 2.0, 1e9]))


@given(
    st.sampled_from([1e-3, 0.5, 1.0, 1e6]),
    st.lists(TIMES, min_size=1, max_size=30),
    st.lists(st.tuples(TIMES, st.integers(0, 1)), max_size=60),
)
def test_it_is_one_heap(width: float, first: list[float], later: list[tuple[float, int]]) -> None:
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
