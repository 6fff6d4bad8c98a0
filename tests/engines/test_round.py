"""What a worker keeps between its rounds: a refused round is computed again from the same state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import orlomo
from orlomo.engines.round import KeptState
from orlomo.methods.messages import WorkerState
from small import OWN_METHOD, classification


def test_a_round_is_kept_when_the_next_one_begins_and_not_before() -> None:
    kept = KeptState(WorkerState({"m": torch.zeros(2)}, {"steps": 0}))

    def compute(round: int) -> list[float]:
        state = kept.begin(round)
        before = [state.numbers["steps"], *state.vectors["m"].tolist()]
        state.vectors["m"].add_(1)
        state.numbers["steps"] += 1
        kept.finish(state)
        return before

    assert compute(0) == [0, 0, 0]
    assert compute(0) == [0, 0, 0]  # refused: again from where it began
    assert compute(0) == [0, 0, 0]
    assert compute(1) == [1, 1, 1]
    assert compute(2) == [2, 2, 2]
    assert compute(2) == [2, 2, 2]
    assert compute(5) == [3, 3, 3]


def test_a_refused_round_of_a_worker_with_state_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On real processes: one report in ten is refused by the server, and its round computed again."""
    refused: list[tuple[int, int]] = []
    real = orlomo.Server.receive

    def receive(self: orlomo.Server, report: orlomo.Report, *more: Any) -> Any:
        if report.round is not None and report.round % 10 == 3 and (report.worker, report.round) not in refused:
            refused.append((report.worker, report.round))
            raise orlomo.ReportRefused("finite", "refused by the test")
        return real(self, report, *more)

    monkeypatch.setattr(orlomo.Server, "receive", receive)
    settings: dict[str, Any] = {"workers": 2, "epochs": 10, "engine": "processes", "warn": lambda text: None}
    run = orlomo.train(classification(), orlomo.method(OWN_METHOD, local_steps=2), out=tmp_path / "run", **settings)
    monkeypatch.undo()
    assert len(refused) >= 2
    assert orlomo.replay(run.folder, task=classification(), jobs=1).agrees
