"""A user's own loop against its limits, each a ratio measured in one run.

    python benchmarks/own_loop.py [uneven] [overhead] [tune]

uneven      samples/s of a loop on 4 processes with `orlomo`, one of them 4 times slow / those of DDP (gloo) with the
            same slow rank: at least 2.5, at the same accuracy after the same epochs: less than 1.5 points lower, where
            the standard error of a difference is 1.3
overhead    a training step with `attach` and `batches` / the same step in a bare loop, in turns: at most 1.02 for a
            step of about 5 ms; and the same over whole rounds of 16 steps, with the exchange at the end of each
tune        only where asked for: how the learning rates of `uneven` were chosen, each method over the same four

A step of `uneven` is a small one on digits and 20 ms of waiting, 80 ms for the slow worker, so that 2 cores are enough
for four workers: what is measured is who waits for whom, not who computes fast. Starting the processes is not measured.
Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import orlomo

WORKERS, SLOW, WAIT = 4, 4, 0.02
EPOCHS, BATCH, LOCAL_STEPS = 12, 16, 4
RATES, SEEDS = (0.1, 0.2, 0.4, 0.8), 1
OURS, THEIRS = 0.4, 0.4
"""Learning rates: the best of `RATES` for each, by its accuracy; see `tune`."""


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,500 to train on, 297 to test."""
    found = load_digits()
    inputs, labels = torch.tensor(found.data, dtype=torch.float32) / 16, torch.tensor(found.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1500], order[1500:]
    return TensorDataset(inputs[train], labels[train]), TensorDataset(inputs[test], labels[test])


