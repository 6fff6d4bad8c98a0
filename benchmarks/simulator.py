"""The simulated engine against a bare loop, and two jobs against one; all ratios from one run.

    python benchmarks/simulator.py

The model is ResNet20 (0.27 million parameters), uncompiled, on batches of 64 random images of 32x32. Limits: overhead
at most 5%, two jobs at least 1.8 times one.

Machines are noisy, so what is compared is interleaved: after each report of the one-job run the same number of bare
steps is timed in the same process; one job and two jobs take turns. The ratios are medians over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import orlomo
from orlomo.tasks.models import resnet20
from orlomo.tasks.task import classification_loss

WORKERS, LOCAL_STEPS, REPORTS, BATCH, IMAGES = 8, 2, 32, 64, 64


def make_task() -> orlomo.Task:
    """Random images, few of them: the steps are what is measured, not the evaluations at the beginning and the end."""
    images = torch.randn(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(IMAGES) % 10
    return orlomo.Task(model=resnet20, loss=classification_loss, train_data=(images, labels), batch_size=BATCH)


class BareLoop(orlomo.Callback):
    """The same local momentum steps with torch alone; as a callback, a round's worth after each report."""

    def __init__(self, task: orlomo.Task):
        self.model = resnet20()
        self.model.train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        data: Any = task.train_data
        self.images, self.labels = data
        self.seconds = 0.0

    def event(self, row: dict[str, Any]) -> None:
        """Take one round's steps and add up their time."""
        begin = time.perf_counter()
        for _ in range(LOCAL_STEPS):
            chosen = torch.randperm(IMAGES)[:BATCH]
            self.optimizer.zero_grad()
            loss_now = functional.cross_entropy(self.model(self.images[chosen]), self.labels[chosen])
            loss_now.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        self.seconds += time.perf_counter() - begin


def simulated(task: orlomo.Task, jobs: int, listener: BareLoop | None = None) -> float:
    """Seconds for a simulated run, start-up, run folder and two small evaluations included."""
    method = orlomo.OrLoMo(learning_rate=0.01, local_steps=LOCAL_STEPS)
    epochs = REPORTS * LOCAL_STEPS * BATCH / task.size
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        orlomo.train(
            task,
            method,
            workers=WORKERS,
            epochs=epochs,
            cluster="heterogeneous",
            jobs=jobs,
            out=Path(folder) / "run",
            evaluate_every=1e9,
            callbacks=[] if listener is None else [listener],
        )
        return time.perf_counter() - begin


def main() -> int:
    """Measure and print; exit code 1 where a limit is missed."""
    options = argparse.ArgumentParser(description="The simulated engine against a bare loop, two jobs against one.")
    options.add_argument("--rounds", type=int, default=5)
    rounds = options.parse_args().rounds
    task = make_task()
    overheads, speedups = [], []
    for _ in range(rounds):
        bare = BareLoop(task)
        one = simulated(task, 1, bare) - bare.seconds
        two = simulated(task, 2)
        overheads.append(one / bare.seconds)
        speedups.append(one / two)
        print(f"bare steps {bare.seconds:6.2f} s   one job {one:6.2f} s   two jobs {two:6.2f} s", flush=True)
    overhead, speedup = statistics.median(overheads), statistics.median(speedups)
    print(f"one job / bare steps: {overhead:.3f} (limit 1.05)")
    print(f"one job / two jobs:   {speedup:.3f} (limit 1.80)")
    return 0 if overhead <= 1.05 and speedup >= 1.8 else 1


if __name__ == "__main__":
    sys.exit(main())
