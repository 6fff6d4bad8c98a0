"""The server's bookkeeping without its vectors: which worker holds which parameters, and the weight of each report.

A ledger decides everything about a report that does not depend on gradients: its iteration t, delay, group, eta,
and which worker is assigned parameters next. The server asks it before it touches a vector; the simulator asks it
alone, and so can make a whole schedule before the first gradient is computed.

Symbols of the paper -> fields: t -> `iteration`, ite(t, k) -> `index`, tau_t -> `delay`, ceil(ite/K) -> `group`,
ceil(t/K) - ceil(ite/K) -> `behind`, eta_t -> `eta`, gamma -> `learning_rate`, K -> the number of present workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol, TypeAlias

from orlomo.errors import ConfigError, ReportRefused, require, require_at_most

StateDict: TypeAlias = dict[str, Any]
"""What evolves, by name, as in torch. A ledger of a user's own may add anything that JSON can hold."""


MOST_WORKERS = 1_000_000
"""In a run: in the simulator each takes about a kilobyte."""


def check_workers(workers: int) -> None:
    """Raise a `ConfigError` unless a run can have so many."""
    require(workers >= 1, f"workers must be at least 1, not {workers}")
    require_at_most(workers, MOST_WORKERS, "workers")


class Rules(Protocol):
    """What a ledger asks its method."""

    @property
    def local_steps(self) -> int: ...
    @property
    def varies(self) -> bool: ...
    @property
    def may_drop(self) -> bool: ...
    @property
    def max_workers(self) -> int | None: ...
    def eta(self, delay: int, workers: int) -> float: ...
    def rate(self, samples: int, epoch_samples: int) -> float: ...
    def drops(self, fold: Fold) -> bool: ...


class Assigned(NamedTuple):
    """An assignment without its vectors: w_index for a worker's round-th round. It belongs to a group."""

    worker: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nothing here needs
    round: int
    group: int
    learning_rate: float
    local_steps: int
    first_step: int  # local steps that the worker was assigned before


class Fold(NamedTuple):
    """How one report is folded in at iteration t: what a method's `fold` is called with.

    >>> import orlomo, torch
    >>> server = orlomo.ALSGD(local_steps=1).server(torch.zeros(2), workers=4)
    >>> _ = server.start(), server.receive(orlomo.Report(worker=2, index=0, delta_params=torch.ones(2)))
    >>> server.last_fold.worker, server.last_fold.delay, server.last_fold.workers, server.last_fold.eta
    (2, 0, 4, 0.25)
    """

    iteration: int
    worker: int
    round: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nothing here needs
    delay: int
    group: int
    behind: int  # how many groups the report is behind the newest one
    boundary: int  # how many new groups have opened since the last fold (0 or 1 while membership is constant)
    eta: float
    local_steps: int = 0
    workers: int = 0  # K: how many there are now
    dropped: bool = False  # the report is not folded in; its worker is answered all the same


class Step(NamedTuple):
    """A ledger's answer: the fold, the number of reports in a barrier that closed (0: none), the next assignments."""

    fold: Fold | None
    closed: int
    assigned: list[Assigned]


