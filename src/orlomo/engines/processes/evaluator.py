"""Evaluation in a process of its own, so that no worker waits for it."""

from __future__ import annotations

import dataclasses
from collections import deque
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import torch
from torch import Tensor

from orlomo.engines.processes.starter import Failed, PackedTask, Starter, end, failed, receive, send
from orlomo.engines.processes.worker import make_runner
from orlomo.engines.slots import Shape, Slot
from orlomo.errors import OrlomoError
from orlomo.tasks.evaluation import Evaluation

ATTEMPTS = 3
"""How often a process that ends without an answer is started again."""


class EvaluationFailed(OrlomoError):
    """The task's own code raised in an evaluation, or its process ends again and again."""

    def __init__(self, message: str, details: str = ""):
        super().__init__(message)
        self.details = details


class EvaluationProcess:
    """Evaluates parameters one after another. Started when it is first needed; use as a context manager."""

    def __init__(self, starter: Starter, packed_task: PackedTask, shape: Shape, device: str):
        self._packed_task, self._device = packed_task, device
        self._prepare(starter, Slot(dataclasses.replace(shape, assignment=("params",), report=(), kept=())))

    def _prepare(self, starter: Starter, slot: Slot) -> None:
        self._starter, self._slot = starter, slot
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._queue: deque[tuple[int, Tensor, Tensor | None]] = deque()  # the first is being evaluated
        self._results: dict[int, Evaluation] = {}
        self._serial = 0
        self._attempts = 0

    def __enter__(self) -> EvaluationProcess:
        return self

    def __exit__(self, *details: object) -> None:
        self._stop()
        self._slot.close()

    def evaluate(self, params: Tensor, buffers: Tensor | None) -> int:
        """Start an evaluation; `params` must not change. The ticket is for `evaluation`."""
        self._serial += 1
        self._queue.append((self._serial, params, buffers))
        if len(self._queue) == 1:
            self._send()
        return self._serial

    def evaluation(self, ticket: int, wait: bool) -> Evaluation | None:
        """The result; None if it is not there yet and `wait` is false."""
        while self._queue and self._pipe is not None and (self._pipe.poll() or (wait and ticket not in self._results)):
            self._receive()
        return self._results.pop(ticket, None)

    def _send(self) -> None:
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        _, params, buffers = self._queue[0]
        self._slot.assignment["params"].copy_(params)
        if buffers is not None:
            self._slot.buffers.copy_(buffers)
        # One evaluation at a time is in the process: the slot is free to be written whenever this is called.
        try:
            self._pipe.send(buffers is not None)
        except OSError:
            self._start_again()

    def _receive(self) -> None:
        assert self._pipe is not None
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._start_again()
            return
        result = self._answer(answer)
        if result is None:
            return
        self._attempts = 0
        self._results[self._queue.popleft()[0]] = result
        if self._queue:
            self._send()

    def _answer(self, message: object) -> Evaluation | None:
        """The result that a message is; None where it is none."""
        if isinstance(message, Failed):
            raise EvaluationFailed(f"evaluation failed: {message.error}", message.traceback)
        assert isinstance(message, Evaluation)
        return message

    def _start(self) -> None:
        self._process, self._pipe = self._starter.start(serve_evaluations, self._packed_task, self._device, self._slot)

    def _start_again(self) -> None:
        # The parameters are still first in the queue, so the new process evaluates the same ones.
        self._attempts += 1
        if self._attempts >= ATTEMPTS:
            raise EvaluationFailed(f"the evaluation process ended {self._attempts} times unasked: out of memory?")
        self._stop()
        self._send()

    def _stop(self) -> None:
        if self._process is not None and self._pipe is not None:
            end(self._process, self._pipe)
        self._process = self._pipe = None


def serve_evaluations(packed_task: PackedTask, device: str, slot: Slot, pipe: Connection) -> None:
    """The process's main loop."""
    torch.set_num_threads(1)  # the other cores are for the workers
    try:
        runner = make_runner(packed_task, device, slot.shape, trains=False)
        while True:
            has_buffers = receive(pipe, bool)
            send(pipe, runner.evaluate(slot.assignment["params"], slot.buffers if has_buffers else None))
    except Exception as error:
        send(pipe, failed(error))
