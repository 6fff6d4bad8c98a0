"""Tiny-ImageNet's folders, whole and as a sample."""

from __future__ import annotations

from pathlib import Path

import dots
import pytest
import torch
from PIL import Image
from test_data_forms import left_behind
from test_data_obtain import home, obtain  # noqa: F401

from orlomo.data.images import load_dataset
from orlomo.errors import ConfigError


@pytest.mark.parametrize("container", ["folder", "tar.gz", "zip"])
def test_classes_order_and_colours(tmp_path: Path, container: str) -> None:
    given = tmp_path / "pictures-2"
    dots.write_pictures(given)
    if container != "folder":
        given = dots.pack(given, tmp_path / f"pictures.{container}")
    stored, _ = obtain(dots.PICTURES, tmp_path / "root", given)
    assert stored.complete
    images = load_dataset(dots.PICTURES, tmp_path / "root")
    assert images.train_images.shape == (6, 3, 8, 8)
    assert images.train_labels.tolist() == [0, 0, 0, 1, 1, 1]  # n01 is class 0, wherever wnids.txt has it
    assert images.test_labels.tolist() == [1, 1, 0, 0]  # val_0 and val_1 are of n02, val_10 and val_11 of n01
    means = images.train_images.float().mean((2, 3))
    expected = torch.tensor([[0.0, 0, 0], [40, 0, 0], [80, 0, 0], [0, 0, 0], [40, 40, 40], [80, 80, 80]])
    assert (means - expected).abs().max() <= 3  # JPEG; 8, 9, 10 in the order of numbers
    again, said = obtain(dots.PICTURES, tmp_path / "root")
    assert (again, said) == (stored, [])


def test_a_sample_is_taken_only_when_asked_for(home: Path, tmp_path: Path) -> None:  # noqa: F811
    dots.write_pictures(home / "data/pictures-2", each=1)
    with pytest.raises(ConfigError, match="Pictures is in none of the usual folders: `orlomo data pictures --from"):
        obtain(dots.PICTURES, tmp_path / "root")
    stored, _ = obtain(dots.PICTURES, tmp_path / "root", home / "data")
    assert not stored.complete
    assert str(stored) == (
        "Pictures: a SAMPLE of 6 images (2 of 6 training, 4 of 4 test, 2 of 2 classes), "
        f"in {tmp_path / 'root/pictures'}"
    )
    assert load_dataset(dots.PICTURES, tmp_path / "root").train_labels.tolist() == [0, 1]

    dots.write_pictures(home / "work/data/pictures-2")
    stored, said = obtain(dots.PICTURES, tmp_path / "root")
    assert said[0].endswith("; looking for all of it")
    assert stored.complete  # it has replaced the sample


def test_stored_pictures_are_verified_by_what_was_noted(home: Path, tmp_path: Path) -> None:  # noqa: F811
    dots.write_pictures(tmp_path / "given")
    stored, _ = obtain(dots.PICTURES, tmp_path / "root", tmp_path / "given")
    path = stored.path("test")
    path.write_bytes(bytes(path.stat().st_size))
    _, said = obtain(dots.PICTURES, tmp_path / "root", tmp_path / "given")
    assert "test.bin is damaged or not the official file: sha256" in said[0]
    (stored.folder / "stored.json").unlink()
    _, said = obtain(dots.PICTURES, tmp_path / "root", tmp_path / "given")
    assert "train.bin cannot be verified: stored.json beside it is missing or damaged" in said[0]


def test_damaged_pictures_are_named(tmp_path: Path) -> None:
    given = tmp_path / "given"
    dots.write_pictures(given)
    path = given / "train/n01/images/n01_9.JPEG"
    whole = path.read_bytes()
    harms = {"not an image": b"text", "8x8 pixels expected, 9x8 found": b"", "[Tt]runcated": whole[:-60]}
    Image.new("RGB", (9, 8)).save(tmp_path / "wide.JPEG")
    harms["8x8 pixels expected, 9x8 found"] = (tmp_path / "wide.JPEG").read_bytes()
    for reason, content in harms.items():
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=f"{path} is damaged or not a JPEG of Pictures: .*{reason}"):
            obtain(dots.PICTURES, tmp_path / "root", given)
    assert left_behind(tmp_path / "root") == []


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("val/val_annotations.txt", "../../secret.JPEG\tn01\n", r"val_annotations\.txt is damaged: '\.\./\.\./secret"),
        ("val/val_annotations.txt", "val_0.JPEG\tn09\n", r"val_annotations\.txt is damaged"),
        ("val/val_annotations.txt", "val_77.JPEG\tn01\n", r"val_77\.JPEG is missing"),
        ("wnids.txt", "../n01\n", r"wnids\.txt is damaged: '\.\./n01' is not a wnid"),
        ("wnids.txt", "n01\nn02\nn03\n", r"wnids\.txt is not of Pictures: 3 classes of at most 2"),
        ("wnids.txt", "", r"wnids\.txt is not of Pictures: 0 classes"),
    ],
)
def test_damaged_lists_are_named(tmp_path: Path, file: str, text: str, message: str) -> None:
    dots.write_pictures(tmp_path / "given")
    (tmp_path / "given" / file).write_text(text)
    with pytest.raises(ConfigError, match=message):
        obtain(dots.PICTURES, tmp_path / "root", tmp_path / "given")
