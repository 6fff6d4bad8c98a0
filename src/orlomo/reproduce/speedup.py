"""Virtual speed-up of OrLoMo over its synchronous counterpart PRSGDm, by the schedule alone.

With fixed times t_k an asynchronous run handles sum(1/t_k) rounds a second and a synchronous one K / max(t_k), so that
the speed-up is max(t) sum(1/t) / K. Random times leave the first as it is and slow the second: a barrier waits for the
latest of K draws, not for the worker that is slowest on average.

Symbols -> fields: K -> `workers`, S -> `local_steps`, T -> `iterations`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from orlomo.clusters.cluster import cluster as cluster_by_name
from orlomo.clusters.tracing import trace
from orlomo.errors import require
from orlomo.methods.method import Method
from orlomo.methods.papers.orlomo import OrLoMo
from orlomo.methods.papers.prsgdm import PRSGDm

CLUSTERS = ("homogeneous", "heterogeneous", "heterogeneous:4")


@dataclass(frozen=True)
class SpeedupRow:
    """Samples a virtual second of OrLoMo over those of PRSGDm: median and range over the seeds."""

    cluster: str
    workers: int
    local_steps: int
    iterations: int  # reports of OrLoMo; PRSGDm finishes the barrier it is in
    seeds: int
    speedup: float
    smallest: float
    largest: float
    ceiling: float  # of fixed times

    @property
    def random_gain(self) -> float:
        """What random times add: the factor by which the speed-up exceeds the ceiling of fixed times."""
        return self.speedup / self.ceiling


def measure(
    clusters: Sequence[str] = CLUSTERS,
    workers: Sequence[int] = (8, 16),
    local_steps: Sequence[int] = (8, 16, 32),
    epochs: float = 160,
    size: int = 50_000,
    batch_size: int = 64,
    seeds: int = 5,
) -> list[SpeedupRow]:
    """The speed-up for each cluster, number of workers and number of local steps, at the same number of samples.

    >>> [row] = measure(["heterogeneous"], workers=[8], local_steps=[8], epochs=2, seeds=1)
    >>> row.speedup > row.ceiling
    True
    """
    require(seeds >= 1, f"seeds must be at least 1, not {seeds}")
    samples = epochs * size
    return [
        _row(cluster, k, s, max(1, math.ceil(samples / (s * batch_size))), seeds)
        for cluster in clusters
        for k in workers
        for s in local_steps
    ]


def ceiling(times: Sequence[float]) -> float:
    """The speed-up where each worker always takes the same time: max(t) sum(1/t) / K.

    >>> ceiling([1, 1, 1, 2])
    1.75
    """
    return max(times) * sum(1 / time for time in times) / len(times)


def markdown(rows: Sequence[SpeedupRow]) -> str:
    """The rows as a table."""
    lines = [
        "| cluster | K | S | T | speed-up | range | fixed times | random times add |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.cluster} | {row.workers} | {row.local_steps} | {row.iterations:,} | {row.speedup:.2f} "
        f"| {row.smallest:.2f} to {row.largest:.2f} | {row.ceiling:.2f} | {row.random_gain - 1:+.0%} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _row(cluster: str, workers: int, local_steps: int, iterations: int, seeds: int) -> SpeedupRow:
    asynchronous, synchronous = OrLoMo(local_steps=local_steps), PRSGDm(local_steps=local_steps)
    found = [
        _rounds_per_second(asynchronous, cluster, workers, iterations, seed)
        / _rounds_per_second(synchronous, cluster, workers, iterations, seed)
        for seed in range(seeds)
    ]
    limit = ceiling(cluster_by_name(cluster).factors(workers))
    return SpeedupRow(cluster, workers, local_steps, iterations, seeds, median(found), min(found), max(found), limit)


def _rounds_per_second(method: Method, cluster: str, workers: int, iterations: int, seed: int) -> float:
    """Both methods have the same samples in a round, so that rounds stand for samples."""
    events = trace(method, workers=workers, iterations=iterations, cluster=cluster, seed=seed)
    return len(events) / float(events["finish"][-1])
