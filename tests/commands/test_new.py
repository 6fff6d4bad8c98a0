"""`orlomo new`: the files run as they are, on virtual time and on real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import orlomo
from orlomo.commands import new
from small import call_cli

FAST = ("--workers", 3, "--epochs", 1, "--jobs", 1)


@pytest.mark.parametrize("engine", ["simulated", "processes"])
def test_a_new_task_runs(tmp_path: Path, engine: str) -> None:
    made = call_cli("new", "task", "my-points", folder=tmp_path)
    assert made.stdout == "my_points.py: run it with\norlomo train my_points.py:task\n"
    command = made.stdout.splitlines()[-1].split()[1:]
    done = call_cli(*command, *FAST, "--engine", engine, "--out", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert orlomo.load(tmp_path / "run").metric_columns["test_accuracy"][-1] > 0.9
    assert orlomo.replay(tmp_path / "run", jobs=1).agrees


@pytest.mark.parametrize("engine", ["simulated", "processes"])
def test_a_new_method_runs(tmp_path: Path, engine: str) -> None:
    made = call_cli("new", "method", "slow_start", folder=tmp_path)
    assert made.stdout == "slow_start.py: run it with\norlomo train digits --method slow_start.py:SlowStart\n"
    command = made.stdout.splitlines()[-1].split()[1:]
    settings = ("--set", "server_momentum=0.3", "--engine", engine, "--out", "run")
    done = call_cli(*command, *FAST[:2], "--epochs", 4, *settings, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    run = orlomo.load(tmp_path / "run")
    assert run.metric_columns["test_accuracy"][-1] > 0.7
    assert "server_momentum = 0.3" in (run.folder / "config.toml").read_text()
    assert orlomo.replay(tmp_path / "run", jobs=1).agrees


def test_a_new_method_is_compared(tmp_path: Path) -> None:
    new.write("method", "mine", tmp_path)
    words = ("compare", "quadratic", "--methods", "mine.py:Mine,al-sgd", "--set", "server_momentum=0.3", *FAST)
    done = call_cli(*words, "--out", "both", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "orlomo: note: al-sgd has no server_momentum\n")
    assert "mine-Mine" in done.stdout
    assert orlomo.load(tmp_path / "both" / "mine-Mine-seed0").finished


@pytest.mark.parametrize("kind", new.KINDS)
def test_nothing_is_written_over(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine.py").write_text("precious")
    done = call_cli("new", kind, "mine", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, "orlomo: mine.py is there already: choose another name\n")
    assert (tmp_path / "mine.py").read_text() == "precious"


@pytest.mark.parametrize("kind", new.KINDS)
def test_the_files_are_as_tidy_as_ours(tmp_path: Path, kind: str) -> None:
    path, _ = new.write(kind, "a_name_of_usual_length", tmp_path)
    assert f"my_{kind}" not in path.read_text()
    shared = ("--isolated", "--line-length", "120")
    for words in (["format", "--check", *shared], ["check", "--select", "E,F,I,B,UP,SIM,RUF", *shared]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, path], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout
