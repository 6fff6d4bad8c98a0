"""The paper's delay table: the largest delay where one worker is slow, by the schedule alone.

Chang-Wei Shi, Shi-Shang Wang, Wu-Jun Li. Ordered Local Momentum for Asynchronous Distributed Learning under Arbitrary
Delays. AAAI 2026, the table of slow/fast ratios (K=16, S=8; 160 epochs of 50,000 images in batches of 64: T=15,625).

Symbols -> fields: K -> `workers`, S -> `local_steps`, T -> `iterations`, slow/fast -> `ratio`, max tau_t -> `median`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from orlomo.clusters.tracing import trace
from orlomo.errors import require
from orlomo.methods.papers.orlomo import OrLoMo


@dataclass(frozen=True)
class DelayRow:
    """The largest delay of a run: its median and range over the seeds, beside the paper's."""

    ratio: float
    workers: int
    local_steps: int
    iterations: int
    seeds: int
    median: float
    smallest: int
    largest: int
    paper: int | None  # None: a ratio that the paper does not have

    @property
    def deviation(self) -> float | None:
        """The median's relative distance from the paper's value."""
        return None if self.paper is None else self.median / self.paper - 1


def measure(
    paper: Mapping[float, int | None],
    workers: int = 16,
    local_steps: int = 8,
    iterations: int = 15_625,
    seeds: int = 20,
) -> list[DelayRow]:
    """The largest delay for each slow/fast ratio, over this many seeds; ratio 1 has no slow worker.

    `paper`: ratio -> the paper's largest delay for it, None where it has none.

    >>> [row] = measure({10: None}, workers=4, iterations=500, seeds=3)
    >>> row.smallest <= row.median <= row.largest
    True
    """
    require(seeds >= 1, f"seeds must be at least 1, not {seeds}")
    return [_row(ratio, workers, local_steps, iterations, seeds, known) for ratio, known in paper.items()]


def markdown(rows: Sequence[DelayRow]) -> str:
    """The rows as a table."""
    lines = ["| slow/fast | paper | median | range | deviation |", "|---:|---:|---:|---:|---:|"]
    for row in rows:
        paper = "" if row.paper is None else f"{row.paper:,}"
        deviation = "" if row.deviation is None else f"{row.deviation:+.0%}"
        spread = f"{row.smallest:,} to {row.largest:,}"
        lines.append(f"| {row.ratio:g} | {paper} | {row.median:,.0f} | {spread} | {deviation} |")
    return "\n".join(lines) + "\n"


def _row(ratio: float, workers: int, local_steps: int, iterations: int, seeds: int, paper: int | None) -> DelayRow:
    cluster = "homogeneous" if ratio == 1 else f"slow-worker:{ratio:g}"
    method = OrLoMo(local_steps=local_steps)
    found = [
        int(trace(method, workers=workers, iterations=iterations, cluster=cluster, seed=seed)["delay"].max())
        for seed in range(seeds)
    ]
    return DelayRow(ratio, workers, local_steps, iterations, seeds, median(found), min(found), max(found), paper)
