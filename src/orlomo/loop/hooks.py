"""Counting the steps of a user's optimizer with hooks: what others do to its `step` method does not matter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from orlomo.errors import ConfigError

WRAPPED = ("optimizer", "_optimizer", "optim")
"""Where the optimizers of accelerate, Lightning and others keep the one that they wrap."""

HOOKED_STEP = Optimizer.profile_hook_step(lambda optimizer: None).__code__
"""The code in which torch calls hooks around a `step`."""


def unwrapped(given: object) -> list[Optimizer]:
    """An optimizer and those inside it, the innermost last: a real one.

    >>> sgd = torch.optim.SGD([torch.zeros(2)], lr=0.1)
    >>> unwrapped(sgd) == [sgd]
    True
    """
    chain: list[Any] = [given]
    while inner := [found for name in WRAPPED if _is_optimizer(found := getattr(chain[-1], name, None))]:
        if inner[0] in chain:
            break
        chain.append(inner[0])
    if not (isinstance(chain[-1], Optimizer) and _has_hooks(chain[-1])):
        what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
        raise ConfigError(f"optimizer must be a torch.optim.Optimizer, or a wrapper of one, not {what}")
    return chain


def _is_optimizer(found: object) -> bool:
    return isinstance(found, Optimizer) or any(isinstance(getattr(found, name, None), Optimizer) for name in WRAPPED)


def _has_hooks(optimizer: object) -> bool:
    """Whether torch calls hooks in its `step`; wrappers often derive from Optimizer without its `__init__`."""
    table = "_optimizer_step_post_hooks" in getattr(optimizer, "__dict__", {})
    return table and hasattr(getattr(type(optimizer), "step", None), "hooked")


class CountedSteps:
    """The steps that one optimizer has made. `after` is called at the end of each, when nothing of it is to come.

    `before` is called at the beginning of each; what it raises prevents the step.

    A step that a GradScaler skips is none. Steps of compiled functions are seen like others.

    >>> weight = torch.ones(1, requires_grad=True)
    >>> sgd = torch.optim.SGD([weight], lr=0.1)
    >>> counted = CountedSteps(sgd, after=lambda: print("made a step"))
    >>> sgd.step()
    made a step
    >>> counted.steps
    1
    """

    def __init__(self, given: object, after: Callable[[], None], before: Callable[[], None] = lambda: None):
        chain = unwrapped(given)
        self.optimizer = chain[-1]
        self.steps = 0
        self._before, self._after = before, after
        self._depth = 0
        self._overflow = False
        # Compiled, a counter would be a constant of the graph, and what `after` does be traced.
        begin, end = (torch.compiler.disable(hook) for hook in (self._begin, self._end))  # type: ignore[no-untyped-call]
        self._handles: list[RemovableHandle] = []
        for one in chain:
            if _has_hooks(one):
                self._handles += [one.register_step_pre_hook(begin), one.register_step_post_hook(end)]

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _begin(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        # A `step` that calls its parent's is seen within itself. One that raised an error was never seen to end.
        if self._depth and not _within_a_step():
            self._depth = 0
        if not self._depth:
            self._before()
            self._overflow = False
        self._depth += 1

    def _end(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._depth -= 1
        # A GradScaler leaves it to fused optimizers to skip the step; others it does not call at all.
        found = getattr(optimizer, "found_inf", None)
        if found is not None and found.item():
            self._overflow = True
        if self._depth <= 0:
            self._depth = 0
            if not self._overflow:
                self.steps += 1
                self._after()


def _within_a_step() -> bool:
    """Whether the step that calls this hook is called by another one."""
    frame: FrameType | None = sys._getframe(1)
    steps = 0
    while frame is not None and steps < 2:
        code = frame.f_code
        # By name, since a compiled function continues in parts of itself: torch_dynamo_resume_in_wrapper_at_520.
        steps += code.co_filename == HOOKED_STEP.co_filename and HOOKED_STEP.co_name in code.co_name
        frame = frame.f_back
    return steps > 1
