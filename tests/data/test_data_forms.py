"""Every form of a data set is stored as the same rows; a file that is not the official one is named."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dots
import numpy as np
import pytest
import torch

from orlomo.data import obtain as obtaining
from orlomo.data.images import load_dataset
from orlomo.data.progress import DataProgress
from orlomo.data.spec import DataSet, Remote, Rows
from orlomo.data.store import Stored
from orlomo.errors import ConfigError

FORMS: dict[str, tuple[DataSet, dict[str, Rows], Callable[[Path], None]]] = {
    "rows": (dots.DOTS, dots.ROWS, dots.write_row_files),
    "pickles": (dots.DOTS, dots.ROWS, dots.write_pickles),
    "sheets": (dots.DOTS, dots.ROWS, dots.write_sheets),
    "rows, two labels": (
        dots.TWO_LABELS,
        dots.TWO_LABEL_ROWS,
        lambda folder: dots.write_row_files(folder, dots.TWO_LABEL_ROWS),
    ),
    "pickles, two labels": (
        dots.TWO_LABELS,
        dots.TWO_LABEL_ROWS,
        lambda folder: dots.write_pickles(folder, dots.TWO_LABEL_ROWS, dots.LABELS),
    ),
    "idx": (dots.GREY, dots.GREY_ROWS, lambda folder: dots.write_idx(folder, gzipped=False)),
    "idx, gzipped": (dots.GREY, dots.GREY_ROWS, lambda folder: dots.write_idx(folder, gzipped=True)),
}


def obtain(dataset: DataSet, root: Path, given: Path) -> Stored:
    return obtaining.obtain(dataset, root, given, DataProgress(quiet=True), lambda text: None)


def left_behind(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("container", ["folder", "tar.gz", "zip"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_tensors(tmp_path: Path, form: str, container: str) -> None:
    dataset, rows, write = FORMS[form]
    given = tmp_path / "given"
    write(given)
    if container != "folder":
        given = dots.pack(given, tmp_path / f"given.{container}")
    stored = obtain(dataset, tmp_path / "root", given)
    assert stored.complete
    images = load_dataset(dataset, tmp_path / "root")
    for split, tensor, labels in (
        ("train", images.train_images, images.train_labels),
        ("test", images.test_images, images.test_labels),
    ):
        expected = dots.split_rows(rows, split)
        assert tensor.dtype == torch.uint8
        assert labels.dtype == torch.int64
        pixels = expected[:, dataset.label_bytes :].reshape(-1, *dataset.shape)
        assert np.array_equal(tensor.numpy(), pixels)
        assert labels.tolist() == expected[:, dataset.label_bytes - 1].tolist()


def test_writing_to_the_tensors_does_not_reach_the_files(tmp_path: Path) -> None:
    dots.write_row_files(tmp_path / "given")
    stored = obtain(dots.DOTS, tmp_path, tmp_path / "given")
    images = load_dataset(dots.DOTS, tmp_path)
    before = stored.path("train").read_bytes()
    images.train_images.zero_()
    assert stored.path("train").read_bytes() == before
    assert images.train_images.untyped_storage().nbytes() <= len(before)  # a view, not a copy


@pytest.mark.parametrize("harm", ["cut", "changed", "longer"])
@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_file_is_named_and_nothing_stays(tmp_path: Path, form: str, harm: str) -> None:
    dataset, _, write = FORMS[form]
    given, root = tmp_path / "given", tmp_path / "root"
    write(given)
    path = sorted(path for path in given.iterdir() if path.suffix != ".json")[1]
    content = path.read_bytes()
    if harm == "longer":
        content = content + bytes(2**24)
    elif harm == "cut":
        content = content[: len(content) // 2]
    else:
        middle = len(content) // 2
        content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        obtain(dataset, root, given)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    if form in ("rows", "idx"):
        assert "sha256" in message or harm == "longer"
    assert left_behind(root) == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    dots.write_row_files(tmp_path / "given")
    (tmp_path / "given/batch_2.bin").unlink()
    with pytest.raises(ConfigError, match=r"given is not all of Dots: batch_2\.bin missing"):
        obtain(dots.DOTS, tmp_path / "root", tmp_path / "given")
    with pytest.raises(ConfigError, match="holds nothing of Dots: give the official files"):
        obtain(dots.DOTS, tmp_path / "root", tmp_path)
    with pytest.raises(ConfigError, match="no such folder or archive"):
        obtain(dots.DOTS, tmp_path / "root", tmp_path / "nowhere")
    assert left_behind(tmp_path / "root") == []


def test_a_cut_archive_or_another_file_is_refused(tmp_path: Path) -> None:
    dots.write_row_files(tmp_path / "given")
    for name in ("given.tar.gz", "given.zip"):
        archive = dots.pack(tmp_path / "given", tmp_path / name)
        archive.write_bytes(archive.read_bytes()[:-200])
        with pytest.raises(ConfigError, match=f"{name} is cut off, or not a tar or zip archive|cannot be read"):
            obtain(dots.DOTS, tmp_path / "root", archive)
    (tmp_path / "text.tar.gz").write_text("not an archive")
    with pytest.raises(ConfigError, match=r"text\.tar\.gz is cut off, or not a tar or zip archive: .*$"):
        obtain(dots.DOTS, tmp_path / "root", tmp_path / "text.tar.gz")
    official = replace(dots.DOTS, remotes=(Remote("http://example.org/text.tar.gz", "0123"),))
    with pytest.raises(ConfigError, match=r"text\.tar\.gz is cut off, .* \(md5 0123 expected\)$"):
        obtain(official, tmp_path / "root", tmp_path / "text.tar.gz")
    assert left_behind(tmp_path / "root") == []


def test_members_with_hostile_paths_or_kinds_count_for_nothing(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "given.tar.gz", "w:gz") as archive:
        for stem, rows in dots.ROWS.items():
            member = tarfile.TarInfo(f"../outside/{stem}.bin")
            member.size = rows.nbytes
            archive.addfile(member, io.BytesIO(rows.tobytes()))
            link = tarfile.TarInfo(f"inside/{stem}.bin")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
            archive.addfile(link)
    with zipfile.ZipFile(tmp_path / "given.zip", "w") as packed:
        for stem, rows in dots.ROWS.items():
            packed.writestr(f"/absolute/{stem}.bin", rows.tobytes())
    for name in ("given.tar.gz", "given.zip"):
        with pytest.raises(ConfigError, match="holds nothing of Dots"):
            obtain(dots.DOTS, tmp_path / "root", tmp_path / name)
    assert not (tmp_path / "outside").exists()


def test_an_archive_that_would_unpack_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dots.write_row_files(tmp_path / "given")
    archive = dots.pack(tmp_path / "given", tmp_path / "given.zip")
    monkeypatch.setattr("orlomo.data.bundles.MAX_UNPACKED_BYTES", 400)
    with pytest.raises(ConfigError, match=r"given\.zip is refused: it would unpack to more"):
        obtain(dots.DOTS, tmp_path / "root", archive)
