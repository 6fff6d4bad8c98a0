"""The embedded default task: scikit-learn's 8x8 handwritten digits and a small multilayer perceptron."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from orlomo.tasks.task import Task, classification_loss


def perceptron() -> nn.Module:
    """64 inputs, 64 hidden units, 10 classes."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def _rows() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Images and labels from scikit-learn's file; importing it takes 30 times as long as reading the file."""
    found = importlib.util.find_spec("sklearn")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    for path in (Path(folder) / "datasets" / "data" / "digits.csv.gz" for folder in folders):
        if path.is_file():
            rows = np.loadtxt(path, delimiter=",")
            return rows[:, :-1], rows[:, -1]
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images, labels


def digits() -> Task:
    """1,797 images of 8x8, of which every fifth is the test set.

    >>> digits().size
    1437
    """
    images, labels = _rows()
    # Pixels are 0 to 16.
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
