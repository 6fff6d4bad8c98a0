"""Requests to a running run: whatever is put into `control`, the run continues, and no other file is touched."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from orlomo.engines.live import control as controls
from orlomo.engines.live.control import Control, Request

ADD = '{"action": "add", "count": 2}'


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "POLL_SECONDS", 0.0)


def name(number: int = 0) -> str:
    return f"{time.time_ns():020d}-{number:08x}.json"


def test_a_request_is_gone_before_it_is_obeyed(tmp_path: Path) -> None:
    """So that none is obeyed twice."""
    control = Control(tmp_path, since=time.time_ns())
    folder = tmp_path / "control"
    folder.mkdir()
    path = folder / name()
    path.write_text('{"action": "list"}')
    seen: list[bool] = []
    control.answer(lambda request: seen.append(path.exists()))
    assert seen == [False]
    assert json.loads(path.with_suffix(".answer").read_text()) == {"result": None}
    control.close()


HOSTILE = {
    "not JSON": b"not JSON",
    "not UTF-8": b"\xff",
    "too large a number": b'{"action": "add", "count": 1e999}',
    "no number": b'{"action": "add", "count": -Infinity}',
    "deep": b"[" * 100_000,
    "deep enough to be parsed": b'{"action": ' + b"[" * 200 + b"]" * 200 + b"}",
    "many workers": b'{"action": "add", "count": 1000000000}',
    "many digits": b'{"action": "remove", "worker": ' + b"9" * 5000 + b"}",
    "a text": b'{"action": "remove", "worker": "7"}',
    "true": b'{"action": "remove", "worker": true}',
    "negative": b'{"action": "remove", "worker": -1}',
    "unknown": b'{"action": "delete"}',
    "a list": b'{"action": ["add"]}',
    "long": b" " * 10_000_000 + ADD.encode(),
}


def test_what_is_no_request_is_answered_with_an_error_and_the_run_goes_on(tmp_path: Path) -> None:
    folder, obeyed = tmp_path / "control", []
    folder.mkdir()
    control = Control(tmp_path, since=0)
    for number, (what, content) in enumerate(HOSTILE.items()):
        path = folder / name(number)
        path.write_bytes(content)
        control.answer(obeyed.append)
        assert "error" in json.loads(path.with_suffix(".answer").read_text()), what
    fifo, link, directory = (folder / name(100 + number) for number in range(3))
    os.mkfifo(fifo)  # to open it for reading would wait for a writer
    outside = tmp_path / "outside.json"
    outside.write_text(ADD)
    link.symlink_to(outside)
    directory.mkdir()
    control.answer(obeyed.append)
    assert not obeyed
    assert not os.path.lexists(fifo)
    assert not os.path.lexists(link)
    assert outside.read_text() == ADD
    assert directory.is_dir()  # not removed, not obeyed
    good = folder / name(200)
    good.write_text(ADD)
    control.answer(obeyed.append)
    assert obeyed == [{"action": "add", "count": 2}]
    control.close()


def test_only_files_of_requests_are_ever_removed(tmp_path: Path) -> None:
    folder = tmp_path / "control"
    folder.mkdir()
    mine = [folder / "letter.json", folder / "123-a.json", folder / ".hidden", folder / "notes.answer"]
    for path in mine:
        path.write_text("mine")
    old = folder / name()
    old.write_text(ADD)
    control = Control(tmp_path, since=time.time_ns())
    assert not old.exists()
    control.answer(lambda request: pytest.fail("nothing was asked"))
    control.close()
    assert all(path.read_text() == "mine" for path in mine)


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    mine = [documents / "letter.txt", documents / "1.json", documents / name()]
    for path in mine:
        path.write_text(ADD)
    (tmp_path / "control").symlink_to(documents)
    said: list[str] = []
    control = Control(tmp_path, time.time_ns(), said.append)

    def obey(request: Request) -> None:
        pytest.fail("a request from elsewhere was obeyed")

    control.answer(obey)
    control.close()
    assert all(path.read_text() == ADD for path in mine)
    assert len(said) == 1
    assert "is a link" in said[0]
