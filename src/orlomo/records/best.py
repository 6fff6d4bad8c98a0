"""Models in a run folder: the trained one, and the best one where a callback keeps it.

`best.safetensors` is a state dict with the row of metrics.csv it belongs to in its header; `best.json` is that row for
readers. A new best is written beside the old one before a checkpoint and put in its place after it, so that whatever
moment a run is killed at, it continues with a best model that belongs to the metrics that it has kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from orlomo.errors import ConfigError, RunFolderError, require
from orlomo.files import write_atomically, write_text_atomically
from orlomo.records.tables import Row

BEST, NEXT, READABLE = "best.safetensors", ".best-next.safetensors", "best.json"


@dataclass(frozen=True)
class Best:
    """The best model of a run: `metrics` is the row of its evaluation."""

    path: Path
    metrics: Row

    def model(self, build: Callable[[], nn.Module]) -> nn.Module:
        """The model: what `build` makes, with these parameters and buffers, in evaluation mode."""
        return load_model(self.path, build)


def read_best(folder: Path) -> Best | None:
    """The best model of a run folder; None where none was kept."""
    return _read(folder / BEST)


def load_model(path: Path, build: Callable[[], nn.Module] | None) -> nn.Module:
    """What `build` makes, with the parameters and buffers in this file, in evaluation mode."""
    factory = callable(build) and not isinstance(build, nn.Module)
    require(factory, "build must be a function that makes the module, as Task's model is: run.model(MyModule)")
    assert build is not None
    module = build()
    try:
        module.load_state_dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"cannot read {path}: {error}") from None
    except RuntimeError as error:  # names or shapes that are not the module's
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is not of the module that build makes: {reason[:300]}") from None
    return module.eval()


def save_state(path: Path, state: dict[str, Tensor], metrics: Row | None = None) -> None:
    """Write a state dict."""
    tensors = {name: tensor.clone().contiguous() for name, tensor in state.items()}  # tied weights share memory
    header = None if metrics is None else {"metrics": json.dumps(metrics)}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, header))


def write_next(folder: Path, state: dict[str, Tensor], metrics: Row) -> None:
    """Before a checkpoint: the new best model beside the old one."""
    save_state(folder / NEXT, state, metrics)


def put_in_place(folder: Path) -> None:
    """After a checkpoint: the new best model in place of the old one."""
    best = _read(folder / NEXT)
    if best is None:
        return
    row = {name: None if value != value else value for name, value in best.metrics.items()}  # JSON has no NaN
    write_text_atomically(folder / READABLE, json.dumps(row, indent=1) + "\n")
    os.replace(best.path, folder / BEST)  # last: killed before it, `settle` does both again


def settle(folder: Path, kept: Iterable[Row]) -> None:
    """When a run continues: a new best model was put in place, or not, as the checkpoint it came with was written."""
    best = _read(folder / NEXT)
    if best is None:
        return
    key = ("reports", "params_checksum")
    if [best.metrics[name] for name in key] in [[row[name] for name in key] for row in kept]:
        put_in_place(folder)
    else:
        best.path.unlink()


def _read(path: Path) -> Best | None:
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            return Best(path, json.loads(file.metadata()["metrics"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} is damaged: {error}") from None
