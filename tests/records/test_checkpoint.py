"""Checkpoints: whole or not there, damage found, the last few kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from orlomo import OrlomoError
from orlomo.records import checkpoint as checkpoints
from orlomo.records.checkpoint import KEEP, Checkpoint, load, load_newest, positions, save


def make(position: int) -> Checkpoint:
    return Checkpoint(position, {"w": torch.full((1000,), float(position))}, {"note": f"at {position}"})


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save(tmp_path, make(7))
    found = load(tmp_path, 7)
    assert found.position == 7
    assert found.values == {"note": "at 7"}
    assert torch.equal(found.tensors["w"], torch.full((1000,), 7.0))


def test_only_the_last_few_are_kept(tmp_path: Path) -> None:
    for position in range(1, 8):
        save(tmp_path, make(position))
    assert positions(tmp_path) == [5, 6, 7]
    assert len(list(tmp_path.iterdir())) == 2 * KEEP


def test_one_that_is_written_again_is_never_seen_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for position in (1, 2):
        save(tmp_path, make(position))
    monkeypatch.delattr(checkpoints, "write_text_atomically")  # as if killed between its two files
    with pytest.raises(NameError):
        save(tmp_path, Checkpoint(2, {"w": torch.zeros(3)}, {}))
    warnings: list[str] = []
    found = load_newest(tmp_path, warnings.append)
    assert found is not None
    assert (found.position, warnings) == (1, [])


@pytest.mark.parametrize("kind", ["json", "safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "gone"])
def test_a_damaged_newest_one_is_noticed_and_the_one_before_it_used(tmp_path: Path, kind: str, damage: str) -> None:
    for position in (1, 2):
        save(tmp_path, make(position))
    path = tmp_path / f"000000002.{kind}"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        content[-30] ^= 0x01
        path.write_bytes(content)
    elif damage == "empty":
        path.write_bytes(b"")
    elif kind == "safetensors":
        path.unlink()
    else:
        path.write_text(json.dumps({"sha256": "0"}))
    warnings: list[str] = []
    found = load_newest(tmp_path, warnings.append)
    assert found is not None
    assert found.position == 1
    assert len(warnings) == 1
    assert "000000002" in warnings[0]
    assert "damaged" in warnings[0]


def test_every_bit_of_the_json_is_under_its_seal(tmp_path: Path) -> None:
    save(tmp_path, make(3))
    path = tmp_path / "000000003.json"
    whole = path.read_text()
    path.write_text(whole.replace('"at 3"', '"at 4"'))
    with pytest.raises(OrlomoError, match="checksum does not match"):
        load(tmp_path, 3)


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "nowhere", print) is None


def test_a_failed_write_leaves_the_old_checkpoints_and_no_scraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, make(1))

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            save(tmp_path, make(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000001.json", "000000001.safetensors"]
    found = checkpoints.load_newest(tmp_path, print)
    assert found is not None
    assert found.position == 1
