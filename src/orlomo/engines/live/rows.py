"""The trace of a live run: one row per report, one row per worker that joins, leaves or crashes."""

from __future__ import annotations

import math
import time
from typing import Any

from orlomo.clusters.schedule import COLUMNS, KINDS, REPORT
from orlomo.engines.live.crew import Arrived
from orlomo.methods.ledger import Fold


def row_of_report(fold: Fold, learning_rate: float, arrived: Arrived, now: float) -> dict[str, Any]:
    """How a report was folded in; `now` is in seconds of the run."""
    return {
        "kind": REPORT,
        "iteration": fold.iteration,
        "worker": fold.worker,
        "round": fold.round,
        "index": fold.index,
        "delay": fold.delay,
        "group": fold.group,
        "eta": fold.eta,
        "learning_rate": learning_rate,
        "start": now - (time.monotonic() - arrived.sent),
        "finish": now,
        "compute": arrived.compute_seconds,
    }


def row_of_change(kind: str, iteration: int, worker: int, now: float) -> dict[str, Any]:
    """A worker has come or gone; columns that say something about reports only are empty."""
    row: dict[str, Any] = {name: -1 if code == "q" else math.nan for name, code in COLUMNS.items()}
    return row | {"kind": KINDS.index(kind), "iteration": iteration, "worker": worker, "finish": now}
