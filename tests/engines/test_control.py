"""Requests to a running run."""

from __future__ import annotations

import json
import time
from pathlib import Path

from orlomo.engines.live.control import Control


def test_a_request_is_gone_before_it_is_obeyed(tmp_path: Path) -> None:
    """So that none is obeyed twice."""
    control = Control(tmp_path, since=time.time_ns())
    folder = tmp_path / "control"
    folder.mkdir()
    path = folder / f"{time.time_ns()}-a.json"
    path.write_text('{"action": "list"}')
    seen: list[bool] = []
    control.answer(lambda request: seen.append(path.exists()))
    assert seen == [False]
    assert json.loads(path.with_suffix(".answer").read_text()) == {"result": None}
    (folder / f"{time.time_ns()}-b.json").write_text("not JSON")
    time.sleep(0.25)
    control.answer(lambda request: None)
    [answer] = folder.glob("*-b.answer")
    assert "is not a request" in answer.read_text()
    control.close()
