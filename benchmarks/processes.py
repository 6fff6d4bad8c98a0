"""The processes engine against its limits, each a ratio measured in one run.

    python benchmarks/processes.py [training] [server] [uneven] [round-trip]

training    samples/s of 2 workers / the same 2 processes with no server at all (ResNet20, batch 64, S=8): at least 0.97
server      time that memory needs for a round's bytes / the server's time for it (fold and reply), at 11 and 110
            million parameters: at least 0.8
uneven      rounds/s of orlomo / prsgdm with one of 4 workers 4 times slow / the ceiling max(t) sum(1/t) / K: at
            least 0.9
round-trip  a bare exchange through shared memory of the same size / a round's time outside of the worker's computing

Run it on an otherwise idle machine. What is compared is interleaved, and ratios are medians.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import orlomo
from orlomo.engines.processes.starter import Starter, end
from orlomo.engines.round import RoundRunner
from orlomo.engines.slots import Shape, Slot
from orlomo.methods.messages import Assignment
from orlomo.methods.registry import method
from orlomo.tasks.data import Batch
from orlomo.tasks.models import resnet20
from orlomo.tasks.task import classification_loss
from orlomo.tasks.theory import Point

IMAGES, BATCH, LOCAL_STEPS, TURNS = 512, 64, 8, 40


def image_task() -> orlomo.Task:
    """Random images, few of them: the steps are what is measured."""
    images = torch.randn(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return orlomo.Task(
        model=resnet20, loss=classification_loss, train_data=(images, torch.arange(IMAGES) % 10), batch_size=BATCH
    )


def run(
    task: orlomo.Task, method: orlomo.Method, workers: int, reports: int, engine: str = "processes", **more: Any
) -> orlomo.Run:
    """A run of so many reports with nothing beside the training."""
    with tempfile.TemporaryDirectory() as place:
        made = orlomo.train(
            task,
            method,
            workers=workers,
            epochs=reports * method.local_steps * task.batch_size / task.size,
            engine=engine,
            evaluate_every=1e6,
            out=Path(place) / "run",
            **more,
        )
        assert made.event_columns  # read while the folder is there
        return made


def pace_of(made: orlomo.Run, skip: int = 0) -> float:
    """Reports a second: each worker's from the end of a first round on, added up."""
    workers, finish = made.event_columns["worker"], made.event_columns["finish"]
    moments = [finish[workers == worker][skip:] for worker in sorted(set(workers.tolist()))]
    return float(sum((len(times) - 1) / (times[-1] - times[0]) for times in moments))


class InTurns:
    """A loss that, before every round for the server, computes one without it, in the same process.

    The workers begin each round without the server together. The seconds of both kinds go into a file for each worker,
    in turns: with the server, without it, with it...
    """

    def __init__(self, task: orlomo.Task, method: orlomo.Method, folder: Path):
        self.task, self.method, self.folder = task, method, folder
        self.steps, self.since = 0, time.monotonic()
        self.alone: RoundRunner | None = None

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        if model.training:
            if self.steps % LOCAL_STEPS == 0:
                with_server = time.monotonic() - self.since  # from one round's first step to the next one's
                self.meet("before")
                begin = time.monotonic()
                self.round()
                without = time.monotonic() - begin
                self.meet("after")
                with open(self.folder / f"seconds-{os.getpid()}", "a") as file:
                    print(with_server, without, file=file)
                self.since = time.monotonic()
            self.steps += 1
        return classification_loss(model, batch)

    def round(self) -> None:
        """A round without the server."""
        if self.alone is None:
            self.alone = RoundRunner(self.task, self.method, 0)
            self.params = self.alone.flat.params.clone()  # the runner writes into its own
        self.alone.run(Assignment(0, 0, self.steps, {"params": self.params}, 0.01, LOCAL_STEPS))

    def meet(self, when: str) -> None:
        """Wait until the other worker is here too."""
        (self.folder / f"{when}-{self.steps}-{os.getpid()}").touch()
        while len(list(self.folder.glob(f"{when}-{self.steps}-*"))) < 2:
            time.sleep(0.001)


def training() -> bool:
    """Two workers with their server against the same two processes without it, in turns."""
    method = orlomo.OrLoMo(learning_rate=0.01, local_steps=LOCAL_STEPS)
    task = image_task()
    with tempfile.TemporaryDirectory() as place:
        phased = dataclasses.replace(task, loss=InTurns(task, method, Path(place)))
        run(phased, method, 2, 2 * (TURNS + 3))
        workers = [[float(word) for word in file.read_text().split()] for file in Path(place).glob("seconds-*")]
    paces = [sum(LOCAL_STEPS * BATCH / seconds for seconds in turn) for turn in zip(*workers, strict=False)]
    paces = paces[3:][: 2 * TURNS + 1]  # the first ones warm up, beside the evaluation at the beginning
    ours, alone = paces[1::2], paces[::2]
    around = [(before + after) / 2 for before, after in itertools.pairwise(alone)]
    ratios = sorted(with_server / without for with_server, without in zip(ours, around, strict=True))
    print(f"  {statistics.median(ours):.0f} samples/s, {statistics.median(alone):.0f} without the server (medians)")
    print(
        f"  middle half of {len(ratios)} turns: {ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}"
    )
    return verdict("training: with the server / without", statistics.median(ratios), 0.97)


def server() -> bool:
    """Fold and reply against the memory's own speed."""
    good = True
    for parameters, turns in ((11_000_000, 15), (110_000_000, 5)):
        method = orlomo.OrLoMo(local_steps=8)
        shape = Shape(parameters, torch.float32, report=method.report_vectors)
        slots = [Slot(shape) for _ in range(2)]
        for vector in (vector for slot in slots for vector in slot.report.values()):
            vector.fill_(1e-3)
        made = method.server(torch.zeros(parameters), 2)
        made.destination = lambda worker, slots=slots: slots[worker].assignment
        held = {assignment.worker: assignment for assignment in made.start()}
        source, target = torch.ones(parameters), torch.zeros(parameters)
        ratios = []
        for turn in range(turns + 1):
            copying = min(timed_copy(source, target) for _ in range(3))
            bandwidth = 2 * 4 * parameters / copying
            worker = turn % 2
            index, slot = held[worker].index, slots[worker]
            report = orlomo.Report(worker, index, samples=1, loss=0.0, finite=True, vectors=slot.report)
            begin = time.perf_counter()
            [held[worker]] = made.receive(report)
            seconds = time.perf_counter() - begin
            needed = 7 * 4 * parameters / bandwidth  # read w, u and the report's two, write w, u and the reply
            if turn:
                ratios.append(needed / seconds)
        name = (
            f"server, {parameters // 1_000_000} million parameters: memory's time / ours ({bandwidth / 1e9:.1f} GB/s)"
        )
        good &= verdict(name, statistics.median(ratios), 0.8)
    return good


def timed_copy(source: Tensor, target: Tensor) -> float:
    """Its seconds."""
    begin = time.perf_counter()
    target.copy_(source)
    return time.perf_counter() - begin


def sleepy_loss(model: nn.Module, batch: Batch) -> Tensor:
    """A step that takes 10 ms and no processor, so that 2 cores are enough for 4 workers."""
    time.sleep(0.01)
    return classification_loss(model, batch)


def uneven() -> bool:
    """Asynchronous against synchronous, in real time."""
    pace = (1.0, 1.0, 1.0, 4.0)
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    task = orlomo.Task(
        model=lambda: nn.Linear(4, 2), loss=sleepy_loss, train_data=(inputs, torch.arange(64) % 2), batch_size=8
    )
    ceiling = max(pace) * sum(1 / p for p in pace) / len(pace)
    ratios = []
    for turn in range(3):
        made = {
            name: pace_of(run(task, method(name, local_steps=4), 4, reports, pace=pace), skip=1)
            for name, reports in (("orlomo", 240), ("prsgdm", 80))
        }
        print(f"  turn {turn + 1}: {made['orlomo']:.1f} and {made['prsgdm']:.1f} rounds/s, ceiling {ceiling:.2f}")
        ratios.append(made["orlomo"] / made["prsgdm"] / ceiling)
    return verdict("uneven: speed-up of orlomo over prsgdm / ceiling", statistics.median(ratios), 0.9)


def wide_task(parameters: int) -> orlomo.Task:
    """Many parameters and next to no arithmetic: the loss looks at 16 of them."""
    return orlomo.Task(
        model=lambda: Point(torch.ones(parameters)),
        loss=lambda model, batch: (model()[:16] ** 2).sum() + 0 * batch.sum(),
        train_data=torch.zeros(64, 1),
        batch_size=1,
    )


def echo(slot: Slot, mine: Tensor, pipe: Connection) -> None:
    """The other end of a bare exchange: takes the vector that has come, says so."""
    torch.set_num_threads(1)
    own = torch.zeros_like(mine)
    while pipe.recv():
        own.copy_(slot.assignment["params"])
        pipe.send(True)


def exchanges(parameters: int, count: int) -> list[float]:
    """Seconds of bare exchanges: a vector into shared memory, a word, the vector out of it, a word back."""
    slot, vector = Slot(Shape(parameters, torch.float32)), torch.ones(parameters)
    process, pipe = Starter().start(echo, slot, torch.empty(parameters))
    seconds = []
    for _ in range(count + 5):
        begin = time.perf_counter()
        slot.assignment["params"].copy_(vector)
        pipe.send(True)
        pipe.recv()
        seconds.append(time.perf_counter() - begin)
    end(process, pipe)
    return seconds[5:]


def round_trip() -> bool:
    """What a round costs outside of computing, against the least that it could."""
    for parameters, reports in ((270_000, 400), (11_000_000, 60)):
        ratios = []
        for _ in range(3):
            events = run(wide_task(parameters), orlomo.OrLoMo(local_steps=1), 1, reports).event_columns
            outside = (events["finish"][1:] - events["finish"][:-1] - events["compute"][1:]).tolist()
            ours, bare = statistics.median(outside[5:]), statistics.median(exchanges(parameters, reports))
            ratios.append(bare / ours)
        name = f"round trip, {parameters / 1e6:g} million parameters: bare exchange / ours ({ours * 1e3:.2f} ms)"
        verdict(name, statistics.median(ratios), None)
    return True


def verdict(name: str, ratio: float, least: float | None) -> bool:
    """Print a ratio beside its limit."""
    limit = "" if least is None else f" (at least {least})"
    good = least is None or ratio >= least
    print(f"{name}: {ratio:.3f}{limit}{'' if good else ' MISSED'}", flush=True)
    return good


PARTS: dict[str, Callable[[], bool]] = {
    "training": training,
    "server": server,
    "uneven": uneven,
    "round-trip": round_trip,
}


def main() -> int:
    """Measure; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    chosen = parser.parse_args().parts or list(PARTS)
    torch.set_num_threads(1)
    good = [PARTS[name]() for name in chosen]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
