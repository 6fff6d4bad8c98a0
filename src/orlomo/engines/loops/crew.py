"""The workers of a user's loop, wherever they are: started, welcomed, listened to, told of the end."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

from torch import Tensor

from orlomo.engines.live.crew import START_SECONDS, Arrived, CrewEvent, Listening, Member
from orlomo.engines.live.events import Left, Lost, NoRoom, Ready
from orlomo.engines.loops import port
from orlomo.engines.processes.starter import Failed
from orlomo.engines.slots import Shape
from orlomo.loop.buffers import encoding
from orlomo.loop.messages import DataFacts, Finished, LoopSettings, ModelFacts, Welcome
from orlomo.methods.messages import Assignment, Report, Vectors
from orlomo.methods.method import Method

GATHER_SECONDS = 10.0
"""At the beginning of a run workers wait so long for those that have nowhere to run yet."""


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
    """A worker, in whose process the user's program runs."""

    settings: LoopSettings
    model: ModelFacts | None = None
    data: DataFacts | None = None
    failure: Failed | None = None
    ended: bool = False  # its program has come to its end
    waits: bool = False  # for an answer
    told: bool = False  # that the run is at its end, or it has said itself that it leaves


M = TypeVar("M", bound=LoopMember)


class LoopCrew(ABC, Generic[M]):
    """The workers of a run. Use as a context manager: leaving it ends them all.

    What they and the server say to each other is here; how that travels is a subclass's to say. `settings`: worker,
    rank -> what this worker is. `present` is set once there is a run.
    """

    def __init__(self, method: Method, settings: Callable[[int, int], LoopSettings]):
        self._method, self._settings = method, settings
        self.present: Callable[[], Present] | None = None
        self.model: ModelFacts | None = None  # of the first worker, and so of all
        self.data: DataFacts | None = None
        self.anyone_ready = False  # and the beginning is over
        self._listening = Listening()
        self._gathering: float | None = None  # since when
        self.members: dict[int, M] = {}
        self._leavers: list[M] = []  # whose programs go on after they have left the run

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
        return False

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
            case Failed():
                member.failure = message
            case port.Hello(model):
                return self._welcome(member, model)
            case port.Begin(data):
                return self._begin(member, data)
            case port.Left():
                member.told = True
                return Left(member.settings.worker)
            case port.Ended():
                member.ended = True
        return None

    def _begin(self, member: M, data: DataFacts) -> Ready | Lost:
        if self.data is None:
            self.data = data
        elif data != self.data:
            return self._odd(member, f"it trains on {data}, the first worker on {self.data}")
        member.data, member.ready, member.waits = data, True, True
        if member.assignment is not None and self.anyone_ready:
            self._send(member)
        return Ready(member.settings.worker)

    def _gather(self, now: float) -> list[CrewEvent]:
        """Begin when all workers are ready: one that begins alone would leave the others far behind.

        Those that have nowhere to run are not waited for for long.
        """
        holders = [member for member in self.members.values() if member.assignment is not None and not member.lost]
        if self.anyone_ready or not any(member.ready for member in holders):
            return []
        self._gathering = now if self._gathering is None else self._gathering
        late = [member for member in holders if not member.has_room]
        if any(member.has_room and not member.ready for member in holders):
            return []
        if late and now < self._gathering + GATHER_SECONDS:
            return []
        self.anyone_ready = True
        for member in holders:
            if member.has_room:
                self._send(member)
            else:
                member.assignment = None
        return [NoRoom(tuple(member.settings.worker for member in late))] if late else []

    def _welcome(self, member: M, model: ModelFacts) -> Lost | None:
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
        self._come(member, port.Come(self._shape(), first and self.present is None, welcome), vectors)
        return None

    def _shape(self) -> Shape:
        """What the memory of a worker holds."""
        assert self.model is not None
        size = encoding(self.model.buffers).bytes
        sent, reported = tuple(self._method.sent_vectors()), self._method.report_vectors
        return Shape(self.model.parameters, self.model.dtype, size, False, sent, reported)

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


def differs(found: ModelFacts, first: ModelFacts) -> str | None:
    """How what a worker trains differs from what the first one does, in one line; None: it does not."""
    for number, (name, shape, kind) in enumerate(zip(first.names, first.shapes, first.dtypes, strict=True)):
        if number >= len(found.names):
            return f"it has no parameter {name}"
        here = found.names[number], found.shapes[number], found.dtypes[number]
        if here != (name, shape, kind):
            return f"it has {here[0]} {here[1]} {here[2]} where the first has {name} {shape} {kind}"
    if len(found.names) > len(first.names):
        return f"it also has the parameter {found.names[len(first.names)]}"
    if found.frozen != first.frozen:
        return "its parameters that are not trained are others: initialise them from one seed or one file"
    if found.buffers != first.buffers:
        return f"its buffers are {found.buffers}, those of the first {first.buffers}"
    return None
