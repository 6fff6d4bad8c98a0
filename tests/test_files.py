"""Files that are whole or not there, and the lock of a folder."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orlomo.errors import RunFolderError
from orlomo.files import (
    open_to_read,
    open_to_write,
    read_bytes,
    remove_temporary_files,
    subfolder,
    write_atomically,
    write_text_atomically,
    writing_to,
)
from orlomo.locks import is_being_written, lock


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
    (tmp_path / ".mine.tmp").touch()  # not a name of ours
    write_text_atomically(tmp_path / "a.txt", "whole")
    remove_temporary_files(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.tmp", "a.txt"]


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    mine = tmp_path / "letter.txt"
    mine.write_text("mine")
    link = tmp_path / "events.csv"
    for target in (mine, tmp_path / "nowhere", link):
        link.symlink_to(target)
        for use in (open_to_read, open_to_write):
            with pytest.raises(RunFolderError, match=r"events.csv is a link"):
                use(link)
        write_text_atomically(link, "new")  # in its place
        assert link.read_text() == "new"
        assert not link.is_symlink()
        link.unlink()
    lock_file = tmp_path / ".lock"
    lock_file.symlink_to(mine)
    with pytest.raises(RunFolderError, match="is a link"):
        lock(tmp_path)
    assert not is_being_written(tmp_path)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_only_regular_files_are_opened_and_nothing_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("fifo", "folder", "socket"):
            for use in (open_to_read, open_to_write):
                with pytest.raises(RunFolderError, match=f"{name} is not a regular file"):
                    use(tmp_path / name)
    with pytest.raises(RunFolderError, match="zero is not a regular file"):
        read_bytes(Path("/dev/zero"))


def test_a_file_with_a_second_name_is_not_written_in_place(tmp_path: Path) -> None:
    mine = tmp_path / "letter.txt"
    mine.write_text("mine")
    (tmp_path / "events.csv").hardlink_to(mine)
    with pytest.raises(RunFolderError, match="hard link: put a copy in its place"):
        open_to_write(tmp_path / "events.csv", keep=False)
    assert mine.read_text() == "mine"


def test_a_large_file_is_refused_without_being_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)  # it takes no room
    with pytest.raises(RunFolderError, match="larger than such a file can be"):
        read_bytes(tmp_path / "large")


def test_a_folder_in_a_run_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "control").touch()
    with pytest.raises(RunFolderError, match="is a link"):
        subfolder(tmp_path, "checkpoints", make=True)
    with pytest.raises(RunFolderError, match="is no folder"):
        subfolder(tmp_path, "control")
    assert subfolder(tmp_path, "new", make=True).is_dir()


def test_what_the_disk_says_becomes_one_line_with_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(RunFolderError, match=r"^cannot write to a: No space left on device; free some space and `go`$"),
        writing_to(Path("a"), "go"),
    ):
        raise OSError(28, "whatever")
    with pytest.raises(RunFolderError, match=r"^cannot write to .*nowhere: No such file or directory$"):
        lock(tmp_path / "nowhere")


def test_a_second_process_does_not_get_the_lock(tmp_path: Path) -> None:
    take = "import sys, pathlib; from orlomo.locks import lock; lock(pathlib.Path(sys.argv[1]))"
    with lock(tmp_path):
        other = subprocess.run([sys.executable, "-c", take, tmp_path], capture_output=True, text=True)
    assert other.returncode == 1
    assert "is being written by another process: wait for it, or stop it" in other.stderr


def test_asking_whether_a_run_is_written_leaves_its_lock_alone(tmp_path: Path) -> None:
    ask = "import sys, pathlib; from orlomo.locks import is_being_written as w; print(w(pathlib.Path(sys.argv[1])))"

    def elsewhere() -> str:
        return subprocess.run([sys.executable, "-c", ask, tmp_path], capture_output=True, text=True).stdout.strip()

    assert not is_being_written(tmp_path)
    held = lock(tmp_path)
    assert is_being_written(tmp_path)
    assert elsewhere() == "True"  # still, although this process has just asked
    held.close()
    assert not is_being_written(tmp_path)
    assert elsewhere() == "False"


SHARE = """
import fcntl, sys
file = open(sys.argv[1], "rb")
fcntl.lockf(file, fcntl.LOCK_SH)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a lock cannot be asked about")
def test_a_lock_that_another_program_shares_is_not_taken_for_a_run(tmp_path: Path) -> None:
    lock(tmp_path).close()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SHARE, tmp_path / ".lock"], **pipes) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        assert not is_being_written(tmp_path)
        with pytest.raises(RunFolderError, match=f"process {reader.pid}, which is not a run, holds a lock"):
            lock(tmp_path)
        reader.communicate()
    lock(tmp_path).close()
