"""A data set of a few random dots with checksums of its own, in every form that data sets come in."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import struct
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from orlomo.data.binary_forms import Idx, IdxFile, Pickles, RowFiles
from orlomo.data.picture_forms import ClassFolders, Sheets
from orlomo.data.spec import DataSet, Part, Rows

COUNTS = {"batch_1": 5, "batch_2": 5, "test_batch": 4}
LABELS = ("coarse_labels", "fine_labels")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_rows(label_bytes: int = 1, image_bytes: int = 48, classes: int = 3) -> dict[str, Rows]:
    generator = np.random.default_rng(5)
    rows = {}
    for stem, count in COUNTS.items():
        labels = generator.integers(0, classes, (count, label_bytes), dtype=np.uint8)
        images = generator.integers(0, 256, (count, image_bytes), dtype=np.uint8)
        rows[stem] = np.concatenate([labels, images], axis=1)
    return rows


ROWS = make_rows()
TWO_LABEL_ROWS = make_rows(label_bytes=2)
GREY_ROWS = make_rows(image_bytes=16)


def part(rows: dict[str, Rows], stem: str) -> Part:
    return Part(stem, len(rows[stem]), sha256(rows[stem].tobytes()))


DOTS = DataSet(
    name="dots",
    title="Dots",
    classes=3,
    shape=(3, 4, 4),
    train=(part(ROWS, "batch_1"), part(ROWS, "batch_2")),
    test=(part(ROWS, "test_batch"),),
    forms=(RowFiles(), Pickles(("labels",)), Sheets("train.json", "test.json")),
    folders=("dots-bin", "dots-py"),
    archives=("dots.tar.gz", "dots.zip"),
)
TWO_LABELS = replace(
    DOTS,
    label_bytes=2,
    train=(part(TWO_LABEL_ROWS, "batch_1"), part(TWO_LABEL_ROWS, "batch_2")),
    test=(part(TWO_LABEL_ROWS, "test_batch"),),
    forms=(RowFiles(), Pickles(LABELS)),
)


def split_rows(rows: dict[str, Rows], split: str) -> Rows:
    return np.concatenate([rows["batch_1"], rows["batch_2"]]) if split == "train" else rows["test_batch"]


def write_row_files(folder: Path, rows: dict[str, Rows] = ROWS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, block in rows.items():
        (folder / f"{stem}.bin").write_bytes(block.tobytes())


def write_pickles(folder: Path, rows: dict[str, Rows] = ROWS, labels: tuple[str, ...] = ("labels",)) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, block in rows.items():
        batch = {name.encode(): block[:, column].tolist() for column, name in enumerate(labels)}
        batch[b"data"] = np.ascontiguousarray(block[:, len(labels) :])
        batch[b"batch_label"] = stem.encode()
        (folder / stem).write_bytes(pickle.dumps(batch, protocol=2))


def write_sheets(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, block in ROWS.items():
        pixels = block[:, 1:].reshape(-1, 3, 16).transpose(0, 2, 1)
        Image.fromarray(np.ascontiguousarray(pixels)).save(folder / f"{stem}.png")
    for split in ("train", "test"):
        (folder / f"{split}.json").write_text(json.dumps(split_rows(ROWS, split)[:, 0].tolist()))


def idx_contents() -> dict[str, bytes]:
    contents = {}
    for split in ("train", "test"):
        rows = split_rows(GREY_ROWS, split)
        contents[f"{split}-images"] = struct.pack(">4I", 0x803, len(rows), 4, 4) + rows[:, 1:].tobytes()
        contents[f"{split}-labels"] = struct.pack(">2I", 0x801, len(rows)) + rows[:, 0].tobytes()
    return contents


IDX = {name: IdxFile(name, sha256(content)) for name, content in idx_contents().items()}
GREY = replace(
    DOTS,
    name="grey",
    shape=(1, 4, 4),
    train=(Part("train", 10, sha256(split_rows(GREY_ROWS, "train").tobytes())),),
    test=(Part("test", 4, sha256(split_rows(GREY_ROWS, "test").tobytes())),),
    forms=(Idx(IDX["train-images"], IDX["train-labels"], IDX["test-images"], IDX["test-labels"]),),
    archives=(),
)


def write_idx(folder: Path, gzipped: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in idx_contents().items():
        if gzipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


PICTURES = DataSet(
    name="pictures",
    title="Pictures",
    classes=2,
    shape=(3, 8, 8),
    train=(Part("train", 6),),
    test=(Part("val", 4),),
    forms=(ClassFolders(),),
    folders=("pictures-2",),
)


def write_pictures(folder: Path, each: int = 3) -> None:
    """Two classes: plain colours whose red is 40 times the number in the name; the second class is greyscale."""
    (folder / "val/images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("n02\nn01\n")  # not sorted, as the official one
    lines = []
    for wnid, mode in (("n01", "RGB"), ("n02", "L")):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        for number in range(each):
            colour = (40 * number, 0, 0) if mode == "RGB" else 40 * number
            Image.new(mode, (8, 8), colour).save(images / f"{wnid}_{number + 8}.JPEG", quality=100, subsampling=0)
        for number in range(2):
            name = f"val_{number + (10 if mode == 'RGB' else 0)}.JPEG"
            Image.new(mode, (8, 8)).save(folder / "val/images" / name)
            lines.append(f"{name}\t{wnid}\t0\t0\t7\t7\n")
    (folder / "val/val_annotations.txt").write_text("".join(lines))


def pack(folder: Path, archive: Path) -> Path:
    """All of a folder as an archive, below the folder's name."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted(folder.rglob("*")):
                packed.write(path, path.relative_to(folder.parent))
    else:
        with tarfile.open(archive, "w:gz") as packed_tar:
            packed_tar.add(folder, folder.name)
    return archive
