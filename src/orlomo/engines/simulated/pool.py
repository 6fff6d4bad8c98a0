"""Where rounds are computed: in this process, or on several cores. The same bits either way.

Each job is a process with one thread of arithmetic; vectors travel through shared-memory slots, the rest by a pipe.
"""

from __future__ import annotations

import multiprocessing.connection
import os
import pickle
import signal
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import torch
import torch.multiprocessing
from torch import Tensor

from orlomo.engines.memory import keep_freed_memory
from orlomo.engines.optimizer import put, taken
from orlomo.engines.round import Computed, RoundRunner
from orlomo.engines.slots import Shape, Slot
from orlomo.errors import ConfigError, OrlomoError
from orlomo.methods.messages import Assignment, WorkerState
from orlomo.methods.method import Method
from orlomo.tasks.evaluation import Evaluation
from orlomo.tasks.task import Task


class RoundRequest(NamedTuple):
    """A round to compute, and what its worker keeps. The state is copied: it is the caller's own until the round is in.

    On its way to a job both are without vectors, which are in a slot.
    """

    assignment: Assignment
    state: WorkerState


class EvaluationRequest(NamedTuple):
    """Parameters to evaluate, with the buffers that workers reported, where they do.

    On its way to a job they are in a slot, and `buffers` says whether there are any.
    """

    params: Tensor | None
    buffers: Tensor | bool | None


Request = RoundRequest | EvaluationRequest
Result = Computed | Evaluation


class Pool(ABC):
    """Computes requests. A result keeps its memory until it is released."""

    @property
    @abstractmethod
    def free(self) -> int:
        """How many more requests can be taken now."""

    @abstractmethod
    def submit(self, ticket: int, request: Request, urgent: bool = False) -> None:
        """Compute this; the result will come under the ticket. Urgent requests go first."""

    @abstractmethod
    def next(self) -> tuple[int, Result]:
        """Wait for the next finished request."""

    @abstractmethod
    def release(self, ticket: int) -> None:
        """The result of this ticket is no longer needed."""

    @abstractmethod
    def close(self) -> None:
        """Stop all jobs."""


