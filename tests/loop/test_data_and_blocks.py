"""Leases on the server and the loaders of workers together: each sample is used once, and loaders do not run out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from orlomo.engines.loops.blocks import Blocks
from orlomo.loop.data import LeasedLoader
from orlomo.loop.messages import Lease

BATCH, BATCHES = 3, 4
"""Samples of a batch, batches of a round."""


class Worker:
    """What a worker's loop does with its leases: a round is the first of them."""

    def __init__(self, number: int, blocks: Blocks, size: int, settings: dict[str, Any]):
        self.number, self.blocks = number, blocks
        data = torch.arange(size)
        self.leased = LeasedLoader(DataLoader(data, batch_size=BATCH, shuffle=True, **settings), seed=1)
        self.ahead = -(-self.leased.facts(1).ahead // BATCHES)
        self.batches: Iterator[tuple[Any, Lease, int]] = iter(())
        self.epoch = 0

    def round(self, batches: int) -> list[int] | None:
        """Train on at most so many batches and report; None where no samples are left for now."""
        leases = self.blocks.lease(self.number, self.ahead)
        self.leased.queue.hold(leases)
        if not leases:
            return None
        used: list[int] = []
        stop = leases[0].first
        while stop < leases[0].stop and batches:
            batch, lease, stop = self.next(leases[0].epoch)
            assert lease == leases[0]
            used += batch.tolist()
            batches -= 1
        self.blocks.fold(self.number, leases[0]._replace(stop=stop))
        return used

    def next(self, epoch: int) -> tuple[Any, Lease, int]:
        try:
            return next(self.batches)
        except StopIteration:  # the worker's loop goes on to the epoch of its next samples
            self.epoch = max(self.epoch, epoch)
            self.batches = self.leased.iterate(self.epoch)
            return next(self.batches)


@pytest.mark.parametrize(("processes", "seeds"), [(0, 20), (2, 2)])
def test_workers_that_die_and_rounds_that_are_cut_short(processes: int, seeds: int) -> None:
    settings = {"num_workers": processes} if processes else {}
    size, epochs = 50, 3
    for seed in range(seeds):
        source = random.Random(seed)
        blocks = Blocks(size, BATCH * BATCHES, epochs * size, workers=3)
        workers = [Worker(number, blocks, size, settings) for number in range(3)]
        used: Counter[int] = Counter()
        while not blocks.complete:
            place = source.randrange(3)
            worker = workers[place]
            if source.random() < 0.1:
                blocks.give_back(worker.number)
                workers[place] = Worker(worker.number + 3, blocks, size, settings)
                continue
            used.update(worker.round(source.choice([BATCHES, BATCHES, 1, 0])) or ())
        assert used == Counter(dict.fromkeys(range(size), epochs))


def test_with_leases_ahead_a_loader_is_passed_over_once_per_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    plain = DataLoader.__iter__

    def counted(loader: DataLoader[Any]) -> Any:
        passes.append(loader)
        return plain(loader)

    monkeypatch.setattr(DataLoader, "__iter__", counted)
    size, round_size = 120, BATCH * BATCHES
    blocks = Blocks(size, round_size, 3 * size)
    worker = Worker(0, blocks, size, {"num_workers": 2, "prefetch_factor": 3})
    assert worker.ahead == 2
    for _ in range(2 * size // round_size):
        worker.round(BATCHES)
    assert len(passes) == 2
    while worker.round(BATCHES):  # and in the last epoch, without leases ahead towards its end
        pass
    assert blocks.complete
    assert len(passes) <= 5
