"""Our local step against a bare PyTorch loop of the same model; and what augmentation costs. Ratios from one run.

    python benchmarks/step.py

ResNet20, batches of 64 random pictures of 32x32, one thread, compiled and in channels_last on both sides. Ours is a
round as engines run it: choosing samples, fetching bytes, augmenting, normalising, the step of local momentum on the
flat vector. The bare loop has its one batch at hand, unaugmented, and steps with torch.optim.SGD. Both take turns, a
round each; medians of 40. Limits: at least 0.97 of the bare loop's speed, augmentation at most 5% of a step.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from torch.nn import functional

import orlomo
from orlomo.data.images import Images
from orlomo.engines.compiling import prepare
from orlomo.engines.memory import keep_freed_memory
from orlomo.engines.round import RoundRunner
from orlomo.tasks.images import CIFAR10, Normalised, crop_and_flip, image_task
from orlomo.tasks.models import resnet20

LOCAL_STEPS, ROUNDS = 8, 40
RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.001


def main() -> int:
    """Measure and print; exit code 1 where a limit is missed."""
    torch.set_num_threads(1)
    keep_freed_memory()
    prepare()
    source = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (4096, 3, 32, 32), generator=source, dtype=torch.uint8)
    labels = torch.randint(0, 10, (4096,), generator=source)
    task = image_task("random", Images(pictures, labels, pictures[:64], labels[:64]), CIFAR10, resnet20)
    method = orlomo.OrLoMo(learning_rate=RATE, momentum=MOMENTUM, weight_decay=DECAY, local_steps=LOCAL_STEPS)
    runner = RoundRunner(task, method, seed=0)
    assignment = method.server(task.initial_params(0), 1).start()[0]

    model = Normalised(resnet20(), CIFAR10).train()
    forward = torch.compile(model, dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    batch = (pictures[:64], labels[:64])

    def bare() -> None:
        for _ in range(LOCAL_STEPS):
            optimizer.zero_grad()
            functional.cross_entropy(forward(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def ours() -> None:
        runner.run(assignment)

    print("compiling ...", flush=True)
    for _ in range(2):
        bare()
        ours()
    times: dict[str, list[float]] = {"bare": [], "ours": [], "augment": []}
    for _ in range(ROUNDS):
        for name, call in (("bare", bare), ("ours", ours)):
            times[name].append(_seconds(call) / LOCAL_STEPS)
        times["augment"].append(_seconds(lambda: crop_and_flip(batch, source)))
    ratio = statistics.median(b / o for b, o in zip(times["bare"], times["ours"], strict=True))
    share = statistics.median(times["augment"]) / statistics.median(times["ours"])
    step = statistics.median(times["ours"])
    print(f"our step {1000 * step:.0f} ms, {64 / step:.0f} images/s on one thread")
    print(f"bare loop's time / ours: {ratio:.3f} (limit: at least 0.97)")
    print(f"augmentation / step:     {share:.4f} (limit 0.05)")
    return 0 if ratio >= 0.97 and share <= 0.05 else 1


def _seconds(call: object) -> float:
    begin = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
