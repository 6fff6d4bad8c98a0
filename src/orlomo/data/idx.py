"""The idx files of MNIST and its kin, gzipped or not."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from orlomo.data.spec import Bundle, DataSet, Rows, check_sha256, wrong_size
from orlomo.errors import ConfigError

UNSIGNED_BYTES = 0x08
"""The type code in an idx header; the number of dimensions stands beside it."""


@dataclass(frozen=True)
class IdxFile:
    """The name of a file without `.gz`, and the checksum of its content, unpacked."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Idx:
    """Four files, each as it is or gzipped."""

    train_images: IdxFile
    train_labels: IdxFile
    test_images: IdxFile
    test_labels: IdxFile

    def missing(self, dataset: DataSet, bundle: Bundle) -> tuple[list[str], int]:
        files = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        return [f"{file.name}.gz" for file in files if _present(file, bundle) is None], len(files)

    def counts(self, dataset: DataSet, bundle: Bundle) -> dict[str, int]:
        return dataset.counts

    def blocks(self, dataset: DataSet, split: str, bundle: Bundle) -> Iterator[tuple[int, Rows]]:
        count = dataset.counts[split]
        training = split == "train"
        _, height, width = dataset.shape
        labels = _read(self.train_labels if training else self.test_labels, (count,), bundle)
        images = _read(self.train_images if training else self.test_images, (count, height, width), bundle)
        rows = np.empty((count, dataset.row_bytes), dtype=np.uint8)
        rows[:, 0] = labels
        rows[:, 1:] = images.reshape(count, -1)
        yield 0, rows


def _present(file: IdxFile, bundle: Bundle) -> str | None:
    return next((name for name in (file.name, f"{file.name}.gz") if bundle.size(name) is not None), None)


def _read(file: IdxFile, shape: tuple[int, ...], bundle: Bundle) -> Rows:
    """The array in an idx file, whose header must give this very shape."""
    name = _present(file, bundle) or file.name
    header = struct.pack(f">HBB{len(shape)}I", 0, UNSIGNED_BYTES, len(shape), *shape)
    expected = len(header) + int(np.prod(shape))
    content = bundle.read(name, expected + 2**20)
    if name.endswith(".gz"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
                content = stream.read(expected + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(f"{bundle.where(name)} is damaged: {error} (sha256 {file.sha256} expected)") from None
    if len(content) != expected:
        raise wrong_size(bundle.where(name), expected, len(content), file.sha256)
    check_sha256(content, file.sha256, bundle.where(name))
    if content[: len(header)] != header:
        raise ConfigError(f"{bundle.where(name)} is not an idx file of bytes of shape {shape}")
    return np.frombuffer(content, dtype=np.uint8, offset=len(header)).reshape(shape)
