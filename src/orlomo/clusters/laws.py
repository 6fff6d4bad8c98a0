"""Laws of time: how long a worker takes, as multiples of the mean time of a fast worker.

A law is a short string, so that configs and command lines can say it:
`fixed`, `gamma:CV`, `exponential`, `lognormal:CV`, `stall:P`, `file:PATH`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orlomo.errors import ConfigError, require, unknown_name
from orlomo.methods.rates import number

LAWS = ("fixed", "gamma:CV", "exponential", "lognormal:CV", "stall:P", "file:PATH")

Times = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, float], Times]
"""(generator, how many, factor) -> times with mean `factor`"""

STALL_SPREAD = 0.25
"""Coefficient of variation of the rounds between stalls."""


def law(spec: str) -> Draw:
    """The law of that name, as a function that draws times.

    `stall:P`: gamma rounds of mean 1, and with probability P a stall on top, long enough for a mean of `factor`.
    It has the heavy tail that the delays of the paper's delay table need.

    >>> draw = law("fixed")
    >>> draw(np.random.default_rng(0), 3, 2.0)
    array([2., 2., 2.])
    """
    name, _, text = spec.partition(":")
    if name == "fixed" and not text:
        return lambda generator, count, factor: np.full(count, factor)
    if name == "exponential" and not text:
        return lambda generator, count, factor: generator.exponential(factor, count)
    if name == "gamma":
        shape = 1.0 / _spread(text, spec) ** 2
        return lambda generator, count, factor: generator.gamma(shape, factor / shape, count)
    if name == "lognormal":
        variance = math.log1p(_spread(text, spec) ** 2)
        deviation = math.sqrt(variance)
        return lambda generator, count, factor: factor * generator.lognormal(-variance / 2, deviation, count)
    if name == "stall":
        return _stall(number(text, f"the probability in {spec!r}"))
    raise unknown_name("law of time", spec, LAWS)


def _spread(text: str, spec: str) -> float:
    spread = number(text, f"the spread in {spec!r}") if text else 0.25
    require(0 < spread <= 100, f"the spread in {spec!r} must be above 0 and at most 100")
    return spread


def _stall(probability: float) -> Draw:
    require(0 < probability <= 1, f"the probability of a stall must be above 0 and at most 1, not {probability}")
    shape = 1.0 / STALL_SPREAD**2

    def draw(generator: np.random.Generator, count: int, factor: float) -> Times:
        rounds = generator.gamma(shape, 1.0 / shape, count)
        stalled = generator.random(count) < probability
        return rounds + stalled * ((factor - 1.0) / probability)

    return draw


@lru_cache(maxsize=8)
def recorded(path: str) -> tuple[tuple[float, ...], ...]:
    """Times from a CSV file with the columns `worker,seconds`, one row per round, as one tuple per worker."""
    times: dict[str, list[float]] = {}
    try:
        with Path(path).open(newline="") as file:
            reader = csv.DictReader(file)
            require(
                reader.fieldnames is not None and {"worker", "seconds"} <= set(reader.fieldnames),
                f"{path}: the first line must name the columns worker,seconds",
            )
            for row in reader:
                seconds = number(row["seconds"] or "", f"{path}, line {reader.line_num}: seconds")
                require(seconds > 0, f"{path}, line {reader.line_num}: seconds must be above 0")
                times.setdefault(row["worker"], []).append(seconds)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the recorded times {path}: {error}") from None
    require(bool(times), f"{path}: no times in it")
    return tuple(tuple(rows) for rows in times.values())
