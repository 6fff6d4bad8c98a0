"""Experiments that are measured without training a network: delays, speed-ups, the theorem. One table each.

Delays: the largest delay where one worker is slow, by the schedule alone. Chang-Wei Shi, Shi-Shang Wang, Wu-Jun Li.
Ordered Local Momentum for Asynchronous Distributed Learning under Arbitrary Delays. AAAI 2026, the table of slow/fast
ratios (K=16, S=8; 160 epochs of 50,000 images in batches of 64: T=15,625).

Speed-up of OrLoMo over its synchronous counterpart PRSGDm, by the schedule alone. With fixed times t_k an asynchronous
run handles sum(1/t_k) rounds per second and a synchronous one K / max(t_k): the speed-up is max(t) sum(1/t) / K. Random
times leave the first as it is and slow the second: a barrier waits for the latest of K draws, not for the worker that
is slowest on average.

Symbols -> fields: K -> `workers`, S -> `local_steps`, T -> `iterations`, slow/fast -> `ratio`, max tau_t -> `median`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import track

from orlomo.clusters.cluster import cluster as cluster_by_name
from orlomo.clusters.schedule import trace
from orlomo.errors import ConfigError, require, unknown_name
from orlomo.files import write_atomically, write_text_atomically, writing_to
from orlomo.methods.method import Method
from orlomo.methods.papers.orlomo import OrLoMo
from orlomo.methods.papers.prsgdm import PRSGDm
from orlomo.report.summary import columns_of, markdown, write_rows
from orlomo.report.terminal.screen import duration
from orlomo.reproduce import theorem
from orlomo.reproduce.experiment import Table
from orlomo.reproduce.theorem_run import LAWS, Case

Item = TypeVar("Item")


class Follow(Protocol):
    """Goes through items and shows how far it has come."""

    def __call__(self, items: Sequence[Item]) -> Iterable[Item]:
        """The items, one after another."""


DELAYS_CAPTION = (
    "- Median and range over {seeds} seeds; K={workers}, S={local_steps}, T={iterations:,}; slow/fast 1: no slow "
    "worker. The paper gives one run.\n"
)
SPEEDUP_CAPTION = (
    "- Gradients per virtual second, OrLoMo over PRSGDm, at the number of gradients of {epochs:g} epochs: median and "
    "range over {seeds} seeds. Fixed times: the ceiling max(t) sum(1/t) / K if every worker always took its mean time. "
    "Random times add to it, because a barrier waits for the latest of K draws.\n"
    '- The paper: "2 times faster than PRSGDm in the heterogeneous scenario"; homogeneous: "remains faster".\n'
)
THEOREM_CAPTION = (
    "- Measured: the weighted mean of squared gradient norms of Theorem 1, mean over {seeds} seeds ± standard error, "
    "on F(w) = sum w_i^2 / (1 + w_i^2) with L = 2. Bound: the theorem's right side, the sum of its three terms.\n"
    "- gamma: the largest with 16 L S gamma <= (1 - beta)^2, its half, its tenth, and that of the remark.\n"
    "- A crash changes K and loses a round, so the theorem does not cover it; the row is there for comparison.\n"
)


@dataclass(frozen=True)
class Measurement:
    """A table as text and as rows, and the files it was written to."""

    text: str
    rows: Sequence[DelayRow | SpeedupRow | theorem.TheoremRow]
    files: list[Path]


def measure(kind: str, table: Table, folder: Path, quiet: bool = False) -> Measurement:
    """Measure an experiment of this kind and write `KIND.md` and `KIND.csv`."""
    kinds: dict[str, Callable[[Table, Follow], tuple[Sequence[DelayRow | SpeedupRow | theorem.TheoremRow], str]]] = {
        "delays": _delays,
        "speed-up": _speedup,
        "theorem": _theorem,
    }
    if kind not in kinds:
        raise unknown_name("kind of experiment", kind, ["grid", *kinds])
    console = Console(stderr=True)

    def follow(items: Sequence[Item]) -> Iterable[Item]:
        hidden = quiet or not console.is_terminal
        return track(items, kind, console=console, transient=True, disable=hidden)

    begin = time.monotonic()
    try:  # the file's values are used as they are: a wrong one fails where it is used
        title = table["title"]
        rows, body = kinds[kind](table, follow)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"this experiment's file: {error} is missing or wrong") from None
    text = f"# {title}\n\n{body}- Real time: {duration(time.monotonic() - begin)} on one core.\n"
    files = [folder / f"{kind}.md", folder / f"{kind}.csv"]
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(files[0], text)
        write_atomically(files[1], lambda path: write_rows(path, [columns_of(row) for row in rows]))
    return Measurement(text, rows, files)


def _delays(table: Table, follow: Follow) -> tuple[list[DelayRow], str]:
    settings = dict(table["delays"])
    ratios, papers = settings.pop("slow_over_fast"), settings.pop("paper")
    require(
        len(ratios) == len(papers), "this experiment's file: `paper` must have a number for each of `slow_over_fast`"
    )
    pairs = list(zip(ratios, papers, strict=True))
    rows = [row for ratio, paper in follow(pairs) for row in measure_delays({float(ratio): paper}, **settings)]
    return rows, delay_table(rows) + "\n" + DELAYS_CAPTION.format(**settings)


def _speedup(table: Table, follow: Follow) -> tuple[list[SpeedupRow], str]:
    shared = {key: table[key] for key in ("epochs", "size", "batch_size", "seeds")}
    combinations = list(itertools.product(table["clusters"], table["workers"], table["local_steps"]))
    rows = [row for c, k, s in follow(combinations) for row in measure_speedups([c], [k], [s], **shared)]
    return rows, speedup_table(rows) + "\n" + SPEEDUP_CAPTION.format(**shared)


def _theorem(table: Table, follow: Follow) -> tuple[list[theorem.TheoremRow], str]:
    combinations = [(Case(**case), law) for case in table["cases"] for law in LAWS]
    rows = [row for case, law in follow(combinations) for row in theorem.measure([case], [law], table["seeds"])]
    return rows, theorem.theorem_table(rows) + "\n" + THEOREM_CAPTION.format(seeds=table["seeds"])


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


def measure_delays(
    paper: Mapping[float, int | None],
    workers: int = 16,
    local_steps: int = 8,
    iterations: int = 15_625,
    seeds: int = 20,
) -> list[DelayRow]:
    """The largest delay for each slow/fast ratio, over this many seeds; ratio 1 has no slow worker.

    `paper`: ratio -> the paper's largest delay for it, None where it has none.

    >>> [row] = measure_delays({10: None}, workers=4, iterations=500, seeds=3)
    >>> row.smallest <= row.median <= row.largest
    True
    """
    require(seeds >= 1, f"seeds must be at least 1, not {seeds}")
    return [_delay_row(ratio, workers, local_steps, iterations, seeds, known) for ratio, known in paper.items()]


def delay_table(rows: Sequence[DelayRow]) -> str:
    """The rows as a table."""
    drawn = [
        (
            f"{row.ratio:g}",
            "" if row.paper is None else f"{row.paper:,}",
            f"{row.median:,.0f}",
            f"{row.smallest:,} to {row.largest:,}",
            "" if row.deviation is None else f"{row.deviation:+.0%}",
        )
        for row in rows
    ]
    return markdown(("slow/fast", "paper", "median", "range", "deviation"), drawn)


def _delay_row(
    ratio: float, workers: int, local_steps: int, iterations: int, seeds: int, paper: int | None
) -> DelayRow:
    # A slow worker stalls and so has another law of times: ratio 1 means that there is none.
    cluster = "homogeneous" if ratio == 1 else f"slow-worker:{ratio:g}"
    method = OrLoMo(local_steps=local_steps)
    found = [
        int(trace(method, workers=workers, iterations=iterations, cluster=cluster, seed=seed)["delay"].max())
        for seed in range(seeds)
    ]
    return DelayRow(ratio, workers, local_steps, iterations, seeds, median(found), min(found), max(found), paper)


CLUSTERS = ("homogeneous", "heterogeneous", "heterogeneous:4")


@dataclass(frozen=True)
class SpeedupRow:
    """Samples per virtual second of OrLoMo over those of PRSGDm: median and range over the seeds."""

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


def measure_speedups(
    clusters: Sequence[str] = CLUSTERS,
    workers: Sequence[int] = (8, 16),
    local_steps: Sequence[int] = (8, 16, 32),
    epochs: float = 160,
    size: int = 50_000,
    batch_size: int = 64,
    seeds: int = 5,
) -> list[SpeedupRow]:
    """The speed-up for each cluster, number of workers and number of local steps, at the same number of samples.

    >>> [row] = measure_speedups(["heterogeneous"], workers=[8], local_steps=[8], epochs=2, seeds=1)
    >>> row.speedup > row.ceiling
    True
    """
    require(seeds >= 1, f"seeds must be at least 1, not {seeds}")
    samples = epochs * size
    return [
        _speedup_row(cluster, k, s, max(1, math.ceil(samples / (s * batch_size))), seeds)
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


def speedup_table(rows: Sequence[SpeedupRow]) -> str:
    """The rows as a table."""
    headings = ("cluster", "K", "S", "T", "speed-up", "range", "fixed times", "random times add")
    drawn = [
        (
            row.cluster,
            f"{row.workers}",
            f"{row.local_steps}",
            f"{row.iterations:,}",
            f"{row.speedup:.2f}",
            f"{row.smallest:.2f} to {row.largest:.2f}",
            f"{row.ceiling:.2f}",
            f"{row.random_gain - 1:+.0%}",
        )
        for row in rows
    ]
    return markdown(headings, drawn, words=("cluster",))


def _speedup_row(cluster: str, workers: int, local_steps: int, iterations: int, seeds: int) -> SpeedupRow:
    asynchronous, synchronous = OrLoMo(local_steps=local_steps), PRSGDm(local_steps=local_steps)
    found = [
        _rounds_per_second(asynchronous, cluster, workers, iterations, seed)
        / _rounds_per_second(synchronous, cluster, workers, iterations, seed)
        for seed in range(seeds)
    ]
    limit = ceiling(cluster_by_name(cluster).factors(workers))
    return SpeedupRow(cluster, workers, local_steps, iterations, seeds, median(found), min(found), max(found), limit)


def _rounds_per_second(method: Method, cluster: str, workers: int, iterations: int, seed: int) -> float:
    """Both methods take the same number of samples in a round, so that rounds stand for samples."""
    events = trace(method, workers=workers, iterations=iterations, cluster=cluster, seed=seed)
    return len(events) / float(events["finish"][-1])
