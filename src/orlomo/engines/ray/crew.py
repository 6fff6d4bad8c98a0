"""Workers on a Ray cluster: an actor each, one call at a time. Ray places, starts and watches them.

On the wire are numpy views of the flat vectors: Ray maps those from its object store, and would copy torch tensors.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from orlomo.config import RunConfig
from orlomo.engines.live.crew import Arrived, CrewEvent, Listening, Member
from orlomo.engines.live.events import Lost, NoRoom, Ready
from orlomo.engines.processes.starter import Failed, PackedTask
from orlomo.engines.processes.worker import worker_settings
from orlomo.engines.ray.worker import Array, ArrayReport, RayWorker, Where, versions, view
from orlomo.engines.slots import Shape
from orlomo.errors import ConfigError
from orlomo.methods.messages import Assignment, Vectors
from orlomo.records.log import Log

GATHER_SECONDS = 10.0
"""At the beginning workers wait so long for one another, from when the first is ready."""

NO_ROOM_SECONDS = 30.0
"""When no worker has had room for so long, the user is warned."""


class Stored(NamedTuple):
    """The vectors of an assignment in the object store, shared by all workers that were assigned the same."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nothing here needs
    references: dict[str, ray.ObjectRef[Array]]


@dataclass
class Actor(Member):
    """A worker on the cluster."""

    handle: Any = field(kw_only=True)
    call: Any = field(kw_only=True)  # the reference of the call whose result is awaited
    stored: Stored | None = None
    where: Where | None = None


class RayCrew:
    """The actors of a run. Use as a context manager: leaving it ends them all."""

    def __init__(self, config: RunConfig, pickled_task: ray.ObjectRef[NDArray[np.uint8]], shape: Shape, log: Log):
        self._config, self._pickled_task, self._shape, self._log = config, pickled_task, shape, log
        try:
            self._remote: Any = ray.remote(RayWorker).options(**actor_options(config))
        except ValueError as error:
            raise ConfigError(f"Ray does not take these resources or labels: {error}") from None
        self._listening = Listening()
        self._odd_versions: set[str] = set()
        self._begun = time.monotonic()
        self._first_ready = float("inf")
        self._warned = False
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
        member.stored = stored = self._store(assignment)
        member.assignment = assignment.without_vectors()
        if member.ready and self.anyone_ready:
            self._send(member)
        return assignment.with_vectors({name: view(ray.get(found)) for name, found in stored.references.items()})

    def stop(self, worker: int) -> None:
        """Stop a worker; the round it has in hand is not reported."""
        member = self.members.pop(worker)
        with contextlib.suppress(RayError):  # it is gone already
            ray.kill(member.handle)

    def wait(self, seconds: float) -> list[CrewEvent]:
        """What has happened, in the order it happened; nothing, if nothing does for so long."""
        now = self._listening.now(self.members.values())
        awaited = sorted((m for m in self.members.values() if m.call is not None), key=lambda member: member.sent)
        if not awaited:
            time.sleep(seconds)
            return self._gather(time.monotonic())
        calls = {member.call: member for member in awaited}
        until = min(member.deadline for member in awaited) - now
        # `ray.wait` returns early with one result only; the second call collects what else has arrived meanwhile.
        found, _ = ray.wait(list(calls), num_returns=1, timeout=max(0.0, min(seconds, until)))
        if found:
            found, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
        heard = [event for call in found if (event := self._listen(calls[call])) is not None]
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
        return [
            {
                "worker": worker,
                "node": member.where.node if member.where else "",
                "pid": member.where.pid if member.where else "",
                "state": member.state,
                "rounds": member.rounds,
            }
            for worker, member in sorted(self.members.items())
        ]

    def _store(self, assignment: Assignment) -> Stored:
        for other in self.members.values():  # assignments of one index have the same vectors
            if other.stored is not None and other.stored.index == assignment.index:
                return other.stored
        return Stored(assignment.index, {name: ray.put(v.numpy()) for name, v in assignment.vectors.items()})

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
        if now > self._begun + NO_ROOM_SECONDS and not self._warned and not any(m.has_room for m in members):
            self._warned = True
            each = ", ".join(f"{name}={amount:g}" for name, amount in needed(self._config).items())
            self._log.warn(f"the cluster has no room for any of the workers yet (each needs {each}): waiting")
        return []

    def _prepare(self, member: Actor, where: Where) -> None:
        """Ray has found room for this worker: let it build its model."""
        member.where, member.has_room = where, True
        member.begin()
        member.call = member.handle.prepare.remote(self._pickled_task, self._shape)
        here = versions()
        odd = ", ".join(f"{name} {version}" for name, version in where.versions.items() if version != here[name])
        if odd and odd not in self._odd_versions:
            self._odd_versions.add(odd)
            same = ", ".join(f"{name} {version}" for name, version in here.items())
            self._log.warn(f"node {where.node} has {odd}, the server {same}: a replay may differ in the last bits")

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


def actor_options(config: RunConfig) -> dict[str, object]:
    """What Ray is asked for, for each worker. Ray must not start a lost one again: the record would not show it."""
    wanted = needed(config)
    options: dict[str, object] = {"num_cpus": wanted.pop("CPU"), "num_gpus": wanted.pop("GPU", 0.0)}
    if "memory" in wanted:
        options["memory"] = wanted.pop("memory")
    options |= {"resources": wanted, "max_restarts": 0, "max_task_retries": 0}
    if config.labels:
        options["label_selector"] = config.labels
    return options


def needed(config: RunConfig) -> dict[str, float]:
    """What each worker needs."""
    return {"CPU": 1.0, **(config.resources or {})}


def reason_of(error: RayError) -> str:
    """What Ray says about a loss, in one line."""
    text = " ".join(str(error).split())
    if getattr(error, "actor_init_failed", False):
        return f"it could not be started: {str(error).strip().splitlines()[-1]}"
    if isinstance(error, ActorUnavailableError):
        return "it is out of reach"
    if "node has died" in text or "node was terminated" in text:
        return "its node died"
    if isinstance(error, ActorDiedError):
        _, _, detail = text.partition("Worker exit detail: ")
        return f"its process ended: {detail.partition(' Some common causes')[0] or text[:200]}"
    return f"{type(error).__name__}: {text[:200]}"


def pickle_task(packed_task: PackedTask) -> NDArray[np.uint8]:
    """The task and the config as bytes that Ray does not copy."""
    try:
        return np.frombuffer(cloudpickle.dumps(packed_task), dtype=np.uint8)
    except Exception as error:  # a user's object can raise anything when it is pickled
        raise ConfigError(f"this task cannot be sent to other machines: {error}") from None