class Ledger(ABC):
    """The contract of the two ledgers. Reading its fields is fine; only its methods change them."""

    def __init__(self, rules: Rules, epoch_samples: int = 1):
        """`epoch_samples`: the data set's size, which turns samples into epochs for the learning rate's schedule."""
        self.rules, self.epoch_samples = rules, epoch_samples
        # A schedule asks these a million times.
        self._constant_rate = None if rules.varies else rules.rate(0, epoch_samples)
        self._may_drop, self._eta = rules.may_drop, rules.eta
        self._constant_steps = rules.local_steps if type(self).steps_for is Ledger.steps_for else None
        self.iteration = 0
        self.samples = 0
        self.outstanding: dict[int, Assigned] = {}
        self.earlier: dict[int, tuple[int, int]] = {}  # rounds and local steps so far of each worker that holds none
        self.folded: dict[int, int] = {}  # newest index folded from each worker

    @abstractmethod
    def start(self, workers: int) -> Step:
        """Workers 0 .. workers-1 receive w_0."""

    @abstractmethod
    def receive(self, worker: int, samples: int, seconds: float = 0.0) -> Step:
        """The outstanding round of this worker has been reported, so many seconds after it was sent."""

    @abstractmethod
    def join(self, worker: int) -> Step:
        """A worker joins, or joins again after it left."""

    @abstractmethod
    def leave(self, worker: int) -> Step:
        """A worker leaves; the round it holds will not be reported."""

    @property
    @abstractmethod
    def present(self) -> int:
        """How many workers there are now (K)."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether everything received is in the parameters (no barrier is half full)."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Everything that evolves, as plain JSON values."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Continue from a saved state."""

    def steps_for(self, worker: int) -> int:
        """Local steps in the round that this worker is assigned next."""
        return self.rules.local_steps

    def _steps(self, worker: int) -> int:
        steps = self.steps_for(worker)
        if type(steps) is not int or steps < 1:  # a round of none would never end the run
            raise ConfigError(f"steps_for({worker}) must give a whole number of at least 1, not {steps!r}")
        return steps

    def learning_rate(self) -> float:
        """gamma for the next round, by the samples folded in so far."""
        return self.rules.rate(self.samples, self.epoch_samples)

    def check(self, worker: int, index: int, round: int | None) -> None:
        """Refuse a report that is not the one this worker owes."""
        held = self.outstanding.get(worker)
        if held is not None and held.index == index and (round is None or round == held.round):
            return
        # A report that was sent twice: after a lost answer a worker cannot know whether the first one arrived.
        if index <= self.folded.get(worker, -1):
            raise ReportRefused("folded", f"the report of worker {worker} with index {index} is already folded in")
        begun = self.earlier.get(worker, (0, 0))[0] if held is None else held.round
        if round is not None and round < begun:  # late: the worker was given up meanwhile, and has joined again
            raise ReportRefused("over", f"round {round} of worker {worker} is over: its report is no longer expected")
        owed = "holds no parameters" if held is None else f"holds index {held.index}, round {held.round}"
        raise ReportRefused("unknown", f"unknown report (worker {worker}, index {index}): worker {worker} {owed}")

    def _admit(self, worker: int, is_present: bool) -> None:
        if is_present:
            raise ConfigError(f"worker {worker} cannot join: it is already present")
        if self.rules.max_workers is not None and self.present >= self.rules.max_workers:
            raise ConfigError(f"worker {worker} cannot join: this method runs on {self.rules.max_workers} worker")

    def _set_down(self, worker: int) -> None:
        """A worker's round is over, reported or lost; its next one continues behind it in its stream of samples."""
        held = self.outstanding.pop(worker)
        self.earlier[worker] = (held.round + 1, held.first_step + held.local_steps)

    def _shared_state(self) -> StateDict:
        return {
            "iteration": self.iteration,
            "samples": self.samples,
            "outstanding": [list(assigned) for assigned in self.outstanding.values()],
            "earlier": [[worker, *counts] for worker, counts in self.earlier.items()],
            "folded": list(self.folded.items()),
        }

    def _load_shared_state(self, state: StateDict) -> None:
        self.iteration, self.samples = state["iteration"], state["samples"]
        self.outstanding = {row[0]: Assigned(*row) for row in state["outstanding"]}
        self.earlier = {worker: (rounds, steps) for worker, rounds, steps in state["earlier"]}
        self.folded = dict(state["folded"])


_new = tuple.__new__
"""Makes a named tuple in half the time of its own constructor, for schedules of a million reports."""


