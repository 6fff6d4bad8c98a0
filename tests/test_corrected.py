"""What a PyTorch user might write and once went silently wrong: it is right now, or a warning says what to do.

One line per case: a check, given a folder for the run, that must be true.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import WeightedRandomSampler

import orlomo
import own_data as own
from orlomo.tasks.task import classification_loss
from stateful import Caching, Expanded, normed, queued, saved, steps, warnings
from user import INPUTS, LABELS, Mixed, Output, draws, evaluated, in_place, penalty, scored, task, train

Check = Callable[[Path], object]

SETTINGS: dict[str, Check] = {
    "whole-number epochs": lambda out: train(task(), out, epochs=2).finished,
}

DATA: dict[str, Check] = {
    "a list of pictures": lambda out: own.unlabelled(train_data=[torch.ones(3, 4, 4)] * 9).size == 9,
    "a list of vectors": lambda out: train(own.unlabelled(train_data=list(torch.randn(64, 4))), out).finished,
    "numpy columns": lambda out: train(task(train_data=(INPUTS.numpy(), LABELS.numpy())), out).finished,
    "a dict of tensors": lambda out: train(own.by_name(), out).finished,
    "a list of pairs": lambda out: train(task(train_data=list(zip(INPUTS, LABELS, strict=True))), out).finished,
    "samples of unequal size": lambda out: train(own.text(), out).metric_columns["test_accuracy"][-1] >= 0,
    "an IterableDataset with a length": lambda out: train(task(train_data=own.Numbers(64)), out).finished,
    "a stream without a length": lambda out: (
        train(own.unlabelled(train_data=orlomo.Stream(own.Endless(), samples=64)), out).finished
    ),
    "each worker its own": lambda out: [row["data"] for row in train(own.two_sites(), out).worker_data] == ["a", "b"],
    "drawn by weight": lambda out: train(task(sampler=WeightedRandomSampler([1.0] * 64, 64)), out).finished,
}

MODEL: dict[str, Check] = {
    "np.random in the loss": lambda out: len(set(draws(out, "numpy"))) >= 32,
    "random in the loss": lambda out: len(set(draws(out, "random"))) >= 32,
    "torch in the loss": lambda out: len(set(draws(out, "torch"))) >= 32,
    "a weight normed in place": lambda out: train(task(model=in_place), out).finished,
    "one logit, whole-number labels": lambda out: isnan(scored(lambda x: x[:, :1])),
    "one number, counts": lambda out: isnan(scored(lambda x: x[:, 0])),
    "labels that are no classes": lambda out: isnan(scored(lambda x: x, labels=LABELS + 7)),
    "two scores, two classes": lambda out: scored(lambda x: torch.stack([-x[:, 0], x[:, 0]], 1)) == 1.0,
    "left-out labels": lambda out: (
        scored(lambda x: torch.stack([-x[:, 0], x[:, 0]], 1), labels=LABELS.where(INPUTS[:, 1] > 0, -100)) == 1.0
    ),
    "scores per position": lambda out: (
        scored(lambda x: torch.stack([-x, x], 1), labels=(INPUTS > 0).long()) == 1.0  # [B, 2, 4] for [B, 4]
    ),
    "scores per position, classes last": lambda out: isnan(
        scored(lambda x: torch.stack([-x, x], 2), labels=(INPUTS > 0).long())
    ),
    "scores per position, either order": lambda out: isnan(
        scored(lambda x: torch.stack([-x[:, :2], x[:, :2]], 2), labels=(INPUTS[:, :2] > 0).long())
    ),
    "a group with a tensor as its rate": lambda out: (
        orlomo.Group("*", rate_factor=torch.tensor(0.5)).rate_factor == 0.5
    ),
    "a gradient in the loss": lambda out: train(task(loss=penalty), out).finished,
    "parameters of several dtypes": lambda out: train(task(model=Mixed), out).params.dtype is torch.float32,
    "autocast of the task": lambda out: train(task(autocast="bfloat16"), out).finished,
    "a batch as large as trained with": lambda out: evaluated() == {8},
    "a batch size for evaluations": lambda out: evaluated(evaluation_batch_size=16) == {16},
    "a plain loss": lambda out: evaluated(loss=classification_loss) == {64},
}

BUFFERS: dict[str, Check] = {
    "a counter without a policy": lambda out: "'steps'" in warnings(queued(), out),
    "one with a policy": lambda out: warnings(queued({"*": "keep"}), out) == warnings(queued("reset"), out / "2") == "",
    "BatchNorm needs none": lambda out: warnings(normed(), out) == warnings(normed("average"), out / "2") == "",
    "a counter among averages": lambda out: "'pointer', 'steps' are changed" in warnings(queued("average"), out),
    "the first pattern that fits": lambda out: steps(out, {"s*": "keep", "*": "reset"}) == 16,
    "kept": lambda out: steps(out, "keep") == 16,
    "reset": lambda out: steps(out, "reset") == 0,
    "a buffer made in forward": lambda out: "register it in __init__" in warnings(task(model=Caching), out),
    "an expanded buffer": lambda out: train(task(model=Expanded), out).finished,
    "frozen BatchNorm": lambda out: saved(train(normed({"1.*": "reset"}), out))["1.running_mean"].eq(0).all(),
}

LOSSES: dict[str, Check] = {
    "a loss in a dict": lambda out: train(task(loss=lambda m, b: {"loss": classification_loss(m, b)}), out).finished,
    "a loss in an output": lambda out: train(task(loss=lambda m, b: Output(classification_loss(m, b))), out).finished,
    "a loss of shape (1,)": lambda out: train(task(loss=lambda m, b: classification_loss(m, b)[None]), out).finished,
}


def longer(out: Path, **changes: object) -> orlomo.Run:
    """A finished run of two epochs, resumed with changes."""
    train(task(), out)
    return orlomo.resume(out, task=task(), jobs=1, **changes)  # type: ignore[arg-type]


LATER: dict[str, Check] = {
    "more epochs for a finished run": lambda out: longer(out, epochs=3).metrics["epoch"].max() >= 3,
    "numbers of numpy": lambda out: (
        longer(out, epochs=np.float32(3), learning_rate=np.float64(0.5)).changes[0].epochs == 3
    ),
    "the same epochs again": lambda out: longer(out, epochs=2).changes == (),
    "a change replays": lambda out: (
        orlomo.replay(longer(out, epochs=3, learning_rate=0.01).folder, task=task(), jobs=1).agrees
    ),
    "a lambda as schedule": lambda out: (
        train(task(), out, method=orlomo.OrLoMo(local_steps=2, schedule=lambda epoch: 0.5**epoch)).finished
    ),
    "the model is in evaluation mode": lambda out: not train(task(), out).model(task()).training,
}
"""Resuming with changes, schedules, models of finished runs."""

ALL = SETTINGS | DATA | MODEL | BUFFERS | LOSSES | LATER


@pytest.mark.parametrize("name", ALL)
def test_it_is_right(name: str, tmp_path: Path) -> None:
    assert ALL[name](tmp_path / "run")
