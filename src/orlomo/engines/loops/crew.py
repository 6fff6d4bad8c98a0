"""Worker processes that run a loop of the user's own: started, welcomed, listened to, told of the end."""

from __future__ import annotations

import multiprocessing.connection
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from orlomo.engines.live.crew import START_SECONDS, Arrived, CrewEvent, Listening, Member
from orlomo.engines.live.events import Left, Lost, Ready
from orlomo.engines.loops import port
from orlomo.engines.loops.facts import End, Present, differs, shape_of
from orlomo.engines.loops.processes import LoopProcesses
from orlomo.engines.processes.starter import Failed, Starter
from orlomo.engines.processes.worker import SlotReport
from orlomo.engines.slots import Slot
from orlomo.loop.messages import DataFacts, Finished, LoopSettings, ModelFacts, Welcome
from orlomo.loop.program import Program
from orlomo.methods.messages import Assignment, Vectors
from orlomo.methods.method import Method

GATHER_SECONDS = 10.0
"""At the beginning workers wait so long for one another, from when the first is ready."""


@dataclass
class LoopMember(Member):
    """A worker process."""

    settings: LoopSettings
    processes: LoopProcesses = field(kw_only=True)
    slot: Slot | None = None
    model: ModelFacts | None = None
    data: DataFacts | None = None
    early: ModelFacts | None = None  # said before there was a run
    failure: Failed | None = None
    waits: bool = False  # for an answer
    told: bool = False  # that the run is at its end


