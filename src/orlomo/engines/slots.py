"""Shared memory between two processes. It has no name, so a killed run leaves nothing behind.

A slot holds the vectors of one round by their names: what is assigned, what is reported, what the worker keeps; the
worker's buffers where the task averages or keeps some, and the state of its optimizer. No vector is ever used for two
things, so that an assignment stays as it was sent until its report has been folded in.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from orlomo.engines.optimizer import state_bytes
from orlomo.methods.method import Method
from orlomo.tasks.buffers import RECALIBRATE, Buffers, Encoding
from orlomo.tasks.task import Task

if TYPE_CHECKING:
    from multiprocessing.resource_sharer import DupFd


@dataclass(frozen=True)
class Shape:
    """What a slot holds: the names of its vectors, their length and type, and the bytes of reported buffers."""

    parameters: int
    dtype: torch.dtype
    buffers: int = 0
    keeps_buffers: bool = False  # some are kept by the worker: its last report's come with an assignment
    assignment: tuple[str, ...] = ("params",)
    report: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    optimizer: int = 0  # bytes for the state of the task's optimizer, where that travels

    @classmethod
    def of(cls, task: Task, method: Method, seed: int, params: Tensor, keeps: bool = False) -> Shape:
        """For rounds of this task and method; `keeps`: with what a worker keeps, where that travels."""
        encoding = Encoding([]) if task.buffers == RECALIBRATE else Buffers(task.build(seed), task.buffers).encoding
        names = tuple(method.sent_vectors()), method.report_vectors, method.worker_vectors if keeps else ()
        state = state_bytes(task, method, seed) if keeps else 0
        return cls(params.numel(), params.dtype, encoding.bytes, keeps and encoding.keeps, *names, state)

    @property
    def vector_bytes(self) -> int:
        """Of all vectors; what comes after them is aligned for any type."""
        vectors = len(self.assignment) + len(self.report) + len(self.kept)
        return -(-vectors * self.parameters * self.dtype.itemsize // 64) * 64

    @property
    def bytes(self) -> int:
        """The slot's size."""
        return max(64, self.optimizer_begin + self.optimizer)

    @property
    def optimizer_begin(self) -> int:
        """Where the optimizer's state is: after the buffers, aligned."""
        return -(-(self.vector_bytes + self.buffers) // 64) * 64


class Slot:
    """The vectors of one round, as views of shared memory. Can be sent to a process that is being started."""

    def __init__(self, shape: Shape, whole: Tensor | None = None, handle: int | None = None):
        self.shape = shape
        self._handle = handle
        if whole is None and handle is None and hasattr(os, "memfd_create"):
            handle = self._handle = os.memfd_create("orlomo")
            os.ftruncate(handle, shape.bytes)
        if handle is not None:
            whole = torch.frombuffer(mmap.mmap(handle, shape.bytes), dtype=torch.uint8)
        elif whole is None:  # no such memory on this system: torch's own
            whole = torch.empty(shape.bytes, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
        self._whole = whole
        names = [*shape.assignment, *shape.report, *shape.kept]
        vectors = whole[: shape.vector_bytes].view(shape.dtype)[: len(names) * shape.parameters]
        # `.data`: each with a version counter of its own, by which a change of one is told from a change of another.
        parts = iter(part.data for part in vectors.view(len(names), shape.parameters).unbind())
        self.assignment = {name: next(parts) for name in shape.assignment}
        self.report = {name: next(parts) for name in shape.report}
        self.kept = {name: next(parts) for name in shape.kept}
        self.buffers = whole[shape.vector_bytes :][: shape.buffers]
        self.optimizer = whole[shape.optimizer_begin :][: shape.optimizer]

    def __reduce__(self) -> tuple[object, ...]:
        if self._handle is None:
            return Slot, (self.shape, self._whole)
        from multiprocessing.reduction import DupFd  # not on every system, nor is memfd

        return _attach, (self.shape, DupFd(self._handle))

    def pin(self) -> None:
        """Let a GPU copy to and from this memory directly; without that it goes through a buffer, more slowly."""
        torch.cuda.cudart().cudaHostRegister(self._whole.data_ptr(), self.shape.bytes, 0)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Give the memory back once the last view of it is gone."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _attach(shape: Shape, handle: DupFd) -> Slot:
    return Slot(shape, handle=handle.detach())
