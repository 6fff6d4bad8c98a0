"""The official binary files of CIFAR: rows as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from orlomo.data.spec import Bundle, DataSet, Part, Rows, check_sha256, wrong_size


@dataclass(frozen=True)
class RowFiles:
    """One file `STEM.bin` for each part."""

    def missing(self, dataset: DataSet, bundle: Bundle) -> tuple[list[str], int]:
        return missing_files([f"{part.stem}.bin" for part in (*dataset.train, *dataset.test)], bundle)

    def counts(self, dataset: DataSet, bundle: Bundle) -> dict[str, int]:
        return dataset.counts

    def blocks(self, dataset: DataSet, split: str, bundle: Bundle) -> Iterator[tuple[int, Rows]]:
        def read(part: Part, first: int) -> tuple[str, Rows]:
            name = f"{part.stem}.bin"
            expected = part.rows * dataset.row_bytes
            found = bundle.size(name)
            if found != expected:
                raise wrong_size(bundle.where(name), expected, found or 0, part.sha256)
            content = bundle.read(name, expected)
            return name, np.frombuffer(content, dtype=np.uint8).reshape(part.rows, dataset.row_bytes)

        return checked_parts(dataset, split, bundle, read)


def missing_files(names: list[str], bundle: Bundle) -> tuple[list[str], int]:
    """Those of the names that the bundle lacks, and how many names there are."""
    return [name for name in names if bundle.size(name) is None], len(names)


def checked_parts(
    dataset: DataSet, split: str, bundle: Bundle, read: Callable[[Part, int], tuple[str, Rows]]
) -> Iterator[tuple[int, Rows]]:
    """The parts of a split one after another, each against its checksum.

    `read` takes a part and the number of its first row; it returns the name of the file and the part's rows.
    """
    first = 0
    for part in dataset.parts(split):
        name, rows = read(part, first)
        check_sha256(np.ascontiguousarray(rows).data, part.sha256, bundle.where(name))
        yield first, rows
        first += part.rows
