"""What a user's loop and the server tell each other, besides vectors: who trains what, and which samples a round uses.

A worker first says what it trains (`ModelFacts`) and gets the parameters to begin with; before its first step it says
on what (`DataFacts`); from then on an `Assignment` with an `Order` begins each of its rounds, and a `Report` with
`RoundFacts` ends it. `Finished` comes in place of an assignment when the run is at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from orlomo.methods.messages import Assignment, Report
from orlomo.methods.method import Method

SHARED, OWN = "shared", "own"
"""How samples are chosen: blocks of one order that all workers share, or by each worker's own data loader."""


class Lease(NamedTuple):
    """A block of samples that one worker may use: positions [first, stop) in the order of this epoch."""

    epoch: int
    first: int
    stop: int

    @property
    def samples(self) -> int:
        """How many there are."""
        return self.stop - self.first


@dataclass(frozen=True)
class ModelFacts:
    """What is trained: the trainable parameters in the optimizers, in the order in which their vector has them."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    dtype: torch.dtype  # of the vector that travels: float64 if a parameter is, else float32
    frozen: str  # a checksum of the parameters that are not trained
    buffers: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]  # that are reported
    optimizers: tuple[str, ...]  # their classes, for display
    evaluates: bool = False  # a function that evaluates was given

    @property
    def parameters(self) -> int:
        """The length of the vector."""
        return sum(torch.Size(shape).numel() for shape in self.shapes)


@dataclass(frozen=True)
class DataFacts:
    """On what is trained, and for how long. What is counted are samples with `shared`, else batches."""

    sampling: str
    size: int | None  # in an epoch; None: not known
    batch_size: int = 1
    accumulate: int = 1  # batches per optimizer step
    epochs: float | None = None  # as the loop says; None: it does not
    ahead: int = 0  # batches that the data loader asks for before they are used
    steps_only: bool = False  # there are no batches: what is counted are optimizer steps
    block: int | None = None  # samples per round; None: local_steps * accumulate * batch_size for each process


class Welcome(NamedTuple):
    """What a worker begins with: the vectors of this iteration, and how far the run is by then."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nothing here needs
    clock: int
    epoch: int
    chief: bool
    events: int = 0  # recorded by then


class Order(NamedTuple):
    """What comes with an assignment. `leases`: all that this worker holds; the first is for this round."""

    clock: int  # optimizer steps folded in so far, of all workers
    epoch: int  # of the run: that of the block handed out last
    chief: bool  # of the workers that take part, the one in the lowest rank
    leases: tuple[Lease, ...] = ()


class RoundFacts(NamedTuple):
    """What comes with a report. `used`: the part of the first lease that was trained on."""

    steps: int  # that the optimizer made: those that it skipped are not counted
    batches: int
    used: Lease | None = None
    checksum: str = ""  # of what is reported
    rank: int = 0  # of the worker; with the next two, what a replay must give it besides the samples
    chief: bool = False  # as its order said
    welcomed: int = 0  # events recorded when the worker was welcomed


class Finished(NamedTuple):
    """The run is at its end. Its parameters, and the combined buffers, are where those of assignments are."""

    clock: int
    epoch: int
    chief: bool


@dataclass(frozen=True)
class LoopSettings:
    """What one worker is, as long as it runs. `evaluates`: it trains nothing and only calls the evaluation."""

    worker: int
    rank: int
    method: Method
    seed: int
    threads: int = 1
    pace: float = 1.0
    group: int = 1  # processes that are this worker together
    group_rank: int = 0  # of this process among them
    evaluates: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)  # variables to set before the program runs


class Port(Protocol):
    """A worker's connection to the server. Every call waits for the answer; without a server it ends the process."""

    settings: LoopSettings

    @property
    def assigned(self) -> Mapping[str, Tensor]:
        """Where the vectors of assignments are, by name; not to be written to. After `hello`."""

    @property
    def reported(self) -> Mapping[str, Tensor]:
        """Where the vectors of a report are to be written, by name. After `hello`."""

    @property
    def buffers(self) -> Tensor:
        """The combined buffers, as bytes: with `Finished`, and where evaluated."""

    def hello(self, model: ModelFacts, params: Tensor, buffers: Tensor | None) -> Welcome:
        """Say what is trained, and with what it would begin; `assigned["params"]` is what it begins with."""

    def begin(self, data: DataFacts) -> Assignment | Finished:
        """Say on what is trained; the first assignment, with an `Order`."""

    def report(self, report: Report) -> Assignment | Finished:
        """The report of a round, its vectors in `reported`, with `RoundFacts`; the next assignment."""

    def leave(self, report: Report | None) -> None:
        """No more rounds: this worker leaves the run. `report`: of the part of a round that it has done."""


class EvaluationPort(Port, Protocol):
    """The connection of a process that only evaluates."""

    def evaluation(self) -> bool:
        """Wait for parameters to evaluate, in `assigned["params"]`; whether combined buffers come with them."""

    def measured(self, values: dict[str, float]) -> None:
        """What was measured, by name."""
