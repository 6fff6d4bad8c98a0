"""Metrics: what is measured at each evaluation, and how it is shown.

A task declares its metrics; all that records or shows an evaluation reads these declarations (metrics.json in the run
folder), and none of it knows a metric's name.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import numbers
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeGuard, cast

import numpy as np
import torch
from torch import Tensor, nn

from orlomo.errors import ConfigError, require, require_takes, unknown_name
from orlomo.records.tables import METRICS, MetricColumn

if TYPE_CHECKING:
    from orlomo.tasks.data import Batch
    from orlomo.tasks.task import Task

TRAIN = "train"
"""The name of the training data in a metric's `data`; a fixed part of it is measured."""

TEST = "test"
"""The name of the only test set."""

IGNORED = -100
"""The label that cross_entropy leaves out."""

DIRECTIONS = ("higher", "lower")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Measure(Protocol):
    """One measurement: it is given every batch of a data set, and then asked for the value."""

    def update(self, model: nn.Module, batch: Batch) -> None: ...
    def compute(self) -> float: ...


class Predictions(Protocol):
    """A metric of the shape that torchmetrics has."""

    def update(self, preds: Tensor, target: Tensor) -> None: ...
    def compute(self) -> object: ...
    def reset(self) -> None: ...


@dataclass(frozen=True)
class Metric:
    """Something to measure at every evaluation; its column in metrics.csv is `{data}_{name}`.

    Args:
        name: letters, digits and underscores.
        make: returns an object with `update(model, batch)`, called for every batch, and `compute() -> float`. A
            metric in the style of torchmetrics, `update(preds, target)`, gets the model's outputs for
            batches (inputs, targets).
        label: for display (default: the name).
        data: `train`, or the name of a test set (`test` if there is only one); None: every test set.
        better: `higher` or `lower`.
        scale: factor for display; 100 shows percent.
        log: whether curves are drawn on a logarithmic axis.

    >>> from orlomo.tasks.task import Task
    >>> certainty = Metric.mean("certainty", lambda model, batch: model(batch).softmax(1).amax(1).mean())
    >>> task = Task(model=lambda: nn.Linear(4, 2), loss=lambda model, batch: model(batch).square().mean(),
    ...             train_data=np.ones((8, 4), "f"), test_data=np.ones((4, 4), "f"), metrics=[certainty])
    >>> [one.column for one in measured(task)]
    ['test_certainty', 'train_loss', 'test_loss']
    """

    name: str
    make: Callable[[], Measure | Predictions]
    label: str = ""
    data: str | None = None
    better: str = "higher"
    scale: float = 1.0
    log: bool = False

    def __post_init__(self) -> None:
        check_name("a metric's name", self.name)
        require(callable(self.make), f"metric {self.name!r}: make must be a function that makes the measure")
        wanted = "make must take no arguments (Metric.mean(name, fn) makes a metric of a function)"
        require_takes(self.make, 0, f"metric {self.name!r}: {wanted}")
        if self.data is not None:
            check_name(f"metric {self.name!r}: data", self.data)
        if self.better not in DIRECTIONS:
            raise unknown_name("direction of a metric", self.better, DIRECTIONS)
        good = isinstance(self.scale, (int, float)) and math.isfinite(self.scale) and self.scale > 0
        require(good, f"metric {self.name!r}: scale must be a number above 0, not {self.scale!r}")

    @classmethod
    def mean(
        cls,
        name: str,
        fn: Callable[[nn.Module, Batch], Tensor | float],
        label: str = "",
        data: str | None = None,
        better: str = "higher",
        scale: float = 1.0,
        log: bool = False,
    ) -> Metric:
        """A metric that is a mean over samples; `fn(model, batch)` returns the mean over one batch."""
        require(callable(fn), f"metric {name!r}: fn must be a function: fn(model, batch) -> mean over the batch")
        require_takes(fn, 2, f"metric {name!r}: fn must be a function of the model and a batch")
        return cls(name, functools.partial(_Mean, name, fn), label, data, better, scale, log)


