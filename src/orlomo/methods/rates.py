"""Learning rates: eta, the server's weight for a late report, and the schedule of gamma, the local learning rate.

Both are given as short strings (`delay-adaptive`, `step:80,120`), so that a config file, a command line and a
Python call use the same notation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from orlomo.errors import ConfigError, require, unknown_name

GLOBAL_RATES = ("delay-adaptive", "constant")
SCHEDULES = ("constant", "step", "cosine")


def delay_adaptive(delay: int, workers: int) -> float:
    """eta_t of Theorem 1: 1/K up to a delay of 2K, 1/delay beyond.

    >>> delay_adaptive(8, workers=4), delay_adaptive(10, workers=4)
    (0.25, 0.1)
    """
    return 1.0 / workers if delay <= 2 * workers else 1.0 / delay


@lru_cache
def global_rate(spec: str) -> Callable[[int, int], float]:
    """The rule (delay, workers) -> eta for `delay-adaptive`, `constant` (1/K) or `constant:VALUE`."""
    name, _, value = spec.partition(":")
    if name == "delay-adaptive" and not value:
        return delay_adaptive
    if name == "constant":
        if not value:
            return lambda delay, workers: 1.0 / workers
        eta = number(value, "the constant global rate")
        require(eta > 0, f"the constant global rate must be above 0, not {value}")
        return lambda delay, workers: eta
    raise unknown_name("global rate", spec, GLOBAL_RATES)


@lru_cache
def schedule(spec: str, warmup_epochs: float = 0.0) -> Callable[[float], float]:
    """The rule epoch -> factor on the learning rate.

    `constant`; `step:80,120` (times 0.1 at each epoch named; `step:80,120@0.2` for another factor);
    `cosine:160` (half a cosine down to 0 at that epoch). A linear warm-up over the first epochs multiplies any of them.

    >>> drops = schedule("step:80,120")
    >>> [round(drops(epoch), 6) for epoch in (0, 79.9, 80, 130)]
    [1.0, 1.0, 0.1, 0.01]
    """
    shape = _shape(spec)
    require(warmup_epochs >= 0, f"warmup_epochs must be 0 or more, not {warmup_epochs}")
    if warmup_epochs == 0:
        return shape
    # The first round already moves: the ramp starts at one part in a hundred, not at zero.
    return lambda epoch: shape(epoch) * min(1.0, max(0.01, epoch / warmup_epochs))


def _shape(spec: str) -> Callable[[float], float]:
    name, _, text = spec.partition(":")
    if name == "constant" and not text:
        return lambda epoch: 1.0
    if name == "step":
        epochs_text, _, factor_text = text.partition("@")
        factor = number(factor_text, "the drop factor") if factor_text else 0.1
        drops = [number(part, "a drop's epoch") for part in epochs_text.split(",")]
        return lambda epoch: factor ** sum(epoch >= drop for drop in drops)
    if name == "cosine":
        end = number(text, "the cosine's last epoch")
        require(end > 0, f"the cosine's last epoch must be above 0, not {text}")
        return lambda epoch: 0.5 * (1.0 + math.cos(math.pi * min(1.0, epoch / end)))
    raise unknown_name("schedule", spec, SCHEDULES)


def last_epoch(spec: str) -> float | None:
    """The epoch from which on the factor is 0; None where there is none.

    >>> last_epoch("cosine:160"), last_epoch("step:80,120")
    (160.0, None)
    """
    name, _, text = spec.partition(":")
    return number(text, "the cosine's last epoch") if name == "cosine" else None


def check_momentum(momentum: float) -> None:
    """Raise a `ConfigError` unless this is a momentum coefficient."""
    require(0 <= momentum < 1, f"momentum must be at least 0 and below 1, not {momentum}")


def number(text: str, what: str) -> float:
    """The finite number in `text`, or an error that says what it was meant to be."""
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"{what} must be a number, not {text!r}") from None
    require(math.isfinite(value), f"{what} must be finite, not {text!r}")
    return value
