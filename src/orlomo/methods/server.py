"""The server: a ledger (which report, when, with what weight) and the method's arithmetic on a few flat vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from orlomo.errors import ConfigError, ReportRefused
from orlomo.methods.ledger import Assigned, Fold, Ledger, StateDict, Step
from orlomo.methods.messages import Assignment, Report
from orlomo.methods.state import ServerState, all_finite, plain_numbers

if TYPE_CHECKING:
    from orlomo.methods.method import Method

Destination = Callable[[int], Mapping[str, Tensor] | None]
"""worker -> where to write the vectors of its assignments, by name.

None: nowhere; the assignment then has the server's own vectors, which the engine copies before the next report.
"""


class Server:
    """Receives reports and answers with assignments. Created by `method.server(initial_params, workers)`.

    >>> import orlomo, torch
    >>> server = orlomo.OrLoMo(learning_rate=0.1, momentum=0.9, local_steps=1).server(torch.zeros(2), workers=1)
    >>> [assignment] = server.start()
    >>> change = torch.ones(2)
    >>> [answer] = server.receive(orlomo.Report(worker=0, index=0, delta_params=change, delta_momentum=change))
    >>> answer.index, server.iteration, server.params
    (1, 1, tensor([-1., -1.]))
    """

    def __init__(self, method: Method, ledger: Ledger, state: ServerState, workers: int):
        self.method = method
        self.ledger = ledger
        self.state = state
        self.workers_at_start = workers
        self.last_fold: Fold | None = None  # how the newest report was folded in
        self.destination: Destination | None = None  # None: workers that are answered together share one copy
        self._sent = method.sent_vectors()
        self._own = dict(state.vectors)  # the memory that checkpoints and answers are made from
        self._snapshot: dict[str, Tensor] | None = None

    @property
    def params(self) -> Tensor:
        """w_t: the vector sent to the next worker that is answered."""
        return self.state.params

    @property
    def momentum(self) -> Tensor | None:
        """u_t, where the method keeps one."""
        return self.state.vectors.get("momentum")

    @property
    def iteration(self) -> int:
        """t: reports folded in so far (asynchronous) or barriers closed so far (synchronous)."""
        return self.ledger.iteration

    def start(self) -> list[Assignment]:
        """Assign w_0 to every worker."""
        if self.ledger.present or self.ledger.iteration:
            raise ConfigError("the server has been started already")
        return self._carry_out(self.ledger.start(self.workers_at_start), None)

    def receive(self, report: Report, seconds: float = 0.0) -> list[Assignment]:
        """Fold one report in and return the next assignments; a bad report is refused and changes nothing.

        `seconds`: how long the worker took, for methods that use it.
        """
        # All checks come before the ledger changes: a refused report leaves the state as it was.
        self.ledger.check(report.worker, report.index, report.round)
        report = self._checked(report)
        return self._carry_out(self.ledger.receive(report.worker, report.samples, seconds), report)

    def join(self, worker: int) -> list[Assignment]:
        """A worker joins, or joins again after it left."""
        return self._carry_out(self.ledger.join(worker), None)

    def leave(self, worker: int) -> list[Assignment]:
        """A worker leaves: its round will not be reported. This may close a barrier."""
        return self._carry_out(self.ledger.leave(worker), None)

    def state_dict(self) -> StateDict:
        """Everything that changes: tensors (not copies), and the plain dicts `numbers` and `ledger`."""
        numbers = plain_numbers(self.method.name, self.state.numbers, self.method.server_numbers)
        return {**self.state.vectors, "numbers": numbers, "ledger": self.ledger.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: StateDict) -> None:
        """Continue from a `state_dict` of the same method and size."""
        own = self.state.vectors
        for name, vector in own.items():
            found = state.get(name)
            if found is None or (found.shape, found.dtype) != (vector.shape, vector.dtype):
                raise ConfigError(f"the saved state does not fit this method and model: {name} is missing or differs")
        for name, value in self.ledger.state_dict().items():
            if isinstance(value, (int, float)) != isinstance(state["ledger"].get(name), (int, float)):
                raise ConfigError(
                    f"the saved state does not fit this method: {name} of its ledger is missing or differs"
                )
        for name, vector in own.items():
            vector.copy_(state[name])
        self.state.numbers.clear()
        self.state.numbers.update(state["numbers"])
        self.ledger.load_state_dict(state["ledger"])
        self._snapshot = None

    @torch.no_grad()
    def _carry_out(self, step: Step, report: Report | None) -> list[Assignment]:
        done: set[str] = set()
        if step.fold is not None and report is not None:
            self.last_fold = step.fold
            if not step.fold.dropped:
                done = self._fold(step, step.fold, report)
                self._snapshot = None
        if step.closed:
            self.method.close(self.state, step.closed)
            self._settle()
            self._snapshot = None
        return [self._assignment(assigned, done) for assigned in step.assigned]

    def _fold(self, step: Step, fold: Fold, report: Report) -> set[str]:
        """Fold a report in; the server's vectors whose answers are written by then."""
        target = None
        # Only an answer to this very worker alone can be written in the same pass: at a barrier `close` is to come.
        if self.destination is not None and self.method.one_pass and not step.closed and len(step.assigned) == 1:
            target = self.destination(step.assigned[0].worker)
        if target is not None:
            wanted: dict[str, list[Tensor]] = {}
            for name, source in self._sent.items():
                wanted.setdefault(source, []).append(target[name])
            # `fold` then copies each chunk to the worker's memory while it is in cache: one pass instead of two.
            self.state.answer_into(wanted)
        self.method.fold(self.state, fold, report)
        self._settle()
        return self.state.answered()

    def _settle(self) -> None:
        """A method may have put other tensors in place of its vectors: they are copied, since a report's memory is
        used again. What it has not declared would not survive a resume."""
        found = self.state.vectors
        if found.keys() != self._own.keys():
            raise ConfigError(
                f"{self.method.name} keeps {sorted(found)}, but server_vectors declares {sorted(self._own)}"
            )
        for name, own in self._own.items():
            vector = found[name]
            if vector is own:
                continue
            if vector.shape != own.shape or vector.dtype != own.dtype:
                wanted = f"{tuple(own.shape)} {own.dtype}"
                raise ConfigError(
                    f"{self.method.name}: {name} is now {tuple(vector.shape)} {vector.dtype}, not {wanted}"
                )
            found[name] = own.copy_(vector)
        if self.method.server_numbers or self.state.numbers:
            plain_numbers(self.method.name, self.state.numbers, self.method.server_numbers)

    def _assignment(self, assigned: Assigned, done: set[str]) -> Assignment:
        worker, index, round, _, rate, steps, first = assigned
        return Assignment(worker, index, round, self._vectors(worker, done), rate, steps, first)

    def _vectors(self, worker: int, done: set[str]) -> Mapping[str, Tensor]:
        """What this worker is sent; `done`: what its destination holds already."""
        own = self.state.vectors
        if self.destination is None:
            if self._snapshot is None:  # one copy, however many workers receive it
                self._snapshot = {name: own[source].clone() for name, source in self._sent.items()}
            return self._snapshot
        target = self.destination(worker)
        if target is None:
            return {name: own[source] for name, source in self._sent.items()}
        for name, source in self._sent.items():
            if source not in done:
                target[name].copy_(own[source])
        return {name: target[name] for name in self._sent}

    def _checked(self, report: Report) -> Report:
        """The report, its vectors in the declared order; one that cannot be folded in is refused."""
        sender, declared = f"worker {report.worker}", self.method.report_vectors
        for name in declared:
            if name not in report.vectors:
                raise ReportRefused("length", f"the report of {sender} has no {name}")
        for name in report.vectors:
            if name not in declared:
                raise ReportRefused(
                    "length", f"the report of {sender} has {name}, which report_vectors does not declare"
                )
        for name, vector in report.vectors.items():
            # Shape, dtype and device at once: a silent conversion would change the bits.
            found, wanted = (f"{tuple(v.shape)} {v.dtype} on {v.device}" for v in (vector, self.params))
            if found != wanted:
                raise ReportRefused("length", f"{name} of {sender} is {found}, not {wanted}")
        for name, vector in report.vectors.items():
            if not (all_finite(vector) if report.finite is None else report.finite):
                raise ReportRefused("finite", f"{name} of {sender}, index {report.index} is not finite")
        if report.samples <= 0 and self.method.varies:
            raise ReportRefused(
                "samples",
                f"the report of {sender} counts no samples, by which the learning rate changes: finish(samples=...)",
            )
        return report.with_vectors({name: report.vectors[name] for name in declared}, report.buffers)
