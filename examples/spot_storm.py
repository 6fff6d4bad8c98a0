"""A storm of spot machines survived: worker processes are killed again and again, and the training continues.

    python examples/spot_storm.py
    orlomo report runs/storm        # both runs on one page: which workers were there when, and what was lost

Four worker processes train twice. In the second run one of them is killed with SIGKILL every 0.7 seconds, as a cloud
takes back its spot machines; a new one joins in its place with the current parameters. In the end that run is computed
again from its record: what survived the storm is the same algorithm, bit for bit. (A step waits 5 ms in place of the
work of an accelerator, so that four workers do not compete for the cores of a laptop.)
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import threading
import time
from pathlib import Path

from torch import Tensor, nn

import orlomo
from orlomo.engines.live.control import ask  # what `orlomo workers FOLDER` asks a running run with

digits = orlomo.task("digits")


def slow_digits(seconds: float) -> orlomo.Task:
    """Digits, with a training step that takes so much longer."""

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        if model.training:
            time.sleep(seconds)
        return digits.loss(model, batch)

    return dataclasses.replace(digits, loss=loss)


class Storm(orlomo.Callback):
    """Kills a random worker every `seconds`, from a thread of its own, until the run is over."""

    def __init__(self, seconds: float):
        self.seconds, self.over = seconds, threading.Event()

    def started(self, run: orlomo.RunHandle) -> None:
        self.thread = threading.Thread(target=self.kill, args=(run.folder,))
        self.thread.start()

    def kill(self, folder: Path) -> None:
        chance = random.Random(0)
        while not self.over.wait(self.seconds):
            with contextlib.suppress(orlomo.OrlomoError, ProcessLookupError):  # the run, or the worker, has just ended
                working = [worker for worker in ask(folder, {"action": "list"}) if worker["rounds"] > 0]
                if working:
                    os.kill(chance.choice(working)["pid"], signal.SIGKILL)

    def finished(self, run: orlomo.Run) -> None:
        self.over.set()
        self.thread.join()


def train(name: str, epochs: float, callbacks: list[orlomo.Callback]) -> orlomo.Run:
    """One run on four processes; prints how it ended."""
    run = orlomo.train(
        slow_digits(0.005),
        orlomo.OrLoMo(learning_rate=0.1, local_steps=8),
        engine="processes",
        workers=4,
        epochs=epochs,
        evaluate_every=2,
        callbacks=callbacks,
        warn=lambda text: print(f"  {text}"),
        out=f"runs/storm/{name}",
    )
    end, lost = run.metric_rows[-1], int((run.event_columns["kind"] == "crash").sum())
    print(f"{name}: {end['test_accuracy']:.1%} after {end['seconds']:.1f} s, {lost} workers lost")
    return run


def main(epochs: float = 60) -> None:
    train("calm", epochs, [])
    run = train("storm", epochs, [Storm(seconds=0.7)])
    print(orlomo.replay(run.folder, task=slow_digits(0)))


if __name__ == "__main__":
    main()
