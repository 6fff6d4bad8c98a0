"""Where `export`, `report`, `trace` and `new` write: whole files or none, on a full disk too, never through a link."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import orlomo
from small import call_cli, settings, small_disk

FORMATS = ("csv", "parquet", "tensorboard")


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run in it."""
    folder = tmp_path_factory.mktemp("received")
    orlomo.train("quadratic", settings("orlomo"), workers=2, epochs=1, jobs=1, out=folder / "run")
    return folder


@pytest.fixture
def run(received: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    folder = tmp_path / "run"
    folder.mkdir()
    for file in (received / "run").glob("*.*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user's, which stays as it is."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "events.csv").write_text("my own")
    (folder / "events.out.tfevents.1").write_text("my own")
    yield folder
    assert sorted(path.name for path in folder.iterdir()) == ["events.csv", "events.out.tfevents.1"]
    assert {path.read_text() for path in folder.iterdir()} == {"my own"}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("what", ["a link", "a file", "a FIFO"])
def test_the_folder_in_a_received_run_is_a_folder(kind: str, what: str, run: Path, mine: Path) -> None:
    target = run / kind
    if what == "a link":
        target.symlink_to(mine, target_is_directory=True)
    elif what == "a file":
        target.write_text("")
    else:
        os.mkfifo(target)
    done = call_cli("export", run, "--format", kind, folder=run.parent)
    assert (done.returncode, done.stdout) == (2, "")
    said = "a link" if what == "a link" else "no folder"
    assert done.stderr == f"orlomo: {target} is {said}: remove it, or put the folder itself in its place\n"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_link_in_place_of_a_file_is_replaced(kind: str, run: Path, mine: Path) -> None:
    (run / kind).mkdir()
    (run / kind / f"events.{kind}").symlink_to(mine / "events.csv")
    done = call_cli("export", run, "--format", kind, folder=run.parent)
    assert done.returncode == 0, done.stderr
    assert not (run / kind / f"events.{kind}").is_symlink()


def test_a_run_behind_a_link_is_exported_by_its_own_name_only(received: Path, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "several"
    folder.mkdir()
    (folder / "evil").symlink_to(run, target_is_directory=True)
    done = call_cli("export", folder, "--format", "csv", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"orlomo: {folder}/evil is a link")
    assert not (run / "csv").exists()


def test_a_chosen_folder_may_be_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to("there", target_is_directory=True)
    done = call_cli("export", run, "--format", "csv", "-o", "here", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "there" / "events.csv").read_bytes() == (run / "events.csv").read_bytes()


@pytest.mark.parametrize("words", [("report", "{run}"), ("trace", "--iterations", 9)], ids=lambda words: words[0])
def test_what_is_no_file_is_not_replaced(words: tuple[object, ...], run: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    given = [str(word).replace("{run}", str(run)) for word in words]
    done = call_cli(*given, "--out", "pipe", folder=tmp_path)
    said = "orlomo: pipe is not a regular file: give a file's name with --out, or - for standard output\n"
    assert (done.returncode, done.stderr) == (2, said)
    assert (tmp_path / "pipe").is_fifo()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk with a page's worth of room and an old page on it."""
    with small_disk(tmp_path / "disk", "16k") as folder:
        (folder / "old").mkdir()
        (folder / "old" / "report.html").write_text("old")
        (folder / "old" / "events.csv").write_text("old")
        yield folder
        left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert left == {"old/report.html", "old/events.csv"}
        assert (folder / "old" / "report.html").read_text() == (folder / "old" / "events.csv").read_text() == "old"


@pytest.mark.parametrize(
    "words",
    [
        *(("export", "{run}", "--format", kind, "-o", "new") for kind in FORMATS),
        ("export", "{run}", "--format", "csv", "-o", "old"),
        ("report", "{run}", "-o", "old/report.html"),
        ("report", "{run}", "-o", "{run}/report.html", "--figures", "figures"),
        ("trace", "--out", "trace.csv"),
        ("new", "task", "mine"),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_full_disk_is_one_line(words: tuple[str, ...], run: Path, full: Path) -> None:
    with (full / "rest").open("wb", buffering=0) as file:  # all that is left
        try:
            while file.write(bytes(512)):
                pass
        except OSError:
            pass
    done = call_cli(*(word.replace("{run}", str(run)) for word in words), folder=full)
    (full / "rest").unlink()
    assert done.returncode == 2, done.stdout
    assert done.stderr.endswith(": No space left on device\n")
    assert len(done.stderr.splitlines()) == 1
    assert not (full / "new").exists()
