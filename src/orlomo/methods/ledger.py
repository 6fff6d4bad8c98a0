"""The server's bookkeeping without its vectors: who holds which parameters, and what weight a report deserves.

A ledger decides everything about a report that does not depend on gradients: its iteration t, delay, group, eta,
and who is handed parameters next. The server asks it before it touches a vector; the simulator asks it alone, and so
can lay a whole schedule down before the first gradient is computed.

Symbols of the paper -> fields: t -> `iteration`, ite(t, k) -> `index`, tau_t -> `delay`, ceil(ite/K) -> `group`,
ceil(t/K) - ceil(ite/K) -> `behind`, eta_t -> `eta`, gamma -> `learning_rate`, K -> the number of present workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from orlomo.errors import ConfigError, ReportRefused

Eta = Callable[[int, int], float]
"""(delay, workers) -> eta"""

LocalRate = Callable[[int], float]
"""samples folded in so far -> gamma for the next round"""


class Handout(NamedTuple):
    """Parameters w_index, handed to a worker for its round-th round; they belong to a group."""

    worker: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    round: int
    group: int
    learning_rate: float


class Fold(NamedTuple):
    """How one report is folded in at iteration t."""

    iteration: int
    worker: int
    round: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    delay: int
    group: int
    behind: int  # how many groups the report is behind the newest one
    boundary: int  # how many new groups have opened since the last fold (0 or 1 while membership is constant)
    eta: float


class Step(NamedTuple):
    """What a ledger answers: the fold, the number of reports in a barrier that closed (0: none), who goes on."""

    fold: Fold | None
    closed: int
    handouts: list[Handout]


class Ledger(ABC):
    """The contract of the two ledgers. Reading its fields is fine; only its methods change them."""

    def __init__(self, eta: Eta, local_rate: LocalRate, max_workers: int | None = None):
        self.eta = eta
        self.local_rate = local_rate
        self.max_workers = max_workers
        self.iteration = 0
        self.samples = 0
        self.outstanding: dict[int, Handout] = {}
        self.rounds: dict[int, int] = {}  # rounds handed out so far to each worker that holds none now
        self.folded: dict[int, int] = {}  # newest index folded from each worker

    @abstractmethod
    def start(self, workers: int) -> Step:
        """Workers 0 .. workers-1 receive w_0."""

    @abstractmethod
    def receive(self, worker: int, samples: int) -> Step:
        """The outstanding round of this worker has been reported."""

    @abstractmethod
    def join(self, worker: int) -> Step:
        """A worker comes, or comes back."""

    @abstractmethod
    def leave(self, worker: int) -> Step:
        """A worker goes; the round it holds will not be reported."""

    @property
    @abstractmethod
    def present(self) -> int:
        """How many workers there are now (K)."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether everything received is in the parameters (no barrier is half full)."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that evolves, as plain JSON values."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""

    def check(self, worker: int, index: int, round: int | None) -> None:
        """Refuse a report that is not the one this worker owes."""
        held = self.outstanding.get(worker)
        if held is not None and held.index == index and (round is None or round == held.round):
            return
        if index <= self.folded.get(worker, -1):
            raise ReportRefused("folded", f"the report of worker {worker} with index {index} is already folded in")
        owed = "holds no parameters" if held is None else f"holds index {held.index}, round {held.round}"
        raise ReportRefused("unknown", f"unknown report (worker {worker}, index {index}): worker {worker} {owed}")

    def _admit(self, worker: int, is_present: bool) -> None:
        if is_present:
            raise ConfigError(f"worker {worker} cannot join: it is there already")
        if self.max_workers is not None and self.present >= self.max_workers:
            raise ConfigError(f"worker {worker} cannot join: this method runs on {self.max_workers} worker")

    def _shared_state(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "samples": self.samples,
            "outstanding": [list(handout) for handout in self.outstanding.values()],
            "rounds": list(self.rounds.items()),
            "folded": list(self.folded.items()),
        }

    def _load_shared_state(self, state: dict[str, Any]) -> None:
        self.iteration, self.samples = state["iteration"], state["samples"]
        self.outstanding = {row[0]: Handout(*row) for row in state["outstanding"]}
        self.rounds = dict(state["rounds"])
        self.folded = dict(state["folded"])


