"""Stored data sets: where they are, and how they are written (to temporary files, then renamed) and verified."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orlomo.data.progress import DataProgress
from orlomo.data.spec import SPLITS, Bundle, DataSet, Form, wrong_checksum
from orlomo.errors import ConfigError, RunFolderError, require
from orlomo.files import remove_temporary_files, write_atomically, write_text_atomically
from orlomo.locks import lock
from orlomo.reading import read_json

MANIFEST = "stored.json"
HASH_BYTES = 2**22


def data_root() -> Path:
    """The folder of all data sets: $ORLOMO_DATA, or `orlomo/data` in the user's cache."""
    given = os.environ.get("ORLOMO_DATA")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "orlomo" / "data"


@dataclass(frozen=True)
class Stored:
    """A data set on disk: its folder, its numbers, and where it came from."""

    dataset: DataSet
    folder: Path
    counts: dict[str, int]
    classes: int
    sha256: dict[str, str]
    source: str

    @property
    def complete(self) -> bool:
        return self.counts == self.dataset.counts

    def path(self, split: str) -> Path:
        return self.folder / f"{split}.bin"

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.dataset.name,
            "folder": str(self.folder),
            "complete": self.complete,
            "train_images": self.counts["train"],
            "test_images": self.counts["test"],
            "shape": list(self.dataset.shape),
            "classes": self.classes,
            "source": self.source,
        }

    def __str__(self) -> str:
        train, test = (self.counts[split] for split in SPLITS)
        numbers = f"{train:,} training and {test:,} test images"
        if not self.complete:
            whole = self.dataset.counts
            numbers = f"a SAMPLE of {train + test} images ({train} of {whole['train']} training, {test} of "
            numbers += f"{whole['test']} test, {self.classes} of {self.dataset.classes} classes)"
        return f"{self.dataset.title}: {numbers}, in {self.folder}"


def find(dataset: DataSet, root: Path | None = None) -> Stored | None:
    """The stored data set, its sizes checked; None where there is none. Files of wrong size are an error."""
    folder = (root or data_root()) / dataset.name
    if not any((folder / f"{split}.bin").exists() for split in SPLITS):
        return None
    stored = Stored(dataset, folder, dataset.counts, dataset.classes, {}, "")
    # Without its manifest an official data set is still known: its sizes and checksums are in the catalog.
    with contextlib.suppress(RunFolderError, ValueError, KeyError, TypeError, AttributeError):
        manifest = read_json(folder / MANIFEST)
        counts = dataset.counts if dataset.official else {split: int(manifest[f"{split}_images"]) for split in SPLITS}
        sha256 = {split: str(manifest["sha256"][split]) for split in SPLITS}
        stored = Stored(dataset, folder, counts, int(manifest["classes"]), sha256, str(manifest["source"]))
    for split in SPLITS:
        path = stored.path(split)
        expected = stored.counts[split] * dataset.row_bytes
        found = path.stat().st_size if path.is_file() else 0
        if found != expected or not found:
            raise ConfigError(
                f"{path} is damaged: {expected} bytes expected, {found} found; `orlomo data {dataset.name}` mends it"
            )
    return stored


def verify(stored: Stored, progress: DataProgress) -> None:
    """Read all of a stored data set; a file that differs from its checksum is an error."""
    for split in SPLITS:
        path = stored.path(split)
        pieces = [(stored.counts[split], stored.sha256.get(split))]
        if stored.dataset.official:
            pieces = [(part.rows, part.sha256) for part in stored.dataset.parts(split)]
        with path.open("rb") as file, progress.bytes(f"verifying {path.name}", path.stat().st_size) as advance:
            for rows, expected in pieces:
                require(expected is not None, f"{path} cannot be verified: {MANIFEST} beside it is missing or damaged")
                # One checksum per official file, where there are such; else one for the whole split.
                digest = hashlib.sha256()
                left = rows * stored.dataset.row_bytes
                while left and (block := file.read(min(left, HASH_BYTES))):
                    digest.update(block)
                    left -= len(block)
                    advance(len(block))
                if digest.hexdigest() != expected:
                    raise wrong_checksum(str(path), "sha256", str(expected), digest.hexdigest())


def write(
    dataset: DataSet,
    form: Form,
    bundle: Bundle,
    root: Path,
    progress: DataProgress,
    sample: bool = False,
    source: str | None = None,
) -> Stored:
    """Store a data set from a bundle in this form; on any error what was stored stays.

    A `sample` need not be whole. `source` is where it came from, if that is not the bundle.
    """
    folder = root / dataset.name
    counts = form.counts(dataset, bundle)
    require(min(counts.values()) > 0, f"{bundle.where()} holds no training or no test images of {dataset.title}")
    require(
        sample or counts == dataset.counts,
        f"{bundle.where()} holds only a sample of {dataset.title}, {sum(counts.values())} images; --from would take it",
    )
    digests: dict[str, str] = {}
    labels: set[int] = set()

    def fill(split: str, path: Path) -> None:
        with path.open("r+b") as file, progress.images(f"storing {split} images", counts[split]) as advance:
            for first, rows in form.blocks(dataset, split, bundle):
                file.seek(first * dataset.row_bytes)
                file.write(rows.data if rows.flags.c_contiguous else rows.tobytes())
                labels.update(rows[:, dataset.label_bytes - 1].tolist())
                advance(len(rows))
        found = path.stat().st_size
        require(found == counts[split] * dataset.row_bytes, f"{bundle.where()}: the {split} images are not whole")
        with path.open("rb") as file:
            digests[split] = hashlib.file_digest(file, "sha256").hexdigest()

    # Both files are complete before either is renamed; what a crash between the renames leaves, `verify` notices.
    def fill_both(train: Path) -> None:
        fill("train", train)
        write_atomically(folder / "test.bin", lambda test: fill("test", test))

    write_atomically(folder / "train.bin", fill_both)
    stored = Stored(dataset, folder, counts, max(labels) + 1, digests, source or bundle.where())
    facts = {name: value for name, value in stored.to_json().items() if name != "folder"}
    text = json.dumps({**facts, "sha256": digests}, indent=1)
    write_text_atomically(folder / MANIFEST, text)
    return stored


@contextlib.contextmanager
def locked(dataset: DataSet, root: Path) -> Iterator[None]:
    """Keep other processes from writing this data set; what a killed one left half-written is removed."""
    folder = root / dataset.name
    existed = folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if existed and not os.access(folder, os.W_OK):  # nothing can be written here: no lock is needed
        yield
        return
    with lock(folder):
        # Under the lock: no other process can be writing them.
        remove_temporary_files(folder)
        try:
            yield
        finally:
            if not existed and not any(path.name != ".lock" for path in folder.iterdir()):
                (folder / ".lock").unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    folder.rmdir()
