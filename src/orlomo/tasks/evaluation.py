"""Evaluating parameters: the task's metrics on part of the training data and on the test data.

Running statistics are those of the parameters that are evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from orlomo.flat import FlatModule, Forward
from orlomo.seeds import derive, generator, isolated, seed_global
from orlomo.tasks.buffers import Buffers, begin_mean
from orlomo.tasks.data import Data, data_size, fetch
from orlomo.tasks.metrics import TRAIN, Measured, PlainForward, make_measure, measured, number, update
from orlomo.tasks.shares import Stream
from orlomo.tasks.task import Task

CALIBRATION_BATCHES = 16
"""Training batches from which running statistics are recomputed."""

TRAIN_SAMPLES = 2000
"""Training samples, always the same, on which the training loss is evaluated."""


@dataclass(frozen=True)
class Evaluation:
    """What was measured, by column of metrics.csv. NaN where a metric does not apply."""

    values: dict[str, float]

    def __getitem__(self, column: str) -> float:
        return self.values[column]


@torch.no_grad()
def evaluate(task: Task, flat: FlatModule, params: Tensor, seed: int, buffers: Tensor | None = None) -> Evaluation:
    """Evaluate the model at these parameters; a function of the arguments alone."""
    with isolated():
        load_trained(task, flat, params, seed, buffers)
        # The same samples at every evaluation of a run, or the curve would have noise of its own.
        known = known_data(task, seed)
        chosen = generator(seed, "train subset").permutation(data_size(known))[:TRAIN_SAMPLES]
        parts = {TRAIN: (known, np.sort(chosen))}
        parts |= {name: (data, np.arange(data_size(data))) for name, data in task.test_sets.items()}
        # Measured one data set after another, then put into the declared order.
        wanted = measured(task)
        values: dict[str, float] = {}
        for name, (data, indices) in parts.items():
            values |= _measure(task, flat, seed, data, indices, [one for one in wanted if one.data == name])
        flat.check_views()
        return Evaluation({one.column: values[one.column] for one in wanted})


@torch.no_grad()
def load_trained(task: Task, flat: FlatModule, params: Tensor, seed: int, buffers: Tensor | None = None) -> None:
    """Make the module the trained model at these parameters, in evaluation mode.

    `buffers`: what the workers reported of them, combined; None: nothing, so that statistics are recalibrated.
    """
    flat.params.copy_(params)
    flat.load()
    treated = Buffers(flat, task.buffers)
    treated.load(buffers)  # those of an earlier evaluation must not leak into this one
    layers = treated.recalibrated + (treated.averaged if buffers is None else [])
    if layers:
        with isolated():
            # Recalibration calls the loss, which may draw random numbers.
            seed_global(derive(seed, "evaluation"))
            _recalibrate(task, flat, seed, layers)
        treated.restore(buffers, layers)
    flat.check_views()
    flat.module.eval()


def _recalibrate(task: Task, flat: FlatModule, seed: int, layers: list[_NormBase]) -> None:
    """Recompute running statistics at the present parameters, from full training batches fixed by the seed."""
    flat.module.eval()  # dropout stays off; only the statistics are in training mode
    # `begin_mean` sets them to None, for a plain mean over the batches.
    momenta = {layer: layer.momentum for layer in layers}
    for layer in layers:
        begin_mean(layer)
        layer.train()
    known = known_data(task, seed)
    size = data_size(known)
    order = generator(seed, "calibration").permutation(size)
    count = min(task.batch_size, task.micro_batch or task.batch_size)  # as large as those of training
    batches = max(1, min(CALIBRATION_BATCHES, size // count))
    with flat.eager():  # a plain mean over batches does not compile well
        for number in range(batches):
            chosen = order[number * count : (number + 1) * count]
            batch = fetch(known, chosen, flat.params.device, task.collate)
            with task.casting(flat.module):
                task.loss(flat.module, batch)
    for layer, momentum in momenta.items():
        layer.momentum = momentum


def _measure(
    task: Task, flat: FlatModule, seed: int, data: Data, indices: NDArray[np.int64], wanted: list[Measured]
) -> dict[str, float]:
    """Measure these on one data set. Those that only look at the model's outputs share one forward pass."""
    made = [(one, make_measure(one.metric)) for one in wanted]
    grads = {parameter: parameter.requires_grad for parameter in flat.module.parameters()}
    sharing = [measure for _, measure in made if isinstance(measure, PlainForward)]
    others = [measure for _, measure in made if not isinstance(measure, PlainForward)]  # may do anything with the model
    for measures, wrap in ((sharing, _remembering), (others, lambda forward: forward)):
        with flat.forward_as(wrap):
            for first in range(0, len(indices) if measures else 0, task.evaluation_batch):
                chosen = indices[first : first + task.evaluation_batch]
                # A data set, a loss or a metric may draw random numbers: the same at every evaluation of the run.
                source = derive(seed, "evaluation", first)
                seed_global(source)
                batch = fetch(data, chosen, flat.params.device, task.collate)
                for measure in measures:
                    if measures is others:
                        flat.module.eval()  # the one before may have changed that
                        seed_global(source)  # or have drawn, and what is measured beside it must change no bit
                    with task.casting(flat.module):
                        update(measure, flat.module, batch, len(chosen))
    for parameter, trained in grads.items():
        parameter.requires_grad_(trained)
    return {one.column: number(one.metric.name, measure.compute()) for one, measure in made}


def known_data(task: Task, seed: int) -> Data:
    """The training data that can be indexed: of a stream, its beginning."""
    data = task.train_data
    return data.head(seed) if isinstance(data, Stream) else data


def _remembering(forward: Forward) -> Forward:
    """A forward pass that gives its last answer again when asked the same: several metrics then share one pass."""
    last: tuple[object, ...] = ()
    answer: object = None

    def remembered(*inputs: object, **options: object) -> object:
        nonlocal last, answer
        # The same objects, not equal ones: comparing tensors would cost a pass, and `last` keeps them alive.
        same = len(inputs) == len(last) and all(new is old for new, old in zip(inputs, last, strict=True))
        if not inputs or options or not same:
            last, answer = inputs, forward(*inputs, **options)
        return answer

    return remembered
