"""The server: a ledger (who, when, with what weight) and the method's arithmetic on a few flat vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from orlomo.errors import ConfigError, ReportRefused
from orlomo.methods.ledger import Fold, Handout, Ledger, Step
from orlomo.methods.messages import Assignment, Report

if TYPE_CHECKING:
    from orlomo.methods.method import Method

CHUNK = 1 << 18
"""Elements an update handles at a time: few enough to stay in cache, so many that Python's share is small."""


@dataclass
class Vectors:
    """The vectors a server owns. Which are there depends on the method; `params` always is.

    Asynchronous methods: `params` w_t and, with momentum, `momentum` u_t. Synchronous ones also sum the reports of the
    open barrier in `sum_params` and `sum_momentum`.
    """

    params: Tensor
    momentum: Tensor | None = None
    sum_params: Tensor | None = None
    sum_momentum: Tensor | None = None
    reply: Tensor | None = field(default=None, repr=False)  # while a fold goes on: where the new params are to go too

    def named(self) -> dict[str, Tensor]:
        """The vectors that are there, by name."""
        return {name: value for name, value in vars(self).items() if value is not None and name != "reply"}

    def chunks(self, *wanted: Tensor | None) -> Iterator[tuple[Tensor, ...]]:
        """The vectors, piece by piece: several operations on a piece that stays in cache are one pass over memory.

        Where there is a `reply`, it gets each piece of `params` as soon as that is done, in the same pass. On an
        accelerator the whole vectors are one piece.
        """
        vectors = tuple(vector for vector in wanted if vector is not None)
        assert len(vectors) == len(wanted), "the method folds a vector that it does not have"
        size = CHUNK if self.params.device.type == "cpu" else max(1, self.params.numel())
        pieces = zip(*(torch.split(vector, size) for vector in vectors), strict=True)
        if self.reply is None:
            yield from pieces
            return
        for parts, w, copy in zip(pieces, torch.split(self.params, size), torch.split(self.reply, size), strict=True):
            yield parts
            copy.copy_(w)


Place = Callable[[int], Vectors]
"""worker -> where to put the parameters, and the momentum where it carries one, that are handed to it.

It may be the server's own vectors, where whoever hands them on copies them before the next report.
"""