class Measured(NamedTuple):
    """A metric on one data set."""

    metric: Metric
    data: str
    column: str

    def described(self) -> MetricColumn:
        """For metrics.json."""
        metric, data = self.metric, "training" if self.data == TRAIN else self.data
        title = metric.label or metric.name.replace("_", " ")
        label = f"{data.replace('_', ' ')} {title}"
        return MetricColumn(self.column, label, metric.name, title, metric.better, float(metric.scale), metric.log)


def measured(task: Task) -> list[Measured]:
    """All that is measured at an evaluation of this task, in the order in which it is shown: the loss comes last."""
    require(
        isinstance(task.metrics, Sequence) and not isinstance(task.metrics, str),
        f"metrics must be a list of Metric objects, not {task.metrics!r}",
    )
    kind = _PlainLoss if task.has_plain_loss else _Mean
    loss = Metric("loss", functools.partial(kind, "loss", task.loss_of), better="lower", log=True)
    found: list[Measured] = []
    for metric in (*map(as_metric, task.metrics), replace(loss, data=TRAIN), loss):
        tests = list(task.test_sets)
        if metric.data not in (None, TRAIN, *tests):
            raise unknown_name(f"data of metric {metric.name!r}", metric.data, (TRAIN, *tests))
        # The default metric and the loss need no test data; a metric that was asked for does. (Compared by its fields:
        # a task that was sent to another process has a copy of the default.)
        needs = metric.data is None and metric != accuracy and metric is not loss
        require(
            bool(tests) or not needs, f"metric {metric.name!r} has no test_data: give the task some, or data='train'"
        )
        for data in tests if metric.data is None else [metric.data]:
            found.append(Measured(metric, data, f"{data}_{metric.name}"))
    columns = [one.column for one in found]
    for column in columns:
        require(columns.count(column) == 1, f"two metrics would have the column {column} in metrics.csv: rename one")
        require(column not in METRICS, f"metrics.csv has a column {column} of its own: rename the metric or its data")
    return found


def as_metric(given: Metric | Predictions) -> Metric:
    """A metric as declared, or one of torchmetrics as it is, by its class's name."""
    if isinstance(given, Metric):
        return given
    hint = ": Metric.mean(name, fn) makes one of a function" if inspect.isroutine(given) else ""
    require(
        _takes_predictions(given), f"metrics must be Metric objects or torchmetrics', not {type(given).__name__}{hint}"
    )
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(given).__name__).lower()
    lower = getattr(given, "higher_is_better", True) is False  # what torchmetrics' own say about themselves
    # A copy for each evaluation: the object that was given stays as it is.
    return Metric(name, functools.partial(copy.deepcopy, given), better="lower" if lower else "higher")


def make_measure(metric: Metric) -> Measure:
    """A new measure, ready for the first batch."""
    made = metric.make()
    # One object for all evaluations would add them up.
    require(made is not metric.make(), f"metric {metric.name!r}: make() must give a new object each time it is called")
    if _takes_predictions(made):
        return _OfPredictions(metric.name, made)
    whole = callable(getattr(made, "update", None)) and callable(getattr(made, "compute", None))
    require(
        whole, f"metric {metric.name!r}: make() must give an object with update and compute, not {type(made).__name__}"
    )
    return cast(Measure, made)


def update(measure: Measure, model: nn.Module, batch: Batch, samples: int) -> None:
    """Give a measure a batch of so many samples, which cannot be read off what a user's function has collated."""
    if isinstance(measure, _Mean):
        measure.batch_samples = samples
    try:
        measure.update(model, batch)
    except RuntimeError as error:
        if torch.is_grad_enabled() or "does not require grad" not in str(error):
            raise
        raise ConfigError(
            "the loss or a metric takes a gradient, and evaluations compute none: write `with torch.enable_grad():` "
            "around that part of it"
        ) from error


def number(name: str, value: object) -> float:
    """A metric's value, refused where it is no single number."""
    if isinstance(value, (Tensor, np.ndarray)):
        require(math.prod(value.shape) == 1, f"metric {name!r} gives {_kind(value)}: it must give one number")
        value = value.item()
    require(isinstance(value, numbers.Real), f"metric {name!r} gives {_kind(value)}: it must give one number")
    return float(value)  # type: ignore[arg-type]


def check_name(what: str, name: object) -> None:
    """Names become columns of a table and names of files."""
    good = isinstance(name, str) and NAME.fullmatch(name) is not None
    require(good, f"{what} must be of letters, digits and underscores, and begin with a letter, not {name!r}")


