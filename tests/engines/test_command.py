"""The processes engine by its command: the server killed, stopped by signals, its workers added and removed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import faulty
import orlomo
from orlomo.engines.live.control import ask
from small import call_cli, run_cli, started, wait_for
from troublemaker import shared_memory


def start(folder: Path, *more: object, **options: Any) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    settings = ("--engine", "processes", "--workers", 3, "--local-steps", 8, "--out", folder)
    return started("train", "digits", *settings, *more, **options)


def saved(folder: Path) -> int:
    """How many events the newest checkpoint has; 0 if there is none."""
    return max((int(path.stem) for path in folder.glob("checkpoints/*.json")), default=0)


def reports(folder: Path) -> int:
    path = folder / "events.csv"
    return path.read_text().count("\n") - 1 if path.exists() else 0


def test_a_killed_server_leaves_nothing_and_the_run_continues(tmp_path: Path) -> None:
    before = shared_memory()
    folder = tmp_path / "run"
    with start(folder, "--epochs", 60, "--checkpoint-seconds", 0.5, "--pace", "3,3,3") as server:
        wait_for(lambda: 0 < saved(folder) < reports(folder) and reports(folder) > 100, server)
        family = faulty.descendants(server.pid)
        assert len(family) >= 4
        server.send_signal(signal.SIGKILL)
        server.communicate()
    assert faulty.gone_within(2.0, family)
    assert shared_memory() <= before
    lost = reports(folder) > saved(folder)  # unless a checkpoint came between the look and the kill
    again = run_cli("resume", folder, "--json")
    assert again.returncode == 0, again.stderr
    assert ("lost: the work since the last checkpoint" in again.stderr) == lost
    assert json.loads(again.stdout)["test_accuracy"] > 0.95
    assert orlomo.replay(folder, jobs=1).agrees


def test_a_server_killed_before_its_first_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with start(folder, "--epochs", 3, "--pace", "8,8,8") as server:
        wait_for(lambda: reports(folder) > 5, server)
        server.send_signal(signal.SIGKILL)
        server.communicate()
    again = call_cli("resume", folder, folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "lost: the work since the beginning (there is no checkpoint yet)" in again.stderr


def test_a_server_killed_before_its_first_row(tmp_path: Path) -> None:
    """Its tables are there and empty, without even a header."""
    folder = tmp_path / "run"
    run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, engine="processes", out=folder)
    shutil.rmtree(folder / "checkpoints")
    (folder / "model.safetensors").unlink()
    for table in ("events.csv", "metrics.csv"):
        (folder / table).write_bytes(b"")
    assert orlomo.resume(folder).finished
    assert orlomo.replay(run.folder, jobs=1).agrees


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.5])
def test_ctrl_c_in_the_first_moments(seconds: float, tmp_path: Path) -> None:
    """A terminal sends it to every process, also to those that have only begun."""
    folder = tmp_path / "run"
    with start(folder, "--epochs", 500, start_new_session=True) as server:
        wait_for((folder / "events.csv").exists, server)
        time.sleep(seconds)
        os.killpg(server.pid, signal.SIGINT)
        _, errors = server.communicate()
    assert server.returncode == 130, errors
    assert len(errors.splitlines()) == 1
    assert "saved. Continue with" in errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_stops_the_workers_and_says_how_to_continue(number: int, code: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with start(folder, "--epochs", 500) as server:
        wait_for(lambda: reports(folder) > 50, server)
        family = faulty.descendants(server.pid)
        server.send_signal(number)
        _, errors = server.communicate()
    assert server.returncode == code
    assert f"saved. Continue with: orlomo resume {folder}" in errors
    assert faulty.gone_within(2.0, family)
    assert orlomo.replay(folder, jobs=1).agrees


def test_workers_come_and_go_while_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with start(folder, "--epochs", 2000, "--pace", "60,60,60") as server:
        wait_for(lambda: reports(folder) > 20, server)
        assert call_cli("workers", folder, "add", 2, folder=tmp_path).stdout == "added: worker 3, 4\n"
        assert ask(folder, {"action": "remove", "worker": 0}) == 0
        wait_for(lambda: "\nleave," in (folder / "events.csv").read_text(), server)
        listed = ask(folder, {"action": "list"})
        assert [worker["worker"] for worker in listed] == [1, 2, 3, 4]
        assert all(faulty.alive(worker["pid"]) for worker in listed)
        wrong = call_cli("workers", folder, "remove", 0, folder=tmp_path)
        assert (wrong.returncode, wrong.stderr) == (2, "orlomo: there is no worker 0: there are [1, 2, 3, 4]\n")
        server.send_signal(signal.SIGTERM)
        server.communicate()
    assert server.returncode == 143
    run = orlomo.load(folder)
    changes = [
        (kind, worker)
        for kind, worker in zip(run.event_columns["kind"].tolist(), run.event_columns["worker"].tolist(), strict=True)
        if kind != "report"
    ]
    assert changes == [("join", 3), ("join", 4), ("leave", 0)]
    assert not (folder / "control").exists()
    assert orlomo.replay(folder, jobs=1).agrees
    with pytest.raises(orlomo.OrlomoError, match="is not running: `orlomo resume"):
        ask(folder, {"action": "add", "count": 1})
