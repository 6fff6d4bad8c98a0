"""What reaches the workers of a live run, wherever they are: starts them, sends assignments, says what has happened."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from orlomo.engines.live.events import Left, Lost, NoRoom, Ready
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


CrewEvent = Ready | NoRoom | Arrived | Lost | Left


class Crew(Protocol):
    """The workers of a live run. It knows no method, and not which workers take part."""

    @property
    def anyone_ready(self) -> bool:
        """Whether a worker has been ready so far."""

    def start(self, worker: int, rank: int) -> bool:
        """Start a worker; it may be sent an assignment at once. OSError or EOFError where none can be started.

        Whether it takes part from now on; if not, it waits for room, and does once it is `Ready`.
        """

    def destination(self, worker: int) -> Vectors | None:
        """Where to write what is assigned to this worker; None: nowhere, `send` copies it before it returns."""

    def send(self, assignment: Assignment) -> Assignment:
        """Let a worker compute. What comes back has vectors that stay as they are until it reports."""

    def stop(self, worker: int) -> None:
        """Stop a worker; the round it has in hand is not reported."""

    def wait(self, seconds: float) -> list[CrewEvent]:
        """What has happened, in the order it happened; nothing, if nothing does for so long.

        Workers that have `NoRoom` hold no assignment any more.
        """

    def listing(self) -> list[dict[str, str | int | None]]:
        """One row per worker, for display."""


class Settings(Protocol):
    """What one worker is, as long as it runs."""

    @property
    def worker(self) -> int: ...


@dataclass
class Member:
    """A worker as the server sees it, wherever it is."""

    settings: Settings
    has_room: bool = True  # else it is waiting for a machine to run on
    ready: bool = False
    lost: bool = False
    assignment: Assignment | None = None  # what it is working on, or will when it is ready; without vectors
    sent: float = field(default_factory=time.monotonic)
    allowed: float = START_SECONDS  # seconds since then that it may take
    excused: float = 0.0  # seconds since then in which the server did not look
    rounds: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def deadline(self) -> float:
        """When to give up on it; never while it waits for room or for an assignment."""
        if self.lost or not self.has_room or (self.ready and self.assignment is None):
            return float("inf")
        return self.sent + self.excused + self.allowed

    @property
    def state(self) -> str:
        """For display."""
        if not self.has_room:
            return "no room"
        return "starting" if not self.ready else "waiting" if self.assignment is None else "computing"

    def begin(self) -> None:
        """Its assignment is sent: the clock runs."""
        self.sent, self.excused = time.monotonic(), 0.0
        # The median, so that one slow round does not lengthen the deadline for the next sixteen.
        if self.seconds:
            self.allowed = max(PATIENCE_SECONDS, PATIENCE_FACTOR * statistics.median(self.seconds))

    def finish(self) -> None:
        """Its report has arrived."""
        self.rounds += 1
        self.seconds.append(time.monotonic() - self.sent)
        self.assignment = None

    def overdue(self, now: float) -> str:
        """Why it is given up if it is past its deadline, else an empty string."""
        return f"no sign of life for {now - self.sent:.0f} s" if now > self.deadline else ""


class Listening:
    """When the server last looked, so that no worker is blamed for a time in which the server itself was away."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def now(self, members: Iterable[Member]) -> float:
        """The time, once these members are excused for an absence of the server."""
        now = time.monotonic()
        # After Ctrl-Z and fg, or a laptop asleep, every worker looks late: its report may have been in the pipe all the
        # time, or the worker slept with the server. So none of that time counts against its deadline.
        if now - self._last > ABSENCE_SECONDS:
            for member in members:
                member.excused += now - self._last
        self._last = now
        return now
