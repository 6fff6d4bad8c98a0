"""Compare three methods on a task of your own, each with the learning rate that suits it.

    python examples/compare_methods.py
    orlomo report runs/compared        # the final runs on one page
    orlomo compare examples/compare_methods.py:task --methods prsgdm,orlomo,al-sgd --workers 8 --learning-rate 0.1

The task here: which of three spirals is a point on? The learning rate of each method is the best of three, by the loss
on a fifth of the training data, held out for that. Then each method trains with three seeds and is measured on the test
data. Time is virtual: a local step of a fast worker takes a second.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import torch
from torch import Tensor, nn

import orlomo


def spirals(count: int) -> tuple[Tensor, Tensor]:
    """Points of three spirals, with some noise, and the number of the spiral."""
    source = torch.Generator().manual_seed(0)
    label, radius = torch.randint(3, (count,), generator=source), torch.rand(count, generator=source)
    angle = 2 * math.pi * (0.75 * radius + label / 3)
    points = 2 * radius[:, None] * torch.stack((angle.cos(), angle.sin()), dim=1)
    return points + 0.03 * torch.randn(count, 2, generator=source), label


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The mean over a batch."""
    points, labels = batch
    return nn.functional.cross_entropy(model(points), labels)


points, labels = spirals(3000)
task = orlomo.Task(
    model=lambda: nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)),
    loss=loss,
    train_data=(points[:2000], labels[:2000]),
    test_data=(points[2000:], labels[2000:]),
    batch_size=16,
)
METHODS = (orlomo.PRSGDm(local_steps=8), orlomo.OrLoMo(local_steps=8), orlomo.ALSGD(local_steps=8))
RATES = (0.03, 0.1, 0.3)
SETTINGS = {"workers": 8, "cluster": "heterogeneous:4", "epochs": 30}  # two of eight take four times as long


def held_out_loss(method: orlomo.Method) -> float:
    """The loss on a fifth of the training data, after training on the rest."""
    out = f"runs/compared-rates/{method.name}-{method.learning_rate}"
    try:
        run = orlomo.train(task, method, held_out=0.2, evaluate_every=10, out=out, **SETTINGS)
    except orlomo.Diverged:
        return math.inf
    return run.metric_rows[-1]["test_loss"]


def main(rates: tuple[float, ...] = RATES, seeds: int = 3) -> None:
    """Print the table."""
    print(f"{'method':8} {'rate':>5}  {'test accuracy':15} {'seconds to 97%':>15} {'to the end':>11}")
    for method in METHODS:
        chosen = min((replace(method, learning_rate=rate) for rate in rates), key=held_out_loss)
        tables = [
            orlomo.train(task, chosen, seed=seed, out=f"runs/compared/{method.name}-seed{seed}", **SETTINGS).metric_rows
            for seed in range(seeds)
        ]
        reached = [next((row["seconds"] for row in t if row["test_accuracy"] >= 0.97), math.inf) for t in tables]
        last = [table[-1]["test_accuracy"] for table in tables]
        times = f"{statistics.median(reached):15.0f} {statistics.median(t[-1]['seconds'] for t in tables):11.0f}"
        print(f"{method.name:8} {chosen.learning_rate:5}  {min(last):.1%} to {max(last):.1%}  {times}")


if __name__ == "__main__":
    main()