class AsynchronousLedger(Ledger):
    """Each report is folded at once and its worker answered at once.

    Every vector handed out is labelled with a group; a group closes when as many vectors as there are present workers
    have been handed out. While K is constant the label of w_t is ceil(t/K), as in Algorithms 2 and 3.
    """

    def __init__(self, eta: Eta, local_rate: LocalRate, max_workers: int | None = None):
        super().__init__(eta, local_rate, max_workers)
        self.group = 0  # of the newest vector handed out
        self.handed_out = 0  # vectors of that group
        self.group_folded = 0  # the group up to which the momentum has been decayed

    def start(self, workers: int) -> Step:
        return Step(None, 0, [self._join(worker) for worker in range(workers)])

    def receive(self, worker: int, samples: int) -> Step:
        held = self.outstanding[worker]
        t = self.iteration
        delay = t - held.index
        boundary = self.group - self.group_folded
        behind = self.group - held.group
        eta = self.eta(delay, len(self.outstanding))
        fold = Fold(t, worker, held.round, held.index, delay, held.group, behind, boundary, eta)
        self.group_folded = self.group
        self.folded[worker] = held.index
        self.iteration = t + 1
        self.samples += samples
        return Step(fold, 0, [self._hand_out(worker, held.round + 1)])

    def join(self, worker: int) -> Step:
        return Step(None, 0, [self._join(worker)])

    def leave(self, worker: int) -> Step:
        if worker not in self.outstanding:
            raise ConfigError(f"worker {worker} cannot leave: it is not there")
        self.rounds[worker] = self.outstanding.pop(worker).round + 1
        return Step(None, 0, [])

    @property
    def present(self) -> int:
        return len(self.outstanding)

    @property
    def settled(self) -> bool:
        return True

    def _join(self, worker: int) -> Handout:
        self._admit(worker, worker in self.outstanding)
        round = self.rounds.pop(worker, 0)
        self.outstanding[worker] = Handout(worker, self.iteration, round, self.group, 0.0)  # counts as present
        return self._hand_out(worker, round)

    def _hand_out(self, worker: int, round: int) -> Handout:
        if self.handed_out >= len(self.outstanding):
            self.group += 1
            self.handed_out = 0
        self.handed_out += 1
        handout = Handout(worker, self.iteration, round, self.group, self.local_rate(self.samples))
        self.outstanding[worker] = handout
        return handout

    def state_dict(self) -> dict[str, Any]:
        groups = {"group": self.group, "handed_out": self.handed_out, "group_folded": self.group_folded}
        return self._shared_state() | groups

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._load_shared_state(state)
        self.group, self.handed_out = state["group"], state["handed_out"]
        self.group_folded = state["group_folded"]


class BarrierLedger(Ledger):
    """Reports wait at a barrier; it closes, and t moves on, when every worker that holds parameters has reported.

    A worker that joins waits for the next barrier. A worker that leaves is waited for no longer; if it had reported
    into the open barrier, that report counts. The number of reports in a barrier may therefore differ from K.
    """

    def __init__(self, eta: Eta, local_rate: LocalRate, max_workers: int | None = None):
        super().__init__(eta, local_rate, max_workers)
        self.received = 0  # reports in the open barrier
        self.waiting: set[int] = set()  # present, without parameters to work on

    def start(self, workers: int) -> Step:
        self.waiting.update(range(workers))
        return self._close_if_full(None)

    def receive(self, worker: int, samples: int) -> Step:
        held = self.outstanding.pop(worker)
        self.rounds[worker] = held.round + 1
        self.waiting.add(worker)
        self.folded[worker] = held.index
        self.received += 1
        self.samples += samples
        eta = self.eta(0, self.present)
        fold = Fold(self.iteration, worker, held.round, held.index, 0, held.group, 0, 0, eta)
        return self._close_if_full(fold)

    def join(self, worker: int) -> Step:
        self._admit(worker, worker in self.waiting or worker in self.outstanding)
        self.waiting.add(worker)
        return self._close_if_full(None)

    def leave(self, worker: int) -> Step:
        if worker not in self.waiting and worker not in self.outstanding:
            raise ConfigError(f"worker {worker} cannot leave: it is not there")
        self.waiting.discard(worker)
        if worker in self.outstanding:
            self.rounds[worker] = self.outstanding.pop(worker).round + 1
        return self._close_if_full(None)

    @property
    def present(self) -> int:
        return len(self.outstanding) + len(self.waiting)

    @property
    def settled(self) -> bool:
        return self.received == 0

    def _close_if_full(self, fold: Fold | None) -> Step:
        if self.outstanding:
            return Step(fold, 0, [])
        closed, self.received = self.received, 0
        self.iteration += closed > 0
        rate = self.local_rate(self.samples)
        for worker in sorted(self.waiting):
            round = self.rounds.pop(worker, 0)
            self.outstanding[worker] = Handout(worker, self.iteration, round, self.iteration, rate)
        self.waiting.clear()
        return Step(fold, closed, list(self.outstanding.values()))

    def state_dict(self) -> dict[str, Any]:
        return self._shared_state() | {"received": self.received, "waiting": sorted(self.waiting)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._load_shared_state(state)
        self.received, self.waiting = state["received"], set(state["waiting"])
