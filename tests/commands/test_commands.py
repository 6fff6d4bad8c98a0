"""The command line as a user meets it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import faulty
import orlomo
from orlomo.commands.main import main
from orlomo.methods.registry import METHODS
from orlomo.tasks.registry import TASKS
from small import call_cli, command_parsers, run_cli, started, wait_for

TRAIN = ("train", "quadratic", "--method", "orlomo", "--workers", 4, "--local-steps", 2, "--cluster", "heterogeneous")


def test_train_resume_and_replay(tmp_path: Path) -> None:
    done = run_cli(*TRAIN, "--epochs", 1, "--seed", 3, "--out", "runs/a", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # quiet where there is no terminal
    assert "training loss" in done.stdout
    again = call_cli(*TRAIN, "--epochs", 1, "--seed", 3, "--out", "runs/a", folder=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith("orlomo: runs/a holds a run already: `orlomo resume runs/a`")
    finished = call_cli("resume", "runs/a", "--json", folder=tmp_path)
    assert "finished already" in finished.stderr
    assert json.loads(finished.stdout)["finished"] is True
    replayed = run_cli("replay", "runs/a", folder=tmp_path)
    assert replayed.returncode == 0
    assert "agree, bit for bit" in replayed.stdout


def test_the_resolved_config_is_a_config_and_flags_go_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "quadratic", "--workers", "3", "--epochs", "0.2", "--momentum", "0.5", "--out", f"{tmp_path}/a"]
    assert main([*words, "--jobs", "1", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    same = [f"{tmp_path}/a/config.toml", "--out", f"{tmp_path}/b", "--jobs", "1", "--json"]
    assert main(["train", *same]) == 0
    assert json.loads(capsys.readouterr().out)["params_checksum"] == first["params_checksum"]
    assert (
        main(["train", f"{tmp_path}/a/config.toml", "--method", "al-sgd", "--out", f"{tmp_path}/c", "--jobs", "1"]) == 0
    )
    text = (tmp_path / "c" / "config.toml").read_text()
    assert 'name = "al-sgd"' in text
    assert "momentum" not in text
    assert "workers = 3" in text


def test_compare_writes_a_table_and_plots_and_goes_on_where_it_was(tmp_path: Path) -> None:
    words = ("compare", "digits", "--methods", "prsgdm,orlomo,msgd", "--seeds", 2, "--workers", 4, "--epochs", 2)
    done = call_cli(*words, "--out", "cmp", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("accuracy.png", "accuracy.svg", "comparison.json", "comparison.md", "comparison.csv"):
        assert (tmp_path / "cmp" / name).stat().st_size > 100
    table = json.loads((tmp_path / "cmp" / "comparison.json").read_text())
    assert table["reference"] == "prsgdm"
    assert [row["method"] for row in table["methods"]] == ["prsgdm", "orlomo", "msgd"]
    assert [row["runs"] for row in table["methods"]] == [2, 2, 2]
    assert table["methods"][0]["speed_up_for_equal_work"] == 1.0
    assert "prsgdm" in done.stdout
    marker = (tmp_path / "cmp" / "orlomo-seed1" / "events.csv").stat().st_mtime_ns
    again = call_cli(*words, "--out", "cmp", "--json", folder=tmp_path)
    assert json.loads(again.stdout)["methods"] == table["methods"]
    assert (tmp_path / "cmp" / "orlomo-seed1" / "events.csv").stat().st_mtime_ns == marker
    other = call_cli(*words[:-1], 3, "--out", "cmp", folder=tmp_path)
    assert other.returncode == 2
    assert "holds a run with other settings" in other.stderr


def test_a_method_that_diverges_does_not_end_the_comparison(tmp_path: Path) -> None:
    words = ("compare", "quadratic", "--methods", "asgd,al-sgd", "--workers", 2, "--epochs", 0.5)
    done = call_cli(*words, "--learning-rate", 1e30, "--out", "cmp", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 diverged" in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["train"], "TASK is missing, as in `orlomo train digits` (see `orlomo train --help`)"),
        (["train", "digts"], "did you mean 'digits'"),
        (["train", "digits", "--method", "orlmo"], "did you mean 'orlomo'"),
        (["train", "digits", "--worker", "4"], "did you mean '--workers'"),
        (["train", "digits", "--lr", "0.1"], "unknown flag '--lr': did you mean '--learning-rate'?"),
        (["report", "--folder", "x", "y"], "unknown flag '--folder' (see `orlomo report --help`)"),
        (["train", "digits", "--set", "learning_rat=1"], "did you mean 'learning_rate'"),
        (["train", "digits", "--set", "local_steps=some"], "--set local_steps must be a whole number, not 'some'"),
        (["train", "digits", "--set", "momentum"], "--set takes NAME=VALUE"),
        (["train", "digits", "--set", "momentum=0.1", "--momentum", "0.2"], "momentum is given twice"),
        (["compare", "digits", "--methods", "asgd,orlomo", "--set", "moment=1"], "did you mean 'momentum'"),
        (["compare", "digits", "--methods", ", "], "--methods names no method"),
        (["train", "digits", "--method", "nowhere.py:Mine"], "nowhere.py"),
        (["new", "methd", "mine"], "did you mean 'method'"),
        (["new", "task", "my.task"], "is not a name for a Python file"),
        (["trian", "digits"], "did you mean 'train'"),
        (["train", "digits", "--workers", "four"], "argument --workers: must be a whole number, not 'four'"),
        (["train", "digits", "--workers", "0"], "workers must be at least 1"),
        (["train", "digits", "--momentum", "1.5"], "momentum must be"),
        (["train", "digits", "--method", "al-sgd", "--momentum", "0.9"], "setting of al-sgd 'momentum'"),
        (["train", "digits", "--epochs", "nan"], "epochs must be a number, not nan"),
        (["train", "digits", "--cluster", "heterogenous"], "did you mean 'heterogeneous'"),
        (["train", "missing.toml"], "cannot read missing.toml"),
        (["train", "digits", "--jobs", "0"], "jobs must be at least 1"),
        (["compare", "digits", "--methods", "orlomo,prsgd"], "did you mean 'prsgdm'"),
        (["compare", "digits", "--methods", "asgd,asgd"], "more than once"),
        (["compare", "digits", "--methods", "asgd", "--seeds", "0"], "--seeds must be at least 1"),
        (["resume", "nowhere"], "nowhere is not a run"),
        (["replay", "nowhere"], "nowhere is not a run"),
        (["trace", "--iterations", "0"], "iterations must be at least 1"),
        (["trace", "--out", "no/such/folder.csv"], "No such file or directory"),
        (["train", "digits", "--device", "cudaa"], "device 'cudaa' cannot be used here"),
        (["train", "digits", "--out", "/proc/x"], "cannot write to /proc/x"),
        (["completion", "basch"], "unknown shell 'basch': did you mean 'bash'?"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    words: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.startswith("orlomo: ")
    assert text in output.err
    assert list(tmp_path.glob("runs/*/checkpoints")) == []


def test_a_cut_off_config_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "half.toml"
    path.write_text('task = "digi')
    assert main(["train", str(path)]) == 2
    assert "half.toml is not a whole TOML file" in capsys.readouterr().err


def test_lists_for_people_and_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORLOMO_DATA", str(tmp_path))  # nothing is stored there
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    assert "AAAI 2026" in text
    assert main(["methods", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert names == list(METHODS)
    assert {"orlomo", "prsgdm", "fedbuff"} < set(names)
    assert main(["tasks", "--json"]) == 0
    sizes = {row["name"]: row["size"] for row in json.loads(capsys.readouterr().out)}
    assert sizes["digits"] == "1,437 samples, batch 16, 4,810 parameters"
    assert "`orlomo data cifar10` gets it" in sizes["cifar10-resnet20"]
    assert list(sizes) == list(TASKS)


def test_a_trace_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv"
    assert main(["trace", "--workers", "5", "--iterations", "50", "--out", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["events"] == 50
    assert len(path.read_text().splitlines()) == 51


@contextlib.contextmanager
def long_run(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One that has begun to train."""
    settings = ("--epochs", 400, "--jobs", 2, "--out", "runs/a", "--checkpoint-seconds", 0.1)
    events = folder / "runs/a/events.csv"
    with started(*TRAIN, *settings, folder=folder) as process:
        wait_for(lambda: events.exists() and events.stat().st_size >= 5000, process)
        yield process


