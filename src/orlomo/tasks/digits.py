"""The embedded default task: scikit-learn's 8x8 handwritten digits and a small multilayer perceptron."""

from __future__ import annotations

import torch
from torch import nn

from orlomo.tasks.task import Task, classification_loss


def perceptron() -> nn.Module:
    """64 inputs, 64 hidden units, 10 classes."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def digits() -> Task:
    """1,797 images of 8x8, of which every fifth is the test set.

    >>> digits().size
    1437
    """
    from sklearn.datasets import load_digits  # slow to import, and only this task needs it

    images, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(images / 8.0 - 1.0, dtype=torch.float32)
    targets = torch.tensor(labels, dtype=torch.int64)
    test = torch.arange(len(targets)) % 5 == 0
    train = ~test
    return Task(
        name="digits",
        model=perceptron,
        loss=classification_loss,
        train_data=(inputs[train], targets[train]),
        test_data=(inputs[test], targets[test]),
        batch_size=16,
    )