@contextmanager
def on_threads(count: int = 1) -> Iterator[None]:
    """Arithmetic on so many threads: their number decides the order of sums, and so the bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class InlinePool(Pool):
    """Computes in this process, when asked for the result."""

    def __init__(self, task: Task, method: Method, seed: int, device: torch.device | str, threads: int):
        keep_freed_memory()
        self._runner = RoundRunner(task, method, seed, device)
        self._device, self._threads = device, threads
        self._waiting: deque[tuple[int, Request]] = deque()

    @property
    def free(self) -> int:
        return 2  # enough for an evaluation and for the round that is needed next; nothing is computed ahead

    def submit(self, ticket: int, request: Request, urgent: bool = False) -> None:
        (self._waiting.appendleft if urgent else self._waiting.append)((ticket, request))

    def next(self) -> tuple[int, Result]:
        ticket, request = self._waiting.popleft()
        # Engines on real time evaluate on one thread, however many a worker has.
        with on_threads(self._threads if isinstance(request, RoundRequest) else 1):
            if isinstance(request, RoundRequest):
                home = request.assignment.params.device
                # A copy: a signal may end this round in the middle, and a checkpoint must hold the state before it.
                report, state = self._runner.run(
                    request.assignment.to(self._device), request.state.copy().to(self._device)
                )
                return ticket, Computed(report.to(home), state.to(home))
            assert isinstance(request.params, Tensor)
            assert not isinstance(request.buffers, bool)
            return ticket, self._runner.evaluate(request.params, request.buffers)

    def release(self, ticket: int) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class _Job:
    process: BaseProcess
    pipe: Connection
    running: int = 0  # requests sent and not answered


class ProcessPool(Pool):
    """Computes on `jobs` processes; each has one request in hand and one waiting, so that none idles."""

    def __init__(self, task: Task, method: Method, seed: int, device: torch.device | str, jobs: int, params: Tensor):
        # A forked job has the task and the slots at once, lambdas included. CUDA does not survive a fork.
        start_method = "fork" if hasattr(os, "fork") and torch.device(device).type == "cpu" else "spawn"
        context: Any = torch.multiprocessing.get_context(start_method)
        count = 2 * jobs + 2  # see RoundsAhead: two slots are not for work ahead
        shape = Shape.of(task, method, seed, params, keeps=True)
        self._slots = [Slot(shape) for _ in range(count)]
        self._free = deque(range(count))
        self._slot_of: dict[int, int] = {}
        self._queue: deque[tuple[int, int, Request]] = deque()
        self._jobs: list[_Job] = []
        for _ in range(jobs):
            ours, theirs = context.Pipe()
            others = [job.pipe for job in self._jobs] + [ours]
            arguments = (theirs, others, self._slots, task, method, seed, device)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            try:
                process.start()
            except (AttributeError, TypeError, OSError) as error:
                self.close()
                raise ConfigError(f"cannot start a job for this task ({error}): use jobs=1") from None
            theirs.close()
            self._jobs.append(_Job(process, ours))

    @property
    def free(self) -> int:
        return len(self._free)

    def submit(self, ticket: int, request: Request, urgent: bool = False) -> None:
        number = self._slot_of[ticket] = self._free.popleft()
        slot, light = self._slots[number], request
        if isinstance(request, RoundRequest):
            for name, vector in request.assignment.vectors.items():
                slot.assignment[name].copy_(vector)
            for name, vector in request.state.vectors.items():
                slot.kept[name].copy_(vector)
            if request.state.buffers is not None:
                slot.buffers.copy_(request.state.buffers)
            if slot.shape.optimizer:
                put(request.state.optimizer, slot.optimizer)
            light = RoundRequest(request.assignment.without_vectors(), WorkerState({}, request.state.numbers))
        else:
            assert isinstance(request.params, Tensor)
            slot.assignment["params"].copy_(request.params)
            if isinstance(request.buffers, Tensor):
                slot.buffers.copy_(request.buffers)
            light = EvaluationRequest(None, request.buffers is not None)
        (self._queue.appendleft if urgent else self._queue.append)((ticket, number, light))
        self._send()

    def _send(self) -> None:
        while self._queue:
            job = min(self._jobs, key=lambda job: job.running)
            if job.running >= 2:  # sent later, so that an urgent request can still go first
                return
            job.running += 1
            try:
                job.pipe.send(self._queue.popleft())
            except (BrokenPipeError, ConnectionResetError):
                raise _ended(job) from None

    def next(self) -> tuple[int, Result]:
        pipes = {job.pipe: job for job in self._jobs if job.running}
        ready = multiprocessing.connection.wait(list(pipes))
        job = pipes[ready[0]]  # type: ignore[index]
        try:
            ticket, failure, result = job.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise _ended(job) from None
        job.running -= 1
        self._send()
        if failure is not None:
            raise _raised(failure)
        if isinstance(result, Evaluation):
            self.release(ticket)
            return ticket, result
        return ticket, self._computed(ticket, result)

    def _computed(self, ticket: int, light: Computed) -> Computed:
        """A round's outcome with its vectors: the report's are in the slot until that is released."""
        slot = self._slots[self._slot_of[ticket]]
        buffers = slot.buffers.clone() if slot.shape.buffers else None  # kept longer than the slot
        kept = {name: vector.clone() for name, vector in slot.kept.items()}  # as are these
        optimizer = taken(slot.optimizer)
        optimizer = None if optimizer is None else optimizer.clone()
        state = WorkerState(kept, light.state.numbers, buffers if slot.shape.keeps_buffers else None, optimizer)
        return Computed(light.report.with_vectors(slot.report, buffers), state)

    def release(self, ticket: int) -> None:
        self._free.append(self._slot_of.pop(ticket))

    def close(self) -> None:
        for job in self._jobs:
            job.pipe.close()
            job.process.terminate()
        for job in self._jobs:
            job.process.join()
            job.process.close()
        self._jobs.clear()
        for slot in self._slots:
            slot.close()


def open_pool(
    task: Task,
    method: Method,
    seed: int,
    device: torch.device | str,
    jobs: int,
    params: Tensor,
    threads: int = 1,
) -> Pool:
    """A pool for this many jobs; one job, an accelerator, or several threads compute in this process.

    (Forked processes cannot have several threads where this one has used them.)
    """
    if jobs == 1 or threads > 1 or torch.device(device).type != "cpu":
        return InlinePool(task, method, seed, device, threads)
    return ProcessPool(task, method, seed, device, jobs, params)


def _ended(job: _Job) -> OrlomoError:
    job.process.join()
    code = job.process.exitcode
    cause = "out of memory?" if code is None or code < 0 else "does the task's code end the program, as sys.exit does?"
    return OrlomoError(f"a job ended unexpectedly (exit code {code}): {cause}")


def _raised(failure: tuple[BaseException | None, str]) -> BaseException:
    error, text = failure
    if isinstance(error, OrlomoError):
        return error
    wrapped = error if error is not None else RuntimeError("a job failed")
    wrapped.add_note(f"in a job of the simulated engine:\n{text}")
    return wrapped


def _serve(
    pipe: Connection,
    others: list[Connection],
    slots: list[Slot],
    task: Task,
    method: Method,
    seed: int,
    device: torch.device | str,
) -> None:
    """A job's main loop: requests in, results out, until the pipe closes or the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # inherited ends that would keep a dead parent's pipes open
        other.close()
    torch.set_num_threads(1)
    keep_freed_memory()
    runner: RoundRunner | None = None
    while True:
        try:
            ticket, number, request = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            runner = runner or RoundRunner(task, method, seed, device)
            result = _compute(runner, slots[number], request)
        except Exception as error:
            pipe.send((ticket, (_sendable(error), traceback.format_exc()), None))
            continue
        try:
            pipe.send((ticket, None, result))
        except (BrokenPipeError, ConnectionResetError):
            return


def _compute(runner: RoundRunner, slot: Slot, request: Request) -> Result:
    """Compute a request whose vectors are in the slot; those of a report are there afterwards."""
    if isinstance(request, EvaluationRequest):
        return runner.evaluate(slot.assignment["params"], slot.buffers if request.buffers else None)
    assignment = request.assignment.with_vectors(slot.assignment)
    buffers = slot.buffers if slot.shape.keeps_buffers else None
    kept = WorkerState(dict(slot.kept), request.state.numbers, buffers, taken(slot.optimizer))
    report, state = runner.run(assignment, kept, slot.report)
    if report.buffers is not None:
        slot.buffers.copy_(report.buffers)
    if slot.shape.optimizer:
        put(state.optimizer, slot.optimizer)
    return Computed(report.without_vectors(), WorkerState({}, state.numbers))


def _sendable(error: Exception) -> Exception | None:
    """The error itself, if it survives a pipe: some exceptions cannot be pickled, or not be made again."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return None