class AsynchronousLedger(Ledger):
    """Each report is folded at once and its worker answered at once.

    Every assigned vector is labelled with a group; a group closes when as many vectors have been assigned as there are
    present workers. While K is constant the label of w_t is ceil(t/K), as in Algorithms 2 and 3.
    """

    def __init__(self, rules: Rules, epoch_samples: int = 1):
        super().__init__(rules, epoch_samples)
        self.group = 0  # of the newest assigned vector
        self.assigned_in_group = 0  # vectors of that group so far
        self.group_folded = 0  # the group up to which the momentum has been decayed

    def start(self, workers: int) -> Step:
        return Step(None, 0, [self._join(worker) for worker in range(workers)])

    def receive(self, worker: int, samples: int, seconds: float = 0.0) -> Step:
        _, index, round, group, _, steps, first_step = self.outstanding[worker]
        t, present = self.iteration, len(self.outstanding)
        delay = t - index
        # Groups that opened since the momentum was last decayed: lines 6-10 of Algorithm 2 are due once for each.
        boundary = self.group - self.group_folded
        behind = self.group - group
        eta = self._eta(delay, present)
        fold = _new(Fold, (t, worker, round, index, delay, group, behind, boundary, eta, steps, present, False))
        self.samples += samples
        self.folded[worker] = index
        if self._may_drop and self.rules.drops(fold):
            # The parameters stay w_t, and so do t and what has been decayed; the work counts as done all the same.
            fold = fold._replace(dropped=True)
        else:
            self.group_folded = self.group
            self.iteration = t + 1
        return _new(Step, (fold, 0, [self._assign(worker, round + 1, first_step + steps)]))

    def join(self, worker: int) -> Step:
        return Step(None, 0, [self._join(worker)])

    def leave(self, worker: int) -> Step:
        if worker not in self.outstanding:
            raise ConfigError(f"worker {worker} cannot leave: it is not present")
        self._set_down(worker)
        return Step(None, 0, [])

    @property
    def present(self) -> int:
        return len(self.outstanding)

    @property
    def settled(self) -> bool:
        return True

    def _join(self, worker: int) -> Assigned:
        self._admit(worker, worker in self.outstanding)
        rounds, steps = self.earlier.pop(worker, (0, 0))
        # It counts as present from now on, before its group is decided.
        self.outstanding[worker] = Assigned(worker, self.iteration, rounds, self.group, 0.0, 0, steps)
        return self._assign(worker, rounds, steps)

    def _assign(self, worker: int, round: int, first_step: int) -> Assigned:
        # As many vectors as present workers: with K constant the group of w_t is ceil(t/K).
        if self.assigned_in_group >= len(self.outstanding):
            self.group += 1
            self.assigned_in_group = 0
        self.assigned_in_group += 1
        rate = self.learning_rate() if self._constant_rate is None else self._constant_rate
        steps = self._constant_steps or self._steps(worker)
        assigned = _new(Assigned, (worker, self.iteration, round, self.group, rate, steps, first_step))
        self.outstanding[worker] = assigned
        return assigned

    def state_dict(self) -> StateDict:
        groups = {"group": self.group, "assigned_in_group": self.assigned_in_group, "group_folded": self.group_folded}
        return self._shared_state() | groups

    def load_state_dict(self, state: StateDict) -> None:
        self._load_shared_state(state)
        self.group, self.assigned_in_group = state["group"], state["assigned_in_group"]
        self.group_folded = state["group_folded"]


class BarrierLedger(Ledger):
    """Reports wait at a barrier; it closes, and t moves on, when every worker that holds parameters has reported.

    A worker that joins waits for the next barrier. A worker that leaves is waited for no longer; if it had reported
    into the open barrier, that report counts. The number of reports in a barrier may therefore differ from K.
    """

    def __init__(self, rules: Rules, epoch_samples: int = 1):
        super().__init__(rules, epoch_samples)
        self.received = 0  # reports in the open barrier
        self.waiting: set[int] = set()  # present, without parameters to work on

    def start(self, workers: int) -> Step:
        self.waiting.update(range(workers))
        return self._close_if_full(None)

    def receive(self, worker: int, samples: int, seconds: float = 0.0) -> Step:
        held = self.outstanding[worker]
        self._set_down(worker)
        self.waiting.add(worker)
        self.folded[worker] = held.index
        self.received += 1
        self.samples += samples
        present, steps = self.present, held.local_steps
        eta = self._eta(0, present)
        fold = Fold(self.iteration, worker, held.round, held.index, 0, held.group, 0, 0, eta, steps, present)
        return self._close_if_full(fold)

    def join(self, worker: int) -> Step:
        self._admit(worker, worker in self.waiting or worker in self.outstanding)
        self.waiting.add(worker)
        return self._close_if_full(None)

    def leave(self, worker: int) -> Step:
        if worker not in self.waiting and worker not in self.outstanding:
            raise ConfigError(f"worker {worker} cannot leave: it is not present")
        self.waiting.discard(worker)
        if worker in self.outstanding:
            self._set_down(worker)
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
        rate, t = self.learning_rate(), self.iteration
        # Sorted, so that the order of assignments does not depend on the order of arrivals.
        for worker in sorted(self.waiting):
            rounds, steps = self.earlier.pop(worker, (0, 0))
            self.outstanding[worker] = Assigned(worker, t, rounds, t, rate, self._steps(worker), steps)
        self.waiting.clear()
        return Step(fold, closed, list(self.outstanding.values()))

    def state_dict(self) -> StateDict:
        return self._shared_state() | {"received": self.received, "waiting": sorted(self.waiting)}

    def load_state_dict(self, state: StateDict) -> None:
        self._load_shared_state(state)
        self.received, self.waiting = state["received"], set(state["waiting"])
