"""Folders of runs that were killed before they had begun, or ended before their first report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import orlomo
from orlomo.records.leftovers import forget_if_empty
from small import call_cli

SETTINGS: dict[str, Any] = {"workers": 2, "epochs": 0.1, "jobs": 1}
MEASURED = '[{"column": "train_loss", "label": "training loss", "metric": "loss", "title": "loss"}]'

STAGES = {
    "nothing": (),
    "the lock": (".lock",),
    "half a file": (".lock", ".metrics.json.0a1b2c3d4e5f6071.tmp"),
    "half a file of an earlier version": (".metrics.json.12345.tmp",),
    "the metrics": (".lock", "metrics.json"),
    "all but the config": (".lock", "metrics.json", "data.json", "signature.json", ".config.toml.0a1b2c3d.tmp"),
}


def leave(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir()
    for name in names:
        (folder / name).write_text(MEASURED if name == "metrics.json" else "")


@pytest.mark.parametrize("stage", STAGES)
def test_what_was_not_begun_is_removed_or_begun(stage: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    leave(folder, STAGES[stage])
    done = call_cli("resume", "run", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "orlomo: nothing was started in run, which is removed: start it again\n"
    assert not folder.exists()
    leave(folder, STAGES[stage])
    run = orlomo.train("quadratic", "asgd", out=folder, **SETTINGS)
    assert run.finished
    assert not (folder / "data.json").exists()
    assert not list(folder.glob(".*.tmp"))


@pytest.mark.parametrize("name", ["notes.txt", "metrics.csv", ".hidden", ".notes.0a1b.tmp", "link", "folder"])
def test_a_folder_with_something_else_in_it_is_left_alone(name: str, tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    leave(folder, STAGES["the metrics"])
    if name == "link":
        other.write_text(MEASURED)
        (folder / "metrics.json").unlink()
        (folder / "metrics.json").symlink_to(other)
    elif name == "folder":
        (folder / "data.json").mkdir()
    else:
        (folder / name).touch()
    before = sorted(os.listdir(folder))
    with pytest.raises(orlomo.OrlomoError, match=r"is not a run: there is no config\.toml in it"):
        orlomo.resume(folder)
    with pytest.raises(orlomo.OrlomoError, match="exists and is not a run: choose another --out"):
        orlomo.train("quadratic", "asgd", out=folder, **SETTINGS)
    assert sorted(os.listdir(folder)) == before


def test_a_file_of_the_same_name_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text('{"accuracy": 0.9}')
    with pytest.raises(orlomo.OrlomoError, match="is not a run"):
        orlomo.resume(tmp_path)
    assert (tmp_path / "metrics.json").exists()


def test_a_run_that_another_process_is_just_beginning_is_left_alone(tmp_path: Path) -> None:
    leave(tmp_path / "run", STAGES["the metrics"])
    take = "import sys, pathlib; from orlomo.locks import lock; held = lock(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", f"{take}; print(flush=True); sys.stdin.read()", str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        with pytest.raises(orlomo.OrlomoError, match="is being written by another process"):
            orlomo.resume(tmp_path / "run")
        assert (tmp_path / "run" / "metrics.json").exists()
        other.communicate()


def test_forgetting_a_run_removes_nothing_of_others(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.mkdir()
    (users / "00000000000000000001-01234567.json").touch()
    folder = orlomo.train("quadratic", "asgd", out=tmp_path / "run", **SETTINGS).folder
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    (folder / "checkpoints").rmdir()
    (folder / "model.safetensors").unlink()
    for name in ("events.csv", "metrics.csv"):
        (folder / name).write_text((folder / name).read_text().partition("\n")[0] + "\n")
    (folder / "control").symlink_to(users)
    forget_if_empty(folder)  # as it cannot know whose they are, nothing
    assert (folder / "config.toml").exists()
    assert list(users.iterdir())
    (folder / "control").unlink()
    (folder / "notes.txt").touch()
    forget_if_empty(folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
