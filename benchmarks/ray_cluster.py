"""The Ray engine against the well-known do-it-yourself parameter server, on one private cluster, in turns.

    python benchmarks/ray_cluster.py [rounds] [utilisation]

rounds       rounds/s of 2 workers, ours / a parameter server as in Ray's own guide (an actor with a torch.optim.SGD,
             state dicts on the wire, `ray.wait` for the first), with the same model and local steps, at 0.27, 11 and
             110 million parameters: above 1 at every size. Also the bytes of a round.
utilisation  share of the time that 2 workers compute, with ResNet20, batch 64, S=8

Run it on an otherwise idle machine. The model's arithmetic is next to nothing: what is measured is the way between
server and workers.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import torch
from torch import Tensor, nn

import orlomo
from orlomo.engines.ray.connection import RayOptions, connection
from orlomo.engines.ray.fit import Need
from orlomo.engines.ray.worker import ArrayReport
from orlomo.records.log import Log
from orlomo.tasks.data import Batch
from processes import image_task, run

LOCAL_STEPS, WORKERS, LAYERS, TURNS = 2, 2, 20, 3
SIZES = {270_000: 200, 11_000_000: 30, 110_000_000: 6}
"""Parameters -> rounds in a turn."""


class Layers(nn.Module):
    """So many parameters in 20 layers, and next to no arithmetic."""

    def __init__(self, parameters: int):
        super().__init__()
        self.layers = nn.ParameterList([torch.ones(parameters // LAYERS) for _ in range(LAYERS)])

    def forward(self) -> Tensor:
        """Looks at 16 parameters of each layer."""
        return torch.stack([(layer[:16] ** 2).sum() for layer in self.layers]).sum()


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """The model's own output."""
    made: Tensor = model()
    return made


@ray.remote(num_cpus=0)
class ParameterServer:
    """As in Ray's guide: a model and an optimizer; what workers send is taken as a gradient."""

    def __init__(self, parameters: int):
        torch.set_num_threads(1)
        self.model = Layers(parameters)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0, momentum=0.9)

    def apply(self, *changes: dict[str, Tensor]) -> dict[str, Tensor]:
        """One step; the new weights."""
        for change in changes:
            self.optimizer.zero_grad()
            for name, parameter in self.model.named_parameters():
                parameter.grad = change[name].clone()
            self.optimizer.step()
        return self.weights()

    def weights(self) -> dict[str, Tensor]:
        """The weights now."""
        return {name: value.cpu() for name, value in self.model.state_dict().items()}


@ray.remote(num_cpus=1)
class DataWorker:
    """As in Ray's guide, with local steps: takes weights, gives back how far it moved."""

    def __init__(self, parameters: int):
        torch.set_num_threads(1)
        self.model = Layers(parameters)

    def compute(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """A round of local momentum steps."""
        self.model.load_state_dict(weights)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        for _ in range(LOCAL_STEPS):
            optimizer.zero_grad()
            loss(self.model, torch.empty(0)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return {name: weights[name] - value.detach() for name, value in self.model.named_parameters()}


class HandMade:
    """The do-it-yourself server, kept between turns."""

    def __init__(self, parameters: int):
        self.server: Any = ParameterServer.remote(parameters)  # type: ignore[attr-defined]
        self.workers: Any = [DataWorker.remote(parameters) for _ in range(WORKERS)]  # type: ignore[attr-defined]

    def pace(self, rounds: int) -> float:
        """Rounds a second."""
        weights = self.server.weights.remote()
        calls = {worker.compute.remote(weights): worker for worker in self.workers}
        for number in range(rounds + WORKERS):
            if number == WORKERS:  # all are at work
                begin = time.monotonic()
            [done], _ = ray.wait(list(calls))
            worker = calls.pop(done)
            weights = self.server.apply.remote(done)
            calls[worker.compute.remote(weights)] = worker
        ray.get(weights)
        return rounds / (time.monotonic() - begin)

    def close(self) -> None:
        """End the actors."""
        for actor in (self.server, *self.workers):
            ray.kill(actor)


def our_pace(parameters: int, rounds: int) -> float:
    """Rounds a second."""
    task = orlomo.Task(model=lambda: Layers(parameters), loss=loss, train_data=torch.zeros(64, 1), batch_size=1)
    method = orlomo.OrLoMo(learning_rate=0.01, local_steps=LOCAL_STEPS)
    events = run(task, method, WORKERS, rounds + WORKERS, engine="ray", checkpoint_seconds=1e6).event_columns
    finish = events["finish"]
    return float(rounds / (finish[-1] - finish[WORKERS - 1]))


def on_the_wire(value: Any) -> int:
    """Bytes of an object as Ray stores and sends it."""
    worker: Any = ray._private.worker.global_worker
    context = worker.get_serialization_context()
    return int(context.serialize(value).total_bytes)


def rounds() -> bool:
    """Ours against theirs."""
    good = True
    for parameters, count in SIZES.items():
        theirs, ratios = HandMade(parameters), []
        theirs.pace(count // 2)
        for turn in range(TURNS):
            made, bare = our_pace(parameters, count), theirs.pace(count)
            print(f"  {parameters / 1e6:g} million, turn {turn + 1}: {made:.2f} rounds/s, do-it-yourself {bare:.2f}")
            ratios.append(made / bare)
        theirs.close()
        ratio = statistics.median(ratios)
        good &= ratio > 1
        vector = torch.zeros(parameters).numpy()
        ours = on_the_wire(vector) + on_the_wire(
            ArrayReport(orlomo.Report(0, 0), {"delta_params": vector, "delta_momentum": vector.copy()}, None, 0.0)
        )
        bare = 2 * on_the_wire(Layers(parameters).state_dict())
        size = f"{ours / 1e6:.1f} MB a round (w out; u and the change back), do-it-yourself {bare / 1e6:.1f}"
        name = f"rounds/s, {parameters / 1e6:g} million parameters: ours / do-it-yourself"
        print(f"{name}: {ratio:.2f} (above 1){'' if ratio > 1 else ' MISSED'}; {size}", flush=True)
    return good


def utilisation() -> bool:
    """How much of their time workers compute."""
    method = orlomo.OrLoMo(learning_rate=0.01, local_steps=8)
    events = run(image_task(), method, WORKERS, 2 * WORKERS + 12, engine="ray", checkpoint_seconds=1e6).event_columns
    late = slice(2 * WORKERS, None)  # after the evaluation at the beginning
    computing, whole = events["compute"][late].sum(), (events["finish"] - events["start"])[late].sum()
    print(f"utilisation, ResNet20, batch 64, S=8: {computing / whole:.4f} of a round's time is computing", flush=True)
    return True


PARTS = {"rounds": rounds, "utilisation": utilisation}


def main() -> int:
    """Measure; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    chosen = parser.parse_args().parts or list(PARTS)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        need = Need(2 * WORKERS, {"CPU": 1.0}, {}, 4 * max(SIZES), 1 << 20)  # both kinds of workers at once
        with connection(RayOptions(), need, Log(Path(place), print)):
            good = [PARTS[name]() for name in chosen]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
