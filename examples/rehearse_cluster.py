"""Rehearse a cluster before buying it: how long will training take on it, and what will it cost?

    python examples/rehearse_cluster.py
    orlomo report runs/rehearsal        # all of the runs on one page

Three offers are simulated, each with a synchronous and an asynchronous method, until the target is reached: the median
of three seeds. Put in your own offers and task (a part of your data will do), and two numbers that you have measured:
the seconds of a local step on the fast machine, and the seconds that it takes to send the parameters one way.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import orlomo

STEP_SECONDS, SEND_SECONDS = 2.5, 4.0
TARGET = 0.96  # test accuracy

NEW = orlomo.Speed(count=8)
OLD = orlomo.Speed(count=8, factor=3.0)  # takes three times as long
SHARED = orlomo.Speed(count=8, factor=2.0, law="stall:0.05")  # stops in 5% of its rounds: twice as long on average


@dataclass(frozen=True)
class Offer:
    """Machines of these kinds, at this price for all of them together."""

    name: str
    speeds: tuple[orlomo.Speed, ...]
    dollars_per_hour: float

    @property
    def workers(self) -> int:
        return sum(speed.count or 0 for speed in self.speeds)


OFFERS = (
    Offer("8 new", (NEW,), 8 * 2.00),
    Offer("8 new, 8 old", (NEW, OLD), 8 * 2.00 + 8 * 0.20),
    Offer("8 new, 8 shared", (NEW, SHARED), 8 * 2.00 + 8 * 0.80),
)


class UntilReached(orlomo.Callback):
    """Stops the run at the first evaluation that reaches the target."""

    def started(self, run: orlomo.RunHandle) -> None:
        self.run = run

    def evaluation(self, row: dict[str, float]) -> None:
        if row["test_accuracy"] >= TARGET:
            self.run.stop(f"reached {TARGET:.0%}")


def hours(offer: Offer, name: str, seed: int) -> float:
    """Until the target is reached; infinite where it is not."""
    run = orlomo.train(
        "digits",
        orlomo.method(name, learning_rate=0.2, local_steps=8),
        workers=offer.workers,
        cluster=orlomo.Cluster(
            name=offer.name, speeds=offer.speeds, step_seconds=STEP_SECONDS, latency_seconds=SEND_SECONDS
        ),
        epochs=60,
        seed=seed,
        callbacks=[UntilReached()],
        out=f"runs/rehearsal/{offer.name.replace(', ', '-').replace(' ', '-')}-{name}-seed{seed}",
    )
    return float(run.metric_columns["seconds"][-1]) / 3600 if run.stopped else math.inf


def main(offers: tuple[Offer, ...] = OFFERS, seeds: int = 3) -> dict[tuple[str, str], float]:
    """Print the table; returns the hours by offer and method."""
    found = {}
    print(f"{'machines':16} {'method':8} {'minutes to ' + format(TARGET, '.0%'):>14} {'dollars':>8}")
    for offer in offers:
        for name in ("prsgdm", "orlomo"):
            time = statistics.median(hours(offer, name, seed) for seed in range(seeds))
            found[offer.name, name] = time
            print(f"{offer.name:16} {name:8} {60 * time:14.1f} {time * offer.dollars_per_hour:8.2f}")
    return found


if __name__ == "__main__":
    main()
