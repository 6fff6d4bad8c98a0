"""Worker processes: started, watched, listened to, stopped. What happens to them is told in the order it happened."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import signal
import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from orlomo.engines.crew import Arrived, Lost
from orlomo.engines.sending import Failed, Starter, Work, end
from orlomo.engines.slots import Shape, Slot
from orlomo.engines.worker_process import Done, Job, Order, Ready, job_for, serve
from orlomo.methods import Assignment, Report
from orlomo.methods.server import Vectors

PATIENCE_FACTOR, PATIENCE_SECONDS = 20.0, 60.0
"""A round may take this many times the median of the worker's recent ones, and always this many seconds."""

START_SECONDS = 600.0
"""What a worker may take to start, and for its first round (it may have to compile)."""

ABSENCE_SECONDS = 5.0
"""The server looks after its workers several times a second: a longer pause is its own."""

RECENT = 16
"""Rounds of a worker from which its deadline is taken."""


@dataclass
class Member:
    """A worker as the server sees it."""

    job: Job
    slot: Slot
    process: Any
    pipe: Connection
    ready: bool = False
    lost: bool = False
    order: Order | None = None  # what it is working on, or will when it is ready
    sent: float = field(default_factory=time.monotonic)
    allowed: float = START_SECONDS  # seconds since then that it may take
    excused: float = 0.0  # seconds since then for which nobody listened
    rounds: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    failure: Failed | None = None

    @property
    def deadline(self) -> float:
        """When to give up on it; a worker that waits for an assignment has all the time."""
        if self.lost or (self.ready and self.order is None):
            return float("inf")
        return self.sent + self.excused + self.allowed

    @property
    def state(self) -> str:
        """For people."""
        return "starting" if not self.ready else "waiting" if self.order is None else "computing"


class Fleet:
    """The worker processes of a run. Use as a context manager: leaving it ends them all."""

    def __init__(self, starter: Starter, work: Work, shape: Shape):
        self._starter, self._work, self._shape = starter, work, shape
        self._averages = shape.buffers > 0
        self.anyone_ready = False  # so far
        self._listened = time.monotonic()
        self.members: dict[int, Member] = {}

    def __enter__(self) -> Fleet:
        return self

    @property
    def workers(self) -> list[int]:
        """Who is there, or lost and not dismissed yet."""
        return sorted(self.members)

    def __exit__(self, *details: object) -> None:
        for member in self.members.values():
            member.process.kill()  # all at once, then wait for each
        for worker in list(self.members):
            self.dismiss(worker)

    def hire(self, worker: int, seat: int) -> None:
        """Start a worker; it may be given an assignment at once."""
        job = job_for(self._work.config, worker, seat)
        slot = Slot(self._shape)
        try:
            process, pipe = self._starter.start(serve, self._work, job, slot)
        except BaseException:
            slot.close()
            raise
        self.members[worker] = Member(job, slot, process, pipe)

    def room(self, worker: int) -> Vectors:
        """Where to put what is handed to this worker."""
        slot = self.members[worker].slot
        return Vectors(slot.params, slot.momentum)

    def assign(self, assignment: Assignment) -> None:
        """Let a worker compute; the vectors are in its room already."""
        member, a = self.members[assignment.worker], assignment
        member.order = Order(a.index, a.round, a.learning_rate, a.local_steps, a.momentum is not None)
        if member.ready:
            self._send(member)

    def dismiss(self, worker: int) -> None:
        """End a worker; the round it has in hand is not reported."""
        member = self.members.pop(worker)
        end(member.process, member.pipe)
        member.slot.close()

    def wait(self, seconds: float) -> list[Arrived | Lost]:
        """What has happened, in the order it happened; nothing, if nothing does for so long."""
        self._excuse_absence()
        listened = {member.pipe: member for member in self.members.values() if not member.lost}
        until = min((member.deadline for member in listened.values()), default=float("inf")) - time.monotonic()
        found = multiprocessing.connection.wait(list(listened), timeout=max(0.0, min(seconds, until)))
        happened = [event for pipe in found if (event := self._listen(listened[pipe])) is not None]  # type: ignore[index]
        self._excuse_absence()
        now = time.monotonic()
        for member in listened.values():
            if now > member.deadline:
                happened.append(self._lost(member, f"no sign of life for {now - member.sent:.0f} s"))
        # First come, first served: workers say when they were done, by one clock.
        return sorted(happened, key=lambda event: event.finished if isinstance(event, Arrived) else now)

    def listing(self) -> list[dict[str, Any]]:
        """A worker a row, for people."""
        return [
            {"worker": worker, "pid": member.process.pid, "state": member.state, "rounds": member.rounds}
            for worker, member in sorted(self.members.items())
        ]

    def _excuse_absence(self) -> None:
        """Where the server itself was away (Ctrl-Z and fg, a laptop asleep), its workers are not late."""
        now = time.monotonic()
        if now - self._listened > ABSENCE_SECONDS:
            for member in self.members.values():
                member.excused += now - self._listened
        self._listened = now

    def _listen(self, member: Member) -> Arrived | Lost | None:
        try:
            message = member.pipe.recv()
        except (EOFError, OSError):
            return self._lost(member, self._cause(member))
        if isinstance(message, Done):
            return self._arrived(member, message)
        if isinstance(message, Failed):
            member.failure = message
        elif isinstance(message, Ready):
            member.ready = self.anyone_ready = True
            if member.order is not None:
                self._send(member)
        return None

    def _arrived(self, member: Member, done: Done) -> Arrived:
        member.rounds += 1
        member.seconds.append(time.monotonic() - member.sent)
        member.order = None
        slot, method = member.slot, self._work.config.method
        report = Report(
            member.job.worker,
            done.index,
            slot.delta,
            slot.momentum if method.reports_momentum else None,
            done.samples,
            done.loss,
            done.round,
            slot.buffers.clone() if self._averages else None,
            done.finite,
        )
        return Arrived(report, member.sent, done.finished, done.compute_seconds)

    def _cause(self, member: Member) -> str:
        if member.failure is not None:
            return member.failure.error
        member.process.join(1.0)
        code = member.process.exitcode
        return f"killed by {_name(-code)}" if code and code < 0 else f"ended with exit code {code}"

    def _lost(self, member: Member, reason: str) -> Lost:
        member.lost = True
        return Lost(member.job.worker, reason, member.failure.traceback if member.failure else "")

    def _send(self, member: Member) -> None:
        member.sent, member.excused = time.monotonic(), 0.0
        if member.seconds:
            member.allowed = max(PATIENCE_SECONDS, PATIENCE_FACTOR * statistics.median(member.seconds))
        with contextlib.suppress(OSError):  # it is gone: the closed pipe will say so
            member.pipe.send(member.order)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
