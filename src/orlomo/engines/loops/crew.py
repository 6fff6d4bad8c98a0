"""The workers of a user's loop, wherever they are: started, welcomed, listened to, told of the end."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from torch import Tensor

from orlomo.engines.live.crew import START_SECONDS, Arrived, CrewEvent, Listening, Member
from orlomo.engines.live.events import Left, Lost, NoRoom, Ready
from orlomo.engines.loops import port
from orlomo.engines.loops.facts import End, Present, differs, shape_of
from orlomo.engines.processes.starter import Failed
from orlomo.loop.messages import DataFacts, Finished, LoopSettings, ModelFacts, Welcome
from orlomo.methods.messages import Assignment, Report, Vectors
from orlomo.methods.method import Method

GATHER_SECONDS = 10.0
"""At the beginning workers wait at least so long for one another."""


@dataclass
class LoopMember(Member):
    """A worker, in whose process the user's program runs."""

    settings: LoopSettings
    model: ModelFacts | None = None
    data: DataFacts | None = None
    early: ModelFacts | None = None  # said before there was a run
    failure: Failed | None = None
    ended: bool = False  # its program has come to its end
    waits: bool = False  # for an answer
    told: bool = False  # that the run is at its end, or it has said itself that it leaves


M = TypeVar("M", bound=LoopMember)


