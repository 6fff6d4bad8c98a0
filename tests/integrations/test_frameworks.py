"""Lightning and accelerate: alone the same bits as without the adapter; as workers, each sample once, one schedule."""

from __future__ import annotations

import doctest
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

import orlomo
from orlomo.commands.main import main

SCRIPT = Path(__file__).parent / "frameworks.py"
LIBRARIES = {"automatic": "lightning", "manual": "lightning", "accelerate": "accelerate", "scaled": "accelerate"}


def needs(library: str) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


@pytest.mark.parametrize("kind", LIBRARIES)
def test_workers_share_the_samples_and_the_schedule(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(LIBRARIES[kind])
    monkeypatch.chdir(tmp_path)
    method = ["--method", "orlomo", "--momentum", "0.9", "--local-steps", "4"]
    assert main(["run", *method, "--workers", "2", "--out", "run", "--quiet", str(SCRIPT), kind]) == 0
    assert main(["audit", "run"]) == 0
    run = orlomo.load("run")
    rounds = run.round_columns
    assert rounds["samples"].sum() == 3 * 203
    ended = Path("ended").read_text().splitlines()
    if kind == "scaled":
        # Steps that overflowed are in no report; the schedule is behind by as many.
        assert rounds["steps"].sum() == sum(map(int, Path("made").read_text().split())) < 27
    else:
        per_step = 8 if kind == "manual" else 24
        assert rounds["steps"].tolist() == [-(-samples // per_step) for samples in rounds["samples"].tolist()]
        assert all(line.endswith(" [0.0]") for line in ended)  # the end of the cosine
    values = str(run.params.tolist())
    assert len(ended) == 2  # both hold the parameters of the run's end
    assert all(line.startswith(values) for line in ended)
    if kind == "automatic":
        assert run.metric_columns["val_loss"][-1] < run.metric_columns["val_loss"][0] / 2
    if LIBRARIES[kind] == "lightning":
        assert len(list(Path("lightning").rglob("*.ckpt"))) == 1  # of the chief


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", LIBRARIES)
def test_alone_nothing_changes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(LIBRARIES[kind])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(SCRIPT.parent)
    train = importlib.import_module("frameworks").train
    assert train(kind) == train(kind, without=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["lightning", "accelerate"])
def test_the_examples_of_the_adapters(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(name)
    monkeypatch.chdir(tmp_path)
    tried = doctest.testmod(importlib.import_module(f"orlomo.integrations.{name}"))
    assert tried.attempted > 0
    assert tried.failed == 0
