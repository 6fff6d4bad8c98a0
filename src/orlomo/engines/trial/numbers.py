"""Settings that do not fit the size of the data, and data that are not finite: said with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from orlomo.config import RunConfig
from orlomo.methods.messages import Assignment
from orlomo.seeds import derive, isolated, seed_global
from orlomo.tasks.data import Batch, data_size, fetch
from orlomo.tasks.shares import PerWorker, Shares
from orlomo.tasks.task import Task


def say_numbers(config: RunConfig, task: Task, reports: int, warn: Callable[[str], None]) -> None:
    """Warn where the run will not be what its settings seem to say; `reports`: those planned."""
    steps, count, size = config.method.local_steps, task.batch_size, task.size
    asked, workers = config.epochs * size, config.workers
    least = min(map(data_size, task.train_data.parts)) if isinstance(task.train_data, PerWorker) else size
    if count > least:
        where = "there are" if least == size else "a worker has"
        warn(f"batch_size is {count:,}, but {where} {least:,} training samples: samples occur several times in a batch")
    if isinstance(task.train_data, PerWorker) and (unused := task.train_data.names[workers:]):
        more = f" and {len(unused) - 3:,} more" if len(unused) > 3 else ""
        warn(
            f"{len(task.train_data.names):,} data sets, but {workers:,} worker{'s' * (workers > 1)}: none trains on "
            f"{', '.join(map(repr, unused[:3]))}{more}; use as many workers as data sets"
        )
    if steps * count > min(size, asked):
        steps_of = f"{steps:,} local step{'s' * (steps > 1)} of {count:,} samples"
        runs = f"{config.epochs:g} epoch{'s' * (config.epochs != 1)} of {size:,} samples"
        advice = "lower local_steps" if steps > 1 else "lower batch_size"
        plural = "s" * (reports > 1)
        warn(f"a round is {steps_of}, {steps * count:,} samples: {runs} are {reports:,} report{plural}; {advice}")
    planned, idle = f"{reports:,} report{'s are' if reports > 1 else ' is'} planned", workers - reports
    if workers > reports and config.method.synchronous:
        whole = workers * steps * count / size
        warn(
            f"{workers:,} workers, but {planned}: all workers report before a barrier ends, so "
            f"the run takes {whole:.3g} epochs, not {config.epochs:g}; use fewer workers"
        )
    elif workers > reports:
        warn(
            f"{workers:,} workers, but {planned}: {idle:,} worker{'s never report' if idle > 1 else ' never reports'}; "
            "use fewer workers, or more epochs"
        )


def bad_data(task: Task, seed: int, assignment: Assignment, infinite: bool = False) -> str:
    """Where the training data of a round have NaN, or also infinite numbers; empty where they do not."""
    worker, n = assignment.worker, assignment.round
    data = Shares(task, seed).of(worker)
    batches = task.round_batches(seed, worker, n, assignment.local_steps, assignment.position)
    with isolated():
        for step, chosen in enumerate(batches):
            seed_global(derive(seed, "step", worker, n, step))  # the data set may draw
            for column, values in _columns(fetch(data, chosen, collate=task.collate)):
                wrong = ~torch.isfinite(values) if infinite else torch.isnan(values)
                if not bool(wrong.any()):
                    continue
                kind = "NaN" if bool(torch.isnan(values).any()) else "infinite numbers"
                # The samples of a batch are along the first dimension, where it is as long.
                rows = wrong.reshape(len(wrong), -1).any(1).nonzero().flatten().tolist() if wrong.dim() else []
                rows = rows if wrong.dim() and len(wrong) == len(chosen) else []
                samples = ", ".join(str(int(one)) for one in np.unique(chosen[rows])[:3])
                which = f", sample{'s' * (len(rows) > 1)} {samples}" if rows else ""
                return f"the training data has {kind}: column {column}{which}"
    return ""


def _columns(batch: Batch, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of numbers with a point in a nested batch, by their place in it."""
    if isinstance(batch, Tensor):
        if batch.is_floating_point():
            yield name or "0", batch
    elif isinstance(batch, dict):
        for key, value in batch.items():
            yield from _columns(value, f"{name}.{key}".lstrip("."))
    elif isinstance(batch, (tuple, list)):
        for number, value in enumerate(batch):
            yield from _columns(value, f"{name}.{number}".lstrip("."))
