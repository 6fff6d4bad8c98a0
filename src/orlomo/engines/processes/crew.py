"""Worker processes: started, watched, listened to, stopped. Events are returned in the order in which they happened."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import signal
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from orlomo.engines.live.crew import Arrived, CrewEvent, Listening, Member
from orlomo.engines.live.events import Lost
from orlomo.engines.processes.starter import Failed, PackedTask, Starter, end
from orlomo.engines.processes.worker import Ready, SlotReport, serve, worker_settings
from orlomo.engines.slots import Shape, Slot
from orlomo.methods.messages import Assignment, Vectors


@dataclass
class Process(Member):
    """A worker process."""

    slot: Slot = field(kw_only=True)
    process: BaseProcess = field(kw_only=True)
    pipe: Connection = field(kw_only=True)
    failure: Failed | None = None


class ProcessCrew:
    """The worker processes of a run. Use as a context manager: leaving it ends them all."""

    def __init__(self, starter: Starter, packed_task: PackedTask, shape: Shape):
        self._starter, self._packed_task, self._shape = starter, packed_task, shape
        self.anyone_ready = False  # so far
        self._listening = Listening()
        self.members: dict[int, Process] = {}

    def __enter__(self) -> ProcessCrew:
        return self

    def __exit__(self, *details: object) -> None:
        for member in self.members.values():
            member.process.kill()  # all at once, then wait for each
        for worker in list(self.members):
            self.stop(worker)

    def start(self, worker: int, rank: int) -> bool:
        """Start a worker; it may be sent an assignment at once, which waits for it in its slot."""
        settings = worker_settings(self._packed_task.config, worker, rank)
        slot = Slot(self._shape)
        try:
            process, pipe = self._starter.start(serve, self._packed_task, settings, slot)
        except BaseException:
            slot.close()
            raise
        self.members[worker] = Process(settings, slot=slot, process=process, pipe=pipe)
        return True

    def destination(self, worker: int) -> Vectors:
        """Where to write what is assigned to this worker."""
        return self.members[worker].slot.assignment

    def send(self, assignment: Assignment) -> Assignment:
        """Let a worker compute; vectors that are not in its slot yet are copied there."""
        member, destination = self.members[assignment.worker], self.destination(assignment.worker)
        for name, vector in assignment.vectors.items():
            if vector.data_ptr() != destination[name].data_ptr():
                destination[name].copy_(vector)
        member.assignment = assignment.without_vectors()
        if member.ready:
            self._send(member)
        return assignment.with_vectors(destination)

    def stop(self, worker: int) -> None:
        """Stop a worker; the round it has in hand is not reported."""
        member = self.members.pop(worker)
        end(member.process, member.pipe)
        member.slot.close()

    def wait(self, seconds: float) -> list[CrewEvent]:
        """What has happened, in the order it happened; nothing, if nothing does for so long."""
        now = self._listening.now(self.members.values())
        listened = {member.pipe: member for member in self.members.values() if not member.lost}
        until = min((member.deadline for member in listened.values()), default=float("inf")) - now
        found = multiprocessing.connection.wait(list(listened), timeout=max(0.0, min(seconds, until)))
        happened: list[CrewEvent] = []
        for pipe in found:
            event = self._listen(listened[pipe])  # type: ignore[index]
            if event is not None:
                happened.append(event)
        now = self._listening.now(self.members.values())
        for member in listened.values():
            if reason := member.overdue(now):
                happened.append(self._lost(member, reason))
        # First come, first served. Several reports may have come since the last look, and pipes are found ready in no
        # particular order; but all processes of a machine share the monotonic clock by which workers say when they were
        # done. Sorted by it, the order of the reports does not depend on when the server happened to look.
        return sorted(happened, key=lambda event: event.finished if isinstance(event, Arrived) else now)

    def listing(self) -> list[dict[str, str | int | None]]:
        """One row per worker, for display."""
        return [
            {"worker": worker, "pid": member.process.pid, "state": member.state, "rounds": member.rounds}
            for worker, member in sorted(self.members.items())
        ]

    def _listen(self, member: Process) -> Arrived | Lost | None:
        try:
            message = member.pipe.recv()
        except (EOFError, OSError):
            return self._lost(member, self._cause(member))
        if isinstance(message, SlotReport):
            return self._arrived(member, message)
        if isinstance(message, Failed):
            member.failure = message
        elif isinstance(message, Ready):
            member.ready = self.anyone_ready = True
            if member.assignment is not None:
                self._send(member)
        return None

    def _arrived(self, member: Process, light: SlotReport) -> Arrived:
        member.finish()
        slot = member.slot
        # The vectors stay in the slot until the server has folded them in. Buffers are copied: the session keeps the
        # newest ones of each worker, and the next round overwrites the slot.
        report = light.report.with_vectors(slot.report, slot.buffers.clone() if slot.shape.buffers else None)
        return Arrived(report, member.sent, light.finished, light.compute_seconds)

    def _cause(self, member: Process) -> str:
        if member.failure is not None:
            return member.failure.error
        return cause_of(member.process)

    def _lost(self, member: Process, reason: str) -> Lost:
        member.lost = True
        return Lost(member.settings.worker, reason, member.failure.traceback if member.failure else "")

    def _send(self, member: Process) -> None:
        member.begin()
        with contextlib.suppress(OSError):  # it is gone: the closed pipe will say so
            member.pipe.send(member.assignment)


def cause_of(process: BaseProcess) -> str:
    """Why a process has ended."""
    process.join(1.0)  # the pipe is closed a moment before the exit code is there
    code = process.exitcode
    return f"killed by {_name(-code)}" if code and code < 0 else f"ended with exit code {code}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
