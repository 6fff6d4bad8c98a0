"""What workers on a Ray cluster have in common, whatever they train: how they are placed, called and lost."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import cloudpickle
import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError
from torch import Tensor

from orlomo.config import RunConfig
from orlomo.engines.live.crew import Member
from orlomo.engines.ray.worker import Array, Where, versions
from orlomo.errors import ConfigError
from orlomo.records.log import Log

NO_ROOM_SECONDS = 30.0
"""When no worker has had room for so long, the user is warned."""


class Stored(NamedTuple):
    """The vectors of an assignment in the object store, shared by all workers that were assigned the same."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nothing here needs
    references: dict[str, ray.ObjectRef[Array]]


@dataclass(kw_only=True)
class OnRay:
    """Of a worker on the cluster: its actor."""

    handle: Any
    call: Any  # the reference of the call whose result is awaited
    stored: Stored | None = None
    where: Where | None = None


class _Shown(Protocol):
    where: Where | None
    rounds: int

    @property
    def state(self) -> str: ...


A = TypeVar("A", bound=OnRay)


def remote(actor: type, config: RunConfig) -> Any:
    """What makes actors of this class, placed as the config says."""
    try:
        return ray.remote(actor).options(**_actor_options(config))
    except ValueError as error:
        raise ConfigError(f"Ray does not take these resources or labels: {error}") from None


def returned(awaited: Sequence[A], seconds: float) -> list[A]:
    """Those whose calls have returned; nobody, if none does for so long."""
    calls = {member.call: member for member in awaited}
    # `ray.wait` returns early with one result only; the second call collects what else has arrived meanwhile.
    found, _ = ray.wait(list(calls), num_returns=1, timeout=seconds)
    if found:
        found, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
    return [calls[call] for call in found]


def store(members: Iterable[OnRay], index: int, vectors: Mapping[str, Tensor]) -> Stored:
    """Put vectors into the object store, unless one of the members has them: those of one index are the same."""
    for other in members:
        if other.stored is not None and other.stored.index == index:
            return other.stored
    return Stored(index, {name: ray.put(vector.numpy()) for name, vector in vectors.items()})


def end(member: OnRay) -> None:
    """End an actor; the round it has in hand is not reported."""
    with contextlib.suppress(RayError):  # it is gone already
        ray.kill(member.handle)


def row(worker: int, member: _Shown) -> dict[str, str | int | None]:
    """What is shown of a worker."""
    node, pid = ("", "") if member.where is None else (member.where.node, member.where.pid)
    return {"worker": worker, "node": node, "pid": pid, "state": member.state, "rounds": member.rounds}


class Room:
    """Warns once where no worker has had room for long."""

    def __init__(self, config: RunConfig, log: Log):
        self._config, self._log = config, log
        self._until = time.monotonic() + NO_ROOM_SECONDS

    def check(self, members: Iterable[Member], now: float) -> None:
        """These are all workers."""
        if any(member.has_room for member in members):
            self._until = math.inf
        if now > self._until:
            self._until = math.inf
            each = ", ".join(f"{name}={amount:g}" for name, amount in needed(self._config).items())
            self._log.warn(f"the cluster has no room for any of the workers yet (each needs {each}): waiting")


class Versions:
    """Warns once of each combination of versions that is not the server's."""

    def __init__(self, log: Log):
        self._log, self._known = log, set[str]()

    def check(self, where: Where) -> None:
        """Those of an actor."""
        here = versions()
        odd = ", ".join(f"{name} {version}" for name, version in where.versions.items() if version != here[name])
        if odd and odd not in self._known:
            self._known.add(odd)
            same = ", ".join(f"{name} {version}" for name, version in here.items())
            self._log.warn(f"node {where.node} has {odd}, the server {same}: a replay may differ in the last bits")


def _actor_options(config: RunConfig) -> dict[str, object]:
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


def pickled(value: object, what: str) -> NDArray[np.uint8]:
    """A task or a program as bytes that Ray does not copy."""
    try:
        return np.frombuffer(cloudpickle.dumps(value), dtype=np.uint8)
    except Exception as error:  # a user's object can raise anything when it is pickled
        raise ConfigError(f"this {what} cannot be sent to other machines: {error}") from None
