"""Models in a run folder: the trained one, and the best one where a callback keeps it.

`best.safetensors` is a state dict with the row of metrics.csv it belongs to in its header; `best.json` is that row for
readers. A new best is written beside the old one before a checkpoint and put in its place after it, so that whatever
moment a run is killed at, it continues with a best model that belongs to the metrics that it has kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from orlomo import trust
from orlomo.errors import ConfigError, RunFolderError, require
from orlomo.files import is_there, name_to_read, write_atomically, write_text_atomically
from orlomo.reading import parse_json
from orlomo.records.tables import Row
from orlomo.seeds import derive, isolated, seed_global

if TYPE_CHECKING:
    from orlomo.tasks.task import Task

BEST, NEXT, READABLE = "best.safetensors", ".best-next.safetensors", "best.json"


Build: TypeAlias = "Task | nn.Module | Callable[[], nn.Module] | None"
"""What a model is loaded into: a module, what makes one, or the Task that does. None: the run's own task, by name."""


@dataclass(frozen=True)
class Best:
    """The best model of a run: `metrics` is the row of its evaluation."""

    path: Path
    metrics: Row
    task: str = field(default="custom", repr=False)
    seed: int = field(default=0, repr=False)

    def model(self, build: Build = None) -> nn.Module:
        """The model as `Run.model` gives it, with these parameters and buffers."""
        return load_model(self.path, build, self.task, self.seed)


def read_best(folder: Path, task: str, seed: int) -> Best | None:
    """The best model of a run folder; None where none was kept."""
    found = _read(folder / BEST)
    return None if found is None else replace(found, task=task, seed=seed)


def load_model(path: Path, build: Build, task: str, seed: int, partial: bool = False) -> nn.Module:
    """A module with the parameters and buffers in this file, in evaluation mode: `build`, or what it makes, or None:
    what the task of this name makes. `partial`: the file may lack some, which stay as they are."""
    module = _module(build, task, seed, path.parent)
    load_state(path, module, partial)
    return module.eval()


def load_state(path: Path, module: nn.Module | Sequence[nn.Module], partial: bool) -> None:
    """Load the parameters and buffers in this file into a module, or into several that were trained together."""
    modules = [module] if isinstance(module, nn.Module) else list(module)
    require(
        bool(modules) and all(isinstance(one, nn.Module) for one in modules),
        f"give a torch.nn.Module, or a list of them, not {module!r}",
    )
    try:
        with name_to_read(path) as opened:
            state = load_file(opened)
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"cannot read {path}: {error}") from None
    several = len(modules) > 1
    own: dict[str, tuple[nn.Module, str, Tensor]] = {}
    for number, one in enumerate(modules):
        for name, value in one.state_dict().items():
            if isinstance(value, Tensor):
                own[(f"{number}." if several else "") + _plain(name)] = (one, name, value)
    # Compared before anything is loaded: a module that does not fit is left as it was.
    wrong = [] if partial else [f"the file has no {name}" for name in own.keys() - state.keys()]
    wrong += [f"the module has no {name}" for name in state.keys() - own.keys()]
    wrong += [
        f"{name} is {tuple(state[name].shape)} in the file and {tuple(own[name][2].shape)} in the module"
        for name in own.keys() & state.keys()
        if state[name].shape != own[name][2].shape
    ]
    if wrong:
        shown, more = "; ".join(sorted(wrong)[:3]), f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ConfigError(f"{path} is not of this module ({type(modules[0]).__name__}): {shown}{more}")
    for one in modules:
        found = {name: state[key] for key, (owner, name, _) in own.items() if owner is one and key in state}
        one.load_state_dict(found, strict=False)  # not strict: what is no tensor (`get_extra_state`) is not in the file


def _plain(name: str) -> str:
    """A name without what compilers and DDP put in front of it."""
    while name.startswith(("_orig_mod.", "module.")):
        name = name.partition(".")[2]
    return name


def _module(build: Build, task: str, seed: int, folder: Path) -> nn.Module:
    """As at the start of the run: buffers that are not in a state dict are built, maybe at random, as they were."""
    if isinstance(build, nn.Module):
        return build
    if build is None and task == "custom":
        raise ConfigError(
            "the run trained a Task that only Python has: give it, or what makes its model, as in run.model(task)"
        )
    if build is None:
        found_code = trust.untrusted(trust.code_in({"task": task}), folder / "config.toml")
        trust.require_trust(found_code, folder, "give the task, as in run.model(task)")
    from orlomo.tasks.registry import task as task_by_name

    whole = task_by_name(task) if build is None else build
    make: Any = whole if isinstance(whole, type) else getattr(whole, "model", whole)  # of a Task
    require(callable(make), f"give a Task, a function that makes the module, or a module, not {build!r}")
    with isolated():
        seed_global(derive(seed, "model"))
        module = make()
    require(isinstance(module, nn.Module), f"build must make a torch.nn.Module, not {module!r}")
    found: nn.Module = module
    # What it was made of, as the tensors of a checkpoint that the user's function holds, must stay as it is.
    for tensor in (*found.parameters(), *found.buffers()):
        tensor.data = tensor.data.clone()
    return found


def save_state(path: Path, state: dict[str, Tensor], metrics: Row | None = None) -> None:
    """Write a state dict; what is no tensor (`get_extra_state`) is left out."""
    # Copied, since tied weights share memory.
    tensors = {name: value.clone().contiguous() for name, value in state.items() if isinstance(value, Tensor)}
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
    write_text_atomically(folder / READABLE, _readable(best))
    os.replace(best.path, folder / BEST)  # last: killed before it, `settle` does both again


def readable_of(folder: Path) -> str:
    """What best.json holds beside the best model of this folder."""
    best = _read(folder / BEST)
    return "" if best is None else _readable(best)


def _readable(best: Best) -> str:
    row = {name: None if value != value else value for name, value in best.metrics.items()}  # JSON has no NaN
    return json.dumps(row, indent=1) + "\n"


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
    if not is_there(path):
        return None
    try:
        with name_to_read(path) as opened, safe_open(opened, framework="pt") as file:
            metrics = parse_json(file.metadata()["metrics"], f"the header of {path}", finite=False)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} is damaged: {error}") from None
    if not isinstance(metrics, dict):
        raise RunFolderError(f"{path} is damaged: its header has no row of metrics")
    return Best(path, metrics)
