"""The workers of a run on a screen: a line for each, or what is worst, median and best where there are too many."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np
from rich.text import Text

from orlomo.report.streaming.counting import histogram
from orlomo.report.terminal.layout import GAP, Glyphs, flow, split
from orlomo.report.terminal.totals import COMPUTING, LEFT, LOST, STARTING, WAITING, Totals, WorkerTotals

STYLES = {COMPUTING: "green", WAITING: "yellow", STARTING: "dim", LOST: "bold red", LEFT: "dim"}
SHARES = ("computing", "transfer", "waiting")
BAR_STYLES = ("green", "blue", "dim")
"""How workers spend their time, and the colours of it."""

FEWEST_BAR = 12
"""Cells of a worker's bar; where there are fewer, only the share is shown."""

SLOW = 1.5
"""Times the median round, from which on a worker is named as slow."""

MOST_NAMED = 5
MOST_STRIP = 2
"""Lines with one cell per worker."""

MOST_BARS = 48
"""Cells of the delay histogram."""


def drawn_workers(totals: Totals, width: int, lines: int, glyphs: Glyphs) -> list[Text]:
    """The workers in at most so many lines."""
    if len(totals.workers) + 1 <= lines:
        return _each(totals, width, glyphs)
    return _summary(totals, width, glyphs)[: max(1, lines)]


def _each(totals: Totals, width: int, glyphs: Glyphs) -> list[Text]:
    """A line for each worker, in the order of their numbers."""
    states, workers = totals.states(), dict(sorted(totals.workers.items()))
    digits = max(6, *(len(f"{one.rounds:,}") for one in workers.values()))
    before = len("worker") + len(COMPUTING) + digits + len("delay") + 4 * len(GAP)
    cells = width - before - len(" 100%")
    has_bar = cells >= FEWEST_BAR
    gap = GAP if before + len("computing") <= width else " "
    shapes = (glyphs.computing, glyphs.transfer, glyphs.waiting)
    legend = GAP.join(f"{shape} {name}" for shape, name in zip(shapes, SHARES, strict=True))
    last = legend if has_bar and len(legend) <= width - before else SHARES[0]
    head = gap.join(("worker", f"{'state':<{len(COMPUTING)}}", f"{'rounds':>{digits}}", "delay", last))
    found = [Text(head, "dim", no_wrap=True, overflow="ellipsis")]
    for number, one in workers.items():
        state = states.get(number, one.state)
        line = Text(f"{number:>6}{gap}", no_wrap=True, overflow="ellipsis")
        line.append(f"{state:<{len(COMPUTING)}}", STYLES[state])
        line.append(f"{gap}{one.rounds:>{digits},}{gap}{one.delay if one.rounds else '-':>5}{gap}")
        if has_bar:
            counts = split(cells, one.shares) if one.rounds else [0, 0, 0]
            for count, shape, style in zip(counts, shapes, BAR_STYLES, strict=True):
                line.append(shape * count, style)
            line.append(" " * (cells - sum(counts)))
        share = f"{one.shares[0]:.0%}" if one.rounds else "-"
        line.append(f"{share:>{5 if has_bar else len(SHARES[0])}}")
        found.append(line)
    return found