def network() -> nn.Module:
    """Small, and the same for both."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def accuracy(model: nn.Module, test: TensorDataset) -> float:
    """On the test data."""
    inputs, labels = test.tensors
    with torch.no_grad():
        return float((model(inputs).argmax(1) == labels).float().mean())


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, wait: float) -> None:
    """One training step, with some waiting."""
    time.sleep(wait)
    optimizer.zero_grad()
    functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def own_loop(worker: orlomo.Worker, rate: float, wait: float, seed: int, answer: Path) -> None:
    """A user's loop. A slow worker is made by `pace`."""
    torch.manual_seed(seed)
    train, test = digits()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    loader = DataLoader(train, batch_size=BATCH, shuffle=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    worker.attach(model, optimizer, scheduler=scheduler)
    for _ in worker.epochs(EPOCHS):
        for x, y in worker.batches(loader):
            step(model, optimizer, x, y, wait)
            scheduler.step()
    if worker.chief:
        answer.write_text(json.dumps(accuracy(model, test)))


def ddp_loop(rank: int, rate: float, wait: float, seed: int, folder: Path) -> None:
    """The same loop with DDP: a process for each rank."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORKERS)
    train, test = digits()
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    sampler: DistributedSampler[object] = DistributedSampler(train, seed=seed)
    loader = DataLoader(train, batch_size=BATCH, sampler=sampler)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    dist.barrier()
    begin = time.monotonic()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            step(model, optimizer, x, y, wait * (SLOW if rank == WORKERS - 1 else 1))
            scheduler.step()
    dist.barrier()
    seconds = time.monotonic() - begin
    if rank == 0:
        (folder / "answer").write_text(json.dumps([EPOCHS * len(train) / seconds, accuracy(model, test)]))
    dist.destroy_process_group()


def ours(rate: float, wait: float, seed: int = 0) -> tuple[float, float]:
    """Samples per second and accuracy of the loop on processes."""
    with tempfile.TemporaryDirectory() as place:
        answer = Path(place) / "answer"
        run = orlomo.launch(
            partial(own_loop, rate=rate, wait=wait, seed=seed, answer=answer),
            orlomo.OrLoMo(momentum=0.9, local_steps=LOCAL_STEPS),
            workers=WORKERS,
            pace=[1.0] * (WORKERS - 1) + [float(SLOW)],
            threads=1,
            seed=seed,
            out=Path(place) / "run",
        )
        events = run.event_columns
        seconds = float(events["finish"].max() - events["start"].min())
        return EPOCHS * 1500 / seconds, float(json.loads(answer.read_text()))


def theirs(rate: float, wait: float, seed: int = 0) -> tuple[float, float]:
    """The same of DDP."""
    with tempfile.TemporaryDirectory() as place:
        spawn(ddp_loop, (rate, wait, seed, Path(place)), nprocs=WORKERS)  # type: ignore[no-untyped-call]
        samples, reached = json.loads((Path(place) / "answer").read_text())
        return samples, reached


def uneven() -> bool:
    """Asynchronous on processes against DDP."""
    pace, reached = ours(OURS, WAIT)
    other_pace, other_reached = theirs(THEIRS, WAIT)
    ceiling = (WORKERS - 1 + 1 / SLOW) * SLOW / WORKERS
    print(f"  {pace:.0f} samples/s and {reached:.1%}, DDP {other_pace:.0f} and {other_reached:.1%}, {EPOCHS} epochs")
    good = verdict(f"uneven: samples/s / DDP's (ceiling {ceiling:.2f})", pace / other_pace, least=2.5)
    return verdict("uneven: accuracy - DDP's", reached - other_reached, least=-0.015) and good


def tune() -> bool:
    """The accuracy of both with each learning rate, without waiting; the slow worker stays slow."""
    for rate in RATES:
        found = [[one(rate, 0.0, seed)[1] for seed in range(SEEDS)] for one in (ours, theirs)]
        means = ", ".join(f"{statistics.mean(values):.2%}" for values in found)
        print(f"tune: learning rate {rate}: ours and DDP's accuracy {means}", flush=True)
    return True


TURNS, ROUND, WIDTH = 60, 16, 384


def wide_network() -> nn.Module:
    """A step of about 5 ms with 64 samples, on one core."""
    return nn.Sequential(
        nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
        nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10),
    )  # fmt: skip


def in_turns(worker: orlomo.Worker, answer: Path) -> None:
    """An attached step and a bare one in turns, on models of the same size; the seconds of each go into a file."""
    data = TensorDataset(torch.randn(64 * ROUND * TURNS, 64), torch.arange(64 * ROUND * TURNS) % 10)
    models = [wide_network(), wide_network()]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9) for model in models]
    loaders = [DataLoader(data, batch_size=64, shuffle=True) for _ in models]
    worker.attach(models[0], optimizers[0])
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in worker.epochs(1):
        sources = [iter(worker.batches(loaders[0])), iter(loaders[1])]
        for number in range(ROUND * TURNS):
            for turn in (0, 1) if number % 2 else (1, 0):
                begin = time.perf_counter()
                x, y = next(sources[turn])
                step(models[turn], optimizers[turn], x, y, 0)
                seconds[turn].append(time.perf_counter() - begin)
        answer.write_text(json.dumps(seconds))
        next(sources[0], None)  # reports the last round


def overhead() -> bool:
    """What `attach` and `batches` cost, beside a bare loop in the same process."""
    with tempfile.TemporaryDirectory() as place:
        answer = Path(place) / "answer"
        run = orlomo.launch(
            partial(in_turns, answer=answer),
            orlomo.OrLoMo(local_steps=ROUND),
            workers=1,
            threads=1,
            out=Path(place) / "run",
        )
        parameters = len(run.params)
        attached, bare = json.loads(answer.read_text())
    # The first step of a round is preceded by the exchange with the server.
    rounds = [slice(first, first + ROUND) for first in range(ROUND, ROUND * TURNS, ROUND)]
    whole = statistics.median(sum(attached[part]) / sum(bare[part]) for part in rounds)
    within = [a / b for part in rounds for a, b in zip(attached[part][1:], bare[part][1:], strict=True)]
    exchange = statistics.median(attached[part][0] - statistics.median(attached[part][1:]) for part in rounds)
    print(f"  a step takes {statistics.median(bare) * 1e3:.1f} ms; {parameters / 1e6:.2f} million parameters")
    print(f"  a round's exchange takes {exchange * 1e3:.2f} ms")
    verdict(f"overhead: a round of {ROUND} steps with its exchange / bare ones", whole)
    return verdict("overhead: a step within a round / a bare one", statistics.median(within), most=1.02)


def verdict(name: str, value: float, *, least: float | None = None, most: float | None = None) -> bool:
    """Print a number beside its limit."""
    limit = f" (at least {least})" if least is not None else f" (at most {most})" if most is not None else ""
    good = (least is None or value >= least) and (most is None or value <= most)
    print(f"{name}: {value:.3f}{limit}{'' if good else ' MISSED'}", flush=True)
    return good


PARTS: dict[str, Callable[[], bool]] = {"uneven": uneven, "overhead": overhead, "tune": tune}


def main() -> int:
    """Measure; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: uneven and overhead")
    chosen = parser.parse_args().parts or ["uneven", "overhead"]
    torch.set_num_threads(1)
    good = [PARTS[name]() for name in chosen]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
