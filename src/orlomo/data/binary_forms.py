"""The forms that are arrays of bytes: CIFAR's rows as they are stored, MNIST's idx files, and CIFAR's Python version.

The last is pickled dictionaries, read without letting them run anything. A pickle may call whatever it names. Here the
only names it finds are stand-ins for what rebuilds a numpy array, which keep the bytes and the shape; not even numpy
sees them before they are known to be bytes of the right shape. Nor is Python's own reader asked, which takes memory by
numbers that a pickle names.
"""

from __future__ import annotations

import gzip
import io
import pickletools
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

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


class _Forbidden(Exception):
    """A pickle asks for something that is not part of an array."""


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
        batch = _Pickle(len(content)).load(content)
    except _Forbidden as error:
        raise ConfigError(f"{where} is refused: {error}, which no CIFAR batch does") from None
    except (ValueError, IndexError, KeyError) as error:
        raise ConfigError(f"{where} is damaged: not a readable pickle ({str(error)[:80]})") from None
    if not isinstance(batch, dict):
        raise ConfigError(f"{where} is not a CIFAR batch: it holds a {type(batch).__name__}, not a dictionary")
    return {key.decode("ascii", "replace") if isinstance(key, bytes) else str(key): batch[key] for key in batch}


@dataclass(frozen=True)
class _Dtype:
    """Stands for numpy.dtype."""

    kind: object


class _Array:
    """Stands for numpy.ndarray."""

    state: object = None

    def as_bytes(self, shape: tuple[int, int], where: str) -> Rows:
        """The array, if it is one of bytes in this shape."""
        match self.state:
            # The state of numpy's arrays: (version, shape, dtype, whether by columns, bytes).
            case (int(), tuple() as found, _Dtype(kind=b"u1" | "u1"), int() as by_columns, bytes() as content) if (
                found == shape and len(content) == shape[0] * shape[1]
            ):
                return np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if by_columns else "C")
        raise ConfigError(f"{where} is damaged: `data` is not {shape[0]} rows of {shape[1]} bytes")


class _Function(Enum):
    """What a pickle of arrays calls."""

    ARRAY = auto()
    DTYPE = auto()
    ENCODE = auto()


FUNCTIONS = {
    "numpy.core.multiarray _reconstruct": _Function.ARRAY,
    "numpy._core.multiarray _reconstruct": _Function.ARRAY,
    "numpy ndarray": _Function.ARRAY,
    "numpy dtype": _Function.DTYPE,
    "_codecs encode": _Function.ENCODE,  # Python 3 writes bytes in protocol 2 as a call of this function
}

MOST_STEPS = 1_000_000
"""Of a pickle: CIFAR-100 as Python 3 writes it takes 600,000."""

VALUES = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
TEXTS = ("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
BYTES = ("SHORT_BINBYTES", "BINBYTES", "BINBYTES8")
STRINGS = ("STRING", "SHORT_BINSTRING", "BINSTRING")
"""The steps of a pickle that are values; strings are those of Python 2, which are bytes."""


class _Pickle:
    """A pickle's steps, done one by one: Python's own reader takes memory by numbers that the pickle names.

    Memory stays in proportion to the pickle's length: values are made once and shared, and what is encoded is counted.
    """

    def __init__(self, length: int):
        self._left = 2 * length  # characters that may still be encoded
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stacks below each mark
        self._memo: dict[int, Any] = {}

    def load(self, content: bytes) -> object:
        for step, (code, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
            if step > MOST_STEPS:
                raise ValueError("more steps than a CIFAR batch has")
            if code.name == "STOP":
                break
            self._do(code.name, argument)
        return self._stack.pop()

    def _do(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in NUMBERS or name in TEXTS or name in BYTES:
            stack.append(argument)
        elif name in STRINGS:
            stack.append(argument.encode("latin1"))
        elif name in VALUES:
            stack.append(VALUES[name])
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "MARK":
            self._below.append(stack)
            self._stack = []
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({} if name == "EMPTY_DICT" else [] if name == "EMPTY_LIST" else ())
        elif name in ("TUPLE", "LIST", "DICT"):
            parts = self._since_mark()
            self._stack.append(tuple(parts) if name == "TUPLE" else _extended([] if name == "LIST" else {}, parts))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            self._stack.append(tuple(self._last(int(name[-1]))))
        elif name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS"):
            parts = self._since_mark() if name.endswith("S") else self._last(1 if name == "APPEND" else 2)
            _extended(self._stack[-1], parts)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(_function(argument if name == "GLOBAL" else " ".join(map(str, self._last(2)))))
        elif name == "REDUCE":
            self._stack.append(self._call(*self._last(2)))
        elif name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], _Array):
                stack[-1].state = state
            elif not isinstance(stack[-1], _Dtype):  # byte order and the like mean nothing to bytes
                raise ValueError("a state for something that is not an array")
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"the step {name}")

    def _since_mark(self) -> list[Any]:
        parts, self._stack = self._stack, self._below.pop()
        return parts

    def _last(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise IndexError("too few values")
        parts = self._stack[-count:]
        del self._stack[-count:]
        return parts

    def _call(self, function: object, arguments: object) -> object:
        match function, arguments:
            case _Function.ARRAY, tuple():
                return _Array()
            case _Function.DTYPE, (kind, *_):
                return _Dtype(kind)
            case _Function.ENCODE, (str() as text, encoding):
                # No CIFAR batch uses another, and an unexpected one is refused rather than guessed.
                if encoding not in ("latin1", b"latin1"):
                    raise _Forbidden("it asks for another encoding than latin1")
                self._left -= len(text)
                if self._left < 0:
                    raise ValueError("the same text again and again")
                return text.encode("latin1")
        raise ValueError("a call of something that is not a function")


def _function(name: str) -> _Function:
    if name not in FUNCTIONS:
        raise _Forbidden(f"it asks for {name.replace(' ', '.', 1)[:80]!r}")
    return FUNCTIONS[name]


def _extended(owner: object, parts: list[Any]) -> object:
    """A list with these parts added, or a dictionary with these keys and values, which come by turns."""
    if isinstance(owner, list):
        owner.extend(parts)
    # Only texts as keys: a tuple of tuples, deep enough, would end the process.
    elif isinstance(owner, dict) and all(isinstance(key, (str, bytes)) for key in parts[::2]):
        owner.update(zip(parts[::2], parts[1::2], strict=True))
    else:
        raise ValueError("parts of something that is not a list, or keys that are not texts")
    return owner
