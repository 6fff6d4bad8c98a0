"""Worker processes that run a loop of the user's own: started, welcomed, listened to, told of the end."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from torch import Tensor

from orlomo.engines.live.crew import START_SECONDS, Arrived, CrewEvent, Listening, Member
from orlomo.engines.live.events import Left, Lost, Ready
from orlomo.engines.loops import port
from orlomo.engines.loops.port import Memory
from orlomo.engines.loops.process import serve_loop
from orlomo.engines.loops.work import differs
from orlomo.engines.processes.crew import cause_of
from orlomo.engines.processes.starter import Failed, Starter
from orlomo.engines.processes.worker import SlotReport
from orlomo.engines.slots import Shape, Slot
from orlomo.loop.buffers import encoding
from orlomo.loop.messages import DataFacts, Finished, LoopSettings, ModelFacts, Welcome
from orlomo.loop.program import Program
from orlomo.methods.messages import Assignment, Vectors
from orlomo.methods.method import Method


GATHER_SECONDS = 30.0
"""How long a worker that is ready waits for the others at the beginning of a run."""


class Present(NamedTuple):
    """The run as it is now: what a worker that says hello is given."""

    vectors: Mapping[str, Tensor]
    welcome: Welcome


class End(NamedTuple):
    """The run at its end: what every worker is given."""

    params: Tensor
    buffers: Tensor | None
    clock: int
    epoch: int


@dataclass
class LoopMember(Member):
    """A worker process."""

    settings: LoopSettings
    memory: Memory = field(kw_only=True)
    process: BaseProcess = field(kw_only=True)
    pipe: Connection = field(kw_only=True)
    slot: Slot | None = None
    model: ModelFacts | None = None
    data: DataFacts | None = None
    failure: Failed | None = None
    ended: bool = False  # its program has come to its end
    waits: bool = False  # for an answer
    told: bool = False  # that the run is at its end


def shape_of(model: ModelFacts, method: Method) -> Shape:
    """What the memory of a worker holds."""
    size = encoding(model.buffers).bytes
    sent, reported = tuple(method.sent_vectors()), method.report_vectors
    return Shape(model.parameters, model.dtype, size, False, sent, reported)


class LoopCrew:
    """The workers of a run, as processes of this machine. Use as a context manager: leaving it ends them all.

    `settings`: worker, rank -> what this worker is. `present` is set once there is a run.
    """

    def __init__(
        self, starter: Starter, program: Program, method: Method, settings: Callable[[int, int], LoopSettings]
    ):
        self._starter, self._program, self._method, self._settings = starter, program, method, settings
        self.present: Callable[[], Present] | None = None
        self.model: ModelFacts | None = None  # of the first worker, and so of all
        self.data: DataFacts | None = None
        self.anyone_ready = False  # and the beginning is over
        self._first_ready = float("inf")
        self._listening = Listening()
        self.members: dict[int, LoopMember] = {}
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
        if worker not in self.members:
            memory = Memory()
            settings = self._settings(worker, rank)
            try:
                process, pipe = self._starter.start(serve_loop, self._program, settings, memory, daemon=False)
            except BaseException:
                memory.close()
                raise
            self.members[worker] = LoopMember(settings, memory=memory, process=process, pipe=pipe)
            if self.model is not None:
                self._make_slot(self.members[worker])
        return False

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
        if member.ready and self.anyone_ready:
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
        listened = {member.pipe: member for member in self.members.values() if not member.lost}
        # The pipe of a killed worker stays open as long as the processes that it has started live.
        ends = {member.process.sentinel: member for member in listened.values()}
        until = min((member.deadline for member in listened.values()), default=float("inf")) - now
        found = multiprocessing.connection.wait([*listened, *ends], timeout=max(0.0, min(seconds, until)))
        happened: list[CrewEvent] = []
        gone = {id(ends[one]): ends[one] for one in found if isinstance(one, int)}
        for member in [listened[pipe] for pipe in found if isinstance(pipe, Connection)]:
            event = self._listen(member)
            gone.pop(id(member), None)  # it may have said more than one thing: the rest is heard the next time
            if event is not None:
                happened.append(event)
        for member in gone.values():
            if not member.pipe.poll():
                happened.append(self._lost(member, self._cause(member)))
        now = self._listening.now(self.members.values())
        for member in listened.values():
            if reason := member.overdue(now):
                happened.append(self._lost(member, reason))
        self._gather(now)
        # First come, first served: by the clock that all processes of a machine share.
        return sorted(happened, key=lambda event: event.finished if isinstance(event, Arrived) else now)

    def listing(self) -> list[dict[str, str | int | None]]:
        """One row per worker, for display."""
        return [
            {"worker": worker, "pid": member.process.pid, "state": member.state, "rounds": member.rounds}
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
                    if not member.ended:
                        warn(f"worker {event.worker} is lost at the end of the run: {event.reason}")
                    _end(member)
        until = time.monotonic() + START_SECONDS
        for member in self._leavers:
            while member.process.is_alive() and time.monotonic() < until:
                idle()
                multiprocessing.connection.wait([member.process.sentinel], 0.2)

    def _tell_end(self, member: LoopMember, end: End, chief: bool) -> None:
        slot = self.place(member.settings.worker)
        slot.assignment["params"].copy_(end.params)
        if end.buffers is not None:
            slot.buffers.copy_(end.buffers)
        member.told, member.waits, member.ready = True, False, False
        member.sent, member.excused, member.allowed = time.monotonic(), 0.0, START_SECONDS
        with contextlib.suppress(OSError):
            member.pipe.send(Finished(end.clock, end.epoch, chief))

    # Messages

    def _listen(self, member: LoopMember) -> CrewEvent | None:
        try:
            message = member.pipe.recv()
        except (EOFError, OSError):
            return self._lost(member, self._cause(member))
        worker = member.settings.worker
        match message:
            case SlotReport():
                member.waits = True
                return self._arrived(member, message)
            case Failed():
                member.failure = message
            case port.Hello(model):
                return self._welcome(member, model)
            case port.Placed():
                pass
            case port.Begin(data):
                if self.data is None:
                    self.data = data
                elif data != self.data:
                    return self._odd(member, f"it trains on {data}, the first worker on {self.data}")
                member.data, member.ready, member.waits = data, True, True
                self._first_ready = min(self._first_ready, time.monotonic())
                if member.assignment is not None and self.anyone_ready:
                    self._send(member)
                return Ready(worker)
            case port.Left():
                member.told = True
                return Left(worker)
            case port.Ended():
                member.ended = True
        return None

    def _gather(self, now: float) -> None:
        """The first rounds begin when all workers are ready, or when the first has waited long enough.

        A program may take long to start: the first worker would have done a short run alone by then.
        """
        members = [member for member in self.members.values() if not member.lost]
        if self.present is None or self.anyone_ready or now < self._first_ready:
            return
        if all(member.ready for member in members) or now > self._first_ready + GATHER_SECONDS:
            self.anyone_ready = True
            for member in members:
                if member.ready and member.assignment is not None:
                    self._send(member)

    def _welcome(self, member: LoopMember, model: ModelFacts) -> Lost | None:
        first = self.model is None
        if self.model is None:
            self.model = model
        elif (difference := differs(model, self.model)) is not None:
            return self._odd(member, difference)
        member.model = model
        if member.slot is None:
            self._make_slot(member)
        assert member.slot is not None
        welcome = Welcome(0, 0, 0, member.settings.worker == 0)
        if self.present is not None:
            vectors, welcome = self.present()
            if member.assignment is not None:
                welcome = welcome._replace(index=member.assignment.index)
            else:
                for name, vector in vectors.items():
                    member.slot.assignment[name].copy_(vector)
        with contextlib.suppress(OSError):
            member.pipe.send(port.Come(member.slot.shape, first and self.present is None, welcome))
        return None

    def _make_slot(self, member: LoopMember) -> None:
        assert self.model is not None
        member.slot = member.memory.slot(shape_of(self.model, self._method), create=True)

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

    def _cause(self, member: LoopMember) -> str:
        return cause_of(member.process) if member.failure is None else member.failure.error

    def _lost(self, member: LoopMember, reason: str) -> Lost:
        member.lost = True
        return Lost(member.settings.worker, reason, member.failure.traceback if member.failure else "")

    def _send(self, member: LoopMember) -> None:
        member.begin()
        member.waits = False
        with contextlib.suppress(OSError):  # it is gone: the closed pipe will say so
            member.pipe.send(member.assignment)


def _end(member: LoopMember) -> None:
    """End a worker's process and those that it has started, and forget it."""
    pid = member.process.pid
    if pid is not None and hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    member.process.kill()
    member.process.join()
    member.process.close()
    member.pipe.close()
    if member.slot is not None:
        member.slot.close()
    member.memory.close()
