"""The engines by name: loaded when they are used, and compared by name nowhere else."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

import orlomo
from orlomo.config import RunConfig
from orlomo.engines.engine import Engine
from orlomo.engines.registry import ENGINES, engine_class, facts_of

SOURCE = Path(orlomo.__file__).parent


def test_the_registry_loads_neither_torch_nor_ray() -> None:
    code = "import sys, orlomo.engines.registry; print([name for name in ('torch', 'ray') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_engine_is_known_and_can_be_loaded_without_ray() -> None:
    code = """
import sys
sys.modules["ray"] = None  # as if it were not installed
from orlomo.engines.registry import ENGINES, engine_class
for name in ENGINES:
    print(engine_class(name).__name__)
import orlomo
try:
    orlomo.train("digits", engine="ray", workers=2, out="never")
except orlomo.OrlomoError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *names, message = done.stdout.splitlines()
    assert names == ["Simulated", "Processes", "RayCluster"]
    assert "pip install" in message
    assert not Path("never").exists()


@pytest.mark.parametrize("name", ENGINES)
def test_facts_and_classes_agree(name: str) -> None:
    kind, facts = engine_class(name), facts_of(name)
    assert issubclass(kind, Engine)
    assert kind.facts is facts
    assert facts.settings <= {field.name for field in dataclasses.fields(RunConfig)}
    assert not facts.settings & set(facts.instead)
    assert kind.waits_for_disk == (facts.clock == "real")


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(orlomo.OrlomoError, match="unknown engine 'simulate': did you mean 'simulated'"):
        facts_of("simulate")


def test_a_check_resolves_what_was_left_open() -> None:
    common = {"method": orlomo.method("orlomo"), "cluster": orlomo.cluster("homogeneous"), "workers": 2}
    config = RunConfig(engine="processes", **common)
    checked = engine_class("processes").check(config)
    assert checked.threads is not None
    assert engine_class("processes").check(checked) == checked
    assert engine_class("simulated").check(RunConfig(**common)).threads is None
    with pytest.raises(orlomo.OrlomoError, match="device 'nowhere' cannot be used here"):
        engine_class("processes").check(RunConfig(engine="processes", devices=("cpu", "nowhere"), **common))


def test_no_module_compares_names_of_engines() -> None:
    names = "|".join(ENGINES)
    pattern = re.compile(rf"engine (==|!=) |[=!]= [\"']({names})[\"']|engine in \(")
    for path in SOURCE.rglob("*.py"):
        if "engines" not in path.relative_to(SOURCE).parts:
            found = [line for line in path.read_text().splitlines() if pattern.search(line)]
            assert not found, (path, found)
    training = (SOURCE / "training.py").read_text()
    assert not re.search(r"isinstance\([^)]*(Live|Execution|Engine)", training)
