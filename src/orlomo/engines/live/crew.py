"""What a live run knows of its workers, wherever they are: it hires them, gives them work, and hears what happens."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from orlomo.engines.processes.worker import Job
from orlomo.methods.messages import Assignment, Report, Vectors

PATIENCE_FACTOR, PATIENCE_SECONDS = 20.0, 60.0
"""A round may take this many times the median of the worker's recent ones, and always this many seconds."""

START_SECONDS = 600.0
"""What a worker may take to start, and for its first round (it may have to compile)."""

ABSENCE_SECONDS = 5.0
"""The server looks after its workers several times a second: a longer pause is its own."""

RECENT = 16
"""Rounds of a worker from which its deadline is taken."""


class Arrived(NamedTuple):
    """A report, its vectors where the worker left them; times in seconds of the monotonic clock."""

    report: Report
    sent: float
    finished: float
    compute_seconds: float


class Lost(NamedTuple):
    """A worker is gone, or of no use any more. It is for the listener to dismiss it."""

    worker: int
    reason: str
    traceback: str = ""  # where its code raised
    refused: bool = False  # its reports were of no use


class Came(NamedTuple):
    """A worker that had no place when it was hired is ready now."""

    worker: int


class Crew(Protocol):
    """The workers of a live run."""

    @property
    def workers(self) -> list[int]:
        """Who is there, or lost and not dismissed yet."""

    @property
    def anyone_ready(self) -> bool:
        """Whether a worker has been ready so far."""

    @property
    def absent(self) -> list[int]:
        """Who was hired, has no place to work yet, and should not be waited for."""

    def hire(self, worker: int, seat: int) -> bool:
        """Start a worker; it may be given an assignment at once. OSError or EOFError where none can be started.

        Whether it has a place; if not, it is `absent` until it has `Came`.
        """

    def destination(self, worker: int) -> Vectors | None:
        """Where to write what is assigned to this worker; None: nowhere, `assign` copies it before it returns."""

    def assign(self, assignment: Assignment) -> Assignment:
        """Let a worker compute. What comes back has vectors that stay as they are until it reports."""

    def withdraw(self, worker: int) -> None:
        """Take back what an absent worker has been assigned."""

    def dismiss(self, worker: int) -> None:
        """End a worker; the round it has in hand is not reported."""

    def wait(self, seconds: float) -> list[Arrived | Lost | Came]:
        """What has happened, in the order it happened; nothing, if nothing does for so long."""

    def listing(self) -> list[dict[str, Any]]:
        """A worker a row, for people."""


@dataclass
class Member:
    """A worker as the server sees it, wherever it is."""

    job: Job
    placed: bool = True
    ready: bool = False
    lost: bool = False
    order: Assignment | None = None  # what it is working on, or will when it is ready; without vectors
    sent: float = field(default_factory=time.monotonic)
    allowed: float = START_SECONDS  # seconds since then that it may take
    excused: float = 0.0  # seconds since then for which nobody listened
    rounds: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def deadline(self) -> float:
        """When to give up on it; a worker that waits for a place or an assignment has all the time."""
        if self.lost or not self.placed or (self.ready and self.order is None):
            return float("inf")
        return self.sent + self.excused + self.allowed

    @property
    def state(self) -> str:
        """For people."""
        if not self.placed:
            return "no place"
        return "starting" if not self.ready else "waiting" if self.order is None else "computing"

    def begin(self) -> None:
        """It is sent off: the clock runs."""
        self.sent, self.excused = time.monotonic(), 0.0
        if self.seconds:
            self.allowed = max(PATIENCE_SECONDS, PATIENCE_FACTOR * statistics.median(self.seconds))

    def done(self) -> None:
        """It is back with a round."""
        self.rounds += 1
        self.seconds.append(time.monotonic() - self.sent)
        self.order = None

    def overdue(self, now: float) -> str:
        """What is to be said of it if it is past its deadline, else nothing."""
        return f"no sign of life for {now - self.sent:.0f} s" if now > self.deadline else ""


class Listening:
    """When the server last looked. Where it was away itself (Ctrl-Z and fg, a laptop asleep), nobody else is late."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def now(self, members: Iterable[Member]) -> float:
        """The time, once these members are excused for an absence of the server."""
        now = time.monotonic()
        if now - self._last > ABSENCE_SECONDS:
            for member in members:
                member.excused += now - self._last
        self._last = now
        return now