class LoopCrew(ABC, Generic[M]):
    """The workers of a run. Use as a context manager: leaving it ends them all.

    What they and the server say to each other is here; how that travels is a subclass's to say. `settings`: worker,
    rank -> what this worker is. `together`: workers that are started with the first one, since a program may take long
    to begin. `present` is set once there is a run.
    """

    def __init__(self, method: Method, settings: Callable[[int, int], LoopSettings], together: int = 1):
        self._method, self._settings, self._together = method, settings, together
        self.present: Callable[[], Present] | None = None
        self.model: ModelFacts | None = None  # of the first worker, and so of all
        self.data: DataFacts | None = None
        self.anyone_ready = False  # and the beginning is over
        self._listening = Listening()
        self._patience = GATHER_SECONDS  # at the beginning
        self._gathering: float | None = None  # since when
        self.members: dict[int, M] = {}
        self.later: list[CrewEvent] = []  # what the next `wait` returns first
        self._leavers: list[M] = []  # whose programs continue after they have left the run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        for member in [*self.members.values(), *self._leavers]:
            self._end(member)

    def start(self, worker: int, rank: int) -> bool:
        """Start a worker, unless it has been started before; it takes part once its program comes to its first round.

        At the beginning of a run all workers take part, and wait for one another.
        """
        if worker not in self.members:
            self.members[worker] = self._launch(self._settings(worker, rank))
            if worker == 0 and self.present is None:
                self._start_others()
        return False

    def _start_others(self) -> None:
        """The first worker is being started: those that are to begin with it."""
        for other in range(1, self._together):
            self.start(other, other)

    @abstractmethod
    def destination(self, worker: int) -> Vectors | None:
        """Where to write what is assigned to this worker; None: nowhere, `send` copies it before it returns."""

    @abstractmethod
    def keep(self, assignment: Assignment) -> Assignment:
        """The same assignment, which is not sent yet, with vectors that stay as they are until it is."""

    def send(self, assignment: Assignment) -> Assignment:
        """Let a worker compute. What comes back has vectors that stay as they are until it reports."""
        member, kept = self.members[assignment.worker], self.keep(assignment)
        member.assignment = assignment.without_vectors()
        if member.ready and self.anyone_ready:
            self._send(member)
        return kept

    def stop(self, worker: int) -> None:
        """Stop a worker; one that has left by itself comes to the end of its program."""
        member = self.members.pop(worker)
        if member.told:
            self._leavers.append(member)
        else:
            self._end(member)

    @abstractmethod
    def wait(self, seconds: float) -> list[CrewEvent]:
        """What has happened, in the order it happened; nothing, if nothing does for so long."""

    @abstractmethod
    def listing(self) -> list[dict[str, str | int | None]]:
        """One row per worker, for display."""

    @abstractmethod
    def initial(self) -> tuple[Tensor, Tensor | None]:
        """The parameters and buffers that the run begins with: those of the first worker."""

    # The end

    def finish(self, end: End, warn: Callable[[str], None], idle: Callable[[], None]) -> None:
        """Tell every worker that the run is at its end, and wait until their programs have ended.

        A worker that is in a round is told when it reports; one whose program has not come to `attach` is stopped.
        `idle` is called several times a second.
        """
        for worker in [worker for worker, member in self.members.items() if member.model is None]:
            self._end(self.members.pop(worker))
        chief = (
            min((member.settings.rank, worker) for worker, member in self.members.items())[1] if self.members else -1
        )
        while self.members:
            for worker, member in self.members.items():
                if member.waits and not member.told:
                    member.told, member.waits, member.ready = True, False, False
                    member.sent, member.excused, member.allowed = time.monotonic(), 0.0, START_SECONDS
                    self._tell_end(member, Finished(end.clock, end.epoch, worker == chief), end)
            idle()
            for event in self.wait(0.2):
                if isinstance(event, Lost):
                    member = self.members.pop(event.worker)
                    if not member.ended:
                        warn(f"worker {event.worker} is lost at the end of the run: {event.reason}")
                    self._end(member)
        until = time.monotonic() + START_SECONDS
        for member in self._leavers:
            while not self._has_ended(member, 0.2) and time.monotonic() < until:
                idle()

    # How it travels

    @abstractmethod
    def _launch(self, settings: LoopSettings) -> M:
        """Start a worker."""

    @abstractmethod
    def _send(self, member: M) -> None:
        """Tell a worker its assignment."""

    @abstractmethod
    def _come(self, member: M, answer: port.Come, vectors: Mapping[str, Tensor] | None) -> None:
        """Answer a worker's hello. `vectors`: what it begins with; None: those of its assignment, if it has one."""

    @abstractmethod
    def _tell_end(self, member: M, message: Finished, end: End) -> None:
        """Tell a worker that the run is at its end."""

    @abstractmethod
    def _has_ended(self, member: M, seconds: float) -> bool:
        """Whether the program of a worker that has left ends within so many seconds."""

    @abstractmethod
    def _end(self, member: M) -> None:
        """End a worker and the processes that it has started, and forget it."""

    # Messages

    def _hear(self, member: M, message: object) -> CrewEvent | None:
        """What a worker says, other than a report."""
        match message:
            case port.Hello(model):
                return self._welcome(member, model)
            case port.Begin(data):
                return self._begin(member, data)
            case port.Left():
                member.told = True
                return Left(member.settings.worker)
        return None

    def _begin(self, member: M, data: DataFacts) -> Ready | Lost:
        if self.data is None:
            self.data = data
        elif data != self.data:
            return self._odd(member, f"it trains on {data}, the first worker on {self.data}")
        if not any(other.ready for other in self.members.values()):
            self._patience = max(GATHER_SECONDS, time.monotonic() - member.sent)  # as long as the first took
        member.data, member.ready, member.waits = data, True, True
        if member.assignment is not None and self.anyone_ready:
            self._send(member)
        return Ready(member.settings.worker)

    def _gather(self, now: float) -> list[CrewEvent]:
        """At the beginning wait until all workers are ready, or some have waited long enough for the others.

        One that begins alone would leave the others far behind. Those that have nowhere to run yet join when they do.
        """
        happened, self.later = self.later, []
        if self.present is None:  # there is no run yet
            return happened
        for member in self.members.values():
            early, member.early = member.early, None
            if early is not None and (lost := self._welcome(member, early)) is not None:
                happened.append(lost)
        members = [member for member in self.members.values() if not member.lost]
        if self.anyone_ready or not any(member.ready for member in members):
            return happened
        self._gathering = now if self._gathering is None else self._gathering
        late = [member for member in members if not member.ready]
        if late and now < self._gathering + self._patience:
            return happened
        self.anyone_ready = True
        without = [member for member in late if not member.has_room]
        for member in without:
            member.assignment = None
        for member in members:
            if member.ready and member.assignment is not None:
                self._send(member)
        # They come first: a loss that is handled before them could close a barrier, and they would be sent another
        # assignment.
        return [NoRoom(tuple(member.settings.worker for member in without)), *happened] if without else happened

    def _welcome(self, member: M, model: ModelFacts) -> Lost | None:
        if self.present is None and member.settings.worker != 0:  # the first worker says with what the run begins
            member.early = model
            return None
        first = self.model is None
        if self.model is None:
            self.model = model
        elif (difference := differs(model, self.model)) is not None:
            return self._odd(member, difference)
        member.model = model
        vectors, welcome = None, Welcome(0, 0, 0, member.settings.worker == 0)
        if self.present is not None:
            vectors, welcome = self.present()
            if member.assignment is not None:
                vectors, welcome = None, welcome._replace(index=member.assignment.index)
        self._come(member, port.Come(shape_of(model, self._method), first and self.present is None, welcome), vectors)
        return None

    def _reported(self, member: M, report: Report, finished: float, compute_seconds: float) -> Arrived:
        member.finish()
        member.waits = True
        return Arrived(report, member.sent, finished, compute_seconds)

    def _odd(self, member: M, what: str) -> Lost:
        text = f"worker {member.settings.worker} does not train what the others do: {what}"
        member.failure = Failed(text, text)
        return self._lost(member, text)

    def _lost(self, member: M, reason: str) -> Lost:
        member.lost = True
        return Lost(member.settings.worker, reason, member.failure.traceback if member.failure else "")
