"""A user's script with a loop of its own: python own_loop.py FOLDER EPOCHS.

Every worker waits after some batches as long as FOLDER/pause is there, and leaves its final parameters in FOLDER.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import orlomo

SAMPLES, BATCH = 96, 4


def loop(
    worker: orlomo.Worker, folder: Path, epochs: int, after: Callable[[orlomo.Worker, int], None] | None = None
) -> None:
    """`after`: called after every batch with the number of batches so far."""
    inputs = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(inputs, inputs @ torch.linspace(-1, 1, 8).unsqueeze(1))
    torch.manual_seed(3)
    model, done = nn.Linear(8, 1), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    with worker.attach(model, optimizer, evaluate=lambda: functional.mse_loss(model(inputs), data.tensors[1]).item()):
        for _ in worker.epochs(epochs):
            for x, y in worker.batches(loader):
                optimizer.zero_grad()
                functional.mse_loss(model(x), y).backward()
                optimizer.step()
                done += 1
                if after is not None:
                    after(worker, done)
                while done >= 4 and (folder / "pause").exists():
                    time.sleep(0.05)
    torch.save(nn.utils.parameters_to_vector(model.parameters()), folder / f"{worker.id}.pt")


if __name__ == "__main__":
    loop(orlomo.worker(), Path(sys.argv[1]), int(sys.argv[2]))
