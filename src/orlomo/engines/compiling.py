"""When to compile a model with torch.compile, and doing it.

Compiling a residual network takes about a minute and makes its steps a quarter to a half faster, so short runs are
better off without. Compiled arithmetic rounds differently: what was decided is part of a run's config.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import torch

from orlomo.tasks.task import Task

WORTH_STEPS = 1000
"""Local steps from which on compiling pays for itself."""


def decide(choice: str, task: Task, local_steps: int, device: str, warn: Callable[[str], None]) -> str:
    """`on` or `off` for this run: as asked for, or by whether the task gains from it and the run is long enough.

    >>> from orlomo.tasks.registry import task
    >>> decide("auto", task("digits"), 1_000_000, "cpu", print)
    'off'
    """
    if choice == "auto":
        choice = "on" if task.compile and task.buffers == "recalibrate" and local_steps >= WORTH_STEPS else "off"
    if choice == "on" and (problem := why_not(device)):
        warn(f"torch.compile does not work here ({problem}): training uncompiled, which is slower")
        return "off"
    return choice


@functools.cache
def why_not(device: str) -> str:
    """What keeps torch.compile from working here, found out by trying; empty where it works."""
    prepare()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's own, where a user makes warnings errors
            torch.compile(_probe)(torch.zeros(8, device=device))
    except Exception as error:  # whatever a missing or broken compiler raises
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ""


def _probe(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def prepare() -> None:
    """Compile in this process: the compiler's own pool of processes would outlive a job that is killed."""
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    inductor.compile_threads = 1
    # Beyond the limit a shape would run uncompiled, depending on what this process compiled before: other bits.
    dynamo.recompile_limit = dynamo.accumulated_recompile_limit = 10**6
