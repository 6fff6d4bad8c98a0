"""How the modules lie over one another: imports point downwards, nothing is hidden, nothing grows too large."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import orlomo

ROOT = Path(orlomo.__file__).parent
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted(ROOT.rglob("*.py"))}

LAYERS = (
    "__main__",
    "commands",
    "reproduce",
    "comparing",
    "resuming",
    "launching",
    "training",
    "report",
    "integrations",
    "engines",
    "loop",
    "tasks",
    "verifying",
    "records",
    "data",
    "trust",
    "config",
    "engines.registry",
    "clusters",
    "methods",
    "flat",
    "seeds",
    "loading",
    "reading",
    "values",
    "temporary",
    "locks",
    "files",
    "errors",
    "printing",
)
"""From top to bottom: a module imports from its own entry and from those below. The longest name that fits counts."""

UPWARDS = {
    ("records.run", "report.web.notebook"): "how a notebook shows a run; loaded when one does",
    ("records.best", "tasks.registry"): "makes the module of a task by its name; loaded when one is asked for",
    ("records.best", "tasks.task"): "a type, for type checkers only",
    ("engines.registry", "engines.engine"): "the type of what it loads, for type checkers only",
}
"""The imports that point upwards all the same, and why."""

LIGHT = (
    *(name for name in MODULES if name.startswith("commands.") and "__init__" not in name),
    *("__init__", "config", "errors", "files", "loading", "locks", "printing", "reading", "trust", "values"),
    *("engines.registry", "methods.registry", "methods.rates", "methods.ledger", "tasks.registry"),
)
"""What can be imported without waiting for torch or numpy."""

PRINTS = {"printing", "commands.main", "commands.output"}
"""What may call `print`: all else prints names of users' folders and texts of their files."""

MOST_LINES = 350
LONGER: dict[str, str] = {}
"""Files above that, and why."""

MOST_MODULES = 10
LARGER: dict[str, str] = {
    "commands": "one file per group of commands, and what they share",
    ".": "the calls that users make, and what everything needs",
    "engines": "what all engines share",
    "engines/loops": "what all engines share of a user's loop, and what each has of its own",
    "loop": "in the user's process: the model's side and the data's side",
    "methods/papers": "one file per paper",
    "records": "about one module per kind of file in a run folder",
    "tasks": "four of them are the built-in tasks and their models",
}
"""Folders with more modules than that, and why."""


def layer(module: str) -> int:
    """The position of a module's layer, from the top."""
    fitting = [name for name in LAYERS if f"{module}.".startswith(f"{name}.")]
    assert fitting, f"orlomo.{module} is in no layer"
    return LAYERS.index(max(fitting, key=len))


def imports(path: Path) -> Iterator[str]:
    """The modules of this package that a file imports anywhere in it, also for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            first, _, rest = (node.module or "").partition(".")
            names = [f"{rest}.{alias.name}".lstrip(".") for alias in node.names] if first == "orlomo" else []
        elif isinstance(node, ast.Import):
            names = [alias.name.removeprefix("orlomo.") for alias in node.names if alias.name.startswith("orlomo.")]
        else:
            continue
        for name in names:  # `from orlomo.a import b`: b is a module, or a name in a
            found = next((n for n in (name, f"{name}.__init__", name.rpartition(".")[0]) if n in MODULES), None)
            if found is not None:
                yield found


def test_imports_point_downwards() -> None:
    upwards = {
        (name, target)
        for name, path in MODULES.items()
        if name != "__init__"  # the public names, loaded when they are used
        for target in imports(path)
        if layer(target) < layer(name)
    }
    assert upwards == set(UPWARDS)


def test_no_module_is_hidden_by_a_name_of_its_package() -> None:
    for name, path in MODULES.items():
        if path.stem != "__init__":
            continue
        below = {module.stem for module in (*path.parent.glob("*.py"), *path.parent.glob("*/"))}
        bound: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                bound |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                bound.add(node.name)
            elif isinstance(node, ast.List):  # __all__
                bound |= {str(name.value) for name in node.elts if isinstance(name, ast.Constant)}
        assert not bound & below, f"orlomo.{name} hides {bound & below}"


def test_no_file_is_too_long() -> None:
    longer = {name for name, path in MODULES.items() if len(path.read_text("utf-8").splitlines()) > MOST_LINES}
    assert longer == set(LONGER)


def test_no_folder_is_too_large() -> None:
    folders = {path.parent for path in MODULES.values()}
    count = {f: sum(not path.stem.startswith("__") for path in f.glob("*.py")) for f in folders}
    assert {f.relative_to(ROOT).as_posix() for f, modules in count.items() if modules > MOST_MODULES} == set(LARGER)


def test_texts_are_printed_in_one_place() -> None:
    for name in MODULES.keys() - PRINTS:
        for node in ast.walk(ast.parse(MODULES[name].read_text("utf-8"))):
            prints = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            assert not prints, f"orlomo.{name}, line {node.lineno}: use orlomo.printing.say, which escapes"


@pytest.mark.parametrize("name", LIGHT)
def test_light_modules_load_neither_torch_nor_numpy(name: str) -> None:
    module = f"orlomo.{name}".removesuffix(".__init__")
    code = f"import sys, {module}; print({{'torch', 'numpy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
