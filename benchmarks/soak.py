"""A long run of 8 worker processes, with losses, joins and departures now and then: does anything grow?

    python benchmarks/soak.py [--minutes 30] [--seed 0]

Every two seconds memory, open files, processes and threads of the server and of its workers are counted, and what is in
shared memory, in the temporary folder and in the run folder (without the tables and the log, which grow with what
happens). A straight line is fitted to the second half of each: it must rise by no more than its bound, or by no more
than the noise accounts for. Exit code 1 if anything grows, or anything is left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import orlomo
from orlomo.engines.live.control import ask

WORKERS = 8
ROUND_SECONDS = 0.04
SAMPLE_SECONDS = 2.0
TROUBLE_SECONDS = 15.0
WARM_UP = 0.2
"""The share of the time that no sample is taken in."""


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Takes a while and little processor time."""
    if model.training:
        time.sleep(ROUND_SECONDS)
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def task() -> orlomo.Task:
    """A small model, as `orlomo train benchmarks/soak.py:task` finds it."""
    source = torch.Generator().manual_seed(7)
    labels = torch.arange(4096) % 4
    inputs = 3.0 * torch.randn(4, 32, generator=source)[labels] + torch.randn(4096, 32, generator=source)
    return orlomo.Task(
        model=lambda: nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 4)),
        loss=loss,
        train_data=(inputs[:3072], labels[:3072]),
        test_data=(inputs[3072:], labels[3072:]),
        batch_size=16,
    )


class Quantity(NamedTuple):
    """What is counted, and by how much it may rise in the second half."""

    name: str
    unit: str
    bound: float
    measure: Callable[[Soak], float]


class Soak:
    """The run, seen from outside."""

    def __init__(self, place: Path, seed: int):
        self.place, self.folder, self.temporary = place, place / "run", place / "tmp"
        self.temporary.mkdir()
        self.source = random.Random(seed)
        self.done = {"killed": 0, "added": 0, "removed": 0}
        words = ["train", f"{__file__}:task", "--engine", "processes", "--workers", str(WORKERS), "--epochs", "1e6"]
        words += ["--local-steps", "1", "--learning-rate", "0.01", "--checkpoint-seconds", "5", "--evaluate-every", "2"]
        words += ["--out", str(self.folder)]
        command = [sys.executable, "-m", "orlomo", *words]
        if private := shutil.which("unshare"):
            # With a /dev/shm of its own, so that what is found there is of this run.
            alone = [private, "--user", "--map-root-user", "--mount", "sh", "-c"]
            mount = "mount -t tmpfs tmpfs /dev/shm"
            if subprocess.run([*alone, mount], capture_output=True).returncode == 0:
                command = [*alone, f'{mount} && exec "$@"', "sh", *command]
        self.said = (place / "said.txt").open("w")
        self.process = subprocess.Popen(
            command, stdout=self.said, stderr=self.said, env={**os.environ, "TMPDIR": str(self.temporary)}
        )
        self.server = self.process.pid

    @property
    def family(self) -> list[int]:
        """The server and all that it has started."""
        return [self.server, *descendants(self.server)]

    def wait_until_it_trains(self) -> None:
        """Until all workers have reported."""
        while self.reports < 50 * WORKERS:
            if self.process.poll() is not None:
                raise SystemExit(f"it did not begin:\n{(self.place / 'said.txt').read_text()[-2000:]}")
            time.sleep(0.2)

    @property
    def reports(self) -> int:
        """In the table so far, about."""
        table = self.folder / "events.csv"
        return table.stat().st_size // 150 if table.exists() else 0

    def trouble(self) -> None:
        """A loss, a join or a departure, so that there are 8 or 9 workers on the whole."""
        rows = ask(self.folder, {"action": "list"})
        kind = self.source.choice(["killed", "removed" if len(rows) > WORKERS else "added"])
        chosen = self.source.choice(rows)
        with contextlib.suppress(ProcessLookupError, orlomo.OrlomoError):
            if kind == "killed":
                os.kill(int(chosen["pid"]), signal.SIGKILL)
            elif kind == "added":
                ask(self.folder, {"action": "add", "count": 1})
            else:
                ask(self.folder, {"action": "remove", "worker": chosen["worker"]})
            self.done[kind] += 1

    def end(self) -> list[str]:
        """Stop it; what is left behind."""
        family = self.family
        os.kill(self.server, signal.SIGINT)
        code = self.process.wait(60)
        self.said.close()
        until = time.monotonic() + 10
        while (alive := [pid for pid in family if Path(f"/proc/{pid}/exe").exists()]) and time.monotonic() < until:
            time.sleep(0.1)
        left = [f"process {pid}" for pid in alive] + [f"tmp/{path.name}" for path in self.temporary.iterdir()]
        return left + ([] if code == 130 else [f"exit code {code}"])


def descendants(pid: int) -> list[int]:
    """Every process that `pid` has started, directly or not."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


def memory(pid: int) -> float:
    """MB of its own, what a family shares in proportion; without mapped files, which others on the machine map, too."""
    kilobytes = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                kilobytes += int(line.split()[1])
    return kilobytes / 1024


def entries(folder: Path) -> int:
    """In a folder, such as the open files of a process; none where it is gone."""
    with contextlib.suppress(OSError):
        return len(os.listdir(folder))
    return 0


def megabytes(folder: Path, without: tuple[str, ...] = ()) -> float:
    """Of all files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() and not path.name.endswith(without) else 0
    return total / 1e6


