"""What is drawn of a run's delays, weights and losses: columns of numbers, ready for JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from orlomo.records.tables import only
from orlomo.report.streaming.counting import Spread
from orlomo.report.streaming.events import RECENT
from orlomo.report.streaming.over_time import Band
from orlomo.report.view import View, numbers

GROUPS_SHOWN = 12
"""The part of the groups that is shown at first: the newest groups, among the newest reports."""

WORKERS_SHOWN = 24
"""Workers that have a row of their own in the chart of their delays: those with the largest; the others share a row."""

BANDS_SHOWN = 64
"""Workers whose delays over time can be chosen: those with the largest."""

QUANTILES = ("number", "low", "middle", "high", "largest", "outliers")

Drawn = dict[str, Any]


def _spread(spread: Spread) -> Drawn:
    return {name: numbers(getattr(spread, name)) for name in QUANTILES}


def _band(band: Band) -> Drawn:
    return {"width": band.width, "end": band.end, "bin": band.spread.group.tolist(), **_spread(band.spread)}


def late(data: Callable[[View], Drawn | None]) -> Callable[[View], Drawn | None]:
    """Left out of runs in which no report is late: of synchronous methods, and of one worker."""

    def of_late(view: View) -> Drawn | None:
        return None if view.config.method.synchronous or not view.seen.delays.max else data(view)

    return of_late


def histogram(view: View) -> Drawn:
    """How often each delay occurred."""
    found = view.seen.delays.histogram()
    return {**found._asdict(), "rest": found.rest}


def _slowest_first(view: View) -> tuple[list[int], Spread]:
    """The workers, and the spread of each one's delays: the largest median first."""
    workers, found = view.seen.over_time.by_worker()
    order = np.lexsort((workers, -found.largest, -found.high, -found.middle))
    return workers[order].tolist(), Spread(*(column[order] for column in found))


def delays_over_time(view: View) -> Drawn:
    """Quantiles of the delays in each bin of time; of all workers, and of each alone."""
    over_time = view.seen.over_time
    chosen = sorted(_slowest_first(view)[0][:BANDS_SHOWN])
    bands = over_time.of_workers(chosen) if len(chosen) > 1 else {}
    recent = view.seen.recent if view.seen.reports <= RECENT else {}  # of a short run: all reports
    return {
        **_band(over_time.delays()),
        "exact_below": over_time.exact_below,
        "workers": {str(worker): _band(band) for worker, band in bands.items()},
        "each": {name: numbers(recent[name]) for name in ("finish", "delay", "worker")} if recent else {},
    }


def delays_of_workers(view: View) -> Drawn:
    """Quantiles of each worker's delays; of many workers, those with the largest, and the others together."""
    workers, found = _slowest_first(view)
    rest: list[int] = []
    if len(workers) > WORKERS_SHOWN:
        workers, rest = workers[: WORKERS_SHOWN - 1], workers[WORKERS_SHOWN - 1 :]
        together = view.seen.over_time.others(rest)
        found = Spread(*(np.append(one[: len(workers)], two) for one, two in zip(found, together, strict=True)))
    labels = [f"worker {worker}" for worker in workers] + [f"{len(rest)} others"] * bool(rest)
    return {"worker": labels, **_spread(found)}


def weights(view: View) -> Drawn | None:
    """For each delay, or range of delays, the quantiles of the reports' weights; None where all have the same."""
    first, last, etas, momentum = view.seen.over_time.weights()
    if not view.seen.has_weights and len(np.unique([etas.low, etas.high])) == 1:
        return None
    columns = {"delay": first.tolist(), "last": last.tolist(), "number": etas.number.tolist()}
    columns |= {f"eta_{name}": numbers(getattr(etas, name)) for name in ("low", "middle", "high")}
    if view.seen.has_weights:
        place = np.searchsorted(etas.group, momentum.group)
        for name in ("low", "middle", "high"):
            column = np.full(len(first), np.nan)
            column[place] = getattr(momentum, name)
            columns[f"weight_{name}"] = numbers(column)
    return columns


def audit(view: View) -> Drawn | None:
    """The sums of weights in each bin of time (see `OverTime.sums`); None where all reports have the full weight."""
    width, used, sums = view.seen.over_time.sums()
    if not view.seen.has_weights and not sums["cut"].any():
        return None
    counts = {name: sums.pop(name).astype(np.int64).tolist() for name in ("number", "cut")}
    if not view.seen.has_weights:
        del sums["weight"]
    end = view.seen.last_finish
    return {
        "width": width,
        "end": end,
        "bin": used.tolist(),
        **counts,
        **{name: numbers(one) for name, one in sums.items()},
    }


def groups(view: View) -> Drawn | None:
    """The newest groups: which report was folded into which, and its weight in the momentum then."""
    if not view.seen.has_weights:
        return None
    recent = view.seen.recent
    newest = recent["group"] + recent["behind"]
    recent = only(recent, newest > newest[-1] - GROUPS_SHOWN)
    return {name: numbers(column) for name, column in recent.items() if name != "finish"}


def loss_until_evaluated(view: View) -> Drawn | None:
    """Quantiles of the losses of reports in each bin of time, until there is an evaluation."""
    # Losses of single reports are noisy: from the first evaluation on, the curves of the metrics are shown instead.
    # The reports of a user's own loop have none.
    losses = view.seen.over_time.losses()
    if len(view.metrics["reports"]) or losses is None or not view.seen.has_losses:
        return None
    return _band(losses)
