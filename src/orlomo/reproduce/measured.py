"""Experiments that are measured without training a network: delays, speed-ups, the theorem. One table each."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from orlomo.errors import ConfigError, require, unknown_name
from orlomo.files import write_atomically, write_text_atomically
from orlomo.report.summary import write_rows
from orlomo.reproduce import delays, speedup, theorem
from orlomo.reproduce.progress import duration
from orlomo.reproduce.theorem_run import LAWS, Case

Item = TypeVar("Item")
Follow = Callable[[Sequence[Item]], Iterable[Item]]

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
    "- A crash changes K and loses a round, so the theorem does not speak of it; the row is there for comparison.\n"
)


@dataclass(frozen=True)
class Measurement:
    """A table as text and as rows, and the files it was written to."""

    text: str
    rows: list[Any]
    files: list[Path]


def measure(kind: str, table: dict[str, Any], folder: Path, quiet: bool = False) -> Measurement:
    """Measure an experiment of this kind and write `KIND.md` and `KIND.csv`."""
    kinds: dict[str, Callable[[dict[str, Any], Any], tuple[list[Any], str]]] = {
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
    try:
        title = table["title"]
        rows, body = kinds[kind](table, follow)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"this experiment's file: {error} is missing or wrong") from None
    text = f"# {title}\n\n{body}- Real time: {duration(time.monotonic() - begin)} on one core.\n"
    files = [folder / f"{kind}.md", folder / f"{kind}.csv"]
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(files[0], text)
    write_atomically(files[1], lambda path: write_rows(path, rows))
    return Measurement(text, rows, files)


def _delays(table: dict[str, Any], follow: Follow[Any]) -> tuple[list[Any], str]:
    settings = dict(table["delays"])
    ratios, papers = settings.pop("slow_over_fast"), settings.pop("paper")
    require(
        len(ratios) == len(papers), "this experiment's file: `paper` must have a number for each of `slow_over_fast`"
    )
    pairs = list(zip(ratios, papers, strict=True))
    rows = [row for ratio, paper in follow(pairs) for row in delays.measure({float(ratio): paper}, **settings)]
    return rows, delays.markdown(rows) + "\n" + DELAYS_CAPTION.format(**settings)


def _speedup(table: dict[str, Any], follow: Follow[Any]) -> tuple[list[Any], str]:
    shared = {key: table[key] for key in ("epochs", "size", "batch_size", "seeds")}
    combinations = list(itertools.product(table["clusters"], table["workers"], table["local_steps"]))
    rows = [row for c, k, s in follow(combinations) for row in speedup.measure([c], [k], [s], **shared)]
    return rows, speedup.markdown(rows) + "\n" + SPEEDUP_CAPTION.format(**shared)


def _theorem(table: dict[str, Any], follow: Follow[Any]) -> tuple[list[Any], str]:
    combinations = [(Case(**case), law) for case in table["cases"] for law in LAWS]
    rows = [row for case, law in follow(combinations) for row in theorem.measure([case], [law], table["seeds"])]
    return rows, theorem.markdown(rows) + "\n" + THEOREM_CAPTION.format(seeds=table["seeds"])
