"""Shared memory between the server and one worker. It has no name, so a killed run leaves nothing behind.

A slot holds three vectors: `params` (w, written by the server, left as it is by the worker), `momentum` and `delta`
(the worker's report, computed in place), and the worker's buffers where the task averages them.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shape:
    """What a slot holds: the model's parameters and its averaged buffers, as counts of elements of one type."""

    parameters: int
    buffers: int
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """The slot's size."""
        return max(1, 3 * self.parameters + self.buffers) * self.dtype.itemsize


class Slot:
    """The vectors of one worker, as views of shared memory. Can be sent to a process that is being started."""

    def __init__(self, shape: Shape, whole: Tensor | None = None, handle: int | None = None):
        self.shape = shape
        self._handle = handle
        if whole is None and handle is None and hasattr(os, "memfd_create"):
            handle = self._handle = os.memfd_create("orlomo")
            os.ftruncate(handle, shape.bytes)
        if handle is not None:
            whole = torch.frombuffer(mmap.mmap(handle, shape.bytes), dtype=shape.dtype)
        elif whole is None:  # no such memory on this system: torch's own
            whole = torch.empty(shape.bytes // shape.dtype.itemsize, dtype=shape.dtype).share_memory_()  # type: ignore[no-untyped-call]
        self._whole = whole
        sizes = [shape.parameters] * 3 + [shape.buffers]
        ends = [sum(sizes[: place + 1]) for place in range(4)]
        self.params, self.momentum, self.delta, self.buffers = (
            whole[end - size : end] for end, size in zip(ends, sizes, strict=True)
        )

    def __reduce__(self) -> Any:
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


def _attach(shape: Shape, handle: Any) -> Slot:
    return Slot(shape, handle=handle.detach())
