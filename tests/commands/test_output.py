"""What a command prints and how it ends, whatever a user's files do: one line for a mistake, only JSON, Ctrl-C."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from orlomo.commands.main import main
from small import call_cli, run_cli, started

TASK = """
import os, sys
import torch
from torch import nn
import orlomo

print("printed by the file")
os.system("echo printed by a child process")

def loss(model, batch):
    print("printed by the loss", flush=True)
    return model(batch).square().mean()

task = orlomo.Task(model=lambda: nn.Linear(4, 1), loss=loss, train_data=torch.ones(16, 4), batch_size=4)
number = 3
def needs(size): return task
def nothing(): pass
class Net(nn.Module): pass
net = Net()
"""
QUIET = TASK.replace("print(", "len(").replace(", flush=True", "").replace("echo", "true")
SHORT = ("--workers", 2, "--epochs", 1, "--local-steps", 1, "--jobs", 1)


@pytest.mark.parametrize("engine", ["simulated", "processes"])
def test_json_is_all_that_is_on_stdout(engine: str, tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(TASK + "import atexit; atexit.register(print, 'printed at the exit')\n")
    done = run_cli("train", "chatty.py:task", *SHORT, "--engine", engine, "--json", "--out", "a", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["finished"] is True
    for printed in ("by the file", "by a child process", "by the loss", "at the exit"):
        assert f"printed {printed}" in done.stderr


WAITS = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"


@pytest.mark.parametrize("when", ["while the file is loaded", "while the task is made", "at the exit"])
def test_ctrl_c_is_one_line(when: str, tmp_path: Path) -> None:
    wait = "def wait():\n    " + WAITS.strip().replace("\n", "\n    ") + "\n"
    files = {
        "while the file is loaded": WAITS,
        "while the task is made": wait + "task = wait\n",
        "at the exit": QUIET + wait + "import atexit; atexit.register(wait)",
    }
    (tmp_path / "slow.py").write_text(files[when])
    with started("train", "slow.py:task", *SHORT, "--out", "a", folder=tmp_path) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "here":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    said = (
        "stopped at its exit; the command was done" if when == "at the exit" else "stopped; there was nothing to save"
    )
    assert errors == f"orlomo: {said}\n"
    assert (tmp_path / "a").exists() == (when == "at the exit")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["train", "mine.py:number"], "mine.py:number is 3: it must be an orlomo.Task, or a function that returns one"),
        (["train", "mine.py:needs"], "mine.py:needs(size) needs arguments: name a function that needs none"),
        (["train", "mine.py:nothing"], "mine.py:nothing gives None: it must be an orlomo.Task"),
        (["train", "mine.py:Net"], "mine.py:Net gives a Net: it must be an orlomo.Task"),
        (["train", "mine.py:net"], "mine.py:net is a model: a task is also a loss and data"),
        (["train", "mine.py"], "mine.py: say which name in the file is the task, as in mine.py:task"),
        (["train", "mine"], "mine: say which name in the file is the task, as in mine.py:task"),
        (["train", "mine.py:"], "ends with a colon: say which name"),
        (["train", "missing.py:task"], "missing.py, line 2: No module named 'not_there'"),
        (
            ["train", "digits", "--pace", "1", "1", "2", "4"],
            "--pace takes its values with commas between: --pace 1,1,2,4",
        ),
        (["train", "digits", "--workers", "4", "--devices", "cpu", "cpu"], "--devices takes its values with commas"),
        (["compare", "digits", "--methods", "asgd", "orlomo"], "with commas between: --methods asgd,orlomo"),
        (["train", "digits", "--set", "momentum=0", "local_steps=1"], "give --set momentum=0 --set local_steps=1"),
        (["train", "digits", "--workers", "4", "8"], "--workers takes one value, not 4 8"),
        (["train", "digits", "--wd", "0.1"], "did you mean '--weight-decay'?"),
        (["train", "digits", "--num_workers", "4"], "did you mean '--workers'?"),
        (["train", "digits", "--optimizer", "sgd"], "did you mean '--method'?"),
        (["train", "digits", "-n", "4"], "unknown flag '-n': did you mean '--workers'?"),
        (["train", "digits", "--set", "lr=0.1"], "did you mean 'learning_rate'?"),
        (["train", "digits", "--set", "opt=none"], "unknown hyperparameter of orlomo 'opt'"),
        (["train", "digits", "--schedule", "step:-5"], "a drop's epoch must be above 0, not -5"),
        (["train", "digits", "--out", "-"], "argument --out: - is standard output, but a folder is written"),
        (["export", "x", "--format", "csv", "--out", "-"], "- is standard output, but a folder is written"),
        (["trace", "--out", "-", "--json"], "--out - and --json both write to standard output"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(QUIET)
    (tmp_path / "missing.py").write_text("import sys\nimport not_there\n")
    assert main(words) == 2
    output = capfd.readouterr()
    assert output.err.count("\n") == 1
    assert output.err.startswith("orlomo: ")
    assert text in output.err
    assert not (tmp_path / "runs").exists()


def test_an_error_of_a_users_file_has_only_the_users_frames(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("def make():\n    return 1 / 0\ntask = make()\n")
    done = call_cli("train", "wrong.py:task", folder=tmp_path)
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stderr
    assert f'{tmp_path}/wrong.py", line 2' in done.stderr
    assert "orlomo/" not in done.stderr.replace(str(tmp_path), "")


def test_a_folder_of_runs(tmp_path: Path) -> None:
    words = ("compare", "quadratic", "--methods", "asgd,al-sgd", "--workers", 2, "--epochs", 0.1, "--jobs", 1)
    assert call_cli(*words, "--out", "both", folder=tmp_path).returncode == 0
    page = call_cli("report", "both", "--out", "-", folder=tmp_path)
    assert page.returncode == 0, page.stderr
    assert page.stdout.startswith("<!")
    assert "asgd-seed0" in page.stdout
    assert not (tmp_path / "-").exists()
    exported = call_cli("export", "both", "--format", "csv", "-o", "tables", folder=tmp_path)
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "tables/al-sgd-seed0/events.csv").is_file()
    for command in ("watch", "replay", "resume"):
        refused = call_cli(command, "both", folder=tmp_path)
        assert refused.returncode == 2
        assert refused.stderr.endswith(
            "both is a folder of 2 runs, not a run: choose one of al-sgd-seed0, asgd-seed0\n"
        )


def test_a_trace_on_stdout(tmp_path: Path) -> None:
    done = call_cli("trace", "--workers", 2, "--iterations", 5, "--out", "-", folder=tmp_path)
    assert len(done.stdout.splitlines()) == 6
    assert "mean delay" in done.stderr
    assert list(tmp_path.iterdir()) == []
