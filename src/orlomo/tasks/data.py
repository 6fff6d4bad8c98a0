"""Training and test data in the forms that users have them, indexed and collated to batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate

from orlomo.errors import ConfigError, require

Batch: TypeAlias = Any
"""What a data set's samples collate to: usually a tuple of tensors."""

Collate: TypeAlias = Callable[[list[Any]], Batch]
"""Makes a batch of a list of samples."""


@runtime_checkable
class MapStyle(Protocol):
    """A map-style data set."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> object: ...


Data: TypeAlias = Tensor | Sequence[Tensor] | Mapping[str, Tensor] | MapStyle


def checked_data(data: object, name: str) -> Data:
    """The data, numpy arrays made tensors; what cannot be indexed is an error that says what to give instead."""
    _refuse_what_is_no_data(data, name)
    if isinstance(data, np.ndarray):
        data = _tensor(data, name)
    elif isinstance(data, Mapping) and _all_arrays(data.values()):
        data = {str(key): _tensor(part, f"{name}[{key!r}]") for key, part in data.items()}
        _check_lengths(tuple(data.values()), name)
    elif isinstance(data, tuple) and _all_arrays(data):
        data = tuple(_tensor(part, name) for part in data)
        _check_lengths(data, name)
    elif isinstance(data, list) and _all_arrays(data):
        data = _samples([_tensor(part, name) for part in data], name)
    if isinstance(data, Mapping) and not _all_arrays(data.values()):
        raise ConfigError(f"{name} is a dict of {_kinds(data.values())}: as columns, all of its values must be tensors")
    if not isinstance(data, MapStyle):
        raise ConfigError(f"{name} must be tensors or a map-style data set, not {type(data).__name__}")
    if isinstance(data, Tensor):
        require(data.dim() > 0, f"{name} is a single number: give a tensor of samples")
    try:
        size = data_size(data)
    except (TypeError, NotImplementedError) as error:
        raise ConfigError(f"{name} has no length ({error}): define __len__") from None
    require(size > 0, f"{name} is empty")
    for part in as_tensors(data) or ():
        require(part.grad_fn is None, f"{name} has a tensor that was computed with gradients: give it with .detach()")
    return data


def _refuse_what_is_no_data(data: object, name: str) -> None:
    """Things that look like data to Python."""
    instead = ""
    if isinstance(data, DataLoader):
        instead = "a DataLoader: give its data set (loader.dataset); batch_size, collate and sampler are the Task's"
    elif type(data).__module__.partition(".")[0] in ("pandas", "polars"):
        instead = f"a {type(data).__name__}: give tensors, as in torch.tensor(frame[columns].to_numpy())"
    elif isinstance(data, IterableDataset):
        instead = "an IterableDataset: give a map-style data set"  # training data of this kind are a Stream by now
    elif isinstance(data, (str, bytes)):
        instead = f"a text, {data!r}: load the data and give tensors or a data set"
    elif isinstance(data, (list, tuple)) and data and all(isinstance(part, Dataset) for part in data):
        instead = (
            f"a list of {len(data)} data sets: torch.utils.data.ConcatDataset puts them one behind the other, "
            "orlomo.PerWorker gives each worker its own"
        )
    elif hasattr(data, "__next__"):
        instead = "an iterator, which can be read only once: give an IterableDataset, or a list"
    require(not instead, f"{name} is {instead}")


def _all_arrays(parts: object) -> bool:
    found = list(cast("Sequence[object]", parts))
    return bool(found) and all(isinstance(part, (np.ndarray, Tensor)) for part in found)


def _kinds(parts: object) -> str:
    return " and ".join(sorted({type(part).__name__ for part in cast("Sequence[object]", parts)}))


def _tensor(part: np.ndarray[Any, Any] | Tensor, name: str) -> Tensor:
    try:
        return torch.as_tensor(part)
    except TypeError:
        raise ConfigError(f"{name} has an array of {part.dtype}, which torch has no type for: give numbers") from None


def _check_lengths(parts: tuple[Tensor, ...], name: str) -> None:
    require(all(part.dim() > 0 for part in parts), f"{name} has a single number among its columns")
    lengths = [len(part) for part in parts]
    require(len(set(lengths)) == 1, f"{name} has tensors of {lengths} samples: the tensors must be of equal length")


def _samples(parts: list[Tensor], name: str) -> list[Tensor]:
    """A list of tensors is one of samples, unless it might as well be meant as columns."""
    lengths = {len(part) if part.dim() else 0 for part in parts}
    # As columns it would be a data set of fewer samples than it has columns: nobody means that.
    columns = len(lengths) == 1 and len(parts) <= max(lengths)
    require(
        not columns,
        f"{name} is a list of {len(parts)} tensors, which may be columns or samples: for columns give a tuple, as in "
        "(inputs, labels), for samples torch.stack(list)",
    )
    return parts


def data_size(data: Data | Sized) -> int:
    """How many samples there are."""
    tensors = as_tensors(data)
    return len(tensors[0]) if tensors else len(data)


def as_tensors(data: object) -> tuple[Tensor, ...] | None:
    """The tensors of a data set that consists of columns, else None. A list of tensors is one of samples."""
    if isinstance(data, Tensor):
        return (data,)
    if isinstance(data, TensorDataset):
        return tuple(data.tensors)
    if isinstance(data, Mapping):
        return tuple(data.values())
    if isinstance(data, tuple) and data and all(isinstance(part, Tensor) for part in data):
        return tuple(data)
    return None


def _like(data: Data, parts: Sequence[Tensor]) -> Batch:
    """Columns in the form that the data have: a tensor, a dict, or a tuple."""
    if isinstance(data, Tensor):
        return parts[0]
    return dict(zip(data, parts, strict=True)) if isinstance(data, Mapping) else tuple(parts)


def select(data: Data, indices: NDArray[np.int64]) -> Data:
    """These samples of a data set, as a data set."""
    tensors = as_tensors(data)
    if tensors is None:
        return Subset(cast("Dataset[object]", data), indices.tolist())  # it only indexes them
    # Sorted: gathering reads memory front to back; batches are shuffled later anyway.
    index = torch.from_numpy(np.sort(indices))
    chosen: Data = _like(data, [part[index] for part in tensors])
    return chosen


def sample(data: Data, index: int) -> Any:
    """One sample, as a map-style data set gives it."""
    tensors = as_tensors(data)
    return cast(MapStyle, data)[index] if tensors is None else _like(data, [part[index] for part in tensors])


def fetch(
    data: Data, indices: NDArray[np.int64], device: torch.device | str = "cpu", collate: Collate | None = None
) -> Batch:
    """The batch of these samples: by indexing for columns, else by collating."""
    tensors = as_tensors(data)
    if tensors is None or collate is not None:
        samples = [sample(data, int(index)) for index in indices]
        return to_device(_collated(samples) if collate is None else collate(samples), device)
    index = torch.from_numpy(np.ascontiguousarray(indices))
    # The same values as `part[index]`, in a third of the time for small batches.
    return _like(data, [to_device(part.index_select(0, index), device) for part in tensors])


def _collated(samples: list[Any]) -> Batch:
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"samples do not make a batch: {reason}; if they differ in size or are not tensors, give "
            "Task(collate=...), a function from a list of samples to a batch"
        ) from error


def to_device(batch: Batch, device: torch.device | str) -> Batch:
    """Move every tensor in a nested batch; on the CPU nothing is copied."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    # A named tuple takes its parts as separate arguments, not as one sequence.
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(to_device(value, device) for value in batch)
    return batch
