"""Engines and metrics are known by name in their own place alone: a new one needs no change elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import orlomo
from orlomo.engines.registry import ENGINES
from orlomo.tasks.metrics import measured

ROOT = Path(orlomo.__file__).parent

ALLOWED = {
    ("config.py", "simulated"): "the engine where none is named",
    ("training.py", "simulated"): "the engine where none is named",
    ("launching.py", "processes"): "the engine of loops where none is named",
    ("commands/run.py", "processes"): "the engine of loops where none is named",
    ("commands/run.py", "ray"): "the argument `ray` of `launch`",
    ("comparing.py", "ray"): "the argument `ray` of `train`",
    ("commands/train.py", "ray"): "the argument `ray` of `train`",
}
"""Texts outside the engines that are an engine's name, and why."""


def texts(path: Path) -> Iterator[str]:
    """The texts in a module that its code uses: not docstrings, help and messages, which are sentences."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield node.value


def found(names: set[str], *places: str) -> set[tuple[str, str]]:
    """Where these names are used outside of those places."""
    modules = {str(path.relative_to(ROOT)): path for path in ROOT.rglob("*.py")}
    elsewhere = {name: path for name, path in modules.items() if not name.startswith(places)}
    return {(name, text) for name, path in elsewhere.items() for text in texts(path) if text in names}


def test_no_module_knows_an_engine_by_name() -> None:
    places = ("engines/registry.py", "engines/loops/", *(f"engines/{name}/" for name in ENGINES))
    assert found(set(ENGINES), *places) == set(ALLOWED)


def test_no_reader_knows_a_metric_by_name() -> None:
    columns = {one.column for one in measured(orlomo.task("digits"))}
    assert columns == {"test_accuracy", "train_loss", "test_loss"}
    assert found(columns | {"accuracy"}, "tasks/metrics.py", "reproduce/") <= {("__init__.py", "accuracy")}


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_an_engine_is_one_folder(name: str) -> None:
    folder, _, _ = ENGINES[name].path.partition(".")
    assert folder == name
    assert (ROOT / "engines" / folder / "engine.py").is_file()
