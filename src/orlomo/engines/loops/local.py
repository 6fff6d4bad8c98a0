"""Workers of a user's loop that are processes of this machine: a pipe each, and shared memory for vectors."""

from __future__ import annotations

import multiprocessing.connection
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from orlomo.engines.live.crew import Arrived, CrewEvent
from orlomo.engines.loops import port
from orlomo.engines.loops.crew import LoopCrew, LoopMember
from orlomo.engines.loops.facts import End, shape_of
from orlomo.engines.loops.processes import LoopProcesses
from orlomo.engines.processes.starter import Starter
from orlomo.engines.processes.worker import SlotReport
from orlomo.engines.slots import Slot
from orlomo.loop.messages import Finished, LoopSettings
from orlomo.loop.program import Program
from orlomo.methods.messages import Assignment, Vectors
from orlomo.methods.method import Method


@dataclass
class LocalMember(LoopMember):
    """A worker process, or a group of them."""

    processes: LoopProcesses = field(kw_only=True)
    slot: Slot | None = None


class LocalCrew(LoopCrew[LocalMember]):
    """The workers of a run, as processes of this machine."""

    def __init__(
        self,
        starter: Starter,
        program: Program,
        method: Method,
        settings: Callable[[int, int], LoopSettings],
        together: int = 1,
    ):
        super().__init__(method, settings, together)
        self._starter, self._program = starter, program

    def destination(self, worker: int) -> Vectors:
        """In the worker's memory."""
        return self._slot(self.members[worker]).assignment

    def keep(self, assignment: Assignment) -> Assignment:
        """Vectors that are not in the worker's memory yet are copied there."""
        destination = self.destination(assignment.worker)
        for name, vector in assignment.vectors.items():
            if vector.data_ptr() != destination[name].data_ptr():
                destination[name].copy_(vector)
        return assignment.with_vectors(destination)

    def wait(self, seconds: float) -> list[CrewEvent]:
        """What has happened, in the order it happened; nothing, if nothing does for so long."""
        now = self._listening.now(self.members.values())
        listened = [member for member in self.members.values() if not member.lost]
        until = min((member.deadline for member in listened), default=float("inf")) - now
        handles = {handle: member for member in listened for handle in member.processes.handles}
        found = multiprocessing.connection.wait(list(handles), timeout=max(0.0, min(seconds, until)))
        happened: list[CrewEvent] = []
        for member in {id(handles[one]): handles[one] for one in found}.values():  # type: ignore[index]
            event = self._listen(member)  # it may have said more than one thing: the rest is heard the next time
            if event is not None:
                happened.append(event)
        now = self._listening.now(self.members.values())
        for member in listened:
            if reason := member.overdue(now):
                happened.append(self._lost(member, reason))
        # First come, first served: by the clock that all processes of a machine share.
        return self._gather(now) + sorted(
            happened, key=lambda event: event.finished if isinstance(event, Arrived) else now
        )

    def listing(self) -> list[dict[str, str | int | None]]:
        """One row per worker, for display."""
        return [
            {"worker": worker, "pid": member.processes.pid, "state": member.state, "rounds": member.rounds}
            for worker, member in sorted(self.members.items())
        ]

    def initial(self) -> tuple[Tensor, Tensor | None]:
        """From the memory of the first worker."""
        slot = self._slot(self.members[0])
        return slot.assignment["params"].clone(), slot.buffers.clone() if slot.shape.buffers else None

    def _launch(self, settings: LoopSettings) -> LocalMember:
        return LocalMember(settings, processes=LoopProcesses(self._starter, self._program, settings))

    def _slot(self, member: LocalMember) -> Slot:
        """The memory of a worker; of use once there is one that has said what it trains."""
        if member.slot is None:
            assert self.model is not None
            member.slot = member.processes.memory.slot(shape_of(self.model, self._method), create=True)
        return member.slot

    def _listen(self, member: LocalMember) -> CrewEvent | None:
        try:
            message = member.processes.receive()
        except EOFError:
            member.ended = member.processes.ended
            member.failure = member.failure or member.processes.failure()
            return self._lost(member, member.failure.error)
        if not isinstance(message, SlotReport):
            return self._hear(member, message)
        slot = self._slot(member)
        report = message.report.with_vectors(slot.report, slot.buffers.clone() if slot.shape.buffers else None)
        return self._reported(member, report, message.finished, message.compute_seconds)

    def _send(self, member: LocalMember) -> None:
        member.begin()
        member.waits = False
        member.processes.send(member.assignment)

    def _come(self, member: LocalMember, answer: port.Come, vectors: Mapping[str, Tensor] | None) -> None:
        slot = self._slot(member)
        for name, vector in (vectors or {}).items():
            slot.assignment[name].copy_(vector)
        member.processes.send(answer)

    def _tell_end(self, member: LocalMember, message: Finished, end: End) -> None:
        slot = self._slot(member)
        slot.assignment["params"].copy_(end.params)
        if end.buffers is not None:
            slot.buffers.copy_(end.buffers)
        member.processes.send(message)

    def _has_ended(self, member: LocalMember, seconds: float) -> bool:
        if member.processes.alive:
            member.processes.wait(seconds)
        return not member.processes.alive

    def _end(self, member: LocalMember) -> None:
        member.processes.end()
        if member.slot is not None:
            member.slot.close()
