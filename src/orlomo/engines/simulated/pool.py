"""Where rounds are computed: in this process, or on several cores. The same bits either way.

Each job is a process with one thread of arithmetic. Vectors travel through shared-memory slots (two vectors each, used
for the way in and overwritten for the way out, and the buffers where the task averages them), a few numbers through a
pipe.
"""

from __future__ import annotations

import math
import mmap
import multiprocessing.connection
import os
import signal
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
import torch.multiprocessing
from torch import Tensor

from orlomo.engines.memory import keep_freed_memory
from orlomo.engines.round import RoundRunner
from orlomo.errors import ConfigError, OrlomoError
from orlomo.methods.messages import Assignment, Report
from orlomo.methods.method import Method
from orlomo.tasks.evaluation import Evaluation, read_buffers
from orlomo.tasks.task import Task


class EvaluationRequest(NamedTuple):
    """Parameters to evaluate, with averaged buffers where the task averages them."""

    params: Tensor
    buffers: Tensor | None


Request = Assignment | EvaluationRequest
Result = Report | Evaluation


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
        with on_threads(self._threads):
            if isinstance(request, Assignment):
                report = self._runner.run(request.to(self._device))
                return ticket, report.to(request.params.device)
            return ticket, self._runner.evaluate(request.params, request.buffers)

    def release(self, ticket: int) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class _Job:
    process: Any
    pipe: Connection
    running: int = 0  # requests sent and not answered


class ProcessPool(Pool):
    """Computes on `jobs` processes; each has one request in hand and one waiting, so that none idles."""

    def __init__(self, task: Task, method: Method, seed: int, device: torch.device | str, jobs: int, params: Tensor):
        start_method = "fork" if hasattr(os, "fork") and torch.device(device).type == "cpu" else "spawn"
        context: Any = torch.multiprocessing.get_context(start_method)
        count = 2 * jobs + 2  # see RoundsAhead: two places are not for work ahead
        shape = (count, 2, params.numel())
        self._slots = _shared(shape, params.dtype, start_method)
        like = read_buffers(task.build(seed)) if task.buffers == "average" else params.new_empty(0)
        self._buffers = _shared((count, like.numel()), like.dtype, start_method)
        self._free = deque(range(count))
        self._slot_of: dict[int, int] = {}
        self._queue: deque[tuple[int, int, dict[str, Any]]] = deque()
        self._jobs: list[_Job] = []
        for _ in range(jobs):
            ours, theirs = context.Pipe()
            others = [job.pipe for job in self._jobs] + [ours]
            arguments = (theirs, others, self._slots, self._buffers, task, method, seed, device)
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
        slot = self._slot_of[ticket] = self._free.popleft()
        vectors = self._slots[slot]
        vectors[0].copy_(request.params)
        if isinstance(request, Assignment):
            small: dict[str, Any] = {"worker": request.worker, "index": request.index, "round": request.round}
            small |= {"learning_rate": request.learning_rate, "local_steps": request.local_steps}
            if request.momentum is not None:
                vectors[1].copy_(request.momentum)
                small["momentum"] = True
        else:
            small = {"buffers": request.buffers is not None}
            if request.buffers is not None:
                self._buffers[slot].copy_(request.buffers)
        (self._queue.appendleft if urgent else self._queue.append)((ticket, slot, small))
        self._send()

    def _send(self) -> None:
        while self._queue:
            job = min(self._jobs, key=lambda job: job.running)
            if job.running >= 2:
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
            ticket, failure, small = job.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise _ended(job) from None
        job.running -= 1
        self._send()
        if failure is not None:
            raise _raised(failure)
        if isinstance(small, Evaluation):
            self.release(ticket)
            return ticket, small
        return ticket, self._report(ticket, small)

    def _report(self, ticket: int, small: dict[str, Any]) -> Report:
        slot = self._slot_of[ticket]
        vectors = self._slots[slot]
        momentum = vectors[1] if small.pop("momentum") else None
        buffers = self._buffers[slot].clone() if small.pop("buffers") else None  # kept longer than the slot
        return Report(delta_params=vectors[0], delta_momentum=momentum, buffers=buffers, **small)

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


def _shared(shape: tuple[int, ...], dtype: torch.dtype, start_method: str) -> Tensor:
    """Memory that the jobs see too. Forked jobs inherit it without a name that a killed run could leave behind."""
    if start_method == "fork":
        count = math.prod(shape)
        memory = mmap.mmap(-1, max(1, count) * dtype.itemsize)
        return torch.frombuffer(memory, dtype=dtype, count=max(1, count))[:count].view(shape)
    shared: Tensor = torch.empty(shape, dtype=dtype).share_memory_()  # type: ignore[no-untyped-call]
    return shared


def _ended(job: _Job) -> OrlomoError:
    job.process.join()
    return OrlomoError(f"a job ended unexpectedly (exit code {job.process.exitcode}): out of memory?")


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
    slots: Tensor,
    buffers: Tensor,
    task: Task,
    method: Method,
    seed: int,
    device: torch.device | str,
) -> None:
    """A job's life: requests in, results out, until the pipe closes or the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # inherited ends that would keep a dead parent's pipes open
        other.close()
    torch.set_num_threads(1)
    keep_freed_memory()
    runner: RoundRunner | None = None
    while True:
        try:
            ticket, slot, small = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            runner = runner or RoundRunner(task, method, seed, device)
            answer = _answer(runner, slots[slot], buffers[slot], small)
        except Exception as error:
            pipe.send((ticket, (_sendable(error), traceback.format_exc()), None))
            continue
        try:
            pipe.send((ticket, None, answer))
        except (BrokenPipeError, ConnectionResetError):
            return


def _answer(runner: RoundRunner, vectors: Tensor, buffers: Tensor, small: dict[str, Any]) -> Any:
    if "worker" not in small:
        return runner.evaluate(vectors[0], buffers if small["buffers"] else None)
    momentum = vectors[1] if small.pop("momentum", False) else None
    report = runner.run(Assignment(params=vectors[0], momentum=momentum, **small))
    vectors[0].copy_(report.delta_params)
    if report.delta_momentum is not None:
        vectors[1].copy_(report.delta_momentum)
    if report.buffers is not None:
        buffers.copy_(report.buffers)
    return {
        "worker": report.worker,
        "index": report.index,
        "round": report.round,
        "samples": report.samples,
        "loss": report.loss,
        "momentum": report.delta_momentum is not None,
        "buffers": report.buffers is not None,
    }


def _sendable(error: Exception) -> Exception | None:
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return None