class Server:
    """Receives reports, answers with assignments. Made by `method.server(initial_params, workers)`.

    >>> import orlomo, torch
    >>> server = orlomo.OrLoMo(learning_rate=0.1, momentum=0.9, local_steps=1).server(torch.zeros(2), workers=1)
    >>> [assignment] = server.start()
    >>> change = torch.ones(2)
    >>> [answer] = server.receive(orlomo.Report(worker=0, index=0, delta_params=change, delta_momentum=change))
    >>> answer.index, server.iteration, server.params
    (1, 1, tensor([-1., -1.]))
    """

    def __init__(self, method: Method, ledger: Ledger, vectors: Vectors, workers: int):
        self.method = method
        self.ledger = ledger
        self.vectors = vectors
        self.workers_at_start = workers
        self.last_fold: Fold | None = None  # how the newest report was folded in
        self.place: Place | None = None  # None: workers that are answered together share one copy
        self._snapshot: Vectors | None = None

    @property
    def params(self) -> Tensor:
        """w_t: the vector sent to the next worker that is answered."""
        return self.vectors.params

    @property
    def momentum(self) -> Tensor | None:
        """u_t, where the method keeps one."""
        return self.vectors.momentum

    @property
    def iteration(self) -> int:
        """t: reports folded in so far (asynchronous) or barriers closed so far (synchronous)."""
        return self.ledger.iteration

    def start(self) -> list[Assignment]:
        """Hand w_0 to every worker."""
        if self.ledger.present or self.ledger.iteration:
            raise ConfigError("the server has been started already")
        return self._carry_out(self.ledger.start(self.workers_at_start), None)

    def receive(self, report: Report) -> list[Assignment]:
        """Fold one report in and say who works on what next; a bad report is refused and changes nothing."""
        self.ledger.check(report.worker, report.index, report.round)
        self._check_vectors(report)
        return self._carry_out(self.ledger.receive(report.worker, report.samples), report)

    def join(self, worker: int) -> list[Assignment]:
        """A worker comes, or comes back after it left."""
        return self._carry_out(self.ledger.join(worker), None)

    def leave(self, worker: int) -> list[Assignment]:
        """A worker goes: what it holds will not be reported. May let a barrier close."""
        return self._carry_out(self.ledger.leave(worker), None)

    def state_dict(self) -> dict[str, Any]:
        """All that evolves: tensors (live, not copies) and a plain `ledger` table."""
        return {**self.vectors.named(), "ledger": self.ledger.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict` of the same method and size."""
        own = self.vectors.named()
        for name, vector in own.items():
            if name not in state or state[name].shape != vector.shape:
                raise ConfigError(f"the saved state does not fit this method and model: {name} is missing or differs")
        for name, vector in own.items():
            vector.copy_(state[name])
        self.ledger.load_state_dict(state["ledger"])
        self._snapshot = None

    @torch.no_grad()
    def _carry_out(self, step: Step, report: Report | None) -> list[Assignment]:
        if step.fold is not None and report is not None:
            if self.place is not None and not self.method.synchronous:  # the answer is the vector that comes out
                room = self.place(report.worker).params
                self.vectors.reply = None if room is self.vectors.params else room
            self.method.fold(self.vectors, step.fold, report)
            self.last_fold = step.fold
        if step.closed:
            self.method.close(self.vectors, step.closed)
        if step.closed or (step.fold is not None and not self.method.synchronous):
            self._snapshot = None  # the parameters have changed
        assignments = [self._assignment(handout) for handout in step.handouts]
        self.vectors.reply = None
        return assignments

    def _assignment(self, handout: Handout) -> Assignment:
        if self.place is not None:
            return self._placed(handout, self.place(handout.worker))
        if self._snapshot is None:  # one copy, however many workers receive it
            momentum = self.vectors.momentum if self.method.carries_momentum else None
            self._snapshot = Vectors(self.vectors.params.clone(), None if momentum is None else momentum.clone())
        return Assignment(
            handout.worker,
            handout.index,
            handout.round,
            self._snapshot.params,
            handout.learning_rate,
            self.method.local_steps,
            self._snapshot.momentum,
        )

    def _placed(self, handout: Handout, room: Vectors) -> Assignment:
        if self.vectors.reply is None:
            room.params.copy_(self.vectors.params)
        momentum = None
        if self.method.carries_momentum:
            assert room.momentum is not None
            assert self.vectors.momentum is not None
            momentum = room.momentum.copy_(self.vectors.momentum)
        return Assignment(
            handout.worker,
            handout.index,
            handout.round,
            room.params,
            handout.learning_rate,
            self.method.local_steps,
            momentum,
        )

    def _check_vectors(self, report: Report) -> None:
        expected = {"delta_params": report.delta_params}
        if self.method.reports_momentum:
            if report.delta_momentum is None:
                raise ReportRefused("length", f"the report of worker {report.worker} has no delta_momentum")
            expected["delta_momentum"] = report.delta_momentum
        for name, vector in expected.items():
            found, wanted = (f"{tuple(v.shape)} {v.dtype} on {v.device}" for v in (vector, self.params))
            if found != wanted:
                raise ReportRefused("length", f"{name} of worker {report.worker} is {found}, not {wanted}")
        for name, vector in expected.items():
            if not (all_finite(vector) if report.finite is None else report.finite):
                where = f"worker {report.worker}, index {report.index}"
                raise ReportRefused("finite", f"{name} of {where} is not finite")


def all_finite(vector: Tensor) -> bool:
    """Whether every element is a finite number; one read of the vector, no temporary of its size."""
    if vector.numel() == 0:
        return True
    smallest, largest = torch.aminmax(vector)  # both are NaN where any element is
    return bool(torch.isfinite(smallest) & torch.isfinite(largest))
