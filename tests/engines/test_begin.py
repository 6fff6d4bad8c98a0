"""Runs that were killed before their first checkpoint begin again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import orlomo
import small_loops


@pytest.mark.parametrize("engine", ["simulated", "processes"])
def test_a_run_without_a_whole_header_begins_again(engine: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, engine=engine, out=folder, jobs=1)
    for left in (b"", b"kind,iter", None):
        unbegin(folder, left)
        assert orlomo.resume(folder, jobs=1).finished
        assert orlomo.replay(folder, jobs=1).agrees


def unbegin(folder: Path, events: bytes | None) -> None:
    """As it is where a run was killed when it opened its tables."""
    for path in [*(folder / "checkpoints").iterdir(), folder / "model.safetensors"]:
        path.unlink()
    for name in ("metrics.csv", "rounds.csv"):
        (folder / name).unlink(missing_ok=True)
    (folder / "events.csv").unlink()
    if events is not None:
        (folder / "events.csv").write_bytes(events)


@pytest.mark.parametrize("engine", ["processes", "simulated"])
def test_a_loop_without_a_checkpoint_begins_again(engine: str, tmp_path: Path) -> None:
    run = orlomo.launch(small_loops.loop, workers=2, engine=engine, out=tmp_path / "run")
    assert len(run.rounds)
    unbegin(run.folder, b"kind")
    again = orlomo.resume(run.folder, task=small_loops.loop)
    assert again.finished
    assert len(again.rounds) == len(run.rounds) == len(again.events)
    if engine == "simulated":
        return
    unbegin(run.folder, b"kind")
    with pytest.raises(orlomo.OrlomoError, match="has changed, and the run has no checkpoint"):
        orlomo.resume(run.folder, task=partial(small_loops.loop, epochs=3))
