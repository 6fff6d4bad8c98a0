"""How long `orlomo report` takes of a run of 10 million events, and how much memory.

    python benchmarks/report.py [FOLDER] [--events 10000000]

Limits: 10 s and 1 GB, with the time to start. Makes the run first: two minutes, 1.4 GB, in a temporary folder or in
FOLDER, where it stays and is used again. Prints each figure as a ratio to its limit, and the time as a ratio to that of
the file's sha256.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import orlomo
from orlomo.clusters.schedule import KINDS
from orlomo.records import checkpoint as checkpoints
from orlomo.records.digests import Seal
from orlomo.records.tables import EVENTS

PART = 1_000_000
"""Events of one schedule; later ones are the same, shifted."""

WORKERS = 64

MEASURE = """
import resource, subprocess, sys, time
begin = time.perf_counter()
subprocess.run(sys.argv[1:], check=True)
seconds, used = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
print(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)
"""
"""In a small process of its own: a child counts as its own the memory that its parent has when it starts."""


def make(folder: Path, events: int) -> None:
    """A real run of a minute, and events of a heterogeneous cluster, with all digits."""
    orlomo.train("digits", "orlomo", workers=WORKERS, epochs=20, cluster="heterogeneous", jobs=1, out=folder)
    part = min(PART, events)
    trace = orlomo.trace("orlomo", workers=WORKERS, iterations=part, cluster="heterogeneous")
    columns = {**trace.columns, "loss": np.random.default_rng(0).lognormal(size=part)}
    shifts: dict[str, float] = {"iteration": part, "index": part, "round": part // WORKERS, "group": part // WORKERS}
    shifts |= {name: float(columns["finish"][-1]) for name in ("start", "finish")}
    same = {name: list(map(_text, columns[name].tolist())) for name in EVENTS if name not in shifts}
    same["kind"] = [KINDS[code] for code in columns["kind"].tolist()]
    with (folder / "events.csv").open("w") as file:
        file.write(",".join(EVENTS) + "\n")
        for number in range(-(-events // part)):
            moved = {name: map(_text, (columns[name] + number * by).tolist()) for name, by in shifts.items()}
            rows = zip(*(moved.get(name) or same[name] for name in EVENTS), strict=True)
            file.writelines(",".join(row) + "\n" for row in rows)
    seal(folder)


def seal(folder: Path) -> None:
    """Write into the newest checkpoint that these events are the run's: a report compares them."""
    path, places = folder / "events.csv", folder / "checkpoints"
    newest = checkpoints.load(places, checkpoints.positions(places)[-1])
    size = path.stat().st_size
    with path.open("rb") as file:
        newest.values["sealed"]["tables"]["events"] = [list(mark) for mark in Seal.of(file, size).history()]
    newest.values["files"]["events"] = size
    checkpoints.save(places, newest)


def _text(value: float) -> str:
    return "" if value != value else repr(value)


def report(folder: Path) -> tuple[float, float, float]:
    """Seconds, seconds of the processor, and gigabytes of `orlomo report`."""
    page = folder / "report.html"
    command = [sys.executable, "-m", "orlomo", "report", str(folder), "-o", str(page)]
    done = subprocess.run([sys.executable, "-c", MEASURE, *command], stdout=subprocess.PIPE, text=True, check=True)
    page.unlink()
    seconds, processor, gigabytes = map(float, done.stdout.split()[-3:])
    return seconds, processor, gigabytes


def sha256_seconds(path: Path) -> float:
    """The time to hash a file, once it is in memory."""
    begin = time.perf_counter()
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")
    return time.perf_counter() - begin


def main() -> int:
    """Measure and print; exit code 1 where a limit is missed."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--events", type=int, default=10_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "run"
        if not (folder / "events.csv").exists():
            make(folder, options.events)
        path = folder / "events.csv"
        hashing = min(sha256_seconds(path) for _ in range(2))
        seconds, processor, gigabytes = min(report(folder) for _ in range(3))
        load = os.getloadavg()[0]
        print(f"{path.stat().st_size / 1e9:.2f} GB of events: {seconds:.1f} s, {processor:.1f} s of the processor,")
        print(f"{gigabytes:.2f} GB of memory; the file's sha256 takes {hashing:.1f} s; load {load:.1f}")
    ratios = {"report: time / 10 s": seconds / 10, "report: memory / 1 GB": gigabytes}
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    print(f"report: time / time of the file's sha256: {seconds / hashing:.1f}")
    return 0 if max(ratios.values()) <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
