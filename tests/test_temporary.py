"""What killed processes leave in the temporary folder: nothing, or what the next one removes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from orlomo import temporary
from orlomo.temporary import TemporaryFolder
from small import started, wait_for

DIES = """
import os, signal, sys
from orlomo.temporary import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "sub").mkdir()
(folder.path / "sub" / "link").symlink_to(sys.argv[1])
print(folder.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder for this test alone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_folder_goes_with_its_process_and_one_of_a_killed_process_with_the_next(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users"
    users.mkdir()
    (users / "file").touch()
    environment = {**os.environ, "TMPDIR": str(place)}
    done = subprocess.run([sys.executable, "-c", DIES, users], env=environment, capture_output=True, text=True)
    left = Path(done.stdout.strip())
    assert done.returncode == -signal.SIGKILL
    assert left.is_dir()
    monkeypatch.setattr(temporary, "SHARED", tmp_path)  # where semaphores are
    semaphore = tmp_path / f"sem.{left.name}-abc"
    semaphore.touch()
    with TemporaryFolder() as first:
        assert not left.exists()
        assert not semaphore.exists()
        with TemporaryFolder() as second:
            assert first.path.is_dir()  # it is in use
            assert {path.name for path in place.iterdir()} == {first.path.name, second.path.name}
    assert not list(place.iterdir())
    assert (users / "file").exists()


def test_only_what_is_ours_is_removed(place: Path, tmp_path: Path) -> None:
    empty, foreign, link = (place / f"{temporary.PREFIX}{letter * 8}" for letter in "abc")
    empty.mkdir()  # of a process that was killed before it had a lock
    foreign.mkdir()
    (foreign / "file").touch()
    (tmp_path / temporary.LOCK).touch()
    link.symlink_to(tmp_path)
    other = place / "orlomo-tmp-data"
    other.mkdir()
    TemporaryFolder().close()
    assert {path.name for path in place.iterdir()} == {foreign.name, link.name, other.name}
    assert (tmp_path / temporary.LOCK).exists()


@pytest.mark.parametrize("engine", ["simulated", "processes"])
def test_a_run_has_nothing_there_that_could_stay(engine: str, tmp_path: Path) -> None:
    place, folder = tmp_path / "temporary", tmp_path / "run"
    place.mkdir()
    arguments = ("train", "digits", "--workers", 2, "--engine", engine, "--epochs", 500, "--jobs", 2, "--out", folder)
    environment = {**os.environ, "TMPDIR": str(place)}
    with started(*arguments, env=environment, start_new_session=True) as process:
        events = folder / "events.csv"
        wait_for(lambda: events.exists() and events.read_bytes().count(b"\n") > 5, process)
        assert not list(place.iterdir())
        os.killpg(process.pid, signal.SIGKILL)
    assert not list(place.iterdir())
