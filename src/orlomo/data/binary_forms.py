"""The forms that are arrays of bytes: CIFAR's rows as they are stored, MNIST's idx files, and CIFAR's Python version.

The last is pickled dictionaries, read without letting them run anything. A pickle may call whatever it names. Here the
only names it finds are stand-ins for what rebuilds a numpy array, which keep the bytes and the shape; not even numpy
sees them before they are known to be bytes of the right shape.
"""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from orlomo.data.spec import Bundle, DataSet, Part, Rows, as_labels, check_sha256, wrong_size
from orlomo.errors import ConfigError


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
            # Before reading: a file of another size need not be loaded to be refused.
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
        # Checked before it is yielded: no row of a damaged part reaches the store.
        check_sha256(np.ascontiguousarray(rows).data, part.sha256, bundle.where(name))
        yield first, rows
        first += part.rows


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
        labels = _read_idx(self.train_labels if training else self.test_labels, (count,), bundle)
        images = _read_idx(self.train_images if training else self.test_images, (count, height, width), bundle)
        rows = np.empty((count, dataset.row_bytes), dtype=np.uint8)
        rows[:, 0] = labels
        rows[:, 1:] = images.reshape(count, -1)
        yield 0, rows


def _present(file: IdxFile, bundle: Bundle) -> str | None:
    return next((name for name in (file.name, f"{file.name}.gz") if bundle.size(name) is not None), None)


def _read_idx(file: IdxFile, shape: tuple[int, ...], bundle: Bundle) -> Rows:
    """The array in an idx file, whose header must give this very shape."""
    name = _present(file, bundle) or file.name
    # The header is made and compared, not parsed: only one is right.
    header = struct.pack(f">HBB{len(shape)}I", 0, UNSIGNED_BYTES, len(shape), *shape)
    expected = len(header) + int(np.prod(shape))
    # Bytes that do not compress make a gzipped file a little longer than its content.
    content = bundle.read(name, expected + 2**20)
    if name.endswith(".gz"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
                # One byte more shows that it is too long, and never unpacks all of a bomb.
                content = stream.read(expected + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(f"{bundle.where(name)} is damaged: {error} (sha256 {file.sha256} expected)") from None
    if len(content) != expected:
        raise wrong_size(bundle.where(name), expected, len(content), file.sha256)
    check_sha256(content, file.sha256, bundle.where(name))
    if content[: len(header)] != header:
        raise ConfigError(f"{bundle.where(name)} is not an idx file of bytes of shape {shape}")
    return np.frombuffer(content, dtype=np.uint8, offset=len(header)).reshape(shape)


PICKLE_SPARE_BYTES = 2**23
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
            batch = read_batch(bundle.read(part.stem, 2 * part.rows * dataset.row_bytes + PICKLE_SPARE_BYTES), where)
            rows = np.empty((part.rows, dataset.row_bytes), dtype=np.uint8)
            for column, key in enumerate(self.labels):
                rows[:, column] = as_labels(batch.get(key), part.rows, dataset.classes, where)
            data = batch.get("data")
            if not isinstance(data, _Array):
                raise ConfigError(f"{where} is not a CIFAR batch: it has no array `data`")
            rows[:, dataset.label_bytes :] = data.as_bytes((part.rows, dataset.image_bytes), where)
            return rows

        return checked_parts(dataset, split, bundle, read)


def read_batch(content: bytes, where: str) -> dict[str, object]:
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

    def __init__(self, kind: object = None, *rest: object):
        self.kind = kind

    def __setstate__(self, state: object) -> None:
        """Byte order and the like mean nothing to bytes."""


class _Array:
    """Stands for numpy.ndarray."""

    def __init__(self, *arguments: object):
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def as_bytes(self, shape: tuple[int, int], where: str) -> Rows:
        """The array, if it is one of bytes in this shape."""
        match self.state:
            # The state of numpy's arrays: (version, shape, dtype, whether by columns, bytes).
            case (int(), tuple() as found, _Dtype(kind=b"u1" | "u1"), int() as by_columns, bytes() as content) if (
                found == shape and len(content) == shape[0] * shape[1]
            ):
                return np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if by_columns else "C")
        raise ConfigError(f"{where} is damaged: `data` is not {shape[0]} rows of {shape[1]} bytes")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., object]:
        """The stand-ins, each made for this call so that no pickle can leave anything in them for the next."""
        match module, name:
            case (("numpy.core.multiarray" | "numpy._core.multiarray"), "_reconstruct"):
                return lambda kind, shape, dtype: _Array()
            case "numpy", "ndarray":
                return lambda *arguments: _Array()
            case "numpy", "dtype":
                return lambda *arguments: _Dtype(*arguments)
            # Python 3 writes bytes in protocol 2 as a call of this function.
            case "_codecs", "encode":
                return _latin1()
        raise _Forbidden(f"it asks for {f'{module}.{name}'[:80]!r}")


def _latin1() -> Callable[[str, str | bytes], bytes]:
    def encode(text: str, encoding: str | bytes) -> bytes:
        # No CIFAR batch uses another, and an unexpected one is refused rather than guessed.
        if encoding not in ("latin1", b"latin1"):
            raise _Forbidden("it asks for another encoding than latin1")
        return text.encode("latin1")

    return encode
