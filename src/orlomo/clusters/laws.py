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

from orlomo.errors import ConfigError, RunFolderError, require, shown, unknown_name
from orlomo.files import read_text
from orlomo.methods.rates import number

LAWS = ("fixed", "gamma:CV", "exponential", "lognormal:CV", "stall:P", "file:PATH")

Times = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, float], Times]
"""(generator, how many, factor) -> times with mean `factor`"""

STALL_SPREAD = 0.25
"""Coefficient of variation of the rounds between stalls."""

LONGEST_SECONDS = 1e12
"""The longest (virtual) time that a setting can name, and a recorded round can take: 30,000 years."""

FILE_BYTES = 16 << 20
"""The largest file of recorded times: a million rounds or more."""


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
        return _stall(number(text, f"the probability in {shown(spec)}"))
    raise unknown_name("law of time", spec, LAWS)


def _spread(text: str, spec: str) -> float:
    spread = number(text, f"the spread in {shown(spec)}") if text else 0.25
    require(1e-6 <= spread <= 100, f"the spread in {shown(spec)} must be from 0.000001 to 100")
    return spread


def _stall(probability: float) -> Draw:
    require(1e-9 <= probability <= 1, f"the probability of a stall must be from 1e-9 to 1, not {probability}")
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
        reader = csv.DictReader(read_text(Path(path), FILE_BYTES, follow=True).splitlines())
        require(
            reader.fieldnames is not None and {"worker", "seconds"} <= set(reader.fieldnames),
            f"{path}: the first line must name the columns worker,seconds",
        )
        for row in reader:
            where = f"{path}, line {reader.line_num}: seconds"
            seconds = number(row["seconds"] or "", where)
            require(0 < seconds <= LONGEST_SECONDS, f"{where} must be above 0 and at most {LONGEST_SECONDS:g}")
            times.setdefault(row["worker"], []).append(seconds)
    except OSError as error:
        raise ConfigError(f"cannot read the recorded times {path}: {error.strerror}") from None
    except (RunFolderError, csv.Error) as error:
        raise ConfigError(f"cannot read the recorded times: {error}") from None
    require(bool(times), f"{path}: no times in it")
    return tuple(tuple(rows) for rows in times.values())
