"""A worker that is a group of processes, as with DDP or FSDP: the first one speaks with the server, for all of them.

Vectors are in memory that all of them share, so that only small messages go from one to the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from orlomo.errors import ConfigError, require
from orlomo.loop.messages import DataFacts, Finished, ModelFacts, Port, RoundFacts, Welcome
from orlomo.methods.messages import Assignment, Report

T = TypeVar("T")

PATIENCE = timedelta(days=365)
"""The first process may wait long for the server, and the others for it; the server ends them where one is gone."""

TOLERANCE = 1e-3
"""What the ranks of a group report may differ by, as a part of its norm."""


class SharedPort(Port, Protocol):
    """A port whose vectors several processes of a machine can see."""

    def sharing(self) -> object:
        """What another process needs to see the vectors, after `hello`."""

    def share(self, what: object) -> None:
        """See the vectors that another process has told of."""


class GroupPort:
    """The connection of one process of a group, on every rank. All ranks make the same calls, in the same order."""

    def __init__(self, port: SharedPort):
        self.settings = port.settings
        self._port = port
        self._first = port.settings.group_rank == 0
        self._group: Any = None
        # In the first round all ranks measure, to see that they train one model. After that only the first one does.
        self._own: dict[str, Tensor] = {}
        self._compared = False

    @property
    def assigned(self) -> Mapping[str, Tensor]:
        """Where the vectors of assignments are: the same memory on all ranks."""
        return self._port.assigned

    @property
    def reported(self) -> Mapping[str, Tensor]:
        """Where the vectors of a report go; none where this rank does not report."""
        return self._port.reported if self._first else self._own

    @property
    def buffers(self) -> Tensor:
        """The combined buffers, with `Finished`."""
        return self._port.buffers

    def hello(self, model: ModelFacts, params: Tensor, buffers: Tensor | None) -> Welcome:
        """All ranks say what they train; what the first would begin with counts."""
        self._connect()
        self._agree("attached", model)
        welcome: Welcome
        if self._first:
            welcome = self._port.hello(model, params, buffers)
            self._tell((welcome, self._port.sharing()))
            return welcome
        welcome, memory = self._tell(None)
        self._port.share(memory)
        self._own = {name: torch.empty_like(vector) for name, vector in self._port.reported.items()}
        return welcome._replace(chief=False)

    def begin(self, data: DataFacts) -> Assignment | Finished:
        """The first assignment."""
        self._agree("began to train", data)
        return self._heard(self._port.begin(data) if self._first else None)

    def report(self, report: Report) -> Assignment | Finished:
        """The next assignment."""
        self._agree("ended a round", _of_all(report))
        self._compare()
        return self._heard(self._port.report(report) if self._first else None)

    def leave(self, report: Report | None) -> None:
        """All ranks leave together."""
        self._agree("left the run", None if report is None else _of_all(report))
        if report is not None:
            self._compare()
        if self._first:
            self._port.leave(report)

    def _connect(self) -> None:
        group = self.settings.group
        require(
            dist.is_available() and dist.is_initialized(),
            f"each worker is a group of {group} processes: call torch.distributed.init_process_group() before "
            f"worker.attach",
        )
        ranks = dist.get_world_size()
        require(
            ranks == group,
            f"each worker is a group of {group} processes, but torch.distributed has {ranks}: let "
            f"init_process_group take rank and world_size from the environment",
        )
        self._group = dist.new_group(backend="gloo", timeout=PATIENCE)

    def _agree(self, deed: str, facts: object) -> None:
        """An error on all ranks where one of them does something else than the first."""
        found = self._gather((deed, facts))
        for rank, (other, theirs) in enumerate(found):
            first, ours = found[0]
            if other != first:
                raise ConfigError(f"{SAME}: rank {rank} {other} when rank 0 {first}")
            if theirs != ours:
                raise ConfigError(f"{SAME}: rank {rank} {deed} with {_difference(theirs, ours)}")

    def _compare(self) -> None:
        """After the first round: an error where the ranks have trained models of their own."""
        if self._compared:
            return
        apart = False
        for name, vector in self._own.items():
            first = self._port.reported[name]
            apart = apart or bool((vector - first).norm() > TOLERANCE * first.norm())
        self._compared, self._own = True, {}
        if True in self._gather(apart):
            raise ConfigError(
                "the ranks of a group have other parameters than one another after a round: wrap the model, with "
                "DistributedDataParallel(model) or fully_shard(model), and train what is wrapped"
            )

    def _heard(self, answer: Assignment | Finished | None) -> Assignment | Finished:
        """What the server has told the first rank, on all; of a group only the first rank is the chief."""
        heard: Assignment | Finished = self._tell(answer)
        if self._first:
            return heard
        if isinstance(heard, Finished):
            return heard._replace(chief=False)
        return dataclasses.replace(heard, order=heard.order._replace(chief=False))

    def _gather(self, value: T) -> list[T]:
        """What all ranks say, in their order."""
        found: list[Any] = [None] * self.settings.group
        dist.all_gather_object(found, value, group=self._group)
        return found

    def _tell(self, value: Any) -> Any:
        """What the first rank says, on all."""
        found = [value]
        dist.broadcast_object_list(found, src=0, group=self._group)
        return found[0]


SAME = "all ranks of a group must make the same steps, on their parts of the same batches"


def _of_all(report: Report) -> RoundFacts:
    """What all ranks must have in common: only the first reports vectors, and is the chief."""
    facts: RoundFacts = report.facts
    return facts._replace(checksum="", chief=False)


def _difference(theirs: Any, ours: Any) -> str:
    """The first thing in which the facts of a rank are not those of the first."""
    named: Any = getattr(ours, "_fields", None) or getattr(ours, "__dataclass_fields__", ())
    for name in named if type(theirs) is type(ours) else ():
        if getattr(theirs, name) != getattr(ours, name):
            return f"{name} = {getattr(theirs, name)!r}, rank 0 with {getattr(ours, name)!r}"
    return f"{theirs!r}, rank 0 with {ours!r}"
