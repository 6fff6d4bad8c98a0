"""What travels between the server and its workers: assignments out, reports back.

Vectors have names, which the method declares; a message carries them in `vectors`. Everything else in a message is a
few numbers, and `without_vectors()` is what an engine sends where the vectors themselves go another way (shared memory,
an object store).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Vectors = Mapping[str, Tensor]
"""Vectors of the model's size, by their names."""


@dataclass(frozen=True)
class Assignment:
    """What the server sends for one round: the parameters w_index, and other vectors that the method declares.

    The vectors are snapshots: they do not change later, and several assignments may share them.

    >>> Assignment(0, 0, 0, {"params": torch.zeros(2)}, learning_rate=0.1, local_steps=16).params
    tensor([0., 0.])
    """

    worker: int
    index: int
    round: int
    vectors: Vectors
    learning_rate: float
    local_steps: int
    first_step: int | None = None  # local steps that this worker was assigned before; None: all rounds were as long
    order: Any = None  # for the user's own loop, what an engine says besides (loop/messages.py)

    @property
    def params(self) -> Tensor:
        """w_index."""
        return self.vectors["params"]

    @property
    def momentum(self) -> Tensor | None:
        """The momentum buffer that a method such as PRSGDm sends along; None for others."""
        return self.vectors.get("momentum")

    @property
    def position(self) -> int:
        """Where in the worker's stream of batches this round starts, in local steps."""
        return self.round * self.local_steps if self.first_step is None else self.first_step

    def to(self, device: torch.device | str) -> Assignment:
        """The same with its vectors on this device."""
        return self.with_vectors({name: v.to(device, non_blocking=True) for name, v in self.vectors.items()})

    def with_vectors(self, vectors: Vectors) -> Assignment:
        """The same with these vectors."""
        return dataclasses.replace(self, vectors=vectors)

    def without_vectors(self) -> Assignment:
        """The same without its vectors."""
        return self.with_vectors({})


class Report:
    """What a worker sends back: how far its parameters moved, and other vectors that the method declares.

    `delta_params` and `delta_momentum` are short for entries of `vectors`.

    >>> report = Report(worker=3, index=0, delta_params=torch.ones(2), samples=16)
    >>> list(report.vectors), report.delta_momentum
    (['delta_params'], None)
    """

    __slots__ = (
        "buffers",
        "facts",
        "finite",
        "index",
        "learning_rate",
        "loss",
        "round",
        "samples",
        "vectors",
        "worker",
    )

    def __init__(
        self,
        worker: int,
        index: int,
        delta_params: Tensor | None = None,
        delta_momentum: Tensor | None = None,
        samples: int = 0,
        loss: float = math.nan,
        round: int | None = None,  # checked when given: tells two stays of one worker apart
        buffers: Tensor | None = None,  # those that the task averages or keeps, as bytes
        finite: bool | None = None,  # whether the vectors are; None: the server looks for itself
        vectors: Vectors | None = None,
        facts: Any = None,  # of the user's own loop, what else it says (loop/messages.py)
        learning_rate: float | None = None,  # of the task's optimizer, where it has one
    ):
        named = {"delta_params": delta_params, "delta_momentum": delta_momentum}
        self.vectors: Vectors = {
            **{name: vector for name, vector in named.items() if vector is not None},
            **(vectors or {}),
        }
        self.worker, self.index, self.round = worker, index, round
        self.samples, self.loss = samples, loss
        self.buffers, self.finite, self.facts = buffers, finite, facts
        self.learning_rate = learning_rate

    @property
    def delta_params(self) -> Tensor:
        """How far the parameters have moved: those at the start of the round minus those at its end."""
        return self.vectors["delta_params"]

    @property
    def delta_momentum(self) -> Tensor | None:
        """The worker's momentum; None if the method reports none."""
        return self.vectors.get("delta_momentum")

    def to(self, device: torch.device | str) -> Report:
        """The same with its vectors on this device."""
        buffers = None if self.buffers is None else self.buffers.to(device)
        return self.with_vectors({name: vector.to(device) for name, vector in self.vectors.items()}, buffers)

    def without_vectors(self) -> Report:
        """The same without its vectors and buffers."""
        return self.with_vectors({})

    def with_vectors(self, vectors: Vectors, buffers: Tensor | None = None) -> Report:
        """The same with these vectors and buffers."""
        return Report(
            self.worker,
            self.index,
            samples=self.samples,
            loss=self.loss,
            round=self.round,
            buffers=buffers,
            finite=self.finite,
            vectors=vectors,
            facts=self.facts,
            learning_rate=self.learning_rate,
        )

    def __repr__(self) -> str:
        return f"Report(worker={self.worker}, index={self.index}, round={self.round}, vectors={list(self.vectors)})"


@dataclass
class WorkerState:
    """What a worker keeps between rounds: the method's `worker_vectors` and `worker_numbers`.

    `buffers`: as in its last report, where the task keeps some; None before the first. Never changed in place.
    `optimizer`: the state of the task's optimizer, in the same way (engines/optimizer.py); always in main memory.

    >>> state = WorkerState({"first_moment": torch.zeros(2)}, {"steps": 0})
    >>> state.numbers["steps"] += 1
    >>> state.copy().numbers
    {'steps': 1}
    """

    vectors: dict[str, Tensor] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    buffers: Tensor | None = None
    optimizer: Tensor | None = None

    def copy(self) -> WorkerState:
        """A copy whose vectors share no memory with this one's."""
        vectors = {name: vector.clone() for name, vector in self.vectors.items()}
        return WorkerState(vectors, dict(self.numbers), self.buffers, self.optimizer)

    def copy_from(self, other: WorkerState) -> None:
        """Become equal to another state of the same method, in the same memory."""
        for name, vector in other.vectors.items():
            self.vectors[name].copy_(vector)
        self.numbers, self.buffers, self.optimizer = dict(other.numbers), other.buffers, other.optimizer

    def to(self, device: torch.device | str) -> WorkerState:
        """The same with its vectors on this device."""
        vectors = {name: vector.to(device) for name, vector in self.vectors.items()}
        buffers = None if self.buffers is None else self.buffers.to(device)
        return WorkerState(vectors, dict(self.numbers), buffers, self.optimizer)
