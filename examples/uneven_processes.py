"""The real thing: four worker processes, one of them four times slower, synchronous against asynchronous.

    python examples/uneven_processes.py
    orlomo report runs/uneven           # both runs on one page, their timelines one above the other

The same on the command line:

    orlomo compare examples/uneven_processes.py:task --engine processes --methods prsgdm,orlomo --workers 4 \\
        --pace 1,1,1,4 --local-steps 8 --epochs 20

The data are handwritten digits. Every training step waits 5 ms in place of the work of an accelerator, so that four
workers do not compete for the cores of a laptop: what is compared is who waits for whom.
"""

from __future__ import annotations

import dataclasses
import time

from torch import Tensor, nn

import orlomo

digits = orlomo.task("digits")


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """That of digits, after a while."""
    if model.training:
        time.sleep(0.005)
    return digits.loss(model, batch)


task = dataclasses.replace(digits, loss=loss)


def main(epochs: float = 20) -> None:
    """Train with both methods; print how long each took."""
    for name in ("prsgdm", "orlomo"):
        method = orlomo.method(name, learning_rate=0.1, local_steps=8)
        run = orlomo.train(
            task, method, engine="processes", workers=4, pace=[1, 1, 1, 4], epochs=epochs, out=f"runs/uneven/{name}"
        )
        end = run.metric_rows[-1]
        print(f"{name}: {end['epoch']:.0f} epochs in {end['seconds']:.1f} s, accuracy {end['test_accuracy']:.1%}")


if __name__ == "__main__":
    main()
