"""What a PyTorch user might write and we cannot run: one line that says what to do, and nothing left behind.

One line per case: what is tried, given a folder for the run, and a part of the message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import orlomo
import own_data as own
from orlomo import Group
from refused_calls import CALLS
from small import OWN_METHOD
from stateful import Growing, Taught, normed, queued
from user import (
    INPUTS,
    LABELS,
    MADE,
    Late,
    Mixed,
    OwnRate,
    Renewed,
    Replaced,
    Said,
    Sparse,
    Unfrozen,
    penalty,
    scaled_loss,
    second_run,
    task,
    train,
    within,
)

Tried = Callable[[Path], object]

NAN, INF = float("nan"), float("inf")


def setting(name: str, value: object, **more: object) -> Tried:
    """A run with this setting of `orlomo.train`."""
    return lambda out: train(task(), **{"out": out, name: value, **more})  # type: ignore[arg-type]


def hyperparameter(name: str, value: object) -> Tried:
    """A run with this hyperparameter of the method."""
    return lambda out: train(task(), out, method=orlomo.OrLoMo(**{name: value}))  # type: ignore[arg-type]


SETTINGS: dict[str, tuple[Tried, str]] = {
    "batch_size=0": (setting("batch_size", 0), "batch_size must be at least 1"),
    "batch_size=True": (setting("batch_size", True), "batch_size must be a whole number, not True"),
    "batch_size=True of a task": (lambda out: task(batch_size=True), "batch_size must be a whole number, not True"),
    "batch_size='8' of a task": (lambda out: task(batch_size="8"), "batch_size must be a whole number, not '8'"),
    "sampling=None": (lambda out: task(sampling=None), "sampling must be a text, not None"),
    "facts=3": (lambda out: task(facts=3), "facts must be a table"),
    "workers='4'": (setting("workers", "4"), "workers must be a whole number, not '4'"),
    "workers=2.5": (setting("workers", 2.5), "workers must be a whole number, not 2.5"),
    "workers=None": (setting("workers", None), "workers must be a whole number, not None"),
    "workers, one number in a list": (setting("workers", torch.tensor([2])), "workers must be a whole number, not [2]"),
    "epochs='2'": (setting("epochs", "2"), "epochs must be a number, not '2'"),
    "epochs=None": (setting("epochs", None), "epochs must be a number, not None"),
    "epochs=nan": (setting("epochs", NAN), "epochs must be a number, not nan"),
    "epochs=inf": (setting("epochs", INF), "epochs must be above 0 and finite, not inf"),
    "epochs=10**400": (setting("epochs", 10**400), "epochs is larger than any float"),
    "seed=1.5": (setting("seed", 1.5), "seed must be a whole number, not 1.5"),
    "seed=-1": (setting("seed", -1), "seed must be 0 or more, not -1"),
    "samples=1.5": (setting("samples", 1.5), "samples must be a whole number, not 1.5"),
    "held_out='x'": (setting("held_out", "x"), "held_out must be a number, not 'x'"),
    "evaluate_every=None": (setting("evaluate_every", None), "evaluate_every must be a number"),
    "checkpoint_seconds=-1": (setting("checkpoint_seconds", -1), "checkpoint_seconds must be 0 or more"),
    "compile=None": (setting("compile", None), "compile must be a text, not None"),
    "engine=None": (setting("engine", None), "engine must be a text, not None"),
    "cluster=3": (setting("cluster", 3), "cluster must be an orlomo.Cluster, a preset's name or a table, not 3"),
    "device=0": (setting("device", 0), "device must be a text, not 0"),
    "devices=3": (setting("devices", 3, engine="processes"), "devices must be a list of names, not 3"),
    "pace=2": (setting("pace", 2, engine="processes"), "pace must be a list of numbers, not 2"),
    "pace with a NaN": (setting("pace", [1, NAN], engine="processes"), "pace must be a number, not nan"),
    "threads='2'": (setting("threads", "2", engine="processes"), "threads must be a whole number, not '2'"),
    "labels='zone'": (setting("labels", "zone", engine="ray"), "labels must be a table"),
    "a label that is a number": (setting("labels", {"a": 1}, engine="ray"), "labels a must be a text, not 1"),
    "resources with a text": (setting("resources", {"GPU": "x"}, engine="ray"), "resources GPU must be a number"),
    "ray='auto'": (setting("ray", "auto"), "ray must be an orlomo.RayOptions, as in orlomo.RayOptions(address='auto')"),
    "jobs='2'": (setting("jobs", "2"), "jobs must be a whole number, not '2'"),
    "tensorboard='yes'": (setting("tensorboard", "yes"), "tensorboard must be true or false, not 'yes'"),
    "out=3": (setting("out", 3), "out must be the name of a folder or file, not 3"),
    "out=''": (setting("out", ""), "out is empty"),
    "callbacks=3": (setting("callbacks", 3), "callbacks must be objects of subclasses of orlomo.Callback, in a list"),
    "a callback's class": (setting("callbacks", [orlomo.KeepBest]), "callbacks must be objects of subclasses"),
    "warn=None": (setting("warn", None), "warn must be a function of a text"),
    "metrics='accuracy'": (lambda out: task(metrics="accuracy"), "metrics must be a list"),
    "patience='3'": (lambda out: orlomo.EarlyStopping("a", patience="3"), "patience must be a whole number"),  # type: ignore[arg-type]
    "learning_rate='0.1'": (hyperparameter("learning_rate", "0.1"), "learning_rate must be a number, not '0.1'"),
    "learning_rate=None": (hyperparameter("learning_rate", None), "learning_rate must be a number, not None"),
    "local_steps=2.5": (hyperparameter("local_steps", 2.5), "local_steps must be a whole number, not 2.5"),
    "local_steps=True": (hyperparameter("local_steps", True), "local_steps must be a whole number, not True"),
    "momentum=nan": (hyperparameter("momentum", NAN), "momentum must be a number, not nan"),
    "weight_decay=inf": (hyperparameter("weight_decay", INF), "weight_decay must be 0 or more, and finite, not inf"),
    "clip_norm='1'": (hyperparameter("clip_norm", "1"), "clip_norm must be a number, not '1'"),
    "schedule=3": (hyperparameter("schedule", 3), "schedule must be"),
    "step:-5": (hyperparameter("schedule", "step:-5"), "a drop's epoch must be above 0, not -5"),
    "step:80,40": (hyperparameter("schedule", "step:80,40"), "the epochs of drops must rise"),
    "step:1@0": (hyperparameter("schedule", "step:1@0"), "the drop factor must be above 0"),
    "cosine:-1": (hyperparameter("schedule", "cosine:-1"), "the cosine's last epoch must be above 0"),
    "warmup_epochs=nan": (hyperparameter("warmup_epochs", NAN), "warmup_epochs must be a number"),
    "warmup_epochs=inf": (hyperparameter("warmup_epochs", INF), "warmup_epochs must be 0 or more, and finite"),
    "global_rate=0.5": (hyperparameter("global_rate", 0.5), "global_rate must be a text, not 0.5"),
    "global_rate constant:-1": (hyperparameter("global_rate", "constant:-1"), "global rate must be above 0"),
    "lr for learning_rate": (lambda out: orlomo.method("orlomo", lr=0.1), "did you mean 'learning_rate'?"),
    "a server_rate without end": (lambda out: orlomo.method("fedbuff", server_rate=INF), "server_rate must be above 0"),
    "eta() gives None": (
        lambda out: train(task(), out, method=OwnRate(gives="none")),
        "OwnRate: what eta(...) returns",
    ),
    "eta() gives NaN": (lambda out: train(task(), out, method=OwnRate(gives="nan")), "must be a number, not nan"),
    "weight() gives a text": (
        lambda out: train(task(), out, method=OwnRate(weighs="text")),
        "what weight(...) returns",
    ),
    "rate() gives None": (
        lambda out: train(task(), out, method=OwnRate(speed="none")),
        "OwnRate: what rate(...) returns",
    ),
    "a method's class": (setting("method", orlomo.OrLoMo), "give an object of it, as in OrLoMo()"),
    "no method": (setting("method", None), "method is None: give an object of a method"),
    "a method as a table": (setting("method", {"lr": 0.1}), "as in orlomo.method('orlomo', learning_rate=0.1)"),
    "a method as a function": (setting("method", lambda: 3), "method is a function: give an object of a method"),
    "an optimizer": (setting("method", torch.optim.SGD([torch.ones(1)], lr=1)), "method is the optimizer SGD"),
    "an optimizer's class": (setting("method", torch.optim.Adam), "method is the optimizer Adam"),
    "a model as task": (lambda out: orlomo.train(torch.nn.Linear(1, 1), out=out), "task is the model Linear"),  # type: ignore[arg-type]
    "a function as task": (lambda out: orlomo.train(lambda: task(), out=out), "call it"),  # type: ignore[arg-type]
    "no task": (lambda out: orlomo.train(None, out=out), "task must be orlomo.Task("),  # type: ignore[arg-type]
    "a task's class": (lambda out: orlomo.train(orlomo.Task, out=out), "task is the class Task: give an object"),  # type: ignore[arg-type]
    "task(None)": (lambda out: orlomo.task(None), "a task is given by its name"),  # type: ignore[arg-type]
    "method(None)": (lambda out: orlomo.method(None), "a method is given by its name"),  # type: ignore[arg-type]
    "load(None)": (lambda out: orlomo.load(None), "the run's folder must be the name of a folder"),  # type: ignore[arg-type]
    "load of a file": (lambda out: orlomo.load(__file__), "is a file: give the run's folder"),
    "replay of no folder": (lambda out: orlomo.replay(out), "there is no such folder"),
    "trace with workers='4'": (lambda out: orlomo.trace(workers="4", iterations=1), "workers must be a whole number"),  # type: ignore[arg-type]
    "a cluster's speed as text": (lambda out: orlomo.Speed(factor="2"), "factor must be a number, not '2'"),  # type: ignore[arg-type]
    "one speed without a list": (lambda out: orlomo.Cluster(speeds=orlomo.Speed()), "speeds must be a list"),  # type: ignore[arg-type]
}

DATA: dict[str, tuple[Tried, str]] = {
    "an empty data set": (lambda out: train(task(train_data=[]), out), "train_data is empty"),
    "no data": (lambda out: task(train_data=None), "not NoneType"),
    "a file's name": (lambda out: task(train_data="data.csv"), "a text, 'data.csv': load the data"),
    "a DataLoader": (lambda out: task(train_data=own.LOADER), "give its data set (loader.dataset)"),
    "a DataFrame": (
        lambda out: task(train_data=pytest.importorskip("pandas").DataFrame()),
        "a DataFrame: give tensors",
    ),
    "an iterator": (lambda out: task(train_data=iter([1, 2])), "which can be read only once"),
    "columns in a list": (lambda out: task(train_data=[INPUTS, LABELS]), "for columns give a tuple"),
    "a list of shards": (lambda out: task(train_data=own.SHARDS), "orlomo.PerWorker gives each worker its own"),
    "columns of other lengths": (lambda out: task(train_data=(INPUTS, LABELS[:9])), "tensors of [64, 9] samples"),
    "a dict of lists": (lambda out: task(train_data={"x": [1], "y": [2]}), "all of its values must be tensors"),
    "one number": (lambda out: task(train_data=torch.tensor(3.0)), "is a single number"),
    "an array of texts": (lambda out: task(train_data=np.array(["a", "b"])), "which torch has no type for"),
    "a data set without a length": (lambda out: task(train_data=own.Unsized()), "must be tensors or a map-style"),
    "a stream without a length": (lambda out: task(train_data=own.Endless()), "give Stream(data, samples=...)"),
    "a stream of no samples": (lambda out: orlomo.Stream(own.Endless(), samples=0), "a whole number of at least 1"),
    "a stream to test on": (lambda out: task(test_data=own.Numbers(9)), "give a map-style data set"),
    "a stream with replacement": (
        lambda out: task(train_data=own.Numbers(9), sampling="replacement"),
        "leave sampling",
    ),
    "a stream of an open file": (lambda out: train(own.unlabelled(train_data=own.Open()), out), "cannot be copied for"),
    "each its own, to test on": (lambda out: task(test_data=orlomo.PerWorker([INPUTS])), "cannot be PerWorker"),
    "each its own, of none": (lambda out: orlomo.PerWorker([]), "PerWorker needs a list of data sets"),
    "each its own, some held out": (
        lambda out: train(task(train_data=orlomo.PerWorker([own.COLUMNS])), out, held_out=0.1),
        "samples and held_out need one data set",
    ),
    "samples of unequal size": (lambda out: train(task(train_data=own.RAGGED), out), "give Task(collate=...)"),
    "collate=3": (lambda out: task(collate=3), "collate must be a function"),
    "a batch sampler": (lambda out: task(sampler=own.BATCHED), "give one that draws samples"),
    "a distributed sampler": (lambda out: task(sampler=own.DISTRIBUTED), "each worker has an order of its own"),
    "a sampler with a generator": (lambda out: task(sampler=own.SEEDED), "so that the run's seed decides"),
    "a sampler beyond the data": (lambda out: train(task(sampler=lambda draw: [64] * 8), out), "but there are 64"),
    "a sampler of floats": (lambda out: train(task(sampler=lambda draw: [0.5] * 8), out), "must give whole numbers"),
    "a sampler that is a list": (lambda out: task(sampler=[1, 2]), "sampler must be a torch Sampler or a function"),
    "a sampler's class": (lambda out: task(sampler=torch.utils.data.RandomSampler), "a torch Sampler or a function"),
    "a sampler of nothing": (lambda out: task(sampler=lambda draw: []), "the sampler gives no samples"),
}

MODEL: dict[str, tuple[Tried, str]] = {
    "a module as model": (lambda out: train(task(model=__import__("torch").nn.Linear(4, 2)), out), "not a module"),
    "self.weight.data = ...": (lambda out: train(task(model=Renewed), out), "parameter weight was given new memory"),
    "self.weight = nn.Parameter(...)": (lambda out: train(task(model=Replaced), out), "parameter weight was replaced"),
    "a layer made in forward": (lambda out: train(task(model=Late), out), "parameter late.weight was made while"),
    "new memory in evaluation": (lambda out: train(task(model=lambda: Renewed(False)), out), "change it in place"),
    "unfreezing in forward": (lambda out: train(task(model=Unfrozen), out), "parameter bias was frozen when"),
    "a change in place with several dtypes": (
        lambda out: train(task(model=lambda: Mixed(in_place=True)), out),
        "changes its parameter body.weight in place",
    ),
    "a gradient in the loss": (
        lambda out: train(task(loss=lambda m, b: penalty(m, b, nullcontext())), out),
        "write `with torch.enable_grad():` around that part",
    ),
    "a group of nothing": (lambda out: train(task(groups=[Group("0.wieght")]), out), "did you mean '0.weight'"),
    "a group after all are taken": (lambda out: train(task(groups=[Group("*"), Group("2.*")]), out), "put it first"),
    "groups as torch has them": (lambda out: task(groups=[{"params": [], "lr": 1}]), "must be a list of Group objects"),
    "a group with a rate of text": (
        lambda out: task(groups=[Group("*", rate_factor="0.1")]),
        "rate_factor must be a number",
    ),
    "a negative decay": (lambda out: task(groups=[Group("*", weight_decay=-1)]), "weight_decay must be a number"),
    "decay_biases=0.1": (lambda out: task(decay_biases=0.1), "decay_biases must be True or False"),
    "groups and a rule that does not know them": (
        lambda out: train(task(groups=[Group("*", rate_factor=2)]), out, method=orlomo.method(OWN_METHOD)),
        "must use self.groups in `step`",
    ),
    "autocast='float16'": (lambda out: task(autocast="float16"), "use 'bfloat16', which needs no scaling"),
    "autocast=True": (lambda out: task(autocast=True), "autocast must be 'bfloat16' or None, not True"),
    "micro_batch=0": (lambda out: task(micro_batch=0), "micro_batch must be a whole number of at least 1"),
    "evaluation_batch_size=0": (lambda out: task(evaluation_batch_size=0), "evaluation_batch_size must be a whole"),
    "evaluation_batch_size=True": (
        lambda out: task(evaluation_batch_size=True),
        "evaluation_batch_size must be a whole",
    ),
    "a metric that gives text": (
        lambda out: train(task(metrics=[Said("0.5")]), out),
        "gives '0.5': it must give one number",
    ),
    "a metric that gives nothing": (
        lambda out: train(task(metrics=[Said(None)]), out),
        "gives None: it must give one number",
    ),
}

BUFFERS: dict[str, tuple[Tried, str]] = {
    "an unknown treatment": (lambda out: train(task(buffers="avarage"), out), "did you mean 'average'"),
    "a pattern that fits no buffer": (
        lambda out: train(queued({"*.que": "keep"}), out),
        "it has pointer, queue, steps",
    ),
    "a pattern without a buffer": (lambda out: train(task(buffers={"q": "keep"}), out), "it has none"),
    "an unknown policy": (lambda out: train(queued({"queue": "keeps"}), out), "did you mean 'keep'"),
    "no policy at all": (lambda out: train(queued(["queue"]), out), "a table from name patterns to policies"),
    "a pattern that is no name": (lambda out: train(queued({0: "keep"}), out), "a name pattern must be a string"),
    "recalibrating a queue": (
        lambda out: train(queued({"*": "recalibrate"}), out),
        "pointer is not a running statistic",
    ),
    "averaging a counter": (lambda out: train(queued({"steps": "average"}), out), "steps is torch.int64"),
    "half a BatchNorm": (lambda out: train(normed({"*.running_mean": "keep"}), out), "must share one policy"),
    "a queue that grows": (lambda out: train(task(model=Growing, buffers="keep"), out), "in __init__, or the policy"),
    "a teacher without a policy": (lambda out: train(task(model=Taught), out), "Task(buffers={'teacher.*': 'keep'})"),
}

LOSSES: dict[str, tuple[Tried, str]] = {
    "one loss per sample": (lambda out: train(task(loss=lambda m, b: m(b[0]).sum(1)), out), "must give a scalar"),
    "model=lambda: m": (lambda out: train(task(model=lambda: MADE), out), "copy.deepcopy"),
    "a shared layer": (lambda out: train(task(model=lambda: nn.Sequential(MADE)), out), "share the parameter 0.weight"),
    "a scaled loss": (lambda out: train(task(loss=scaled_loss), out), 'Task(autocast="bfloat16")'),
    "train() in autocast": (lambda out: within(torch.autocast("cpu"), lambda: train(task(), out)), "autocast"),
    "train() in inference_mode": (lambda out: within(torch.inference_mode(), lambda: train(task(), out)), "inference"),
    "train() in two threads": (lambda out: second_run(out), "another run is under way in this process"),
    "NaN in the data": (lambda out: train(task(train_data=(INPUTS * float("nan"), LABELS)), out), "has NaN: column 0"),
    "loss gives None": (lambda out: train(task(loss=lambda m, b: None), out), "not None: does it return anything?"),
    "loss gives a float": (lambda out: train(task(loss=lambda m, b: 0.5), out), "not a float: leave .item() out"),
    "loss gives an int": (lambda out: train(task(loss=lambda m, b: 1), out), "not a int"),
    "loss gives a tuple": (lambda out: train(task(loss=lambda m, b: (m(b[0]).sum(), 0)), out), "not a tuple"),
    "loss gives a dict": (lambda out: train(task(loss=lambda m, b: {"a": m(b[0]).sum()}), out), "not a dict"),
    "loss gives numpy": (lambda out: train(task(loss=lambda m, b: LABELS.numpy()), out), "not a ndarray"),
    "a criterion as loss": (lambda out: task(loss=nn.CrossEntropyLoss()), "write loss=lambda model, batch: criterion("),
    "a torch function as loss": (lambda out: task(loss=nn.functional.mse_loss), "criterion is your mse_loss"),
    "a whole-number loss": (lambda out: train(task(loss=lambda m, b: m(b[0]).argmax()), out), "not torch.int64"),
    "a complex loss": (lambda out: train(task(loss=lambda m, b: m(b[0]).sum() * 1j), out), "not torch.complex64"),
    "a detached loss": (lambda out: train(task(loss=lambda m, b: m(b[0]).mean().data), out), "without a gradient"),
    "model gives None": (lambda out: train(task(model=lambda: None), out), "not None: does it return the module?"),
    "a lazy layer": (lambda out: train(task(model=lambda: nn.LazyLinear(2)), out), "weight of the layer LazyLinear"),
    "a meta model": (lambda out: train(task(model=lambda: nn.Linear(4, 2, device="meta")), out), "the device meta"),
    "complex parameters": (lambda out: train(task(model=lambda: nn.Linear(4, 2, dtype=torch.cfloat)), out), "weight"),
    "sparse gradients": (lambda out: train(task(model=lambda: nn.Embedding(4, 2, sparse=True)), out), "sparse=True"),
    "sparse parameters": (lambda out: train(task(model=Sparse), out), "parameter matrix of the layer Sparse is sparse"),
    "a frozen model": (lambda out: train(task(model=lambda: nn.Linear(4, 2).requires_grad_(False)), out), "trainable"),
}


def scheduled(out: Path, schedule: object) -> object:
    return train(task(), out, method=orlomo.OrLoMo(local_steps=2, schedule=schedule))  # type: ignore[arg-type]


def again(out: Path, **changes: object) -> object:
    """A finished run of two epochs, in another folder, resumed with changes."""
    folder = out.with_name("finished")
    train(task(), folder)
    return orlomo.resume(folder, task=task(), jobs=1, **changes)  # type: ignore[arg-type]


def loaded(out: Path, *build: object) -> object:
    return train(task(), out.with_name("finished")).model(*build)  # type: ignore[arg-type]


LATER: dict[str, tuple[Tried, str]] = {
    "a schedule that gives NaN": (lambda out: scheduled(out, lambda e: float("nan") if e > 1 else 1), "for epoch 1.02"),
    "a schedule below 0": (lambda out: scheduled(out, lambda epoch: 1 - epoch), "for epoch 1.02: it must give"),
    "a schedule that gives a text": (lambda out: scheduled(out, lambda epoch: "1"), "a finite number of 0 or more"),
    "a schedule that gives None": (lambda out: scheduled(out, lambda epoch: None), "gives None for epoch 0"),
    "a schedule of chance": (lambda out: scheduled(out, lambda e: __import__("random").random()), "the epoch alone"),
    "a schedule of two arguments": (lambda out: scheduled(out, lambda epoch, step: 1), "must take the epoch alone"),
    "a scheduler's class": (lambda out: scheduled(out, __import__("torch").optim.lr_scheduler.StepLR), "not <class"),
    "a number as schedule": (lambda out: scheduled(out, 0.9), "a function of the epoch"),
    "a schedule's file that is not there": (lambda out: scheduled(out, "no.py:decay"), "cannot read the schedule file"),
    "fewer epochs than it has done": (lambda out: again(out, epochs=1), "is finished with 2 epochs: give more"),
    "another rate of a finished run": (lambda out: again(out, learning_rate=0.1), "needs more epochs"),
    "a learning rate below 0": (lambda out: again(out, epochs=3, learning_rate=-1), "learning_rate must be above 0"),
    "epochs as a text": (lambda out: again(out, epochs="3"), "epochs must be a number, not '3'"),
    "endless epochs": (lambda out: again(out, epochs=float("inf")), "epochs must be above 0 and finite, not inf"),
    "the model of a Task without it": (lambda out: loaded(out), "as in run.model(task)"),
    "a replay without the Task": (
        lambda out: orlomo.replay(train(task(), out.with_name("f")).folder),
        "orlomo.replay(",
    ),
    "another model": (lambda out: loaded(out, __import__("torch").nn.Linear(4, 2)), "the file has no bias"),
}
"""Resuming with changes, schedules, models of finished runs."""

SECTIONS = {"settings": SETTINGS, "data": DATA, "model": MODEL, "buffers": BUFFERS, "loss": LOSSES, "later": LATER}
SECTIONS |= {"calls": CALLS}
ALL = {f"{section}: {name}": case for section, cases in SECTIONS.items() for name, case in cases.items()}


@pytest.mark.parametrize("name", ALL)
def test_it_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    tried, part = ALL[name]
    with pytest.raises(orlomo.OrlomoError) as caught:
        tried(tmp_path / "run")
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
