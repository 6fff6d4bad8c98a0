"""What a data set is: its size, its checksums, the forms it comes in and where it can be had.

Whatever form it came in, it is stored as two files of rows, `train.bin` and `test.bin`, in CIFAR's binary layout: a row
is `label_bytes` bytes of labels, the last of which is the class, and then the image, one colour plane after another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from orlomo.errors import ConfigError

SPLITS = ("train", "test")
Rows = NDArray[np.uint8]


@dataclass(frozen=True)
class Part:
    """A stretch of rows that is one file of the official distribution.

    `sha256` is None where the bytes depend on the decoder of the images.
    """

    stem: str
    rows: int
    sha256: str | None = None

    @property
    def proof(self) -> str:
        """What to add to an error message about it."""
        return f" (sha256 of its rows {self.sha256} expected)" if self.sha256 else ""


@dataclass(frozen=True)
class Remote:
    """A file to download, and the checksum its publisher gives."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


class Bundle(Protocol):
    """A folder, or a folder inside an archive, with files that are read by their names in it."""

    def size(self, name: str) -> int | None:
        """The file's size in bytes; None where there is no such file."""

    def read(self, name: str, limit: int) -> bytes:
        """The whole file, which is an error if it has more than `limit` bytes."""

    def names(self, folder: str) -> list[str]:
        """The names of the files directly in this folder, sorted."""

    def position(self, name: str) -> int:
        """The file's position in its archive: reading in this order is fastest."""

    def where(self, name: str = "") -> str:
        """The name of the file, or of the bundle itself, for messages."""


class Form(Protocol):
    """A way in which a data set is distributed."""

    # Cheap, by names and sizes alone: it is asked of every candidate folder, before anything is read.
    def missing(self, dataset: DataSet, bundle: Bundle) -> tuple[list[str], int]:
        """The files that this form needs and the bundle lacks, and how many it needs."""

    def counts(self, dataset: DataSet, bundle: Bundle) -> dict[str, int]:
        """The number of images in each split."""

    # In blocks, since a split may not fit into memory; in any order, since archives are read fastest front to back.
    def blocks(self, dataset: DataSet, split: str, bundle: Bundle) -> Iterator[tuple[int, Rows]]:
        """The rows of a split, in any order: the number of the first, and as many as follow it."""


@dataclass(frozen=True)
class DataSet:
    """One data set.

    >>> DataSet("dots", "Dots", 2, (1, 2, 2), (Part("train", 3),), (Part("test", 1),)).row_bytes
    5
    """

    name: str
    title: str
    classes: int
    shape: tuple[int, int, int]
    train: tuple[Part, ...]
    test: tuple[Part, ...]
    forms: tuple[Form, ...] = ()
    label_bytes: int = 1
    folders: tuple[str, ...] = ()
    """Names that a folder with this data usually has, below a folder of data sets."""
    archives: tuple[str, ...] = ()
    """Names that an archive of this data usually has."""
    system_folders: tuple[Path, ...] = field(default=())
    """Where a package of the operating system puts it."""
    remotes: tuple[Remote, ...] = ()
    npm_package: str | None = None

    @property
    def image_bytes(self) -> int:
        return math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        return self.label_bytes + self.image_bytes

    def parts(self, split: str) -> tuple[Part, ...]:
        return self.train if split == "train" else self.test

    @property
    def official(self) -> bool:
        """Whether all of its bytes are known by their checksums."""
        return all(part.sha256 for part in (*self.train, *self.test))

    @property
    def counts(self) -> dict[str, int]:
        """The number of images in each split of the complete data set."""
        return {split: sum(part.rows for part in self.parts(split)) for split in SPLITS}


def check_sha256(content: bytes | memoryview, expected: str | None, where: str) -> None:
    """Raise a `ConfigError` unless this content has the expected checksum."""
    if expected is None:
        return
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise wrong_checksum(where, "sha256", expected, found)


def wrong_checksum(where: str, kind: str, expected: str, found: str) -> ConfigError:
    return ConfigError(f"{where} is damaged or not the official file: {kind} {expected} expected, {found} found")


def wrong_size(where: str, expected: int, found: int, checksum: str | None) -> ConfigError:
    proof = f" (sha256 {checksum})" if checksum else ""
    return ConfigError(f"{where} is cut off or not the official file: {expected} bytes{proof} expected, {found} found")


def as_labels(values: object, count: int, classes: int, where: str) -> Rows:
    """Class numbers as bytes; anything but `count` whole numbers below `classes` is an error."""
    if (
        not isinstance(values, list)
        or len(values) != count
        # type() and not isinstance: JSON's true would pass for 1.
        or not all(type(value) is int and 0 <= value < classes for value in values)
    ):
        raise ConfigError(f"{where} is damaged: {count} labels from 0 to {classes - 1} expected")
    return np.array(values, dtype=np.uint8)
