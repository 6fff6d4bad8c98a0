"""A worker's connection to the server in another process of the same machine: a pipe, and shared memory for vectors.

The server learns how large a model is only from its worker. So the memory is shared when the process starts, and gets
its size when the worker has said what it trains.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from orlomo.engines.processes.starter import receive, send
from orlomo.engines.processes.worker import SlotReport
from orlomo.engines.slots import Shape, Slot
from orlomo.loop.messages import DataFacts, Finished, LoopSettings, ModelFacts, Welcome
from orlomo.methods.messages import Assignment, Report

if TYPE_CHECKING:
    from multiprocessing.resource_sharer import DupFd


class Hello(NamedTuple):
    """A worker says what it trains."""

    model: ModelFacts


class Placed(NamedTuple):
    """A worker has put the parameters with which the run begins into the memory."""


class Begin(NamedTuple):
    """A worker says on what it trains, and waits for its first assignment."""

    data: DataFacts


class Left(NamedTuple):
    """A worker takes no further part: its loop has ended before the run's end."""


class Ended(NamedTuple):
    """The program has ended as it should."""


class Come(NamedTuple):
    """The answer to `Hello`: what the memory holds. `give`: put the parameters into it with which the run begins."""

    shape: Shape
    give: bool
    welcome: Welcome


class Memory:
    """Shared memory without a name; can be sent to a process that is being started, and gets its size later."""

    def __init__(self, handle: int | None = None):
        if handle is None:
            handle = os.memfd_create("orlomo") if hasattr(os, "memfd_create") else _unnamed_file()
        self.handle = handle

    def slot(self, shape: Shape, create: bool = False) -> Slot:
        """The vectors in it; `create`: give it their size first."""
        if create:
            os.ftruncate(self.handle, shape.bytes)
        return Slot(shape, handle=os.dup(self.handle))

    def close(self) -> None:
        """Give it back once the last view of it is gone."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def __reduce__(self) -> tuple[object, ...]:
        from multiprocessing.reduction import DupFd  # not on every system

        return _attach, (DupFd(self.handle),)


def _attach(handle: DupFd) -> Memory:
    return Memory(handle.detach())


def _unnamed_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class PipePort:
    """The worker's end. A pipe that the server has closed ends the process."""

    def __init__(self, settings: LoopSettings, memory: Memory, pipe: Connection):
        self.settings, self._memory, self._pipe = settings, memory, pipe
        self._slot: Slot | None = None
        self._began = time.monotonic()

    @property
    def slot(self) -> Slot:
        """The memory's vectors, after `hello`."""
        assert self._slot is not None
        return self._slot

    @property
    def assigned(self) -> Mapping[str, Tensor]:
        """Where the vectors of assignments are."""
        return self.slot.assignment

    @property
    def reported(self) -> Mapping[str, Tensor]:
        """Where the vectors of a report go."""
        return self.slot.report

    @property
    def buffers(self) -> Tensor:
        """The combined buffers, with `Finished`."""
        return self.slot.buffers

    def hello(self, model: ModelFacts, params: Tensor, buffers: Tensor | None) -> Welcome:
        """Say what is trained; what to begin with is in the memory then."""
        send(self._pipe, Hello(model))
        answer = receive(self._pipe, Come)
        self._slot = self._memory.slot(answer.shape)
        if answer.give:
            self._slot.assignment["params"].copy_(params)
            if buffers is not None:
                self._slot.buffers.copy_(buffers)
            send(self._pipe, Placed())
        return answer.welcome

    def begin(self, data: DataFacts) -> Assignment | Finished:
        """The first assignment."""
        return self._ask(Begin(data))

    def report(self, report: Report) -> Assignment | Finished:
        """The next assignment."""
        return self._ask(self._sent(report))

    def leave(self, report: Report | None) -> None:
        """The part of a round, if there is one; the program continues without the run."""
        if report is not None:
            send(self._pipe, self._sent(report))
            receive(self._pipe, object)  # it is folded in by now
        send(self._pipe, Left())

    def evaluation(self) -> bool:
        """Wait for parameters to evaluate; whether buffers come with them."""
        return receive(self._pipe, bool)

    def measured(self, values: dict[str, float]) -> None:
        """What was measured."""
        send(self._pipe, values)

    def sharing(self) -> object:
        """What the memory holds."""
        return self.slot.shape

    def share(self, what: object) -> None:
        """Another process of the group has said hello: the memory holds this."""
        assert isinstance(what, Shape)
        self._slot = self._memory.slot(what)

    def _ask(self, message: object) -> Assignment | Finished:
        send(self._pipe, message)
        answer: object = receive(self._pipe, object)
        assert isinstance(answer, (Assignment, Finished))
        self._began = time.monotonic()
        return answer

    def _sent(self, report: Report) -> SlotReport:
        if report.buffers is not None:
            self.slot.buffers.copy_(report.buffers)
        if self.settings.pace > 1:  # asleep, not busy: a slow worker must not take the others' cores
            time.sleep((self.settings.pace - 1) * (time.monotonic() - self._began))
        end = time.monotonic()
        return SlotReport(report.without_vectors(), end - self._began, end)
