"""Small users' own loops, for tests: a few parameters, dropout so that random numbers matter."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import orlomo

SAMPLES = 96


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, 4, generator=generator)
    return x, x.sum(1, keepdim=True)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1))


def loop(worker: orlomo.Worker, before_step: Callable[[int], None] = lambda step: None, epochs: int = 2) -> None:
    """SGD with momentum on shared samples."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(TensorDataset(*data()), batch_size=4, shuffle=True)
    step = 0
    with worker.attach(net, optimizer):
        for _ in worker.epochs(epochs):
            for x, y in worker.batches(loader):
                before_step(step)
                optimizer.zero_grad()
                nn.functional.mse_loss(net(x), y).backward()
                optimizer.step()
                step += 1


def steps_alone(worker: orlomo.Worker, before_step: Callable[[int], None] = lambda step: None) -> None:
    """AdamW, without `batches`: a round is so many optimizer steps."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    x, y = data()
    step = 0
    with worker.attach(net, optimizer):
        while not worker.done:
            before_step(step)
            chosen = torch.randint(0, SAMPLES, (4,))
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x[chosen]), y[chosen]).backward()
            optimizer.step()
            step += 1


def killed_once(marker: Path, step: int) -> None:
    """The first worker that comes to its sixth step is killed, as by `kill -9`."""
    if step != 5:
        time.sleep(0.002)  # so that other workers report while a new one starts
        return
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def with_a_kill(chosen: Callable[..., None], marker: Path, worker: orlomo.Worker) -> None:
    chosen(worker, partial(killed_once, marker))


def restless(worker: orlomo.Worker) -> None:
    """From its second round on its data depend on the time."""

    def disturb(step: int) -> None:
        if step >= 4:
            torch.manual_seed(time.time_ns())

    loop(worker, disturb)


def unseeded(worker: orlomo.Worker) -> None:
    """It begins at other parameters each time."""
    torch.manual_seed(time.time_ns())
    loop(worker)


def failing(worker: orlomo.Worker) -> None:
    """Raises in its third round."""

    def fail(step: int) -> None:
        if step == 9:
            raise ValueError("no such file: labels.csv")

    loop(worker, fail)
