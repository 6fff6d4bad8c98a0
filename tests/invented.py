"""Invented workers and an invented disk, for the real loop of a live run: no process, no file, no clock.

What a worker computes depends on its assignment, its id, its round and what it keeps, as in a real run, so that the
record alone decides the result.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import orlomo
from orlomo.config import RunConfig
from orlomo.engines.engine import Setup
from orlomo.engines.live.crew import Arrived, CrewEvent
from orlomo.engines.live.loop import Live
from orlomo.engines.registry import ENGINES
from orlomo.engines.round import KeptState, put_in
from orlomo.engines.work import Initial, Work
from orlomo.methods.messages import Assignment, Report, Vectors, WorkerState
from orlomo.records.checkpoint import Checkpoint
from orlomo.records.log import Log
from orlomo.tasks.buffers import Encoding

NUMBERS = 3
EPOCH_SAMPLES = 16
NOISE = torch.randn(997, NUMBERS, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
INITIAL = torch.randn(NUMBERS, dtype=torch.float64, generator=torch.Generator().manual_seed(8))


class SmallWork(Work):
    """Three numbers, and so many reports to do."""

    evaluates = False
    size = EPOCH_SAMPLES

    def __init__(self, reports: int):
        self.reports = reports

    def initial(self, config: RunConfig) -> Initial:
        return Initial(INITIAL, {}, Encoding([]), None)

    def planned_reports(self, config: RunConfig) -> int:
        return self.reports

    def planned_samples(self, config: RunConfig) -> int:
        return self.reports * config.method.local_steps

    def model_state(self, config: RunConfig, params: Tensor, buffers: Tensor | None) -> dict[str, Tensor]:
        return {}


@dataclass
class Disk:
    """A recorder in memory. What is saved goes through JSON, as in a checkpoint's file."""

    events: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    saved: list[Checkpoint] = field(default_factory=list)
    due: bool = False
    off: bool = False  # the server is dead: nothing is written any more

    def event(self, row: dict[str, Any]) -> None:
        if not self.off:
            self.events.append(row)

    def round(self, row: dict[str, Any]) -> None:
        if not self.off:
            self.rounds.append(row)

    def cut(self, position: int) -> None:
        """Of the tables, what is behind a checkpoint."""
        del self.events[position:]
        self.rounds = [row for row in self.rounds if row["event"] < position]

    def metric(self, row: dict[str, Any]) -> None: ...
    def best(self, state: dict[str, Tensor], metrics: dict[str, Any]) -> None: ...

    def save(self, position: int, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        if not self.off:
            copied = {name: tensor.clone() for name, tensor in tensors.items()}
            self.saved.append(Checkpoint(position, copied, json.loads(json.dumps(values))))


class Rounds:
    """The rounds of a method."""

    def __init__(self, method: orlomo.Method):
        self.method = method
        self._params = torch.empty(NUMBERS, dtype=torch.float64)
        self._rule = method.worker(self._params)

    def new_state(self) -> KeptState:
        """What a worker keeps before its first round."""
        return KeptState(self.method.worker_state(self._params))

    def __call__(self, assignment: Assignment, kept: KeptState, memory: Vectors, steps: int | None = None) -> Report:
        """The report, its vectors in this memory; `steps`: those that were made, if not all."""
        worker, number, rule = assignment.worker, assignment.round, self._rule
        state: WorkerState = kept.begin(number)
        before = dict(state.vectors)
        rule.state, rule.destination = state, memory
        rule.start(assignment)
        samples = assignment.local_steps if steps is None else steps
        for step in range(samples):
            noise = NOISE[(7919 * worker + 131 * number + step) % len(NOISE)]
            rule.step(0.1 * self._params + noise)
        made = rule.finish(samples, 0.5)
        put_in(before, rule.state.vectors)
        kept.finish(WorkerState(before, dict(rule.state.numbers)))
        put_in(memory, made.vectors)
        return Report(worker, assignment.index, samples=samples, loss=0.5, round=number, vectors=dict(memory))


@dataclass
class Worker:
    """A worker that is running."""

    rank: int
    kept: KeptState
    assigned: dict[str, Tensor]  # its slot, as with processes
    reported: dict[str, Tensor]
    ready: bool
    assignment: Assignment | None = None  # what it works on, as it was sent
    original: dict[str, Tensor] = field(default_factory=dict)  # copies of the vectors, to see that they stay
    sent: float = field(default_factory=time.monotonic)


class Crew:
    """Workers that do what a history says. `by_slots`: as with processes, else as on Ray, where they wait for room."""

    def __init__(self, method: orlomo.Method, by_slots: bool, look: Callable[[float], list[CrewEvent]]):
        self.rounds, self.by_slots, self._look = Rounds(method), by_slots, look
        self.anyone_ready = by_slots
        self.workers: dict[int, Worker] = {}
        self.ever: set[int] = set()
        self.sends = 0
        self.may_start: Callable[[], bool] = lambda: True

    def start(self, worker: int, rank: int) -> bool:
        assert worker not in self.ever, "no id is used twice"
        assert rank not in {one.rank for one in self.workers.values()}, "a rank has at most one worker"
        self.ever.add(worker)
        if not self.may_start():
            raise OSError("no memory")
        method = self.rounds.method
        vectors = [
            {name: torch.empty(NUMBERS, dtype=torch.float64) for name in names}
            for names in (method.sent_vectors(), method.report_vectors)
        ]
        self.workers[worker] = Worker(rank, self.rounds.new_state(), *vectors, ready=self.by_slots)
        return self.by_slots

    def destination(self, worker: int) -> Vectors | None:
        return self.workers[worker].assigned if self.by_slots else None

    def send(self, assignment: Assignment) -> Assignment:
        member = self.workers[assignment.worker]
        for name, vector in assignment.vectors.items():
            member.assigned[name].copy_(vector)
        member.original = {name: vector.clone() for name, vector in assignment.vectors.items()}
        member.assignment = held = assignment.with_vectors(member.assigned)
        self.sends += 1
        return held

    def stop(self, worker: int) -> None:
        assert worker in self.workers, "only a worker that was started is stopped, and once"
        del self.workers[worker]

    def wait(self, seconds: float) -> list[CrewEvent]:
        assert seconds >= 0
        return self._look(seconds)

    def listing(self) -> list[dict[str, str | int | None]]:
        return [{"worker": worker} for worker in self.workers]

    # What a history does with them

    @property
    def able(self) -> list[int]:
        """Those that are computing."""
        there = sorted(self.workers.items()) if self.anyone_ready else []
        return [worker for worker, member in there if member.ready and member.assignment is not None]

    def compute(self, worker: int, steps: int | None = None) -> Arrived:
        """The report of a worker."""
        member = self.workers[worker]
        assert member.assignment is not None
        for name, vector in member.original.items():
            assert vector.equal(member.assigned[name]), "what was sent stays as it was"
        report = self.rounds(member.assignment, member.kept, member.reported, steps)
        member.assignment = None
        return Arrived(report, member.sent, time.monotonic(), 0.0)


Around = Callable[[Arrived, Callable[[], None]], None]
"""Called with a report instead of the run, which receives it when the second argument is called."""


class InventedRun(Live):
    """A live run, whose time is what a history says."""

    facts = ENGINES["processes"]

    def __init__(self, setup: Setup, crew: Crew, clock: Callable[[], float], around: Around):
        super().__init__(setup)
        self.crew, self._around = crew, around
        self.session.elapsed = clock  # type: ignore[method-assign]
        self._log = Log(None, lambda text: None)

    def open(self, stack: ExitStack) -> tuple[Any, Any]:
        return self.crew, None

    def _receive(self, arrived: Arrived) -> None:
        self._around(arrived, lambda: super(InventedRun, self)._receive(arrived))


def with_two_decimals(checkpoint: Checkpoint) -> dict[str, Any]:
    """Its values, to compare."""
    values = copy.deepcopy(checkpoint.values)
    values["real_seconds"] = round(values["real_seconds"], 2)
    return values


NOWHERE = Path("/nonexistent")
