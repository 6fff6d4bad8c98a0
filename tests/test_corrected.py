"""What a PyTorch user might write and once went silently wrong: it is right now, or a warning says what to do.

One line per case: a check, given a folder for the run, that must be true.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orlomo.tasks.task import classification_loss as cross_entropy
from user import Output, task, train

Check = Callable[[Path], object]

SETTINGS: dict[str, Check] = {
    "whole-number epochs": lambda out: train(task(), out, epochs=2).finished,
}

DATA: dict[str, Check] = {}

MODEL: dict[str, Check] = {}

BUFFERS: dict[str, Check] = {}

LOSSES: dict[str, Check] = {
    "a loss in a dict": lambda out: train(task(loss=lambda m, b: {"loss": cross_entropy(m, b)}), out).finished,
    "a loss in an output": lambda out: train(task(loss=lambda m, b: Output(cross_entropy(m, b))), out).finished,
    "a loss of shape (1,)": lambda out: train(task(loss=lambda m, b: cross_entropy(m, b)[None]), out).finished,
}

LATER: dict[str, Check] = {}
"""Resuming with changes, schedules, models of finished runs."""

ALL = SETTINGS | DATA | MODEL | BUFFERS | LOSSES | LATER


@pytest.mark.parametrize("name", ALL)
def test_it_is_right(name: str, tmp_path: Path) -> None:
    assert ALL[name](tmp_path / "run")
