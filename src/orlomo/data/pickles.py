"""CIFAR's Python version: pickled dictionaries, read without letting them run anything.

A pickle may call whatever it names. Here the only names it finds are stand-ins for what rebuilds a numpy array, which
keep the bytes and the shape; not even numpy sees them before they are known to be bytes of the right shape.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from orlomo.data.row_files import checked_parts, missing_files
from orlomo.data.spec import Bundle, DataSet, Part, Rows, as_labels
from orlomo.errors import ConfigError

SPARE_BYTES = 2**23
"""What a pickle may have beyond its images: labels and file names."""


@dataclass(frozen=True)
class Pickles:
    """One file `STEM` for each part, a dictionary with `data` and the lists of labels named here, in row order."""

    labels: tuple[str, ...]

    def missing(self, dataset: DataSet, bundle: Bundle) -> tuple[list[str], int]:
        return missing_files([part.stem for part in (*dataset.train, *dataset.test)], bundle)

    def counts(self, dataset: DataSet, bundle: Bundle) -> dict[str, int]:
        return dataset.counts

    def blocks(self, dataset: DataSet, split: str, bundle: Bundle) -> Iterator[tuple[int, Rows]]:
        def read(part: Part, first: int) -> tuple[str, Rows]:
            try:
                return part.stem, rows_of(part)
            except ConfigError as error:
                raise ConfigError(f"{error}{part.proof}") from None

        def rows_of(part: Part) -> Rows:
            where = bundle.where(part.stem)
            # Python 3 writes bytes as text in protocol 2, up to twice as long.
            batch = read_batch(bundle.read(part.stem, 2 * part.rows * dataset.row_bytes + SPARE_BYTES), where)
            rows = np.empty((part.rows, dataset.row_bytes), dtype=np.uint8)
            for place, key in enumerate(self.labels):
                rows[:, place] = as_labels(batch.get(key), part.rows, dataset.classes, where)
            data = batch.get("data")
            if not isinstance(data, _Array):
                raise ConfigError(f"{where} is not a CIFAR batch: it has no array `data`")
            rows[:, dataset.label_bytes :] = data.as_bytes((part.rows, dataset.image_bytes), where)
            return rows

        return checked_parts(dataset, split, bundle, read)


def read_batch(content: bytes, where: str) -> dict[str, Any]:
    """The dictionary in a pickle, its keys as text; a pickle that names anything but numpy's arrays is an error."""
    try:
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except _Forbidden as error:
        raise ConfigError(f"{where} is refused: {error}, which no CIFAR batch does") from None
    except Exception as error:  # a damaged pickle may raise anything
        raise ConfigError(f"{where} is damaged: not a readable pickle ({type(error).__name__})") from None
    if not isinstance(batch, dict):
        raise ConfigError(f"{where} is not a CIFAR batch: it holds a {type(batch).__name__}, not a dictionary")
    return {key.decode("ascii", "replace") if isinstance(key, bytes) else str(key): batch[key] for key in batch}


class _Forbidden(Exception):
    """The pickle asks for something that is not part of an array."""


class _Dtype:
    """Stands for numpy.dtype."""

    def __init__(self, kind: Any = None, *rest: Any):
        self.kind = kind

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like mean nothing to bytes."""


class _Array:
    """Stands for numpy.ndarray."""

    def __init__(self, *arguments: Any):
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def as_bytes(self, shape: tuple[int, int], where: str) -> Rows:
        """The array, if it is one of bytes in this shape."""
        match self.state:
            case (int(), tuple() as found, _Dtype(kind=b"u1" | "u1"), int() as by_columns, bytes() as content) if (
                found == shape and len(content) == shape[0] * shape[1]
            ):
                return np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if by_columns else "C")
        raise ConfigError(f"{where} is damaged: `data` is not {shape[0]} rows of {shape[1]} bytes")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The stand-ins, each made for this call so that no pickle can leave anything in them for the next."""
        match module, name:
            case (("numpy.core.multiarray" | "numpy._core.multiarray"), "_reconstruct"):
                return lambda kind, shape, dtype: _Array()
            case "numpy", "ndarray":
                return lambda *arguments: _Array()
            case "numpy", "dtype":
                return lambda *arguments: _Dtype(*arguments)
            case "_codecs", "encode":
                return _latin1()
        raise _Forbidden(f"it asks for {f'{module}.{name}'[:80]!r}")


def _latin1() -> Any:
    def encode(text: str, encoding: str | bytes) -> bytes:
        if encoding not in ("latin1", b"latin1"):
            raise _Forbidden("it asks for another encoding than latin1")
        return text.encode("latin1")

    return encode
