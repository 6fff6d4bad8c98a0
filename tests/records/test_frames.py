"""A run's tables in Python: pandas frames where pandas is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import orlomo
from small import classification, settings


@pytest.fixture
def run(tmp_path: Path) -> orlomo.Run:
    return orlomo.train(classification(), settings("orlomo"), workers=3, epochs=3, jobs=1, out=tmp_path / "run")


def test_frames_hold_the_columns(run: orlomo.Run) -> None:
    pandas = pytest.importorskip("pandas")
    for frame, columns in ((run.events, run.event_columns), (run.metrics, run.metric_columns)):
        assert isinstance(frame, pandas.DataFrame)
        assert list(frame) == list(columns)
        for name, column in columns.items():
            assert np.array_equal(frame[name].to_numpy(), column, equal_nan=column.dtype == np.float64), name
    reports = run.events[run.events["kind"] == "report"]
    assert reports.groupby("worker")["delay"].max().tolist() == [
        run.event_columns["delay"][run.event_columns["worker"] == worker].max() for worker in range(3)
    ]


def test_what_is_done_to_a_frame_is_not_done_to_the_run(run: orlomo.Run) -> None:
    frame = run.events
    frame["delay"] = 0
    frame.loc[0, "eta"] = 7.0
    assert run.events["delay"].max() > 0
    assert run.event_columns["eta"][0] != 7.0


def test_without_pandas_they_are_columns(run: orlomo.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert run.events is run.event_columns
    assert run.metrics["train_loss"][-1] == run.metric_columns["train_loss"][-1]
