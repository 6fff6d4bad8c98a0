"""A task whose workers fail on request, for real: a test asks for a fault by a file named after the worker's pid.

    request(folder, pid, "raise")   the next local step of that process raises
    request(folder, pid, "nan")     ... has a gradient that is not finite
    request(folder, pid, "eof")     ... raises EOFError, as reading a file that was cut off does
    request(folder, pid, "hang")    ... never ends
    every_process(folder, "raise")  every local step of every process does so from now on
    slow_start(folder)              the next process to start takes half a second longer
    bad_starts(folder, 4)           the next four processes to start raise

`trainers(folder)` are the processes that have taken a local step.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import orlomo
from orlomo.tasks.data import Batch
from orlomo.tasks.task import classification_loss


def task(
    folder: Path, samples: int = 640, layer: Callable[[], nn.Module] = nn.ReLU, pause: float = 0.0, **more: Any
) -> orlomo.Task:
    """Four classes in eight dimensions; can be sent to other processes. `pause`: seconds of a local step on Ray."""
    folder.mkdir(parents=True, exist_ok=True)
    source = torch.Generator().manual_seed(7)
    centres = 3.0 * torch.randn(4, 8, generator=source)
    labels = torch.arange(samples + 160) % 4
    inputs = centres[labels] + torch.randn(samples + 160, 8, generator=source)
    return orlomo.Task(
        model=functools.partial(make_model, folder, layer),
        loss=functools.partial(loss, folder, pause),
        train_data=(inputs[:samples], labels[:samples]),
        test_data=(inputs[samples:], labels[samples:]),
        batch_size=8,
        **more,
    )


def make_model(folder: Path, layer: Callable[[], nn.Module]) -> nn.Module:
    if took(folder / "slow-start"):
        time.sleep(0.5)
    if any(took(path) for path in folder.glob("bad-start-*")):
        raise RuntimeError("this process was made not to start")
    return nn.Sequential(nn.Linear(8, 16), layer(), nn.Linear(16, 4))


def loss(folder: Path, pause: float, model: nn.Module, batch: Batch) -> Tensor:
    if not torch.is_grad_enabled():  # an evaluation
        (folder / f"evaluated-{os.getpid()}").touch()
        return classification_loss(model, batch)
    mark = folder / f"trainer-{os.getpid()}"
    if not mark.exists():
        mark.touch()
    if pause and "RAY_RAYLET_PID" in os.environ:  # a replay need not take its time
        time.sleep(pause)
    return fail(folder, classification_loss(model, batch))


def fail(folder: Path, value: Tensor) -> Tensor:
    for kind in ("raise", "nan", "eof", "hang"):
        if took(folder / f"{kind}-{os.getpid()}") or (folder / f"{kind}-every-process").exists():
            if kind == "raise":
                raise ValueError("this worker was made to fail")
            if kind == "eof":
                raise EOFError("Ran out of input")
            if kind == "hang":
                time.sleep(3600)
            return value * float("nan")
    return value


def took(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def request(folder: Path, pid: int, kind: str) -> None:
    (folder / f"{kind}-{pid}").touch()


def every_process(folder: Path, kind: str) -> None:
    (folder / f"{kind}-every-process").touch()


def slow_start(folder: Path) -> None:
    (folder / "slow-start").touch()


def bad_starts(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"bad-start-{number}").touch()


def trainers(folder: Path) -> list[int]:
    """The pids of those alive; a replay in this process is none of them."""
    pids = [int(path.name.removeprefix("trainer-")) for path in folder.glob("trainer-*")]
    return sorted(pid for pid in pids if alive(pid) and pid != os.getpid())


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def descendants(pid: int) -> list[int]:
    """Every process that `pid` has started, directly or not."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *descendants(child)]
    return found


def gone_within(seconds: float, family: list[int]) -> bool:
    """Whether all of them have ended by then."""
    until = time.monotonic() + seconds
    while any(map(alive, family)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(alive, family))