def _summary(totals: Totals, width: int, glyphs: Glyphs) -> list[Text]:
    """All workers in a few lines: their states, worst, median and best of each number, the slow ones by name."""
    states, workers = totals.states(), dict(sorted(totals.workers.items()))
    counts = Counter(states.values())
    told = ", ".join(f"{counts[state]:,} {state}" for state in STYLES if counts[state])
    found = [Text(line, no_wrap=True) for line in flow([f"{len(workers):,} workers: {told}"], width)]
    active = {number: one for number, one in workers.items() if one.rounds}
    if not active:
        return found
    narrow = width < 56
    columns: list[tuple[str, Callable[[WorkerTotals], float], bool, str]] = [
        ("rounds", lambda one: one.rounds, True, ",.0f"),
        ("delay", lambda one: one.delay, False, ",.0f"),
        ("computing", lambda one: one.shares[0], True, ".0%"),
        ("waiting", lambda one: one.shares[2], False, ".0%"),
        *([] if narrow else [("transfer", lambda one: one.shares[1], False, ".0%")]),
    ]
    gap = " " if narrow else GAP
    found += [
        Text(),
        Text(
            f"{'':<6}" + "".join(f"{gap}{name:>{max(6, len(name))}}" for name, *_ in columns),
            "dim",
            no_wrap=True,
            overflow="ellipsis",
        ),
    ]
    for row, label in enumerate(("worst", "median", "best")):
        line = f"{label:<6}"
        for name, value_of, higher, form in columns:
            values = [value_of(one) for one in active.values()]
            low, high = (min(values), max(values)) if higher else (max(values), min(values))
            line += f"{gap}{(low, median(values), high)[row]:>{max(6, len(name))}{form}}"
        found.append(Text(line, no_wrap=True, overflow="ellipsis"))
    for label, names in _named(active, workers, states):
        found += [Text(line, STYLES.get(label, "")) for line in flow([f"{label}: {names}"], width)]
    if len(workers) <= MOST_STRIP * width:
        found += [Text(), *_strip(workers, totals.synchronous, width, glyphs)]
    return found


def _named(
    active: Mapping[int, WorkerTotals], workers: Mapping[int, WorkerTotals], states: Mapping[int, str]
) -> list[tuple[str, str]]:
    """The workers that are gone, and those that are slow, by their numbers."""
    named = []
    for state in (LOST, LEFT):
        numbers = [number for number in workers if states.get(number) == state]
        if numbers:
            named.append((state, "worker " + _some([str(number) for number in numbers])))
    usual = median(one.round_seconds for one in active.values())
    times = {number: one.round_seconds / usual for number, one in active.items()} if usual > 0 else {}
    slow = sorted((number for number in times if times[number] >= SLOW), key=lambda number: -times[number])
    if slow:
        text = _some([f"{number} ({times[number]:.1f}x)" for number in slow])
        named.append(("slow", f"worker {text}; in brackets the time of a round against the median"))
    return named


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _strip(workers: Mapping[int, WorkerTotals], synchronous: bool, width: int, glyphs: Glyphs) -> list[Text]:
    """One cell per worker, in the order of their numbers: its rounds, or, at a barrier, its share of computing."""
    values = {number: one.shares[0] if synchronous else one.rounds for number, one in workers.items()}
    top = max(values.values()) or 1
    cells = "".join(
        "x" if workers[number].state == LOST else glyphs.blocks[math.ceil(value / top * (len(glyphs.blocks) - 1))]
        for number, value in values.items()
    )
    what = "share of computing" if synchronous else "rounds"
    title = [Text(line, "dim") for line in flow([f"{what} of workers 0 to {max(workers)}:"], width)]
    return [*title, *(Text(cells[begin : begin + width], "green") for begin in range(0, len(cells), width))]


def drawn_delays(delays: Mapping[int, int], width: int, glyphs: Glyphs) -> list[Text]:
    """The delays so far: a histogram that ends at the 99% quantile, with what lies beyond it counted beside it.

    >>> [line.plain for line in drawn_delays({0: 10, 1: 30, 2: 60, 500: 1}, 60, Glyphs())]
    ['delay  0 ▂▄█ 2  1 above 2, the largest 500']
    """
    counts = sorted(dict(delays).items())  # a copy: the display's thread draws while the run counts
    if not counts or counts[-1][0] == 0:  # of a synchronous run
        return []
    room = width - len(f"delay  0  {counts[-1][0]:,}")
    values, numbers = np.array(counts, dtype=np.int64).T
    found = histogram(values, numbers, min(MOST_BARS, max(4, room)))
    top = max(found.counts)
    shape = "".join(glyphs.blocks[math.ceil(count * (len(glyphs.blocks) - 1) / top)] for count in found.counts)
    lines = flow([f"delay  0 {shape} {found.limit:,}", found.rest], width)
    return [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]
