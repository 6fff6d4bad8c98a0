"""What a user would write, in short form, for the cases of test_refused.py and test_corrected.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import orlomo
from orlomo.tasks.task import classification_loss

GIVEN: dict[str, Any] = {"half": 0.5, "none": None, "nan": float("nan"), "text": "x", "tensor": torch.tensor(0.5)}


@dataclass(frozen=True, kw_only=True)
class OwnRate(orlomo.ALSGD):
    """A method with rules of its own, which give what `GIVEN` has under these names."""

    gives: str = "half"
    weighs: str = "half"
    speed: str = "half"

    def eta(self, delay: int, workers: int) -> float:
        return GIVEN[self.gives]

    def weight(self, fold: orlomo.Fold) -> float:
        return GIVEN[self.weighs]

    def rate(self, samples: int, epoch_samples: int) -> float:
        return GIVEN[self.speed]


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
