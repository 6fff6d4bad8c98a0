"""Workers on a Ray cluster: an actor each, one call at a time. Ray places, starts and watches them.

On the wire are numpy views of the flat vectors: Ray maps those from its object store, and would copy torch tensors.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError

from orlomo.config import RunConfig
from orlomo.engines.live.crew import Arrived, CrewEvent, Listening, Member
from orlomo.engines.live.events import Lost, NoRoom, Ready
from orlomo.engines.processes.starter import Failed
from orlomo.engines.processes.worker import worker_settings
from orlomo.engines.ray.actors import OnRay, Room, Versions, end, reason_of, remote, returned, row, store
from orlomo.engines.ray.worker import ArrayReport, RayWorker, Where, view
from orlomo.engines.slots import Shape
from orlomo.methods.messages import Assignment, Vectors
from orlomo.records.log import Log

GATHER_SECONDS = 10.0
"""At the beginning workers wait so long for one another, from when the first is ready."""


@dataclass
class Actor(OnRay, Member):
    """A worker on the cluster."""


class RayCrew:
    """The actors of a run. Use as a context manager: leaving it ends them all."""

    def __init__(self, config: RunConfig, pickled_task: ray.ObjectRef[NDArray[np.uint8]], shape: Shape, log: Log):
        self._config, self._pickled_task, self._shape = config, pickled_task, shape
        self._remote = remote(RayWorker, config)
        self._listening = Listening()
        self._versions = Versions(log)
        self._room = Room(config, log)
        self._first_ready = float("inf")
        self.anyone_ready = False  # and the beginning is over
        self.members: dict[int, Actor] = {}

    def __enter__(self) -> RayCrew:
        return self

    def __exit__(self, *details: object) -> None:
        for worker in list(self.members):
            self.stop(worker)

    def start(self, worker: int, rank: int) -> bool:
        """Ask for a worker; Ray places it when there is room."""
        settings = worker_settings(self._config, worker, rank)
        handle = self._remote.remote(settings)
        self.members[worker] = Actor(settings, has_room=False, handle=handle, call=handle.where.remote())
        return False

    def destination(self, worker: int) -> Vectors | None:
        """Nowhere: `send` copies the server's own vectors into the object store at once."""
        return None

    def send(self, assignment: Assignment) -> Assignment:
        """Let a worker compute. The vectors that come back are those in the object store."""
        member = self.members[assignment.worker]
        member.stored = stored = store(self.members.values(), assignment.index, assignment.vectors)
        member.assignment = assignment.without_vectors()
        if member.ready and self.anyone_ready:
            self._send(member)
        return assignment.with_vectors({name: view(ray.get(found)) for name, found in stored.references.items()})

    def stop(self, worker: int) -> None:
        """Stop a worker; the round it has in hand is not reported."""
        end(self.members.pop(worker))

    def wait(self, seconds: float) -> list[CrewEvent]:
        """What has happened, in the order it happened; nothing, if nothing does for so long."""
        now = self._listening.now(self.members.values())
        awaited = sorted((m for m in self.members.values() if m.call is not None), key=lambda member: member.sent)
        if not awaited:
            time.sleep(seconds)
            return self._gather(time.monotonic())
        until = min(member.deadline for member in awaited) - now
        found = returned(awaited, max(0.0, min(seconds, until)))
        heard = [event for member in found if (event := self._listen(member)) is not None]
        now = self._listening.now(self.members.values())
        # Workers without room come first: a loss that is handled before them could close a barrier, and a worker
        # without room would be sent another assignment.
        happened = [*self._gather(now), *heard]
        for member in awaited:
            if reason := member.overdue(now):
                happened.append(self._lost(member, reason))
        return happened

    def listing(self) -> list[dict[str, str | int | None]]:
        """One row per worker, for display."""
        return [row(worker, member) for worker, member in sorted(self.members.items())]

    def _send(self, member: Actor) -> None:
        assert member.stored is not None
        member.begin()
        member.call = member.handle.compute.remote(member.assignment, *member.stored.references.values())

    def _listen(self, member: Actor) -> Arrived | Lost | Ready | None:
        call, member.call = member.call, None
        try:
            message = ray.get(call)
        except RayError as error:
            failed_to_start = getattr(error, "actor_init_failed", False)
            return self._lost(member, reason_of(error), str(error) if failed_to_start else "")
        if isinstance(message, Failed):
            return self._lost(member, message.error, message.traceback)
        if isinstance(message, ArrayReport):
            return self._arrived(member, message)
        if isinstance(message, Where):
            self._prepare(member, message)
            return None
        member.ready = True
        self._first_ready = min(self._first_ready, time.monotonic())
        if member.assignment is not None and self.anyone_ready:
            self._send(member)
        return Ready(member.settings.worker)

    def _gather(self, now: float) -> list[CrewEvent]:
        """Begin when all workers are ready, or the first has waited long enough; the others have no room yet."""
        if self.anyone_ready:
            return []
        members = [member for member in self.members.values() if not member.lost]
        if now >= self._first_ready and (now > self._first_ready + GATHER_SECONDS or all(m.ready for m in members)):
            self.anyone_ready = True
            for member in members:
                if not member.ready:
                    member.assignment = member.stored = None
                elif member.assignment is not None:
                    self._send(member)
            late = tuple(member.settings.worker for member in members if not member.ready)
            return [NoRoom(late)] if late else []
        self._room.check(members, now)
        return []

    def _prepare(self, member: Actor, where: Where) -> None:
        """Ray has found room for this worker: let it build its model."""
        member.where, member.has_room = where, True
        member.begin()
        member.call = member.handle.prepare.remote(self._pickled_task, self._shape)
        self._versions.check(where)

    def _arrived(self, member: Actor, arrays: ArrayReport) -> Arrived:
        member.finish()
        # The vectors are views of Ray's object store, which keeps them as long as the report lives. Buffers outlive it.
        buffers = None if arrays.buffers is None else view(arrays.buffers).clone()
        report = arrays.report.with_vectors({name: view(array) for name, array in arrays.vectors.items()}, buffers)
        # The clocks of two machines differ, so a report counts as finished when it arrives here.
        return Arrived(report, member.sent, time.monotonic(), arrays.compute_seconds)

    def _lost(self, member: Actor, reason: str, traceback: str = "") -> Lost:
        member.lost, member.call = True, None
        return Lost(member.settings.worker, reason, traceback)
