"""Rounds in the order in which they will be needed, computed ahead as far as their parameters are there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

import numpy as np
from torch import Tensor

from orlomo.clusters.schedule import DROP, REPORT, Schedule
from orlomo.engines.round import Computed
from orlomo.engines.simulated.pool import EvaluationRequest, Pool, RoundRequest
from orlomo.errors import OrlomoError
from orlomo.methods.messages import Assignment, Report, WorkerState
from orlomo.tasks.evaluation import Evaluation

WINDOW = 64
"""Rows of the schedule that are looked at for work to do ahead."""


class RoundsAhead:
    """Feeds a pool from a schedule.

    Assignments are offered as the server makes them; `take` gives the report of the next row, computing it and others
    behind it meanwhile. Rounds that are never reported (a crash, the end of the run) are never computed.

    `states`: what each worker keeps between its rounds. The round after next is offered only when the one before it is
    folded in, so a worker's newest state is always here when it is needed.
    """

    def __init__(
        self,
        pool: Pool,
        schedule: Schedule,
        position: int,
        states: dict[int, WorkerState],
        new_state: Callable[[], WorkerState],
    ):
        self._pool = pool
        self.states, self._new_state = states, new_state
        self.assignments: dict[int, Assignment] = {}  # by worker; held until the report is folded in
        kinds, workers, rounds = (schedule[name][position:] for name in ("kind", "worker", "round"))
        rows = np.flatnonzero((kinds == REPORT) | (kinds == DROP))
        self._upcoming = deque(zip(workers[rows].tolist(), rounds[rows].tolist(), strict=True))
        self._tickets: dict[tuple[int, int], int] = {}
        self._computed: dict[int, Computed] = {}
        self._evaluations: dict[int, Evaluation] = {}
        self._serial = 0
        self._taken: int | None = None

    def offer(self, assignments: list[Assignment]) -> None:
        """These parameters are there now."""
        self.hold(assignments)
        self.fill()

    def hold(self, assignments: list[Assignment]) -> None:
        """Keep these until they are reported."""
        for assignment in assignments:
            self.assignments[assignment.worker] = assignment

    def forget(self, worker: int) -> None:
        """This worker is gone, and with it its round and what it kept."""
        self.assignments.pop(worker, None)
        self.states.pop(worker, None)

    def take(self, worker: int, round: int) -> Report:
        """The report of the next row; its vectors stay valid until the next call."""
        self._release()
        key = (worker, round)
        assert self._upcoming[0] == key, "rounds must be taken in the order of the schedule"
        held = self.assignments.get(worker)
        if held is None or held.round != round:
            raise OrlomoError(f"the trace has round {round} of worker {worker}, which was not assigned")
        if key not in self._tickets:
            self._submit(key, urgent=True)
        ticket = self._tickets[key]
        # Other rounds may be done first; they are kept, and the jobs get new work while this one is waited for.
        while ticket not in self._computed:
            self._collect()
            self.fill()
        self._upcoming.popleft()
        del self._tickets[key]
        self._taken = ticket
        report, state = self._computed.pop(ticket)
        self._state = state
        return report

    def folded(self, worker: int) -> None:
        """The report just taken is in: its memory and its assignment may go, its worker keeps what came with it."""
        self._release()
        del self.assignments[worker]
        self.states[worker] = self._state

    def evaluate(self, params: Tensor, buffers: Tensor | None) -> int:
        """Start an evaluation; `params` must not change. The ticket is for `evaluation`."""
        while self._pool.free < 2:  # the last slot is kept for the round that is needed next
            self._collect()
        self._serial += 1
        self._pool.submit(self._serial, EvaluationRequest(params, buffers))
        return self._serial

    def evaluation(self, ticket: int, wait: bool) -> Evaluation | None:
        """The result of an evaluation; None if it is not there yet and `wait` is false."""
        while wait and ticket not in self._evaluations:
            self._collect()
        return self._evaluations.pop(ticket, None)

    def _release(self) -> None:
        if self._taken is not None:
            self._pool.release(self._taken)
            self._taken = None

    def fill(self) -> None:
        """Give the jobs work, as far as there is any."""
        for key in islice(self._upcoming, WINDOW):
            if self._pool.free <= 2:  # one slot is kept for an evaluation, one for the round that is needed next
                return
            held = self.assignments.get(key[0])
            if key not in self._tickets and held is not None and held.round == key[1]:
                self._submit(key)

    def _submit(self, key: tuple[int, int], urgent: bool = False) -> None:
        self._serial += 1
        self._tickets[key] = self._serial
        # A worker's next round is assigned after its last report is folded in, so this state is the newest.
        state = self.states.get(key[0]) or self._new_state()
        self._pool.submit(self._serial, RoundRequest(self.assignments[key[0]], state), urgent)

    def _collect(self) -> None:
        ticket, result = self._pool.next()
        if isinstance(result, Computed):
            self._computed[ticket] = result
        else:
            self._evaluations[ticket] = result
