"""The user's own loop in real time: a live run, with samples leased to workers and an end that all see."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from orlomo.config import RunConfig
from orlomo.engines.engine import Setup, job_count
from orlomo.engines.live import events
from orlomo.engines.live.crew import Arrived, Crew
from orlomo.engines.live.loop import Live
from orlomo.engines.loops.bookkeeping import Bookkeeping
from orlomo.engines.loops.local import LocalCrew
from orlomo.engines.loops.opening import OpenedWork, local_crew
from orlomo.engines.processes.worker import device_of
from orlomo.engines.ray.connection import RayOptions
from orlomo.engines.registry import ENGINES
from orlomo.engines.session import Evaluator
from orlomo.engines.signals import Signals
from orlomo.errors import require
from orlomo.loop.program import Program
from orlomo.methods.messages import Assignment, Report


class LiveLoop(Live):
    """A run of a user's loop on real workers."""

    def __init__(self, setup: Setup):
        super().__init__(setup)
        assert isinstance(setup.work, OpenedWork)
        self.opened = setup.work
        self.books = Bookkeeping(self.session, self.opened, setup.resumed)
        # What workers have is in the user's program: after a resume all of them are new. And a refused report cannot be
        # computed again, since the program has gone on.
        self.membership = dataclasses.replace(self.membership, keeps_worker_state=True, refusals_allowed=1)
        # Workers for which no samples are left: those that hold an assignment all the same, and those that do not.
        self._parked: list[int] = []
        self._idle: list[int] = []
        self._without: list[int] = []  # the same, and the server counts them still

    @property
    def at_end(self) -> bool:
        return self.session.stopping or (self.books.complete and self.server.ledger.settled)

    def open(self, stack: ExitStack) -> tuple[Crew, Evaluator]:
        """The crew whose first worker has said what it trains."""
        crew = self.opened.crew
        crew.present = self.books.present
        return crew, self.opened.evaluator

    def save(self) -> None:
        """Write a checkpoint. What workers have in hand is not part of it: a resumed run has other workers."""
        self.session.save([], self.at_end, membership=self.membership.to_json(), **self.books.to_json())

    def _loop(self, signals: Signals, control: Any) -> None:
        super()._loop(signals, control)
        self.opened.crew.finish(self.books.end(), self._log.warn, signals.obey)

    # Samples

    def _hand(self, assignments: list[Assignment]) -> None:
        """Give each its samples; where none are left for a worker, it waits, in case others give theirs back."""
        self.books.chief = self.membership.chief
        for assignment in assignments:
            order = self.books.order(assignment)
            if order is not None:
                self._held[assignment.worker] = self._crew.send(dataclasses.replace(assignment, order=order))
            elif self.config.method.synchronous:
                self._without.append(assignment.worker)  # nobody must wait for it at the barrier: see `_wake`
            else:
                self._held[assignment.worker] = self.opened.crew.keep(assignment)
                self._parked.append(assignment.worker)

    def _wake(self) -> None:
        """Workers for which there are no samples leave the barrier; those that wait for some continue where there are.

        Called when an event is recorded whole: what happens here are events of their own.
        """
        without, self._without = self._without, []
        if without and not self.books.complete:
            self._idle += without
            self._tell(events.Idle(tuple(without), frozenset(self._held)))
        parked, self._parked = self._parked, []
        self._hand([self._held[worker] for worker in parked if worker in self._held])
        while self._idle and self.books.has_samples:
            self._tell(events.Ready(self._idle.pop(0)))

    def _accept(self, report: Report) -> None:
        self.books.accept(report)

    def _leave(self, worker: int, kind: str) -> None:
        self.books.give_back(worker)
        self._parked = [other for other in self._parked if other != worker]
        super()._leave(worker, kind)
        self._wake()

    def _receive(self, arrived: Arrived) -> None:
        super()._receive(arrived)
        self._wake()

    def _join(self, worker: int) -> None:
        super()._join(worker)
        self._wake()

    def _begin(self) -> None:
        super()._begin()
        self._wake()

    def _tell(self, event: events.Event) -> None:
        if isinstance(event, (events.Lost, events.Left)):
            self._idle = [other for other in self._idle if other != event.worker]
        super()._tell(event)
        if isinstance(event, events.Left) and not len(self.membership):
            self.session.callbacks.stop_reason = "every worker has left the run"


class ProcessLoop(LiveLoop):
    """A user's loop on worker processes of this machine."""

    facts = ENGINES["processes"]

    @classmethod
    def check(cls, config: RunConfig) -> RunConfig:
        """The cores are shared out among the workers; their number of threads decides the bits, so it is recorded."""
        processes = config.workers * (config.group or 1)
        return dataclasses.replace(config, threads=config.threads or max(1, job_count(None) // processes))

    @classmethod
    def make_crew(
        cls,
        config: RunConfig,
        program: Program,
        ray: RayOptions | None,
        stack: ExitStack,
        warn: Callable[[str], None],
    ) -> LocalCrew:
        """Worker processes; of GPUs each sees the one that `devices` gives its rank, as `cuda`."""
        return stack.enter_context(local_crew(config, program, lambda rank: visible(config, rank)))


def visible(config: RunConfig, rank: int) -> dict[str, str]:
    """What a worker sees of the machine's GPUs: one, or in a group one for each process, in their order."""
    processes = config.group or 1
    devices = [device_of(config, rank * processes + one).partition(":") for one in range(processes)]
    numbers = [number for kind, _, number in devices if kind == "cuda" and number]
    if len(numbers) < processes:
        return {}
    require(
        len(set(numbers)) == processes,
        f"each of the {processes} processes of a group needs a GPU of its own: give more --devices, or none",
    )
    return {"CUDA_VISIBLE_DEVICES": ",".join(numbers)}
