"""A stored data set as tensors."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from orlomo.data import store
from orlomo.data.catalog import DATASETS
from orlomo.data.spec import DataSet, Rows
from orlomo.errors import ConfigError, unknown_name


class Images(NamedTuple):
    """Images as bytes of shape (N, C, H, W), mapped from the disk; labels as int64 of shape (N,)."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load(name: str) -> Images:
    """A data set that `orlomo data NAME` has stored; only the sizes of its files are checked.

    The images are views of the files of rows, `train.bin` and `test.bin`: nothing is read before it is used, and what
    is written to the tensors does not reach the files.

    >>> load("cifar")
    Traceback (most recent call last):
    orlomo.errors.ConfigError: unknown data set 'cifar': did you mean 'cifar10'?
        (known: cifar10, cifar100, fashion-mnist, tiny-imagenet)
    """
    if name not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    return load_dataset(DATASETS[name])


def load_dataset(dataset: DataSet, root: Path | None = None) -> Images:
    """The same for a data set that has no name here."""
    stored = store.find(dataset, root)
    if stored is None:
        folder = (root or store.data_root()) / dataset.name
        raise ConfigError(f"{dataset.title} is not stored in {folder}: `orlomo data {dataset.name}` gets it")
    tensors = []
    for split, count in stored.counts.items():
        path = stored.path(split)
        images = _rows(path, count, dataset)[:, dataset.label_bytes :].reshape(count, *dataset.shape)
        # A mapping of its own, dropped at once: the pages that hold labels are nearly all of the file.
        labels = _rows(path, count, dataset)[:, dataset.label_bytes - 1].astype(np.int64)
        tensors += [torch.from_numpy(images), torch.from_numpy(labels)]
    return Images(*tensors)


def _rows(path: Path, count: int, dataset: DataSet) -> Rows:
    # Mode "c", copy on write: torch wants writable memory, and the file must not change.
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="c", shape=(count, dataset.row_bytes)))
