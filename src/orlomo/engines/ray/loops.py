"""Workers of a user's loop on a Ray cluster: an actor each, which hosts the worker's process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError
from torch import Tensor

from orlomo.config import RunConfig
from orlomo.engines.live.crew import CrewEvent
from orlomo.engines.loops import port
from orlomo.engines.loops.crew import LoopCrew, LoopMember
from orlomo.engines.loops.facts import End
from orlomo.engines.processes.starter import Failed
from orlomo.engines.processes.worker import SlotReport
from orlomo.engines.ray.actors import OnRay, Room, Stored, Versions, end, reason_of, remote, returned, row, store
from orlomo.engines.ray.host import Heard, LoopHost
from orlomo.engines.ray.worker import Array, Where, view
from orlomo.loop.messages import Finished, LoopSettings
from orlomo.methods.messages import Assignment
from orlomo.records.log import Log


@dataclass
class HostedMember(OnRay, LoopMember):
    """A worker on the cluster."""


class RayLoopCrew(LoopCrew[HostedMember]):
    """The workers of a run, on a Ray cluster. `root`: the folder of which the cluster may have a copy."""

    def __init__(
        self,
        config: RunConfig,
        pickled_program: NDArray[np.uint8],
        root: str,
        settings: Callable[[int, int], LoopSettings],
        log: Log,
    ):
        super().__init__(config.method, settings, config.workers)
        self._remote = remote(LoopHost, config)
        self._start = ray.put(pickled_program), root
        self.program_bytes = pickled_program.nbytes
        self._room, self._versions = Room(config, log), Versions(log)
        self._initial: Heard | None = None
        self._last: tuple[Any, Any] | None = None  # the parameters and buffers at the end, in the object store
        self.log = log

    def destination(self, worker: int) -> None:
        """Nowhere: the server's own vectors are copied into the object store at once."""

    def keep(self, assignment: Assignment) -> Assignment:
        """With the vectors in the object store."""
        member = self.members[assignment.worker]
        member.stored = store(self.members.values(), assignment.index, assignment.vectors)
        found = member.stored.references.items()
        return assignment.with_vectors({name: view(ray.get(reference)) for name, reference in found})

    def wait(self, seconds: float) -> list[CrewEvent]:
        """What has happened, in the order it happened; nothing, if nothing does for so long."""
        now = self._listening.now(self.members.values())
        for member in [member for member in self._leavers if self._has_ended(member, 0.0)]:
            self._leavers.remove(member)  # its place is for others
            self._end(member)
        awaited = sorted((m for m in self.members.values() if m.call is not None), key=lambda member: member.sent)
        heard: list[CrewEvent] = []
        if awaited:
            until = min(member.deadline for member in awaited) - now
            found = returned(awaited, max(0.0, min(seconds, until)))
            heard = [event for member in found if (event := self._listen(member)) is not None]
        else:
            time.sleep(seconds)
        now = self._listening.now(self.members.values())
        self._room.check(self.members.values(), now)
        for member in awaited:
            if reason := member.overdue(now):
                heard.append(self._lost(member, reason))
        return self._gather(now) + heard

    def listing(self) -> list[dict[str, str | int | None]]:
        """One row per worker, for display."""
        return [row(worker, member) for worker, member in sorted(self.members.items())]

    def initial(self) -> tuple[Tensor, Tensor | None]:
        """As the first worker has sent them."""
        assert self._initial is not None
        buffers = self._initial.buffers
        params = view(self._initial.vectors["params"]).clone()
        return params, None if buffers is None else view(buffers).clone()

    def _launch(self, settings: LoopSettings) -> HostedMember:
        handle = self._remote.remote(settings)
        return HostedMember(settings, has_room=False, handle=handle, call=handle.where.remote())

    def _start_others(self) -> None:
        """Not before the first has its place: where there is room for one only, it must be that one."""

    def _listen(self, member: HostedMember) -> CrewEvent | None:
        call, member.call = member.call, None
        try:
            answer: Where | Heard = ray.get(call)
        except RayError as error:
            return self._lost(member, reason_of(error))
        if isinstance(answer, Where):
            member.where, member.has_room = answer, True
            member.begin()
            member.call = member.handle.start.remote(*self._start)
            self._versions.check(answer)
            if member.settings.worker == 0 and self.present is None:
                super()._start_others()
            return None
        message = answer.message
        if isinstance(message, SlotReport):
            # The vectors are views of Ray's object store, which keeps them as long as the report lives. Buffers outlive
            # it.
            vectors = {name: view(array) for name, array in answer.vectors.items()}
            buffers = None if answer.buffers is None else view(answer.buffers).clone()
            # The clocks of two machines differ, so a report counts as finished when it arrives here.
            report = message.report.with_vectors(vectors, buffers)
            return self._reported(member, report, time.monotonic(), message.compute_seconds)
        if isinstance(message, port.Placed):
            self._initial = answer
        if isinstance(message, Failed):
            member.failure = message
            return self._lost(member, message.error)
        if isinstance(message, port.Ended):
            member.ended = True
            return self._lost(member, "its program has ended")
        event = self._hear(member, message)
        if isinstance(message, (port.Placed, port.Left)):  # which need no answer
            member.call = member.handle.listen.remote()
        return event

    def _send(self, member: HostedMember) -> None:
        assert member.stored is not None
        member.begin()
        member.waits = False
        self._tell(member, member.assignment, member.stored.references)

    def _come(self, member: HostedMember, answer: port.Come, vectors: Mapping[str, Tensor] | None) -> None:
        found: Stored | None = None
        if vectors is not None:
            found = store(self.members.values(), answer.welcome.index, vectors)
        elif member.assignment is not None:
            found = member.stored
        self._tell(member, answer, {} if found is None else found.references)

    def _tell_end(self, member: HostedMember, message: Finished, end: End) -> None:
        if self._last is None:
            self._last = ray.put(end.params.numpy()), None if end.buffers is None else ray.put(end.buffers.numpy())
        params, buffers = self._last
        self._tell(member, message, {"params": params}, buffers)

    def _tell(
        self, member: HostedMember, message: object, vectors: Mapping[str, ray.ObjectRef[Array]], buffers: Any = None
    ) -> None:
        member.call = member.handle.tell.remote(message, tuple(vectors), buffers, *vectors.values())

    def _has_ended(self, member: HostedMember, seconds: float) -> bool:
        return member.call is None or bool(returned([member], seconds))

    def _end(self, member: HostedMember) -> None:
        end(member)
