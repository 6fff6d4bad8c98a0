"""Files that are whole or not there, and the lock of a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orlomo.errors import RunFolderError
from orlomo.files import (
    is_being_written,
    lock,
    remove_temporary_files,
    write_atomically,
    write_text_atomically,
    writing_to,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    write_text_atomically(path, "old: ä")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_atomically(path, half)
    assert path.read_text("utf-8") == "old: ä"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.txt.123.tmp").touch()
    write_text_atomically(tmp_path / "a.txt", "whole")
    remove_temporary_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_what_the_disk_says_becomes_one_line_with_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(RunFolderError, match=r"^cannot write to a: No space left on device; free some space and `go`$"),
        writing_to(Path("a"), "go"),
    ):
        raise OSError(28, "whatever")
    with pytest.raises(RunFolderError, match=r"^cannot write to .*nowhere: No such file or directory$"):
        lock(tmp_path / "nowhere")


def test_a_second_process_does_not_get_the_lock(tmp_path: Path) -> None:
    take = "import sys, pathlib; from orlomo.files import lock; lock(pathlib.Path(sys.argv[1]))"
    with lock(tmp_path):
        other = subprocess.run([sys.executable, "-c", take, tmp_path], capture_output=True, text=True)
    assert other.returncode == 1
    assert "is being written by another process: wait for it, or stop it" in other.stderr


def test_asking_whether_a_run_is_written_leaves_its_lock_alone(tmp_path: Path) -> None:
    ask = "import sys, pathlib; from orlomo.files import is_being_written as w; print(w(pathlib.Path(sys.argv[1])))"

    def elsewhere() -> str:
        return subprocess.run([sys.executable, "-c", ask, tmp_path], capture_output=True, text=True).stdout.strip()

    assert not is_being_written(tmp_path)
    held = lock(tmp_path)
    assert is_being_written(tmp_path)
    assert elsewhere() == "True"  # still, although this process has just asked
    held.close()
    assert not is_being_written(tmp_path)
    assert elsewhere() == "False"
