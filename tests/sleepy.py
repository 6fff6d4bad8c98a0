"""A task whose steps take a while and no processor, so that a few seconds are a few hundred reports."""

from __future__ import annotations

import os
import time

import torch
from torch import Tensor, nn

import orlomo
from orlomo.tasks.data import Batch
from orlomo.tasks.task import classification_loss

STEP_SECONDS = 0.02


def slow_loss(model: nn.Module, batch: Batch) -> Tensor:
    if model.training and "RAY_RAYLET_PID" in os.environ:  # on a cluster; a replay need not take its time
        time.sleep(STEP_SECONDS)
    return classification_loss(model, batch)


def task() -> orlomo.Task:
    """Two noisy classes in four dimensions."""
    labels = torch.arange(96) % 2
    inputs = torch.randn(96, 4, generator=torch.Generator().manual_seed(7)) + 2.0 * labels[:, None]
    return orlomo.Task(
        model=lambda: nn.Linear(4, 2),
        loss=slow_loss,
        train_data=(inputs[:64], labels[:64]),
        test_data=(inputs[64:], labels[64:]),
        batch_size=8,
    )


def check(run: orlomo.Run) -> list[tuple[str, int]]:
    """Checks that the record is complete; the workers that joined and left."""
    events = run.event_columns
    rows = list(zip(events["kind"].tolist(), events["worker"].tolist(), events["round"].tolist(), strict=True))
    folded = [(worker, number) for kind, worker, number in rows if kind == "report"]
    assert len(set(folded)) == len(folded)
    if run.finished:
        assert run.metric_columns["test_accuracy"][-1] > 0.9
        assert len(folded) == run.config.epochs * 4
    assert orlomo.replay(run.folder, task=task(), jobs=1).agrees
    return [(kind, worker) for kind, worker, _ in rows if kind != "report"]
