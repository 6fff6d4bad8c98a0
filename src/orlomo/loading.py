"""A user's own tasks and methods, from `FILE.py:NAME` or `package.module:NAME`."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from orlomo.errors import ConfigError, RunFolderError, require, unknown_name
from orlomo.files import read_bytes

MOST_SOURCE = 2**26
"""The largest file, in bytes, that is taken for code."""

_loaded: dict[tuple[Path, str], ModuleType] = {}
"""Files that this process has loaded, by path and digest: a class that is asked for twice is one class."""

_without_code: set[Path] = set()


def is_import_path(name: str) -> bool:
    """Whether a name is `FILE.py:NAME` or `package.module:NAME`, and not the name of something built in."""
    return ":" in name


def absolute(import_path: str) -> str:
    """The same import path, valid in any working directory."""
    return str(Path(import_path).absolute()) if ".py:" in import_path else import_path


def source_digest(import_path: str) -> str:
    """The sha256 of the file that an import path names, without running it; empty where it cannot be read."""
    path = source_path(import_path)
    content = None if path is None else source_of(path)
    return "" if content is None else hashlib.sha256(content).hexdigest()


def source_of(path: Path) -> bytes | None:
    """The content of a file of code; None where it cannot be read, is no file, or is too large for code."""
    try:
        return read_bytes(path, MOST_SOURCE, follow=True)
    except (OSError, ValueError, RunFolderError):
        return None


def source_path(import_path: str, directory: Path | None = None) -> Path | None:
    """The file that an import path names, found as an import would find it, and without running anything; None where
    that is not known. `directory`: in which it would be imported, if not in the working directory."""
    where, _, _ = import_path.rpartition(":")
    if where.endswith(".py"):
        return Path(where)
    parts = where.split(".")
    below: list[str] | None = None
    file = None
    try:
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            # Not by `importlib.util.find_spec`, which would import the packages around a module.
            if (loaded := sys.modules.get(name)) is not None:
                file, below = getattr(loaded, "__file__", None), list(getattr(loaded, "__path__", ()))
            elif (found := _find(name, below, directory or Path())) is not None:
                file, below = found.origin, list(found.submodule_search_locations or ())
            else:
                return None
        return None if file is None else Path(file)
    except Exception:  # of a finder, about a name that is no module's
        return None


def _find(name: str, below: list[str] | None, directory: Path) -> ModuleSpec | None:
    """The spec of a module in the package that lies `below`; None: of one that is in no package."""
    for finder in sys.meta_path:
        if (found := finder.find_spec(name, below)) is not None:
            return found
    # As `_load_module` does, which comes later.
    beside = below is None and _may_import_from(directory)
    return PathFinder.find_spec(name, [str(directory.absolute())]) if beside else None


def class_digest(kind: type) -> str:
    """The sha256 of the files that a class and its bases were written in, orlomo's own left out; empty where there are
    none, as in a notebook."""
    total, files = hashlib.sha256(), dict.fromkeys(map(_source_file, kind.__mro__))
    for content in (read_bytes(path, MOST_SOURCE, follow=True) for path in files if path is not None):
        total.update(content)
    return total.hexdigest() if any(path is not None for path in files) else ""


def function_digest(function: object) -> str:
    """The same of a function, or of the class of an object that is called like one."""
    while isinstance(function, functools.partial):
        function = function.func
    path = _source_file(function if hasattr(function, "__code__") else type(function))
    return hashlib.sha256(read_bytes(path, MOST_SOURCE, follow=True)).hexdigest() if path is not None else ""


def _source_file(kind: Any) -> Path | None:
    try:
        path = Path(inspect.getsourcefile(kind) or "")
    except (OSError, TypeError):
        return None
    foreign = kind.__module__.partition(".")[0] not in ("orlomo", "abc", "builtins")
    return path if foreign and path.is_file() else None


def load_attribute(import_path: str, kind: str) -> object:
    """The object that an import path names. `kind`, such as "task", is for error messages."""
    where, _, attribute = import_path.rpartition(":")
    require(bool(attribute), f"{import_path!r} ends with a colon: say which name in the file is the {kind}")
    module = _load_file(Path(where), kind) if where.endswith(".py") else _load_module(where, kind)
    if not hasattr(module, attribute):
        names = [name for name, value in vars(module).items() if not name.startswith("_") and _is_own(value, module)]
        raise unknown_name(f"name in {where}", attribute, names)
    return getattr(module, attribute)


def _is_own(value: object, module: ModuleType) -> bool:
    """Whether a file has made this itself: a function or class that it imports is no one's first guess."""
    return not isinstance(value, ModuleType) and (not callable(value) or value.__module__ == module.__name__)