@pytest.mark.parametrize(("number", "code", "times"), [(signal.SIGINT, 130, 1), (signal.SIGTERM, 143, 2)])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, number: int, code: int, times: int) -> None:
    with long_run(tmp_path) as process:
        jobs = faulty.descendants(process.pid)
        for _ in range(times):  # `timeout`, and impatient people, send it twice
            process.send_signal(number)
        output, errors = process.communicate()
    assert process.returncode == code
    assert output == ""
    assert errors == f"orlomo: stopped by {signal.Signals(number).name}; saved. Continue with: orlomo resume runs/a\n"
    assert len(jobs) == 2
    assert not any(map(faulty.alive, jobs))
    lines = len((tmp_path / "runs" / "a" / "events.csv").read_text().splitlines())
    newest = max((tmp_path / "runs" / "a" / "checkpoints").glob("*.json"))
    assert int(newest.stem) == lines - 1  # nothing was lost


def test_after_kill_9_no_process_is_left(tmp_path: Path) -> None:
    with long_run(tmp_path) as process:
        jobs = faulty.descendants(process.pid)
        before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert len(jobs) == 2
    assert faulty.gone_within(10.0, jobs)
    after = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    assert after <= before


def test_any_hyperparameter_by_its_name(tmp_path: Path) -> None:
    words = ("quadratic", "--set", "momentum=0.5", "--set", "local-steps=2", "--set", "clip_norm=none")
    done = call_cli("train", *words, "--epochs", 0.2, "--workers", 2, "--jobs", 1, "--out", "a", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert orlomo.load(tmp_path / "a").config.method == orlomo.OrLoMo(momentum=0.5, local_steps=2, clip_norm=None)
    methods = ("compare", "quadratic", "--methods", "orlomo,al-sgd", "--set", "momentum=0.5", "--jobs", 1)
    done = call_cli(*methods, "--epochs", 0.2, "--workers", 2, "--out", "c", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "orlomo: note: al-sgd has no momentum\n")
    assert orlomo.load(tmp_path / "c" / "orlomo-seed0").config.method == orlomo.OrLoMo(momentum=0.5)


LIGHT = """
import sys
from orlomo.commands.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:  # as --help ends
    code = end.code
assert not {"torch", "numpy"} & set(sys.modules), "torch or numpy was loaded"
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 0),
        (["--help"], 0),
        (["--version"], 0),
        *(([command, "--help"], 0) for command in command_parsers()),
        (["methods"], 0),
        (["trian"], 2),
        (["train", "digits", "--worker", "3"], 2),
        (["train", "digits", "--workers", "three"], 2),
        (["new", "task", "mine"], 0),
    ],
)
def test_answers_that_do_not_wait_for_torch(words: list[str], code: int, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == code, done.stderr


def test_python_dash_m(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "orlomo", "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == f"orlomo {orlomo.__version__}\n"


def test_compare_in_real_time(tmp_path: Path) -> None:
    flags = ["--engine", "processes", "--workers", 3, "--pace", "1,1,3", "--epochs", 0.5]
    done = call_cli("compare", "quadratic", "--methods", "orlomo,prsgdm,msgd", *flags, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 workers, processes" in done.stdout
    assert "Times in seconds" in done.stdout
    again = call_cli("compare", "quadratic", "--methods", "orlomo,prsgdm,msgd", *flags, "--json", folder=tmp_path)
    assert [row["method"] for row in json.loads(again.stdout)["methods"]] == ["orlomo", "prsgdm", "msgd"]
