"""Which workers take part in a live run: a state machine without clock, processes or vectors.

The loop calls `handle` with everything that happens to workers and carries out the actions that come back. A rank is
the stable position of a worker: its device and its pace. A worker that is lost is followed by another in the same rank.

A new worker has a new id, always: ids are how the record tells two workers apart.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from orlomo.engines.live import events
from orlomo.engines.live.actions import Action, Deny, End, Join, Leave, Redo, Say, Start, Stop

REFUSALS_IN_A_ROW = 3
"""Reports of a worker refused in a row after which it is replaced."""

LOSSES_IN_A_ROW = 10
"""So many workers lost in a rank, none of which reported anything: the rank is given up."""

LONGEST_WAIT_SECONDS = 30.0
"""Between a loss and the start of the next worker in the same rank."""


class Cause(NamedTuple):
    """Why the newest worker of a rank was lost."""

    reason: str
    raised: bool = False  # its own code raised
    refused: bool = False  # its reports were not finite


@dataclass
class Rank:
    """A position for a worker, and all there is to know about the worker in it."""

    number: int
    worker: int | None = None
    takes_part: bool = False  # the server counts its worker; else its worker is waiting
    is_leaving: bool = False  # its worker leaves after its report
    refusals: int = 0  # in a row
    losses: int = 0  # in a row, without a report between
    cause: Cause | None = None  # of the newest of them
    due: float | None = None  # when another worker may follow; None: there has been no loss since a report


@dataclass
class Membership:
    """The ranks of a run, and the ids given out so far.

    >>> membership = Membership()
    >>> membership.handle(events.Begin(workers=2), now=0.0)
    [Start(worker=0, rank=0), Start(worker=1, rank=1)]
    >>> membership.handle(events.Lost(1, "killed by SIGKILL"), now=5.0)  # doctest: +NORMALIZE_WHITESPACE
    [Say(text='worker 1 is lost: killed by SIGKILL', details=''), Stop(worker=1), Leave(worker=1, kind='crash')]
    >>> membership.handle(events.Tick(), now=5.0)
    [Start(worker=2, rank=1)]
    >>> membership.handle(events.Ready(2), now=6.0)
    [Join(worker=2)]
    """

    limit: int | None = None  # the most workers that the method runs on
    keeps_worker_state: bool = False  # workers remember something from round to round
    refusals_allowed: int = REFUSALS_IN_A_ROW  # of a worker's reports in a row, until it is replaced
    ranks: list[Rank] = field(default_factory=list)
    next_worker: int = 0
    lost: int = 0  # workers, so far
    refused: int = 0  # reports, so far

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def next_due(self) -> float:
        """When to call with `Tick` at the latest: the time at which the next empty rank gets a worker."""
        return min((rank.due or 0.0 for rank in self.ranks if rank.worker is None), default=float("inf"))

    def takes_part(self, worker: int) -> bool:
        """Whether the server counts this worker."""
        return any(rank.worker == worker and rank.takes_part for rank in self.ranks)

    @property
    def chief(self) -> int:
        """The worker in the lowest rank of those that take part; -1 where there is none."""
        taking_part = [(rank.number, rank.worker) for rank in self.ranks if rank.takes_part]
        return min((worker for _, worker in sorted(taking_part)[:1] if worker is not None), default=-1)

    def is_leaving(self, worker: int) -> bool:
        """Whether this worker gets no further assignment."""
        return any(rank.worker == worker and rank.is_leaving for rank in self.ranks)

    def handle(self, event: events.Event, now: float) -> list[Action]:
        """What to do about an event, in order; `now` is in seconds of a clock that continues after a resume."""
        match event:
            case events.Begin(workers):
                return [self._start(self._new_rank(takes_part=True)) for _ in range(workers)]
            case events.Resume(busy, ended):
                return self._resume(busy, now, ended)
            case events.Tick():
                return [self._start(rank) for rank in self.ranks if rank.worker is None and (rank.due or 0.0) <= now]
            case events.Add():
                return self._resize(1 + sum(not rank.is_leaving for rank in self.ranks), frozenset())
            case events.Remove(worker, is_busy):
                return self._remove(worker, is_busy)
            case events.Resize(workers, busy):
                return self._resize(workers, busy)
            case events.NoRoom(workers, busy) | events.Idle(workers, busy):
                late = [rank for rank in self.ranks if rank.takes_part and rank.worker in workers]
                actions = self._without(_idle_first(late, busy))
                return [_no_room(late), *actions] if late and isinstance(event, events.NoRoom) else actions
        rank = next((rank for rank in self.ranks if rank.worker == event.worker), None)
        # The worker may have been stopped while the event was on its way.
        return [] if rank is None else self._handle_one(rank, event, now)

    def _handle_one(self, rank: Rank, event: events.OfOne, now: float) -> list[Action]:
        match event:
            case events.Ready(worker):
                joins, rank.takes_part = not rank.takes_part, True
                return [Join(worker)] if joins else []
            case events.NotStarted(_, reason):
                return self._not_started(rank, reason, now)
            case events.Reported():
                rank.refusals, rank.losses, rank.cause, rank.due = 0, 0, None, None
                return self._let_go(rank) if rank.is_leaving else []
            case events.Refused(_, reason, finite):
                return self._refuse(rank, reason, finite, now)
            case events.Left():
                return self._let_go(rank)
            case events.Lost(_, reason, traceback):
                return self._lose(rank, Cause(reason, raised=bool(traceback)), traceback, now)

    # Losses

    def _refuse(self, rank: Rank, reason: str, finite: bool, now: float) -> list[Action]:
        assert rank.worker is not None
        self.refused += 1
        rank.refusals += 1
        if rank.refusals >= self.refusals_allowed:
            several = f"{rank.refusals} reports in a row refused, the last because "
            text = f"{several if rank.refusals > 1 else 'its report was refused: '}{reason}"
            return self._lose(rank, Cause(text, refused=not finite), "", now)
        return [Say(f"report refused: {reason}; worker {rank.worker} computes the round again"), Redo(rank.worker)]

    def _lose(self, rank: Rank, cause: Cause, traceback: str, now: float) -> list[Action]:
        self.lost += 1
        said = Say(f"worker {rank.worker} is lost: {cause.reason}", traceback)
        if rank.is_leaving:
            return [said, *self._let_go(rank, "crash")]
        return [said, *self._empty(rank, "crash"), *self._count_loss(rank, cause, now)]

    def _not_started(self, rank: Rank, reason: str, now: float) -> list[Action]:
        """A worker that was to follow a lost one is tried again later; one that was asked for is not."""
        rank.worker, rank.takes_part = None, False
        if rank.due is None:  # no loss before it: this worker was asked for, and the request is refused
            self.ranks.remove(rank)
            return [Deny(reason)]
        return [Say(reason), *self._count_loss(rank, Cause(reason), now)]

    def _count_loss(self, rank: Rank, cause: Cause, now: float) -> list[Action]:
        """Another worker follows, unless that is hopeless: the first at once, the next ones after growing waits."""
        wait = 0.1 * 2**rank.losses if rank.losses else 0.0
        rank.losses, rank.cause = rank.losses + 1, cause
        rank.due = now + min(LONGEST_WAIT_SECONDS, wait)
        if end := self._end_if_all_fail_alike(cause):
            return [end]
        if rank.losses < LOSSES_IN_A_ROW:
            return []
        # Workers that are leaving are no reason to continue: with their reports the last rank would be gone.
        if all(other is rank or other.is_leaving for other in self.ranks):
            return [End(f"no worker is left; the last was lost: {cause.reason}")]
        self.ranks.remove(rank)
        return [Say(f"{rank.losses} workers in a row were lost in rank {rank.number}: continuing with one rank less")]

    def _end_if_all_fail_alike(self, newest: Cause) -> End | None:
        """What has happened in every rank since its last report will happen again."""
        causes = [rank.cause for rank in self.ranks]
        if sum(rank.losses for rank in self.ranks) < 2:
            return None
        if all(cause is not None and cause.refused for cause in causes):
            return End(f"the run diverged: {newest.reason}; lower the learning rate", diverged=True)
        if all(cause is not None and cause.raised and cause.reason == newest.reason for cause in causes):
            return End(f"every worker failed: {newest.reason}")
        return None

    # Joining and leaving

    def _resize(self, workers: int, busy: frozenset[int]) -> list[Action]:
        """As many ranks as workers are wanted, besides those whose workers are leaving already."""
        if workers < 1:
            return [Deny(f"workers must be at least 1, not {workers}")]
        if self.limit is not None and workers > self.limit:
            return [Deny(f"the method of this run runs on {self.limit} worker, not {workers}")]
        staying = sorted((rank for rank in self.ranks if not rank.is_leaving), key=lambda rank: rank.number)
        actions: list[Action] = [self._start(self._new_rank()) for _ in range(workers - len(staying))]
        for rank in staying[workers:]:
            actions += self._ask_to_leave(rank, rank.worker in busy)
        return actions

    def _remove(self, worker: int, is_busy: bool) -> list[Action]:
        present = {rank.worker: rank for rank in self.ranks if rank.worker is not None}
        if worker not in present:
            return [Deny(f"there is no worker {worker}: there are {sorted(present)}")]
        rank = present[worker]
        if not any(other is not rank and other.takes_part and not other.is_leaving for other in self.ranks):
            return [Deny("the last worker cannot be removed: stop the run with Ctrl-C")]
        return self._ask_to_leave(rank, is_busy)

    def _without(self, ranks: list[Rank]) -> list[Action]:
        """Workers that cannot do anything now take no part until they can: the others do not wait for them."""
        actions: list[Action] = []
        for rank in ranks:
            assert rank.worker is not None
            if rank.is_leaving:
                actions += self._let_go(rank)
            else:
                rank.takes_part = False
                actions.append(Leave(rank.worker, "leave"))
        return actions

    def _resume(self, busy: frozenset[int], now: float, ended: bool) -> list[Action]:
        """Every worker is started again under its id; what it held is sent to it once more.

        What was wrong may have been mended since: losses and refusals are counted from zero.
        """
        for rank in self.ranks:
            rank.refusals, rank.losses, rank.cause = 0, 0, None
            rank.due = now if rank.worker is None else None
        if self.keeps_worker_state:
            return self._replace_all(busy, "crash")
        if ended:
            return self._replace_all(busy, "leave")
        return [Start(rank.worker, rank.number) for rank in self.ranks if rank.worker is not None]

    def _replace_all(self, busy: frozenset[int], kind: str) -> list[Action]:
        """What the workers had is gone, but a replay would have it: so the record must show new workers."""
        actions: list[Action] = []
        for rank in _idle_first(self.ranks, busy):
            if rank.worker is None:
                continue
            if rank.takes_part:
                self.lost += kind == "crash"
                actions.append(Leave(rank.worker, kind))
            if rank.is_leaving:
                self.ranks.remove(rank)
            else:
                rank.takes_part = False
                actions.append(self._start(rank))
        return actions

    # Small steps

    def _new_rank(self, takes_part: bool = False) -> Rank:
        """One more rank, with the lowest number that is free."""
        taken = {rank.number for rank in self.ranks}
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        self.ranks.append(Rank(number, takes_part=takes_part))
        return self.ranks[-1]

    def _start(self, rank: Rank) -> Start:
        """A new worker in this rank."""
        rank.worker = self.next_worker
        self.next_worker += 1
        return Start(rank.worker, rank.number)

    def _ask_to_leave(self, rank: Rank, is_busy: bool) -> list[Action]:
        """After its report, or now if it has nothing to report."""
        rank.is_leaving = is_busy
        return [] if is_busy else self._let_go(rank)

    def _let_go(self, rank: Rank, kind: str = "leave") -> list[Action]:
        """Its worker leaves, and the rank with it."""
        self.ranks.remove(rank)
        return self._empty(rank, kind)

    def _empty(self, rank: Rank, kind: str) -> list[Action]:
        """Stop the worker of this rank; the server is concerned only if it counted that worker."""
        if rank.worker is None:
            return []
        actions: list[Action] = [Stop(rank.worker)]
        if rank.takes_part:
            actions.append(Leave(rank.worker, kind))
        rank.worker, rank.takes_part, rank.is_leaving, rank.refusals = None, False, False, 0
        return actions

    # In a checkpoint

    def to_json(self) -> dict[str, object]:
        """All of it, as plain values."""
        ranks = [asdict(rank) | {"cause": rank.cause and rank.cause._asdict()} for rank in self.ranks]
        return {"ranks": ranks, "next_worker": self.next_worker, "lost": self.lost, "refused": self.refused}

    @classmethod
    def from_json(
        cls, table: dict[str, Any], *, limit: int | None = None, keeps_worker_state: bool = False
    ) -> Membership:
        """From a checkpoint; call with `Resume` when another process continues."""
        ranks = [Rank(**{**row, "cause": row["cause"] and Cause(**row["cause"])}) for row in table["ranks"]]
        counts = {name: table[name] for name in ("next_worker", "lost", "refused")}
        return cls(limit, keeps_worker_state, ranks=ranks, **counts)


def _idle_first(ranks: list[Rank], busy: frozenset[int]) -> list[Rank]:
    """The order in which several workers leave: a barrier closes when the last that holds an assignment is gone.

    By then those that wait at the barrier must be gone, too, or they would be given an assignment.
    """
    return sorted(ranks, key=lambda rank: rank.worker in busy)


def _no_room(ranks: list[Rank]) -> Say:
    some, they = (
        ("1 worker is", "it joins when it is")
        if len(ranks) == 1
        else (f"{len(ranks)} workers are", "they join when they are")
    )
    return Say(f"{some} not ready yet: continuing without; {they}")
