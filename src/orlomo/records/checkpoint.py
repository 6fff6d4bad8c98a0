"""Checkpoints: tensors as safetensors, the rest as JSON, written atomically and checksummed.

A checkpoint `000123` is two files: `000123.safetensors`, written first, and `000123.json`, which names the other's
sha256 and carries its own. It exists when the JSON file does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from orlomo.errors import RunFolderError
from orlomo.files import (
    name_to_read,
    read_text,
    remove,
    subfolder,
    temporary_files,
    write_atomically,
    write_text_atomically,
)
from orlomo.methods.state import all_finite
from orlomo.reading import parse_json
from orlomo.records.digests import sha256_of
from orlomo.records.shapes import check_shapes

KEEP = 3
"""Checkpoints that are kept, the newest ones."""

STEM = re.compile("[0-9]{9,18}")
"""The name of a checkpoint: the events before it."""

JSON_BYTES = 1 << 28
"""The largest JSON file of a checkpoint: it grows with the number of workers."""

DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError)
"""What a damaged file may cause."""

Values: TypeAlias = dict[str, Any]
"""Plain values by name, as in a JSON file."""


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name and plain values, at a position in the schedule."""

    position: int
    tensors: dict[str, Tensor]
    values: Values

    @property
    def params(self) -> Tensor:
        """The server's parameters."""
        found = self.tensors.get("server.params")
        if found is None or not found.is_floating_point() or found.dim() != 1 or not all_finite(found):
            raise RunFolderError(
                f"checkpoint {self.position} is damaged: it has no parameters, or not of finite numbers"
            )
        return found

    def below(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, by the rest of their names."""
        first = f"{prefix}."
        return {name.removeprefix(first): t for name, t in self.tensors.items() if name.startswith(first)}


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint and drop those beyond the last few."""
    subfolder(folder.parent, folder.name, make=True)
    stem = f"{checkpoint.position:09d}"
    # The JSON file is written last and names the checksum of the other: a kill between them leaves no checkpoint that
    # looks whole.
    tensors, values = folder / f"{stem}.safetensors", folder / f"{stem}.json"

    def write(path: Path) -> None:
        save_file(checkpoint.tensors, path)
        remove(values)  # of an earlier one at this position, as the last one before the end: its tensors go now

    write_atomically(tensors, write)
    body = {"position": checkpoint.position, "tensors_sha256": sha256_of(tensors), "values": checkpoint.values}
    write_text_atomically(values, _text({"sha256": _seal(body), **body}))
    remove_dispensable(folder)


def remove_after(folder: Path, position: int) -> None:
    """Remove the checkpoints behind this position: the run continues from there, and comes to others."""
    for other in positions(folder):
        if other > position:  # in the opposite order of `save`: without its JSON file a checkpoint does not exist
            remove(folder / f"{other:09d}.json")
            remove(folder / f"{other:09d}.safetensors")


def dispensable(folder: Path) -> list[Path]:
    """What is not needed any more: the files of old checkpoints, and what killed processes left half done."""
    kept = {f"{position:09d}" for position in positions(folder)[-KEEP:]}
    found = [
        path for path in folder.glob("*") if STEM.fullmatch(path.stem) and path.suffix in (".json", ".safetensors")
    ]
    # In the opposite order of writing: without its JSON file a checkpoint does not exist.
    old = sorted((path for path in found if path.stem not in kept), key=lambda path: (path.stem, path.suffix))
    return [*temporary_files(folder), *old]


def remove_dispensable(folder: Path) -> None:
    """Remove what is not needed any more. Only for the process that holds the run's lock."""
    for path in dispensable(folder):
        remove(path)


def positions(folder: Path) -> list[int]:
    """The checkpoints there are, oldest first."""
    subfolder(folder.parent, folder.name)
    return sorted(int(path.stem) for path in folder.glob("*.json") if STEM.fullmatch(path.stem))


def load_newest(
    folder: Path, warn: Callable[[str], None], check: Callable[[Checkpoint], None] = lambda found: None
) -> Checkpoint | None:
    """The newest checkpoint that is whole and that `check` does not refuse; None if there is none.

    `warn` is called with why others are passed over.
    """
    left = positions(folder)
    while left:
        try:
            checkpoint = load(folder, left.pop())
            check(checkpoint)
            return checkpoint
        except RunFolderError as error:
            warn(str(error))
    return None


def check(folder: Path, position: int) -> None:
    """An error unless every byte of a checkpoint is as it was written; its tensors are not loaded."""
    path = folder / f"{position:09d}.json"
    try:
        content = _read(path, to_the_byte=True)
        tensors = path.with_suffix(".safetensors")
        if sha256_of(tensors) != content["tensors_sha256"]:
            raise RunFolderError(f"checkpoint {tensors} is damaged: the checksum of its tensors does not match")
    except DAMAGED as error:
        raise _damaged(path, error) from None


def load(folder: Path, position: int) -> Checkpoint:
    """One checkpoint, its checksums verified."""
    path = folder / f"{position:09d}.json"
    try:
        content = _read(path)
        tensors = path.with_suffix(".safetensors")
        if sha256_of(tensors) != content["tensors_sha256"]:
            raise RunFolderError(f"checkpoint {tensors} is damaged: its checksum does not match")
        with name_to_read(tensors) as opened:
            loaded = {name: tensor.clone() for name, tensor in load_file(opened).items()}  # not tied to the file
        return Checkpoint(content["position"], loaded, content["values"])
    except DAMAGED as error:
        raise _damaged(path, error) from None


def newest_values(folder: Path) -> Values:
    """The plain values of the newest checkpoint, without looking at its tensors; none where it is damaged."""
    for position in positions(folder)[-1:]:
        with contextlib.suppress(RunFolderError):
            return read_values(folder, position)
    return {}


def read_values(folder: Path, position: int) -> Values:
    """The plain values of a checkpoint, without looking at its tensors."""
    path = folder / f"{position:09d}.json"
    try:
        values: Values = _read(path)["values"]
    except DAMAGED as error:
        raise _damaged(path, error) from None
    return values


def _read(path: Path, to_the_byte: bool = False) -> Values:
    """The JSON file of a checkpoint, its checksum verified. `to_the_byte`: and each byte as `save` writes it."""
    text = read_text(path, JSON_BYTES)
    content: Values = parse_json(text, str(path), finite=False)
    if to_the_byte and text != _text(content):
        raise RunFolderError(f"checkpoint {path} is damaged: it is not as it was written")
    if content.pop("sha256") != _seal(content):
        raise RunFolderError(f"checkpoint {path} is damaged: its checksum does not match")
    if content["position"] != int(path.stem) or type(content["position"]) is not int:
        raise RunFolderError(f"checkpoint {path} is damaged: it is of another position")
    try:
        check_shapes(content["values"])
    except RunFolderError as error:
        raise RunFolderError(f"checkpoint {path} is damaged: {error}") from None
    return content


def _damaged(path: Path, error: Exception) -> RunFolderError:
    what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return RunFolderError(f"checkpoint {path} is damaged: {what}")


def _text(content: Values) -> str:
    return json.dumps(content, indent=1)


def _seal(content: Values) -> str:
    # With sorted keys: the checksum must not depend on the order in which they were written.
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
