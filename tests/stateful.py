"""Models with state of their own, as users write them: queues, counters, teachers, caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import orlomo
from user import task, train


def queued(buffers: Any = "recalibrate") -> orlomo.Task:
    return task(model=Queued, buffers=buffers)


def normed(buffers: Any = "recalibrate") -> orlomo.Task:
    return task(model=lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), buffers=buffers)


def saved(run: orlomo.Run) -> dict[str, Tensor]:
    return load_file(run.folder / "model.safetensors")


def steps(out: Path, buffers: Any) -> int:
    """What the saved model of one worker has counted."""
    return int(saved(train(queued(buffers), out, workers=1))["steps"])


def warnings(given: orlomo.Task, out: Path, **settings: Any) -> str:
    """What a run says when it starts."""
    said: list[str] = []
    train(given, out, warn=said.append, **settings)
    return "; ".join(said)


class Queued(nn.Module):
    """Compares each batch with a queue of earlier ones, as MoCo does, and counts its training steps."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))
        self.register_buffer("queue", torch.zeros(8, 4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x - 0.1 * self.queue.mean(0))
        if self.training:
            self.queue[self.pointer] = x.detach().mean(0)
            self.pointer = (self.pointer + 1) % 8
            self.steps += 1
        return out


class Taught(nn.Module):
    """Has a frozen teacher, a moving average of the student."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(4, 2), nn.Linear(4, 2).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                for own, other in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                    own.data = 0.9 * own.data + 0.1 * other.data
        out: Tensor = self.student(x) - 0.1 * self.teacher(x)
        return out


class Growing(nn.Linear):
    """Remembers every batch."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.register_buffer("seen", torch.zeros(0, 4))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = torch.cat([self.seen, x])
        return super().forward(x)


class Caching(nn.Linear):
    """Makes a buffer when it is first called."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "first"):
            self.register_buffer("first", x.detach().mean(0))
        return super().forward(x * self.scale - self.first)


class Lazy(nn.Linear):
    """Has a buffer without a value until it is first called."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.register_buffer("first", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.first is None:
            self.first = x.detach().mean(0)
        return super().forward(x - self.first)


class Expanded(nn.Linear):
    """Has a buffer whose elements share their memory."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.register_buffer("scale", torch.ones(1).expand(4))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * self.scale)