def _is_free(path: Path) -> bool:
    """Whether no other module has this file's name: an installed one that is imported later must be found."""
    if path.stem in sys.modules:
        return False
    try:
        found = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError):
        return False
    return found is None or found.origin == str(path)


def _load_file(path: Path, kind: str) -> ModuleType:
    import cloudpickle  # only needed here

    path = path.absolute()
    if not os.path.isfile(path):
        raise ConfigError(f"cannot read the {kind} file {path}: no such file")
    digest = hashlib.sha256(read_bytes(path, MOST_SOURCE, follow=True)).hexdigest()
    if (path, digest) in _loaded:
        return _loaded[path, digest]
    # Its own name where that is free: dataclasses and pickle look modules up by their names.
    name = path.stem if _is_free(path) else f"{path.stem}_{digest[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"cannot read the {kind} file {path}: it is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    _import_from(path.parent)  # it may import its neighbours
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[name]
        raise ConfigError(f"{path}, line {error.lineno}: {error.msg}") from None
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ImportError):
            raise ConfigError(f"{_line_of(error, path)}: {error}") from None
        if isinstance(error, SystemExit):
            where = f"{_line_of(error, path)} ends the program while the file is read"
            raise ConfigError(f'{where}: put that below `if __name__ == "__main__":`') from None
        raise
    _loaded[path, digest] = module
    cloudpickle.register_pickle_by_value(module)  # other processes and machines may not find the file
    return module


def _line_of(error: BaseException, path: Path) -> str:
    """The file and the line in it from which an error came."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def _load_module(name: str, kind: str) -> ModuleType:
    require(bool(name.strip(".")), f"the {kind} module has no name: use FILE.py:NAME or package.module:NAME")
    if _may_import_from(Path()):
        _import_from(Path())
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"cannot import the {kind} module {name!r}: {error}") from None
    except (TypeError, ValueError):  # a relative or an impossible name
        raise ConfigError(f"{name!r} is no {kind} module: use FILE.py:NAME or package.module:NAME") from None


def name_a_file(name: str, kind: str) -> None:
    """Where `name` is a Python file without the name of something in it: an error that says to give one."""
    for path in (name, f"{name}.py"):
        if path.endswith(".py") and os.path.isfile(path):
            raise ConfigError(f"{name}: say which name in the file is the {kind}, as in {path}:{kind}")


def check_needs_nothing(function: Callable[..., object], name: str) -> None:
    """Refuse a function that cannot be called without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        needed = inspect.signature(function)
        raise ConfigError(f"{name}{needed} needs arguments: name a function that needs none") from None
    except ValueError:  # one that is not written in Python: it says so itself
        return


def hold_no_code(folder: Path) -> None:
    """Modules are not looked for in this folder, also where it is the working directory: a run holds no code."""
    _without_code.add(folder.resolve())


def _may_import_from(folder: Path) -> bool:
    here = folder.resolve()
    return not any(here.is_relative_to(one) for one in _without_code)


def _import_from(folder: Path) -> None:
    path = str(folder.absolute())
    if path not in sys.path:
        sys.path.append(path)  # at the end: an installed package of the same name goes first