QUANTITIES = [
    Quantity("memory of the server", "MB", 3.0, lambda soak: memory(soak.server)),
    Quantity(
        "memory of another process, mean",
        "MB",
        1.0,
        lambda soak: statistics.fmean(memory(pid) for pid in soak.family[1:]),
    ),
    Quantity("open files of the server", "", 2.0, lambda soak: entries(Path(f"/proc/{soak.server}/fd"))),
    Quantity("open files of all", "", 20.0, lambda soak: sum(entries(Path(f"/proc/{p}/fd")) for p in soak.family)),
    Quantity("processes", "", 1.0, lambda soak: len(soak.family)),
    Quantity("threads of the server", "", 0.5, lambda soak: entries(Path(f"/proc/{soak.server}/task"))),
    Quantity("names in /dev/shm", "", 0.5, lambda soak: entries(Path(f"/proc/{soak.server}/root/dev/shm"))),
    Quantity("names in the temporary folder", "", 0.5, lambda soak: len(list(soak.temporary.rglob("*")))),
    Quantity("run folder without tables and log", "MB", 0.1, lambda soak: megabytes(soak.folder, (".csv", "log.txt"))),
]


class Line(NamedTuple):
    """A quantity over the second half: what it was before and after, and by how much a straight line rises."""

    quantity: Quantity
    first: float
    last: float
    rise: float
    noise: float

    @property
    def allowed(self) -> float:
        """Its bound; or three standard errors of the rise, up to three times the bound."""
        return max(self.quantity.bound, min(3 * self.noise, 3 * self.quantity.bound))

    @property
    def flat(self) -> bool:
        """Whether it rises by no more than that."""
        return self.rise <= self.allowed


def fit(quantity: Quantity, seconds: list[float], values: list[float]) -> Line:
    """By least squares; neighbouring samples are alike, so the error is that of a tenth as many."""
    half = len(values) // 2
    x, y = np.array(seconds[half:]), np.array(values[half:])
    slope, offset = np.polyfit(x, y, 1)
    spread = x[-1] - x[0]
    residual = float(np.sqrt(np.mean((y - slope * x - offset) ** 2)))
    error = residual / (float(np.std(x)) * np.sqrt(max(1.0, len(x) / 10)))
    ends = max(1, half // 5)
    return Line(quantity, float(np.mean(y[:ends])), float(np.mean(y[-ends:])), slope * spread, error * spread)


def watch(soak: Soak, minutes: float) -> list[Line]:
    """Take samples until the time is over, and make trouble meanwhile."""
    begin = time.monotonic()
    until, next_trouble = begin + 60 * minutes, begin + 5.0
    seconds: list[float] = []
    values: dict[str, list[float]] = {quantity.name: [] for quantity in QUANTITIES}
    while (now := time.monotonic()) < until:
        if soak.process.poll() is not None:
            raise SystemExit(f"it ended by itself:\n{(soak.place / 'said.txt').read_text()[-2000:]}")
        if now > next_trouble:
            soak.trouble()
            next_trouble = now + TROUBLE_SECONDS
        if now > begin + WARM_UP * 60 * minutes:
            seconds.append(now - begin)
            for quantity in QUANTITIES:
                values[quantity.name].append(quantity.measure(soak))
            if len(seconds) % 30 == 0:
                print(f"{(until - now) / 60:.1f} minutes left, {soak.reports:,} reports", flush=True)
        time.sleep(SAMPLE_SECONDS)
    return [fit(quantity, seconds, values[quantity.name]) for quantity in QUANTITIES]


def main() -> int:
    """Print a table of what was counted; 1 if anything grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        soak = Soak(Path(place), options.seed)
        try:
            soak.wait_until_it_trains()
            lines = watch(soak, options.minutes)
            left = soak.end()
        finally:
            if soak.process.poll() is None:
                soak.process.kill()
        run = orlomo.load(soak.folder)
        events = run.event_columns
        reported = events["kind"] == "report"
        pairs = set(zip(events["worker"][reported].tolist(), events["round"][reported].tolist(), strict=True))
        lost = run.checkpoint.values["membership"]["lost"] if run.checkpoint else 0
    print(
        "| quantity | second half begins at | ends at | rises by | may rise by | flat |\n|---|---:|---:|---:|---:|---|"
    )
    for line in lines:
        what, unit = line.quantity, f" {line.quantity.unit}".rstrip()
        numbers = " | ".join(f"{value:.1f}{unit}" for value in (line.first, line.last, line.rise, line.allowed))
        print(f"| {what.name} | {numbers} | {'yes' if line.flat else 'NO'} |")
    growing = [line.quantity.name for line in lines if not line.flat]
    once = len(pairs) == int(reported.sum())
    trouble = ", ".join(f"{count} {kind}" for kind, count in soak.done.items())
    reports = f"{len(pairs):,} reports of {WORKERS} workers{'' if once else ', NOT ONCE EACH'}"
    found = f"grows: {', '.join(growing) or 'nothing'}; left behind: {', '.join(left) or 'nothing'}"
    print(f"{options.minutes:g} minutes, {reports} ({trouble}; {lost} lost): {found}")
    return 0 if once and not growing and not left else 1


if __name__ == "__main__":
    sys.exit(main())
