"""Pickles are read without running what they ask for."""

from __future__ import annotations

import codecs
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import dots
import numpy as np
import pytest
from test_data_forms import obtain

from orlomo.data.binary_forms import read_batch
from orlomo.data.images import load_dataset
from orlomo.errors import ConfigError


class Calls:
    """Pickled as a call."""

    def __init__(self, function: Any, *arguments: Any):
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_runs_a_command_is_refused_and_does_not_run(tmp_path: Path, protocol: int) -> None:
    dots.write_pickles(tmp_path / "given")
    trace = tmp_path / "it-ran"
    hostile = {b"data": Calls(os.system, f"touch {trace}"), b"labels": [0] * 5}
    (tmp_path / "given/batch_2").write_bytes(pickle.dumps(hostile, protocol=protocol))
    with pytest.raises(ConfigError) as caught:
        obtain(dots.DOTS, tmp_path / "root", tmp_path / "given")
    assert f"{tmp_path}/given/batch_2 is refused: it asks for '" in str(caught.value)
    assert "system'" in str(caught.value)
    assert not trace.exists()
    assert not (tmp_path / "root/dots").exists()


@pytest.mark.parametrize(
    "call",
    [
        Calls(eval, "1"),
        Calls(subprocess.Popen, ["true"]),
        Calls(getattr, np.ndarray, "tofile"),
        Calls(codecs.encode, "text", "rot13"),
        Calls(np.fromfile, "/etc/hostname"),
        np.random.default_rng(0),
        Path("/"),
    ],
)
def test_only_arrays_can_be_rebuilt(call: Any) -> None:
    with pytest.raises(ConfigError, match="batch is refused: it asks for"):
        read_batch(pickle.dumps({b"data": call}, protocol=2), "batch")


@pytest.mark.parametrize("content", [b"", b"\x80\x02}", b"\x80\x02}q\x00(.", b"no pickle", pickle.dumps([1])])
def test_damaged_pickles_are_named(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^batch is (damaged: not a readable pickle|not a CIFAR batch)"):
        read_batch(content, "batch")


@pytest.mark.parametrize(
    "data",
    [
        dots.ROWS["batch_1"][:, :-1].astype(np.int16),
        np.ascontiguousarray(dots.ROWS["batch_1"][:, 2:]),
        np.array([None] * 5),
        [[0] * 48] * 5,
        None,
    ],
)
def test_data_that_is_not_rows_of_bytes_is_refused(tmp_path: Path, data: Any) -> None:
    dots.write_pickles(tmp_path / "given")
    path = tmp_path / "given/batch_1"
    path.write_bytes(pickle.dumps({b"data": data, b"labels": [0, 1, 2, 0, 1]}, protocol=2))
    with pytest.raises(ConfigError, match=r"batch_1 is (damaged|not a CIFAR batch)"):
        obtain(dots.DOTS, tmp_path / "root", tmp_path / "given")


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1, 2, 0, 3], [0, 1, 2, 0, -1], "01201", None, [0, 1, 2, 0, 1.0]])
def test_labels_that_are_no_class_numbers_are_refused(tmp_path: Path, labels: Any) -> None:
    dots.write_pickles(tmp_path / "given")
    batch = {b"data": np.ascontiguousarray(dots.ROWS["batch_1"][:, 1:]), b"labels": labels}
    (tmp_path / "given/batch_1").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(ConfigError, match="batch_1 is damaged: 5 labels from 0 to 2 expected"):
        obtain(dots.DOTS, tmp_path / "root", tmp_path / "given")


def test_an_array_by_columns_is_read_as_the_same_rows(tmp_path: Path) -> None:
    dots.write_pickles(tmp_path / "given")
    block = dots.ROWS["batch_1"]
    batch = {b"data": np.asfortranarray(block[:, 1:]), b"labels": block[:, 0].tolist()}
    (tmp_path / "given/batch_1").write_bytes(pickle.dumps(batch, protocol=2))
    obtain(dots.DOTS, tmp_path / "root", tmp_path / "given")
    images = load_dataset(dots.DOTS, tmp_path / "root").train_images
    assert np.array_equal(images[:5].flatten(1).numpy(), block[:, 1:])


def test_a_pickle_as_python_2_wrote_it(tmp_path: Path) -> None:
    """Strings and bytes are one kind there, and numpy's module has its old name."""
    dots.write_pickles(tmp_path / "given")
    block = dots.ROWS["batch_1"]
    pixels = block[:, 1:].tobytes()
    content = b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    content += (
        b"(K\x01K\x05K\x30\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
    )
    content += b"K\x00tb\x89T" + len(pixels).to_bytes(4, "little") + pixels + b"tb"
    content += b"U\x06labels](" + b"".join(b"K" + bytes([label]) for label in block[:, 0]) + b"eu."
    (tmp_path / "given/batch_1").write_bytes(content)
    assert obtain(dots.DOTS, tmp_path / "root", tmp_path / "given").complete
