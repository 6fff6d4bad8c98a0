"""What every engine does with a report: fold it in, record it, evaluate and checkpoint when that is due.

Engines differ in where reports come from; a session knows nothing of that. Its methods are called with what happened,
in order.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from orlomo.clusters.schedule import KINDS, REPORT
from orlomo.config import RunConfig
from orlomo.engines.callbacks import Callbacks, Evaluated
from orlomo.engines.work import Work
from orlomo.errors import Diverged, OrlomoError, ReportRefused, RunFolderError
from orlomo.methods.messages import Assignment, Report, WorkerState
from orlomo.methods.state import all_finite
from orlomo.records.checkpoint import Checkpoint, Values
from orlomo.records.shapes import restoring
from orlomo.records.tables import Row
from orlomo.tasks.evaluation import Evaluation


class Recorder(Protocol):
    """What a session writes to."""

    def event(self, row: Row) -> None: ...
    def metric(self, row: Row) -> None: ...
    def round(self, row: Row) -> None: ...
    @property
    def due(self) -> bool: ...
    def best(self, state: dict[str, Tensor], metrics: Row) -> None: ...
    def save(self, position: int, tensors: dict[str, Tensor], values: Values) -> None: ...


class Evaluator(Protocol):
    """Evaluates parameters while the run continues."""

    def evaluate(self, params: Tensor, buffers: Tensor | None) -> int:
        """Start an evaluation; `params` must not change. The ticket is for `evaluation`."""

    def evaluation(self, ticket: int, wait: bool) -> Evaluation | None:
        """The result; None if it is not there yet and `wait` is false."""


@dataclass
class _PendingEvaluation:
    row: Row
    params: Tensor
    buffers: Tensor | None
    ticket: int = -1


class Session:
    """A run's server and its record, from the beginning or from a checkpoint."""

    def __init__(
        self,
        config: RunConfig,
        work: Work,
        recorder: Recorder,
        *,
        total: int,
        callbacks: Callbacks | None = None,
        evaluates: bool = True,
        due: Callable[[], bool] | None = None,
    ):
        """`due`: of a replay, which evaluates where the run did; callbacks are not told of it."""
        self.config, self.work, self.recorder, self.total = config, work, recorder, total
        self.callbacks, self._evaluates, self._due = callbacks or Callbacks(), evaluates, due
        initial = work.initial(config)
        params = initial.params.to(config.server_device)
        self.server = config.method.server(params, config.workers, work.size, initial.layout)
        self.whole, self.saved_events = True, -1  # whether no event is half done; events when last saved
        self.failed = False  # all events are in, but the user's code failed when the model was made
        self._encoding, self._initial_buffers = initial.encoding, initial.buffers
        self.events = self.reports = 0  # recorded so far
        self._keeps_optimizer, self._rate = initial.keeps_optimizer, initial.rate  # the rate as reported last
        self._started = time.monotonic()
        self._earlier_seconds = 0.0  # of the earlier processes of this run
        self._evaluated = 0  # intervals of evaluation begun
        self._evaluated_at = -1  # reports at the newest evaluation
        self._pending: deque[_PendingEvaluation] = deque()
        self._worker_buffers: dict[int, Tensor] = {}  # as each worker reported them last
        self._newest_buffers: Tensor | None = None  # of the newest report, where the task keeps some

    @property
    def workers_keep_state(self) -> bool:
        """Whether a worker's round depends on its earlier rounds."""
        return self.config.method.keeps_worker_state or self._encoding.keeps or self._keeps_optimizer

    def new_state(self) -> WorkerState:
        """What a worker keeps before its first round."""
        state = self.config.method.worker_state(self.server.params)
        if self._encoding.keeps and self._initial_buffers is not None:
            state.buffers = self._initial_buffers.to(self.server.params.device)
        return state

    def elapsed(self) -> float:
        """Real seconds, those of the earlier processes of this run included."""
        return self._earlier_seconds + time.monotonic() - self._started

    def change(self, config: RunConfig) -> None:
        """Continue with another config, whose method's server takes over the state of this one as after a resume."""
        old, self.config = self.server, config
        state = old.state_dict()
        state["ledger"] = json.loads(json.dumps(state["ledger"]))
        self.server = config.method.server(old.params, config.workers, self.work.size, old.state.layout)
        self.server.load_state_dict(state)

    def restart_clock(self) -> None:
        """This process begins now: what it took to start workers is not the run's time."""
        self._started = time.monotonic()

    def fold(self, report: Report, seconds: float, done: Assignment) -> list[Assignment]:
        """Fold the report of this assignment in; numbers that are not finite mean that the run has diverged."""
        t = self.server.iteration
        self.whole = False  # the engine sets it again when all of the event has happened
        try:
            return self.server.receive(report, seconds)
        except ReportRefused as error:
            self.whole = True  # a refused report has changed nothing
            if error.reason == "finite":
                advice = self.work.why_not_finite(self.config, done) or "lower the learning rate"
                raise Diverged(f"the run diverged at iteration {t}: {error}; {advice}") from None
            raise OrlomoError(f"iteration {t}: {error}") from None

    def record_report(self, row: Row, report: Report) -> None:
        """The report that was folded in, or dropped, last, as a row of the trace."""
        if report.buffers is not None:
            self._worker_buffers[report.worker] = report.buffers
            self._newest_buffers = report.buffers if self._encoding.keeps else None
        self.events += 1
        self.reports += row["kind"] == REPORT  # not those that were dropped
        if (rate := report.learning_rate) is not None:
            self._rate, row = rate, {**row, "learning_rate": rate}
        self._record({**row, "loss": report.loss})

    def record_change(self, row: Row) -> None:
        """A worker has joined or left."""
        self._worker_buffers.pop(row["worker"], None)
        self.events += 1
        self._record(row)

    def _record(self, row: Row) -> None:
        self.recorder.event(row)
        if self.callbacks.any:
            so_far = {"reports": self.reports, "samples": self.server.ledger.samples}
            self.callbacks.event({"loss": math.nan, **row, "kind": KINDS[row["kind"]], **so_far})

    @property
    def complete(self) -> bool:
        """Whether all planned samples are in."""
        return self.server.ledger.samples >= self.work.planned_samples(self.config)

    @property
    def stopping(self) -> bool:
        """Whether a callback has asked for the end, and no barrier is half full."""
        return self.callbacks.stop_reason is not None and self.server.ledger.settled

    def evaluate_if_due(self, evaluator: Evaluator, seconds: float, at_end: bool) -> None:
        """Begin an evaluation if an interval has passed, or the run is at its end."""
        ledger = self.server.ledger
        epoch = ledger.samples / self.work.size
        # Counted in intervals, not in seconds or reports since the last: a long round skips some and stays on the grid.
        # While a barrier is half full the parameters are between two iterations: evaluations wait until it is closed.
        passed = epoch >= self._evaluated * self.config.evaluate_every or (at_end and self.reports > self._evaluated_at)
        if not self._evaluates or not ledger.settled or not (passed if self._due is None else self._due()):
            return
        self._evaluated_at = self.reports
        self._evaluated = int(epoch / self.config.evaluate_every) + 1
        params = self.server.params.clone()  # the server changes them while they are evaluated
        row = {
            "iteration": self.server.iteration,
            "reports": self.reports,
            "samples": ledger.samples,
            "epoch": epoch,
            "seconds": seconds,
            "real_seconds": self.elapsed(),
            "learning_rate": ledger.learning_rate() if self._rate is None else self._rate,
            "params_checksum": checksum(params),
        }
        pending = _PendingEvaluation(row, params, self.combined_buffers())
        self._pending.append(pending)  # first: where `evaluate` raises, the run is saved with it, and it is begun again
        pending.ticket = evaluator.evaluate(params, pending.buffers)

    @property
    def unfinished(self) -> int:
        """Evaluations begun and not recorded yet."""
        return len(self._pending)

    def begin_pending(self, evaluator: Evaluator) -> None:
        """Begin the evaluations that a checkpoint has brought along."""
        for pending in self._pending:
            pending.ticket = evaluator.evaluate(pending.params, pending.buffers)

    def gather(
        self, evaluator: Evaluator, keep: int, waiting: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        """Record finished evaluations in order; wait, within `waiting`, until at most `keep` are unfinished.

        The state is whole here, so this is also where the run ends if a callback has raised.
        """
        self.callbacks.check()
        while self._pending:
            first = self._pending[0]
            with waiting():
                result = evaluator.evaluation(first.ticket, wait=len(self._pending) > keep)
            if result is None:
                return
            self._pending.popleft()
            full = {**first.row, **result.values}
            self.recorder.metric(full)
            if self._due is None:
                self.callbacks.evaluation(Evaluated(full, first.params, first.buffers))
            self.callbacks.check()

    def combined_buffers(self) -> Tensor | None:
        """Of what each worker reported last the mean, or the newest; None where there is none."""
        newest = self._newest_buffers
        if not self._worker_buffers:
            return newest  # what workers kept does not begin again when the last one leaves
        # By worker, not by arrival: the order of a sum decides its last bits.
        reports = [self._worker_buffers[worker] for worker in sorted(self._worker_buffers)]
        return self._encoding.combine(reports, reports[-1] if newest is None else newest)

    def model_state(self, params: Tensor, buffers: Tensor | None) -> dict[str, Tensor]:
        """The state dict of the model at these parameters, with running statistics as in an evaluation."""
        return self.work.model_state(self.config, params, buffers)

    def save_after(self, error: BaseException, save: Callable[[], None]) -> None:
        """Save a run that something has ended, if its state is whole and finite and the disk takes it."""
        if isinstance(error, RunFolderError) or not (self.whole and self.reports and all_finite(self.server.params)):
            return
        try:
            save()
        except Exception as second:
            error.add_note(f"and it could not be saved: {type(second).__name__}: {second}")

    def save(
        self, held: Iterable[Assignment], at_end: bool, states: dict[int, WorkerState] | None = None, **more: object
    ) -> None:
        """Write a checkpoint: the server, the work in flight, what workers keep, the evaluations not yet done."""
        state = self.server.state_dict()
        ledger, numbers = state.pop("ledger"), state.pop("numbers")  # plain values, for the JSON file
        tensors = {f"server.{name}": vector for name, vector in state.items()}
        held, states = list(held), states or {}
        for assignment in held:  # those of one index share their vectors
            tensors |= {f"held.{assignment.index}.{name}": vector for name, vector in assignment.vectors.items()}
        for worker, kept in states.items():
            tensors |= {f"worker.{worker}.{name}": vector for name, vector in kept.vectors.items()}
            tensors |= {} if kept.optimizer is None else {f"optimizer.{worker}": kept.optimizer}
        for position, pending in enumerate(self._pending):
            tensors[f"evaluation.{position}.params"] = pending.params
            if pending.buffers is not None:
                tensors[f"evaluation.{position}.buffers"] = pending.buffers
        for worker, buffers in self._worker_buffers.items():
            tensors[f"buffers.{worker}"] = buffers
        if self._newest_buffers is not None:
            tensors["newest_buffers"] = self._newest_buffers.clone()  # no two names may share memory
        values = {
            "finished": at_end and not self.failed and not self._pending,
            "stopped": self.callbacks.stop_reason if at_end and not self.complete else None,
            "ledger": ledger,
            "numbers": numbers,
            "held": [[a.worker, a.index, a.round, a.learning_rate, a.local_steps, a.first_step] for a in held],
            "worker_numbers": [[worker, kept.numbers] for worker, kept in states.items()],
            "evaluations": [pending.row for pending in self._pending],
            "evaluated": self._evaluated,
            "evaluated_at": self._evaluated_at,
            "reports": self.reports,
            "real_seconds": self.elapsed(),
            "params_checksum": checksum(self.server.params),
            **more,
        }
        # The best model before the checkpoint that counts on it: see records/best.py.
        if (best := self.callbacks.best) is not None:
            self.recorder.best(self.model_state(best.params, best.buffers), best.row)
        self.recorder.save(self.events, tensors, values)
        self.saved_events = self.events
        self.callbacks.best = None

    def load(self, saved: Checkpoint) -> list[Assignment]:
        """Continue from a checkpoint; returns the assignments that were in flight."""
        with restoring(saved.position):
            tensors, values = saved.tensors, saved.values
            self.server.load_state_dict(
                {**saved.below("server"), "numbers": values["numbers"], "ledger": values["ledger"]}
            )
            if not all_finite(self.server.params):
                raise ValueError("its parameters are not finite")
            self.events, self.reports = saved.position, values["reports"]
            self._evaluated, self._earlier_seconds = values["evaluated"], values["real_seconds"]
            self._evaluated_at = values.get("evaluated_at", -1)
            self.callbacks.stop_reason = values.get("stopped")
            device = self.config.server_device
            for position, row in enumerate(values["evaluations"]):
                params, buffers = (
                    tensors[f"evaluation.{position}.params"],
                    tensors.get(f"evaluation.{position}.buffers"),
                )
                on_device = None if buffers is None else buffers.view(torch.uint8).to(device)
                self._pending.append(_PendingEvaluation(row, self._like_params(params).to(device), on_device))
            for worker, buffers in saved.below("buffers").items():  # vectors of numbers in earlier versions
                self._worker_buffers[int(worker)] = buffers.view(torch.uint8).to(device)
            if "newest_buffers" in tensors:
                self._newest_buffers = tensors["newest_buffers"].to(device)
            assignments = []
            for worker, index, round_, rate, steps, first in values["held"]:
                sent = {
                    name: self._like_params(vector).to(device) for name, vector in saved.below(f"held.{index}").items()
                }
                assignments.append(Assignment(worker, index, round_, sent, rate, steps, first))
            return assignments

    def load_states(self, saved: Checkpoint) -> dict[int, WorkerState]:
        """What the workers kept between rounds, by worker; called after `load`."""
        with restoring(saved.position):
            device, keeps = self.config.server_device, self._encoding.keeps
            states = {}
            for worker, numbers in saved.values["worker_numbers"]:
                buffers = self._worker_buffers.get(worker) if keeps else None  # a worker keeps what it reported last
                vectors, optimizer = saved.below(f"worker.{worker}"), saved.tensors.get(f"optimizer.{worker}")
                states[worker] = WorkerState(vectors, numbers, buffers, optimizer).to(device)
            return states

    def _like_params(self, vector: Tensor) -> Tensor:
        own = self.server.params
        if (vector.shape, vector.dtype) != (own.shape, own.dtype):
            raise ValueError(f"a vector of {tuple(vector.shape)}, {vector.dtype}, is not of this model")
        return vector


def checksum(vector: Tensor) -> str:
    """A short fingerprint of a vector's bits."""
    content = vector.cpu().contiguous().view(torch.uint8).numpy()
    return "b2-" + hashlib.blake2b(content.data, digest_size=8).hexdigest()
