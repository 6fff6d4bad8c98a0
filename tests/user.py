"""What a user would write, in short form, for the cases of test_refused.py and test_corrected.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import orlomo
from orlomo.tasks.task import classification_loss

INPUTS = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0).long()


def task(**changes: Any) -> orlomo.Task:
    """A small task of two classes, with some of its fields changed."""
    usual: dict[str, Any] = {
        "model": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        "loss": classification_loss,
        "train_data": (INPUTS, LABELS),
        "test_data": (INPUTS, LABELS),
        "batch_size": 8,
    }
    return orlomo.Task(**(usual | changes))


def train(given: orlomo.Task | None = None, /, out: Path | None = None, **changes: Any) -> orlomo.Run:
    """A short run of two workers, two epochs of two local steps; `method` and any setting may be changed."""
    method = changes.pop("method", orlomo.OrLoMo(learning_rate=0.05, local_steps=2))
    usual: dict[str, Any] = {"workers": 2, "epochs": 2, "jobs": 1}
    return orlomo.train(task() if given is None else given, method, out=out, **(usual | changes))


class Sparse(nn.Module):
    """A layer whose parameter is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(4).to_sparse())


@dataclass
class Output:
    """What models of transformers give."""

    loss: Tensor
