"""Carry a schedule out: rounds in dependency order, folded by the method's server, recorded as they go.

The simulated engine lays its schedule down first, replay reads one back; both end here.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from orlomo.cluster.schedule import DEPARTURES, REPORT, Schedule
from orlomo.config import RunConfig
from orlomo.engines.ahead import RoundsAhead
from orlomo.engines.pool import Pool, open_pool
from orlomo.engines.signals import Signals
from orlomo.errors import Diverged, OrlomoError, ReportRefused
from orlomo.methods import Assignment, Report
from orlomo.records.checkpoint import Checkpoint
from orlomo.tasks.evaluation import Evaluation
from orlomo.tasks.task import Task


class Recorder(Protocol):
    """What an execution tells as it goes."""

    def event(self, row: dict[str, Any]) -> None: ...
    def metric(self, row: dict[str, Any]) -> None: ...
    @property
    def due(self) -> bool: ...
    def save(self, position: int, tensors: dict[str, Tensor], values: dict[str, Any]) -> None: ...


class Progress(Protocol):
    """What a person watching is shown."""

    def report(self, done: int, total: int, loss: float) -> None: ...
    def evaluation(self, row: dict[str, Any]) -> None: ...


@dataclass
class _PendingEvaluation:
    row: dict[str, Any]
    params: Tensor
    buffers: Tensor | None
    ticket: int = -1


class Execution:
    """One pass through a schedule, from its beginning or from a checkpoint."""

    def __init__(
        self,
        config: RunConfig,
        task: Task,
        schedule: Schedule,
        recorder: Recorder,
        *,
        jobs: int,
        progress: Progress | None = None,
        evaluates: bool = True,
        resumed: Checkpoint | None = None,
    ):
        self.config, self.task, self.schedule, self.recorder = config, task, schedule, recorder
        self._jobs, self._progress, self._evaluates = jobs, progress, evaluates
        self._columns = {name: column.tolist() for name, column in schedule.columns.items()}
        self._total = int(schedule.reports.sum())
        initial = task.initial_params(config.seed).to(config.device)
        self.server = config.method.server(initial, config.workers, task.size)
        self._started = time.monotonic()
        self._real_seconds = 0.0  # of earlier sittings
        self._reports = 0
        self._evaluated = 0  # evaluations begun
        self._pending: deque[_PendingEvaluation] = deque()
        self._worker_buffers: dict[int, Tensor] = {}
        self._position = 0
        self._first_assignments: list[Assignment] = []
        if resumed is not None:
            self._load(resumed)

    def run(self) -> None:
        """Go to the end of the schedule (the last `save` is the caller's). A signal saves and raises `Interrupted`."""
        config = self.config
        with Signals() as signals:
            pool = open_pool(self.task, config.method, config.seed, config.device, self._jobs, self.server.params)
            try:
                self._run(pool, signals)
            finally:
                pool.close()

    def _run(self, pool: Pool, signals: Signals) -> None:
        self._ahead = RoundsAhead(pool, self.schedule, self._position)
        for pending in self._pending:
            pending.ticket = self._ahead.evaluate(pending.params, pending.buffers)
        if self._position == 0 and not self._first_assignments:
            self._first_assignments = self.server.start()
            self._evaluate_if_due(0.0)
        self._ahead.offer(self._first_assignments)
        self._first_assignments = []
        try:
            while self._position < len(self.schedule):
                row = {name: values[self._position] for name, values in self._columns.items()}
                if row["kind"] == REPORT:
                    with signals.may_interrupt():
                        report = self._ahead.take(row["worker"], row["round"])
                    self._fold(row, report)
                else:
                    self._change_membership(row)
                self._position += 1
                self._evaluate_if_due(row["finish"])
                self._gather_evaluations(signals, keep=self._jobs - 1)
                if self.recorder.due:
                    self.save()
            self._gather_evaluations(signals, keep=0)
            signals.obey()
        except signals.Stop as stop:
            self.save()
            raise signals.interrupted(stop) from None

    def _fold(self, row: dict[str, Any], report: Report) -> None:
        worker = row["worker"]
        try:
            assignments = self.server.receive(report)
        except ReportRefused as error:
            if error.reason == "finite":
                raise Diverged(
                    f"the run diverged at iteration {row['iteration']}: {error}; lower the learning rate"
                ) from None
            raise OrlomoError(f"iteration {row['iteration']}: {error}") from None
        self._verify(row)
        if report.buffers is not None:
            self._worker_buffers[worker] = report.buffers
        self._reports += 1
        self.recorder.event({**row, "loss": report.loss})
        if self._progress is not None:
            self._progress.report(self._reports, self._total, report.loss)
        self._ahead.folded(worker)
        self._ahead.offer(assignments)

    def _verify(self, row: dict[str, Any]) -> None:
        """The server must fold the report just as the schedule says."""
        fold = self.server.last_fold
        assert fold is not None
        for name in ("iteration", "index", "delay", "group", "eta"):
            if getattr(fold, name) != row[name]:
                raise OrlomoError(
                    f"the trace and the method disagree at iteration {row['iteration']}: "
                    f"{name} is {row[name]} in the trace and {getattr(fold, name)} by the method"
                )

    def _change_membership(self, row: dict[str, Any]) -> None:
        worker = row["worker"]
        if row["kind"] in DEPARTURES:
            self._ahead.withdraw(worker)
            self._worker_buffers.pop(worker, None)
            assignments = self.server.leave(worker)
        else:
            assignments = self.server.join(worker)
        self.recorder.event(row)
        self._ahead.offer(assignments)

    def _evaluate_if_due(self, virtual_seconds: float) -> None:
        epoch = self.server.ledger.samples / self.task.size
        at_end = self._position == len(self.schedule)
        passed = epoch >= self._evaluated * self.config.evaluate_every
        if not self._evaluates or not self.server.ledger.settled or not (passed or at_end):
            return
        self._evaluated = int(epoch / self.config.evaluate_every) + 1
        params = self.server.params.clone()
        row = {
            "iteration": self.server.iteration,
            "reports": self._reports,
            "samples": self.server.ledger.samples,
            "epoch": epoch,
            "virtual_seconds": virtual_seconds,
            "real_seconds": self._elapsed(),
            "learning_rate": self.server.ledger.local_rate(self.server.ledger.samples),
            "params_checksum": checksum(params),
        }
        buffers = self.average_buffers()
        ticket = self._ahead.evaluate(params, buffers)
        self._pending.append(_PendingEvaluation(row, params, buffers, ticket))

    def average_buffers(self) -> Tensor | None:
        """The mean of what each worker reported last, where the task averages buffers."""
        if not self._worker_buffers:
            return None
        return torch.stack([self._worker_buffers[worker] for worker in sorted(self._worker_buffers)]).mean(0)

    def _gather_evaluations(self, signals: Signals, keep: int) -> None:
        """Record finished evaluations in order; wait until at most `keep` are unfinished."""
        while self._pending:
            first = self._pending[0]
            with signals.may_interrupt():
                result = self._ahead.evaluation(first.ticket, wait=len(self._pending) > keep)
            if result is None:
                return
            self._pending.popleft()
            self._record_evaluation(first.row, result)

    def _record_evaluation(self, row: dict[str, Any], result: Evaluation) -> None:
        full = {**row, **result._asdict()}
        self.recorder.metric(full)
        if self._progress is not None:
            self._progress.evaluation(full)

    def _elapsed(self) -> float:
        return self._real_seconds + time.monotonic() - self._started

    def save(self) -> None:
        """Write a checkpoint: the server, the work in flight, the evaluations not yet done."""
        state = self.server.state_dict()
        ledger = state.pop("ledger")
        tensors = {f"server.{name}": vector for name, vector in state.items()}
        held = list(self._ahead.assignments.values())
        for assignment in held:  # those of one index share one vector
            tensors[f"held.{assignment.index}.params"] = assignment.params
            if assignment.momentum is not None:
                tensors[f"held.{assignment.index}.momentum"] = assignment.momentum
        for place, pending in enumerate(self._pending):
            tensors[f"evaluation.{place}.params"] = pending.params
            if pending.buffers is not None:
                tensors[f"evaluation.{place}.buffers"] = pending.buffers
        for worker, buffers in self._worker_buffers.items():
            tensors[f"buffers.{worker}"] = buffers
        values = {
            "finished": self._position == len(self.schedule) and not self._pending,
            "schedule": self.schedule.digest(),
            "ledger": ledger,
            "held": [[a.worker, a.index, a.round, a.learning_rate, a.local_steps] for a in held],
            "evaluations": [pending.row for pending in self._pending],
            "evaluated": self._evaluated,
            "reports": self._reports,
            "real_seconds": self._elapsed(),
            "params_checksum": checksum(self.server.params),
        }
        self.recorder.save(self._position, tensors, values)

    def _load(self, saved: Checkpoint) -> None:
        tensors, values = saved.tensors, saved.values
        if values["schedule"] != self.schedule.digest():
            raise OrlomoError(
                "the schedule made from config.toml is not the one this run began with: "
                "the task has changed, or this is another version of orlomo or numpy"
            )
        vectors = {name.removeprefix("server."): t for name, t in tensors.items() if name.startswith("server.")}
        self.server.load_state_dict({**vectors, "ledger": values["ledger"]})
        self._position, self._reports = saved.position, values["reports"]
        self._evaluated, self._real_seconds = values["evaluated"], values["real_seconds"]
        device = self.config.device
        for worker, index, round_, rate, steps in values["held"]:
            momentum = tensors.get(f"held.{index}.momentum")
            self._first_assignments.append(
                Assignment(
                    worker,
                    index,
                    round_,
                    tensors[f"held.{index}.params"].to(device),
                    rate,
                    steps,
                    None if momentum is None else momentum.to(device),
                )
            )
        for place, row in enumerate(values["evaluations"]):
            params, buffers = tensors[f"evaluation.{place}.params"], tensors.get(f"evaluation.{place}.buffers")
            on_device = None if buffers is None else buffers.to(device)
            self._pending.append(_PendingEvaluation(row, params.to(device), on_device))
        for name, buffers in tensors.items():
            if name.startswith("buffers."):
                self._worker_buffers[int(name.removeprefix("buffers."))] = buffers.to(device)


def checksum(vector: Tensor) -> str:
    """A short fingerprint of a vector's bits."""
    content: Any = vector.cpu().contiguous().view(torch.uint8).numpy()
    return "b2-" + hashlib.blake2b(content, digest_size=8).hexdigest()
