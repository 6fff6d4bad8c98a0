"""What a PyTorch user might write and once went silently wrong: it is right now, or a warning says what to do.

One line per case: a check, given a folder for the run, that must be true.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import WeightedRandomSampler

import orlomo
import own_data as own
from orlomo.config import RunConfig, from_table, read
from orlomo.tasks.task import classification_loss
from stateful import Caching, Expanded, normed, queued, saved, steps, warnings
from user import INPUTS, LABELS, Mixed, Output, OwnRate, draws, evaluated, in_place, penalty, scored, task, train

Check = Callable[[Path], object]


def reads_back(out: Path, **settings: Any) -> RunConfig:
    """The config of a run with these settings, which its config.toml has exactly."""
    run = train(task(), out, **settings)
    assert from_table(read(out / "config.toml")) == run.config
    return run.config


def config_of(**settings: Any) -> RunConfig:
    """A config of two workers with these settings."""
    return RunConfig(method=orlomo.OrLoMo(), cluster=orlomo.cluster("homogeneous"), workers=2, **settings)


def at_home(out: Path, check: Callable[[], object]) -> object:
    """The check's answer, where the home directory is the one that `out` is in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(out.parent))
        return check()


def train_and_go(out: Path) -> orlomo.Run:
    """A run that was given a folder below the working directory, seen from another directory."""
    out.parent.mkdir(exist_ok=True)
    with contextlib.chdir(out.parent):
        run = train(task(), Path(out.name))
    assert run.folder == out
    return run


def same(one: orlomo.Run, other: orlomo.Run) -> bool:
    return one.params.equal(other.params) and one.metric_rows == other.metric_rows and one.config == other.config


SETTINGS: dict[str, Check] = {
    "whole-number epochs": lambda out: train(task(), out, epochs=2).finished,
    "numbers of numpy": lambda out: reads_back(out, workers=np.int64(2), epochs=np.float32(1), seed=np.int64(3)),
    "numbers of torch": lambda out: reads_back(out, workers=torch.tensor(2), batch_size=torch.tensor(4)),
    "a hyperparameter of numpy": lambda out: reads_back(out, method=orlomo.ASGD(learning_rate=np.float32(0.1))),
    "a hyperparameter of torch": lambda out: reads_back(out, method=orlomo.ASGD(learning_rate=torch.tensor(0.1))),  # type: ignore[arg-type]
    "a torch.device": lambda out: reads_back(out, device=torch.device("cpu")).device == "cpu",
    "one device": lambda out: config_of(devices="cpu", engine="processes").devices == ("cpu",),
    "devices of torch": lambda out: (
        config_of(devices=[torch.device("cuda", 1)], engine="processes").devices == ("cuda:1",)
    ),
    "a pace of numpy": lambda out: config_of(pace=np.array([1, 2]), engine="processes").pace == (1.0, 2.0),
    "batch_size of numpy": lambda out: type(task(batch_size=np.int64(8)).batch_size) is int,
    "compile=False": lambda out: reads_back(out, compile=False).compile == "off",
    "no callbacks": lambda out: train(task(), out, callbacks=None).finished,
    "one callback": lambda out: train(task(), out, callbacks=orlomo.KeepBest("test_accuracy")).best is not None,
    "no metrics": lambda out: list(train(task(metrics=None), out).metric_rows[0])[-2:] == ["train_loss", "test_loss"],
    "a weight of torch": lambda out: train(task(), out, method=OwnRate(gives="tensor")).finished,
    "out below ~": lambda out: at_home(out, lambda: train(task(), Path("~/run")).folder == out),
    "load below ~": lambda out: at_home(out, lambda: train(task(), out) and orlomo.load("~/run").finished),
    "another directory after a relative out": lambda out: train_and_go(out).params.numel() > 0,
    "a pickled run": lambda out: same(pickle.loads(pickle.dumps(train(task(), out))), orlomo.load(out)),
    "a copied run": lambda out: same(copy.deepcopy(train(task(), out)), orlomo.load(out)),
    "a task's name as a path": lambda out: orlomo.task(Path("digits")).name == "digits",
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


def keeping() -> Any:
    kept: dict[str, list[float]] = {"loss": []}

    def loss(model: Any, batch: Any) -> torch.Tensor:
        found = classification_loss(model, batch)
        kept["loss"].append(found.item())
        return found

    return loss


def drawing() -> Any:
    g = np.random.default_rng(0)
    return lambda model, batch: classification_loss(model, batch) * (1 + g.random())


LONG = orlomo.OrLoMo(local_steps=500)
LOSSES: dict[str, Check] = {
    "S=500 with one epoch": lambda out: (
        "are 1 report; lower local_steps" in warnings(task(), out, epochs=1, method=LONG)
    ),
    "batch 64 of 10 samples": lambda out: (
        "64, but there are 10" in warnings(task(train_data=own.TEN), out, batch_size=64)
    ),
    "1,000 workers on 4 reports": lambda out: "996 workers never" in warnings(task(), out, workers=1000, epochs=1),
    "self.n += 1 in forward": lambda out: "workers are separate copies" in warnings(task(model=own.Counting), out),
    "losses.append in the loss": lambda out: "workers are separate copies" in warnings(task(loss=own.noted), out),
    "a list in a table of the loss": (
        lambda out: "the variable kept of loss at 'loss' changes" in warnings(task(loss=keeping()), out)
    ),
    "a generator in the loss": lambda out: "loss is a generator" in warnings(task(loss=drawing()), out),
    "few samples of one worker": (
        lambda out: "a worker has 24 training samples" in warnings(own.two_sites(batch_size=32), out)
    ),
    "a loss in a dict": lambda out: train(task(loss=lambda m, b: {"loss": classification_loss(m, b)}), out).finished,
    "a loss in an output": lambda out: train(task(loss=lambda m, b: Output(classification_loss(m, b))), out).finished,
    "a loss of shape (1,)": lambda out: train(task(loss=lambda m, b: classification_loss(m, b)[None]), out).finished,
}


def longer(out: Path, **changes: object) -> orlomo.Run:
    """A finished run of two epochs, resumed with changes."""
    train(task(), out)
    return orlomo.resume(out, task=task(), jobs=1, **changes)  # type: ignore[arg-type]


def made_of(out: Path) -> bool:
    """Whether the weights that the user's function begins with are as they were after `run.model`."""
    weight = torch.ones(2, 4)
    before = weight.clone()

    def model() -> torch.nn.Module:
        made = torch.nn.Linear(4, 2)
        made.weight.data = weight
        return made

    run = train(task(model=model), out)
    return not run.model(model).weight.equal(weight) and weight.equal(before)  # type: ignore[operator]


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
    "what a model is made of stays": lambda out: made_of(out),
    "the model is in evaluation mode": lambda out: not train(task(), out).model(task()).training,
}
"""Resuming with changes, schedules, models of finished runs."""

SECTIONS = {"settings": SETTINGS, "data": DATA, "model": MODEL, "buffers": BUFFERS, "loss": LOSSES, "later": LATER}
ALL = {f"{section}: {name}": case for section, cases in SECTIONS.items() for name, case in cases.items()}


@pytest.mark.parametrize("name", ALL)
def test_it_is_right(name: str, tmp_path: Path) -> None:
    assert ALL[name](tmp_path / "run")
