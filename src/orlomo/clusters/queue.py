"""The event queue: events in order of (time, priority, serial), for any number of workers.

One heap of 100,000 events is slow because each comparison waits for memory. Here events wait unsorted in buckets of
time, and only the bucket at hand is a heap. The order is that of one heap, exactly.
"""

from __future__ import annotations

import heapq
from typing import Any

Event = tuple[Any, ...]
"""Starts with time, priority and a serial number that no other event has."""


class EventQueue:
    """Push events, pop the earliest.

    >>> queue = EventQueue(bucket_seconds=1.0)
    >>> for event in [(2.5, 1, 1), (0.5, 1, 2), (2.5, 0, 3)]:
    ...     queue.push(event)
    >>> [queue.pop() for _ in range(3)]
    [(0.5, 1, 2), (2.5, 0, 3), (2.5, 1, 1)]
    """

    def __init__(self, bucket_seconds: float):
        self._width = bucket_seconds
        self._now: list[Event] = []  # a heap: the bucket at hand
        self._number = -1  # of that bucket
        self._later: dict[int, list[Event]] = {}
        self._numbers: list[int] = []  # a heap of the later buckets' numbers

    def __bool__(self) -> bool:
        return bool(self._now or self._numbers)

    def push(self, event: Event) -> None:
        number = int(event[0] / self._width)
        if number <= self._number:
            heapq.heappush(self._now, event)
            return
        bucket = self._later.get(number)
        if bucket is None:
            self._later[number] = [event]
            heapq.heappush(self._numbers, number)
        else:
            bucket.append(event)

    def pop(self) -> Event:
        if not self._now:
            self._number = heapq.heappop(self._numbers)
            self._now = self._later.pop(self._number)
            heapq.heapify(self._now)
        return heapq.heappop(self._now)
