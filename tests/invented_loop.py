"""Invented workers that run the user's own loop: as in invented.py, with samples leased to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

import orlomo
from invented import EPOCH_SAMPLES, INITIAL, NUMBERS, Around, Crew
from orlomo.engines.engine import Setup
from orlomo.engines.live.crew import Arrived, CrewEvent
from orlomo.engines.loops.evaluator import NoEvaluator
from orlomo.engines.loops.live import LiveLoop
from orlomo.engines.loops.opening import OpenedWork
from orlomo.engines.registry import ENGINES
from orlomo.loop.messages import SHARED, DataFacts, ModelFacts, RoundFacts
from orlomo.methods.messages import Assignment
from orlomo.records.log import Log

MODEL = ModelFacts(("w",), ((NUMBERS,),), (torch.float64,), torch.float64, "", (), ("SGD",))


class LoopCrew(Crew):
    """Workers whose programs say themselves when they begin, and which samples they have used."""

    def __init__(self, method: orlomo.Method, look: Callable[[float], list[CrewEvent]], source: random.Random):
        super().__init__(method, False, look)
        self.source, self.present = source, None

    def keep(self, assignment: Assignment) -> Assignment:
        """Not sent yet, and not changed until it is."""
        member = self.workers[assignment.worker]
        for name, vector in assignment.vectors.items():
            member.assigned[name].copy_(vector)
        return assignment.with_vectors(member.assigned)

    def finish(self, *end: object) -> None:
        """The run is at its end."""

    def compute(self, worker: int) -> Arrived:
        assignment = self.workers[worker].assignment
        assert assignment is not None
        lease = assignment.order.leases[0]
        used = (
            lease if self.source.random() < 0.9 else lease._replace(stop=self.source.randint(lease.first, lease.stop))
        )
        arrived = super().compute(worker, used.samples)
        arrived.report.facts = RoundFacts(used.samples, used.samples, used)
        return arrived


class InventedLoop(LiveLoop):
    """A run of a loop, whose time is what a history says."""

    facts = ENGINES["processes"]

    def __init__(self, setup: Setup, clock: Callable[[], float], around: Around):
        super().__init__(setup)
        self._around = around
        self.session.elapsed = clock  # type: ignore[method-assign]
        self._log = Log(None, lambda text: None)

    def _receive(self, arrived: Arrived) -> None:
        self._around(arrived, lambda: super(InventedLoop, self)._receive(arrived))


def opened(crew: LoopCrew, ahead: int) -> OpenedWork:
    """What the first worker has said; its data loader asks for so many batches ahead."""
    shared: Any = crew
    data = DataFacts(SHARED, EPOCH_SAMPLES, ahead=ahead)
    return OpenedWork(MODEL, data, INITIAL, None, shared, NoEvaluator())
