"""Small tasks, and a recorder that keeps everything in memory."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orlomo
from orlomo.commands import main as cli
from orlomo.commands.parser import Parser
from orlomo.methods.registry import METHODS
from orlomo.tasks.task import classification_loss

OWN_METHOD = f"{Path(__file__).parents[1] / 'examples' / 'own_method.py'}:Smoothed"
NAMES = [*sorted(METHODS), "own"]
"""Every method there is, and a user's own."""


def call_cli(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """`orlomo ...` in this process, which has loaded torch already, as if called in that folder."""
    words = list(map(str, arguments))
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = cli.main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def run_cli(
    *arguments: object, folder: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`orlomo ...` in a process of its own, as a user runs it."""
    with started(*arguments, folder=folder, env={**os.environ, **(environment or {})}) as process:
        output, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def command_parsers() -> dict[str, Parser]:
    """The parser of each command, by name."""
    [commands] = (action for action in cli.parser()._actions if action.dest == "command")
    return dict(commands.choices or {})  # type: ignore[call-overload]


@contextmanager
def started(*arguments: object, folder: Path | None = None, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """`orlomo ...` in a process of its own that runs beside the test and ends with it."""
    command = [sys.executable, "-m", "orlomo", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, **pipes, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 240.0) -> None:
    """Until it is so; the process must live to see it."""
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A real file system of that size; the test is skipped where none may be mounted."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def settings(name: str, **more: Any) -> orlomo.Method:
    """A method with two local steps, or one where that is all it takes; a small buffer where it has one."""
    own = {} if name in ("asgd", "ormo-da") else {"local_steps": 2}
    own |= {"every": 2} if name == "fedbuff" else {}
    return orlomo.method(str(OWN_METHOD) if name == "own" else name, **own, **more)


def classification(model: Any = None, samples: int = 96, **fields: Any) -> orlomo.Task:
    """Two noisy classes in four dimensions."""
    source = torch.Generator().manual_seed(7)
    labels = torch.arange(samples) % 2
    inputs = torch.randn(samples, 4, generator=source) + 2.0 * labels[:, None]
    values: dict[str, Any] = {
        "model": model or (lambda: nn.Linear(4, 2)),
        "loss": classification_loss,
        "train_data": (inputs[:-32], labels[:-32]),
        "test_data": (inputs[-32:], labels[-32:]),
        "batch_size": 8,
    }
    return orlomo.Task(**{**values, **fields})


@dataclass
class Memory:
    """A recorder that writes nothing."""

    events: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    saved: list[tuple[int, dict[str, Tensor], dict[str, Any]]] = field(default_factory=list)
    due: bool = False

    def event(self, row: dict[str, Any]) -> None:
        self.events.append(row)

    def metric(self, row: dict[str, Any]) -> None:
        self.metrics.append(row)

    def save(self, position: int, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        self.saved.append((position, {name: t.clone() for name, t in tensors.items()}, values))
