"""A user's own tasks and methods, from `FILE.py:NAME` or `package.module:NAME`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from orlomo.errors import ConfigError, unknown_name


def is_place(name: str) -> bool:
    """Whether a name says where something is, and is not that of something built in."""
    return ":" in name


def load_attribute(place: str, kind: str) -> Any:
    """What `place` names. `kind`, as in "task", is for errors."""
    where, _, attribute = place.rpartition(":")
    module = _load_file(Path(where), kind) if where.endswith(".py") else _load_module(where, kind)
    if not hasattr(module, attribute):
        names = [name for name in vars(module) if not name.startswith("_")]
        raise unknown_name(f"name in {where}", attribute, names)
    return getattr(module, attribute)


def _load_file(path: Path, kind: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"cannot read the {kind} file {path}: no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # dataclasses and pickle look their module up
    _import_from(path.parent)  # it may import its neighbours
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ConfigError(f"{path}, line {error.lineno}: {error.msg}") from None
    return module


def _load_module(name: str, kind: str) -> ModuleType:
    _import_from(Path())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"cannot import the {kind} module {name!r}: {error}") from None


def _import_from(folder: Path) -> None:
    place = str(folder.absolute())
    if place not in sys.path:
        sys.path.append(place)