class LoopCrew:
    """The workers of a run, as processes of this machine. Use as a context manager: leaving it ends them all.

    `settings`: worker, rank -> what this worker is. `present` is set once there is a run.
    """

    def __init__(
        self,
        starter: Starter,
        program: Program,
        method: Method,
        settings: Callable[[int, int], LoopSettings],
        together: int = 1,
    ):
        """`together`: workers that are started with the first one, since a program may take long to begin."""
        self._starter, self._program, self._method, self._settings = starter, program, method, settings
        self._together, self._gathered, self._first_ready = together, False, float("inf")
        self.present: Callable[[], Present] | None = None
        self.model: ModelFacts | None = None  # of the first worker, and so of all
        self.data: DataFacts | None = None
        self.anyone_ready = False  # so far
        self._listening = Listening()
        self.members: dict[int, LoopMember] = {}
        self.later: list[CrewEvent] = []  # what the next `wait` returns first
        self._leavers: list[LoopMember] = []  # whose programs go on after they have left the run

    def __enter__(self) -> LoopCrew:
        return self

    def __exit__(self, *details: object) -> None:
        for member in [*self.members.values(), *self._leavers]:
            _end(member)

    def start(self, worker: int, rank: int) -> bool:
        """Start a worker, unless it has been started before; it takes part once its program comes to its first round.

        At the beginning of a run all workers take part at once.
        """
        for other in range(1, self._together) if worker == 0 and self.present is None else ():
            self._start(other, other)
        self._start(worker, rank)
        return False

    def _start(self, worker: int, rank: int) -> None:
        if worker not in self.members:
            settings = self._settings(worker, rank)
            processes = LoopProcesses(self._starter, self._program, settings)
            self.members[worker] = LoopMember(settings, processes=processes)
            if self.model is not None:
                self._make_slot(self.members[worker])

    def destination(self, worker: int) -> Vectors:
        """Where to write what is assigned to this worker."""
        slot = self.members[worker].slot
        assert slot is not None
        return slot.assignment

    def send(self, assignment: Assignment) -> Assignment:
        """Let a worker compute; vectors that are not in its memory yet are copied there."""
        member, destination = self.members[assignment.worker], self.destination(assignment.worker)
        for name, vector in assignment.vectors.items():
            if vector.data_ptr() != destination[name].data_ptr():
                destination[name].copy_(vector)
        member.assignment = assignment.without_vectors()
        if member.ready and self._gathered:
            self._send(member)
        return assignment.with_vectors(destination)

    def stop(self, worker: int) -> None:
        """Stop a worker; one that has left by itself comes to the end of its program."""
        member = self.members.pop(worker)
        if member.told:
            self._leavers.append(member)
        else:
            _end(member)

    def wait(self, seconds: float) -> list[CrewEvent]:
        """What has happened, in the order it happened; nothing, if nothing does for so long."""
        now = self._listening.now(self.members.values())
        listened = [member for member in self.members.values() if not member.lost]
        until = min((member.deadline for member in listened), default=float("inf")) - now
        handles = {handle: member for member in listened for handle in member.processes.handles}
        found = multiprocessing.connection.wait(list(handles), timeout=max(0.0, min(seconds, until)))
        happened: list[CrewEvent] = []
        self._gather(now)
        for member in {id(handles[one]): handles[one] for one in found}.values():  # type: ignore[index]
            event = self._listen(member)  # it may have said more than one thing: the rest is heard the next time
            if event is not None:
                happened.append(event)
        happened, self.later = self.later + happened, []
        now = self._listening.now(self.members.values())
        for member in listened:
            if reason := member.overdue(now):
                happened.append(self._lost(member, reason))
        # First come, first served: by the clock that all processes of a machine share.
        return sorted(happened, key=lambda event: event.finished if isinstance(event, Arrived) else now)

    def listing(self) -> list[dict[str, str | int | None]]:
        """One row per worker, for display."""
        return [
            {"worker": worker, "pid": member.processes.pid, "state": member.state, "rounds": member.rounds}
            for worker, member in sorted(self.members.items())
        ]

    # The first worker

    def place(self, worker: int) -> Slot:
        """The memory of the first worker, with the parameters and buffers that the run begins with."""
        slot = self.members[worker].slot
        assert slot is not None
        return slot

    # The end

    def finish(self, end: End, warn: Callable[[str], None], idle: Callable[[], None]) -> None:
        """Tell every worker that the run is at its end, and wait until their programs have ended.

        A worker that is in a round is told when it reports; one whose program has not come to `attach` is stopped.
        `idle` is called several times a second.
        """
        for worker in [worker for worker, member in self.members.items() if member.model is None]:
            _end(self.members.pop(worker))
        chief = (
            min((member.settings.rank, worker) for worker, member in self.members.items())[1] if self.members else -1
        )
        while self.members:
            for member in self.members.values():
                if member.waits and not member.told:
                    self._tell_end(member, end, member.settings.worker == chief)
            idle()
            for event in self.wait(0.2):
                if isinstance(event, Lost):
                    member = self.members.pop(event.worker)
                    if not member.processes.ended:
                        warn(f"worker {event.worker} is lost at the end of the run: {event.reason}")
                    _end(member)
        until = time.monotonic() + START_SECONDS
        for member in self._leavers:
            while member.processes.alive and time.monotonic() < until:
                idle()
                member.processes.wait(0.2)

    def _tell_end(self, member: LoopMember, end: End, chief: bool) -> None:
        slot = self.place(member.settings.worker)
        slot.assignment["params"].copy_(end.params)
        if end.buffers is not None:
            slot.buffers.copy_(end.buffers)
        member.told, member.waits, member.ready = True, False, False
        member.sent, member.excused, member.allowed = time.monotonic(), 0.0, START_SECONDS
        member.processes.send(Finished(end.clock, end.epoch, chief))

    # Messages

    def _listen(self, member: LoopMember) -> CrewEvent | None:
        try:
            message = member.processes.receive()
        except EOFError:
            member.failure = member.failure or member.processes.failure()
            return self._lost(member, member.failure.error)
        worker = member.settings.worker
        match message:
            case SlotReport():
                member.waits = True
                return self._arrived(member, message)
            case port.Hello(model):
                return self._welcome(member, model)
            case port.Placed():
                pass
            case port.Begin(data):
                if self.data is None:
                    self.data = data
                elif data != self.data:
                    return self._odd(member, f"it trains on {data}, the first worker on {self.data}")
                member.data, member.ready, member.waits, self.anyone_ready = data, True, True, True
                self._first_ready = min(self._first_ready, time.monotonic())
                if member.assignment is not None and self._gathered:
                    self._send(member)
                return Ready(worker)
            case port.Left():
                member.told = True
                return Left(worker)
        return None

    def _gather(self, now: float) -> None:
        """At the beginning wait until all workers are ready, or the first has waited long enough for the others."""
        if self.present is None:  # there is no run yet
            return
        for member in [member for member in self.members.values() if member.early is not None]:
            early, member.early = member.early, None
            assert early is not None
            if (lost := self._welcome(member, early)) is not None:
                self.later.append(lost)
        if self._gathered:
            return
        late = [member for member in self.members.values() if not (member.lost or member.ready)]
        if not late or now > self._first_ready + GATHER_SECONDS:
            self._gathered = True
            for member in self.members.values():
                if member.ready and member.assignment is not None:
                    self._send(member)

    def _welcome(self, member: LoopMember, model: ModelFacts) -> Lost | None:
        if self.present is None and member.settings.worker != 0:  # the first worker says with what the run begins
            member.early = model
            return None
        first = self.model is None
        if self.model is None:
            self.model = model
        elif (difference := differs(model, self.model)) is not None:
            return self._odd(member, difference)
        member.model = model
        for other in [other for other in self.members.values() if other.slot is None]:
            self._make_slot(other)
        assert member.slot is not None
        welcome = Welcome(0, 0, 0, member.settings.worker == 0)
        if self.present is not None:
            vectors, welcome = self.present()
            if member.assignment is not None:
                welcome = welcome._replace(index=member.assignment.index)
            else:
                for name, vector in vectors.items():
                    member.slot.assignment[name].copy_(vector)
        member.processes.send(port.Come(member.slot.shape, first and self.present is None, welcome))
        return None

    def _make_slot(self, member: LoopMember) -> None:
        assert self.model is not None
        member.slot = member.processes.memory.slot(shape_of(self.model, self._method), create=True)

    def _arrived(self, member: LoopMember, light: SlotReport) -> Arrived:
        member.finish()
        slot = member.slot
        assert slot is not None
        report = light.report.with_vectors(slot.report, slot.buffers.clone() if slot.shape.buffers else None)
        return Arrived(report, member.sent, light.finished, light.compute_seconds)

    def _odd(self, member: LoopMember, what: str) -> Lost:
        text = f"worker {member.settings.worker} does not train what the others do: {what}"
        member.failure = Failed(text, text)
        return self._lost(member, text)

    def _lost(self, member: LoopMember, reason: str) -> Lost:
        member.lost = True
        return Lost(member.settings.worker, reason, member.failure.traceback if member.failure else "")

    def _send(self, member: LoopMember) -> None:
        member.begin()
        member.waits = False
        member.processes.send(member.assignment)


def _end(member: LoopMember) -> None:
    """End a worker's processes and those that they have started, and forget it."""
    member.processes.end()
    if member.slot is not None:
        member.slot.close()
