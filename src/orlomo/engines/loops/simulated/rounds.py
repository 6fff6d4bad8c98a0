"""Rounds of worker processes, computed before they are asked for; what is folded in when is decided elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from orlomo.engines.live.crew import Arrived
from orlomo.engines.live.events import Left, Lost
from orlomo.engines.loops.crew import LoopCrew
from orlomo.engines.loops.facts import End
from orlomo.methods.messages import Assignment

Outcome = Arrived | Left | Lost
"""How a worker's round can end."""


class Rounds:
    """The worker processes of a run; at most `jobs` of them compute at once.

    `idle` is called several times a second while a process is waited for; it may raise.
    """

    def __init__(self, crew: LoopCrew[Any], jobs: int, idle: Callable[[], None]):
        self._crew, self._jobs, self._idle = crew, jobs, idle
        self._waiting: list[tuple[float, int, Assignment]] = []  # the numbers say in which order they are taken
        self._computing: set[int] = set()
        self._done: dict[int, deque[Outcome]] = {}  # by worker, not taken yet

    def start(self, worker: int, rank: int, at_once: bool = False) -> None:
        """Start a process for this worker; `at_once`: with its first round in hand, if there is one already."""
        self._crew.start(worker, rank)
        for entry in [entry for entry in self._waiting if at_once and entry[2].worker == worker]:
            self._waiting.remove(entry)
            self._send(entry[2])

    def welcome(self, workers: list[int]) -> None:
        """Wait until these have been told where the run is, and have come to their first round.

        Nothing is folded in meanwhile: so where the run is by then does not depend on how fast a process starts. And
        the vectors that they begin with, which steps before the first round are made with, are not replaced by those of
        an assignment before they are read.
        """
        for worker in workers:
            while not self._done.get(worker) and not self._crew.members[worker].ready:
                self._idle()
                self._listen()

    def stop(self, worker: int) -> None:
        """Stop the process of this worker; what it computes or was to compute is not taken."""
        self.forget(worker)
        if worker in self._crew.members:
            self._crew.stop(worker)

    def forget(self, worker: int) -> None:
        """What this worker was to compute and has not begun is not taken."""
        self._waiting = [entry for entry in self._waiting if entry[2].worker != worker]
        self._computing.discard(worker)
        self._done.pop(worker, None)

    def offer(self, assignment: Assignment, time: float, serial: int) -> None:
        """A round that will be taken at this time; the earliest are computed first, once their workers are started."""
        self._waiting.append((time, serial, assignment))
        self._fill()

    def take(self, worker: int) -> Outcome:
        """How the round of this worker ended. Of its report the vectors stay as they are until its next round."""
        while not self._done.get(worker):
            self._idle()
            self._listen()
        return self._done[worker].popleft()

    def finish(self, end: End, warn: Callable[[str], None]) -> None:
        """Tell every worker that the run is at its end, and wait until their programs have ended."""
        for worker, outcomes in self._done.items():
            if worker in self._crew.members and not all(isinstance(one, Arrived) for one in outcomes):
                if isinstance(outcomes[0], Lost):
                    warn(f"worker {worker} is lost at the end of the run: {outcomes[0].reason}")
                self._crew.stop(worker)
        self._crew.finish(end, warn, self._idle)

    def _fill(self) -> None:
        for entry in sorted(self._waiting, key=lambda entry: entry[:2]):
            if len(self._computing) >= self._jobs:
                return
            if entry[2].worker in self._crew.members:
                self._waiting.remove(entry)
                self._send(entry[2])

    def _send(self, assignment: Assignment) -> None:
        self._computing.add(assignment.worker)
        self._crew.send(assignment)

    def _listen(self) -> None:
        for event in self._crew.wait(0.2):
            if not isinstance(event, Outcome):
                continue
            worker = event.report.worker if isinstance(event, Arrived) else event.worker
            self._computing.discard(worker)
            # A report first, if the process is lost after it: what was computed does not depend on when it was killed.
            self._done.setdefault(worker, deque()).append(event)
        self._fill()