class PlainForward:
    """A measure that calls the model on a batch's inputs and changes nothing: it may share its forward pass."""


class _Mean:
    def __init__(self, name: str, fn: Callable[[nn.Module, Batch], Tensor | float]):
        self._name, self._fn = name, fn
        self._total, self._samples = 0.0, 0
        self.batch_samples = 1  # how many samples were collated to the batch that comes next

    def update(self, model: nn.Module, batch: Batch) -> None:
        # Weighted by samples: the last batch may be smaller.
        self._total += number(self._name, self._fn(model, batch)) * self.batch_samples
        self._samples += self.batch_samples

    def compute(self) -> float:
        return self._total / self._samples


class _PlainLoss(_Mean, PlainForward):
    """Of a loss that is known to look at the model's outputs alone."""


class _Accuracy(PlainForward):
    """Right answers are counted, not averaged: a sum of whole numbers is exact."""

    def __init__(self) -> None:
        self._right, self._labels = 0.0, 0

    def update(self, model: nn.Module, batch: Batch) -> None:
        right, labels = count_correct(model, batch)
        # NaN stays NaN in the sum: one batch that is no classification makes the whole value NaN.
        self._right += right
        self._labels += labels

    def compute(self) -> float:
        return self._right / self._labels if self._labels else math.nan


accuracy = Metric("accuracy", _Accuracy, scale=100.0)
"""The share of right answers; NaN where a batch is not that of a classification."""


class _OfPredictions(PlainForward):
    """A metric of torchmetrics' shape, given the model's outputs for batches (inputs, targets)."""

    def __init__(self, name: str, metric: Predictions):
        self._name, self._metric = name, metric
        # The copy may hold what the user updated it with before.
        metric.reset()

    def update(self, model: nn.Module, batch: Batch) -> None:
        pair = isinstance(batch, (tuple, list)) and len(batch) == 2
        require(pair, f"metric {self._name!r} needs batches (inputs, targets): give a Metric with update(model, batch)")
        inputs, target = batch
        if isinstance(self._metric, nn.Module) and isinstance(target, Tensor):
            # torchmetrics keeps its sums on a device, which must be that of the batches.
            self._metric.to(target.device)
        self._metric.update(model(inputs), target)

    def compute(self) -> float:
        return number(self._name, self._metric.compute())


def _takes_predictions(given: object) -> TypeGuard[Predictions]:
    """Whether this has torchmetrics' shape: update(preds, target), compute() and reset()."""
    if not all(callable(getattr(given, name, None)) for name in ("update", "compute", "reset")):
        return False
    # By its parameters' names, since our own measures have `update` and `compute`, too.
    return list(inspect.signature(given.update).parameters)[:2] == ["preds", "target"]  # type: ignore[attr-defined]


def count_correct(model: nn.Module, batch: Batch) -> tuple[float, int]:
    """How many labels of a batch (inputs, labels) the model's largest score names rightly, and how many there are.

    As in `cross_entropy`, scores are [B, C] for labels [B] or [B, C, ...] for labels [B, ...], and the label -100 is
    left out. NaN where the shapes are not those, or fit the order [B, ..., C] as well, and where labels are no classes:
    one score per sample, for example, may be a logit or a regression, and is not guessed.
    """
    if not (isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)):
        return math.nan, 0
    inputs, labels = batch
    if labels.dim() == 0 or labels.is_floating_point() or labels.is_complex():
        return math.nan, 0
    scores = model(inputs)
    if not isinstance(scores, Tensor) or scores.is_complex() or scores.dim() != labels.dim() + 1:
        return math.nan, 0
    classes, last = (scores.shape[0], *scores.shape[2:]), scores.shape[:-1]
    if classes != labels.shape or (labels.dim() > 1 and last == labels.shape) or scores.shape[1] < 2:
        return math.nan, 0
    counted = labels != IGNORED
    if not bool(((labels >= 0) & (labels < scores.shape[1]) | ~counted).all()):
        return math.nan, 0
    return int(((scores.argmax(dim=1) == labels) & counted).sum()), int(counted.sum())


def _kind(value: object) -> str:
    if isinstance(value, (Tensor, np.ndarray)):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{value!r}"
