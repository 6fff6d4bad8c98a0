"""How large it may get: a schedule of a million iterations, and a thousand workers on a model of 270,000 parameters.

    python benchmarks/scale.py

Limits: the schedule in 20 s and 1 GB; the thousand workers in 3 GB (all processes together). Prints each figure as a
ratio to its limit.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import orlomo
from orlomo.tasks.task import classification_loss


def schedule() -> float:
    """Seconds for a schedule of 1,000,000 reports of 100,000 workers."""
    begin = time.perf_counter()
    events = orlomo.trace("orlomo", workers=100_000, iterations=1_000_000, cluster="heterogeneous")
    seconds = time.perf_counter() - begin
    assert len(events) == 1_000_000
    return seconds


def thousand_workers() -> float:
    """Seconds for 3,000 reports of 1,000 workers on 270,000 parameters, two jobs."""

    def wide() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 3600), nn.ReLU(), nn.Linear(3600, 10))

    data = (torch.randn(2048, 64), torch.arange(2048) % 10)
    task = orlomo.Task(model=wide, loss=classification_loss, train_data=data, batch_size=8)
    assert 260_000 < task.initial_params(0).numel() < 280_000
    method = orlomo.OrLoMo(learning_rate=0.01, local_steps=1)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        orlomo.train(
            task,
            method,
            workers=1000,
            epochs=3000 * 8 / task.size,
            cluster="heterogeneous",
            jobs=2,
            out=Path(folder) / "run",
            evaluate_every=4,
        )
    return time.perf_counter() - begin


def measured(name: str, work: Callable[[], float]) -> tuple[float, float]:
    """Seconds, and the largest memory of the process and its children together, in GB (proportional set size)."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(theirs, work))
    process.start()
    largest = [0.0]
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, largest, stop))
    watcher.start()
    seconds = float(ours.recv())
    stop.set()
    watcher.join()
    process.join()
    print(f"{name}: {seconds:.1f} s, {largest[0]:.2f} GB", flush=True)
    return seconds, largest[0]


def _child(pipe: object, work: Callable[[], float]) -> None:
    pipe.send(work())  # type: ignore[attr-defined]


def _watch(pid: int | None, largest: list[float], stop: threading.Event) -> None:
    while not stop.wait(0.2):
        largest[0] = max(largest[0], sum(map(_proportional_gigabytes, _family(str(pid)))))


def _family(pid: str) -> list[str]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(grandchild for child in children for grandchild in _family(child))]


def _proportional_gigabytes(pid: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 2**20


def main() -> int:
    """Measure and print; exit code 1 where a limit is missed."""
    seconds, gigabytes = measured("1,000,000 iterations of 100,000 workers", schedule)
    _, workers_gigabytes = measured("1,000 workers, 270,000 parameters", thousand_workers)
    ratios = {
        "schedule: time / 20 s": seconds / 20,
        "schedule: memory / 1 GB": gigabytes / 1,
        "1,000 workers: memory / 3 GB": workers_gigabytes / 3,
    }
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    return 0 if max(ratios.values()) <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
