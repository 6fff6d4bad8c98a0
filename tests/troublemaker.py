"""Random faults, for real, over the workers of a small run: killed, stopped and continued, raising, reporting numbers
that are not finite, starting slowly. Afterwards the books are checked. For the tests and benchmarks/faults.py."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faulty
import orlomo

KINDS = ("kill", "stop", "raise", "nan", "slow start")
REPORTS_BETWEEN = 8
MOST_STOPPED = 2  # of four workers at a time


@dataclass
class Outcome:
    """What came of it."""

    faults: Counter[str]
    accuracy: float
    reports: int
    lost: int
    refused: int
    agrees: bool  # the ledger of acknowledged reports is what a replay folds, to the same bits
    left_behind: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def is_well(self, faults: int, target: float) -> bool:
        """Whether all of it happened, and nothing is amiss."""
        done = sum(self.faults.values()) == faults
        return done and self.agrees and self.accuracy >= target and not self.left_behind

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"{sum(self.faults.values())} faults ({kinds}): {self.lost} workers lost, {self.refused} reports refused, "
            f"{self.reports} reports folded once each, {'replayed bit for bit' if self.agrees else 'NOT AS REPLAYED'}, "
            f"accuracy {self.accuracy:.1%}, left behind: {', '.join(self.left_behind) or 'nothing'}"
        )


class Troublemaker(orlomo.Callback):
    """Makes trouble every few reports, until it has made so much of it; some reports later the run may end."""

    kinds: tuple[str, ...] = KINDS
    least = 1  # workers that are there and not stopped, else the next fault waits
    workers = 4

    def __init__(self, folder: Path, faults: int, seed: int):
        self.folder, self.left = folder, faults
        self.source = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.stopped: set[int] = set()
        self.reports_after = 20 * REPORTS_BETWEEN

    def started(self, run: orlomo.RunHandle) -> None:
        self.run = run

    def event(self, row: dict[str, Any]) -> None:
        if row["kind"] != "report" or row["reports"] % REPORTS_BETWEEN:
            return
        if not self.left:
            self.reports_after -= REPORTS_BETWEEN
            if self.reports_after <= 0:
                self.run.stop("all faults are made")
            return
        pids = [pid for pid in faulty.trainers(self.folder) if pid not in self.stopped]
        kind = self.source.choice(self.kinds)
        if len(pids) < self.least or (kind == "stop" and len(self.stopped) >= MOST_STOPPED):
            return
        self.make(kind, self.source.choice(pids))
        self.done[kind] += 1
        self.left -= 1

    def make(self, kind: str, pid: int) -> None:
        if kind in ("raise", "nan"):
            faulty.request(self.folder, pid, kind)
            return
        if kind == "slow start":
            faulty.slow_start(self.folder)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
        if kind == "stop":
            self.stopped.add(pid)
            threading.Timer(self.source.uniform(0.01, 0.5), self.resume_process, [pid]).start()

    def resume_process(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self.stopped.discard(pid)


def make_trouble(
    folder: Path,
    faults: int,
    seed: int,
    warn: Any = lambda text: None,
    kind: type[Troublemaker] = Troublemaker,
    pause: float = 0.0,
    **engine: Any,
) -> Outcome:
    """Train while the faults happen, then look whether anything is missing, twice there, or left behind."""
    before = shared_memory()
    task = faulty.task(folder / "faults", pause=pause)
    trouble = kind(folder / "faults", faults, seed)
    begin = time.monotonic()
    run = orlomo.train(
        task,
        orlomo.OrLoMo(learning_rate=0.02, local_steps=1 if pause else 4),
        workers=kind.workers,
        epochs=1e5,
        out=folder / "run",
        evaluate_every=10,
        callbacks=[trouble],
        warn=warn,
        **{"engine": "processes", **engine},
    )
    seconds = time.monotonic() - begin
    events, values = run.event_columns, run.checkpoint.values if run.checkpoint else {}
    reported = events["kind"] == "report"
    pairs = list(zip(events["worker"][reported].tolist(), events["round"][reported].tolist(), strict=True))
    changes = Counter(events["kind"].tolist())
    # A worker that is lost before it takes part is counted, and is no event.
    lost = values["membership"]["lost"]
    once = len(set(pairs)) == len(pairs) == values["reports"] and changes["crash"] <= lost
    faulty.gone_within(5.0, faulty.trainers(folder / "faults"))
    left = [f"process {pid}" for pid in faulty.trainers(folder / "faults")]
    return Outcome(
        faults=trouble.done,
        accuracy=float(run.metric_columns["test_accuracy"][-1]),
        reports=len(pairs),
        lost=lost,
        refused=values["membership"]["refused"],
        agrees=once and orlomo.replay(run.folder, task=task, jobs=1).agrees,
        left_behind=left + sorted(shared_memory() - before),
        seconds=seconds,
    )


def shared_memory() -> set[str]:
    """Names in shared memory."""
    return set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
