"""Learning rates: eta, the server's weight for a late report, and the schedule of gamma, the local learning rate.

Both are given as short strings (`delay-adaptive`, `step:80,120`), so that a config file, a command line and a
Python call use the same notation.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from orlomo.errors import ConfigError, require, require_at_most, shown, unknown_name
from orlomo.loading import absolute, load_attribute

GLOBAL_RATES = ("delay-adaptive", "constant")
SCHEDULES = ("constant", "step", "cosine")

Factor: TypeAlias = Callable[[float], float]
"""epoch -> factor on the learning rate."""

LARGEST = 1e15
"""The largest global rate, server's rate, weight decay and factor of a schedule: with 32 bits for a number, products of
two of them are still numbers."""

LARGEST_LEARNING_RATE = 1e30
"""The same for a learning rate, which is also divided by small numbers."""

MOST_DROPS = 1000
"""In a schedule: each step of a run goes through all of them."""

ScheduleSpec: TypeAlias = str | Factor
"""A schedule as a user gives it."""

_loaded: dict[str, Callable[[float], object]] = {}
"""The users' functions by their import paths, as the newest method that named them found them."""


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
        require(eta > 0, f"the constant global rate must be above 0, not {shown(value)}")
        require_at_most(eta, LARGEST, "the constant global rate")
        return lambda delay, workers: eta
    raise unknown_name("global rate", spec, GLOBAL_RATES)


def schedule(spec: ScheduleSpec, warmup_epochs: float = 0.0) -> Factor:
    """The rule epoch -> factor on the learning rate.

    A function of the epoch, or `FILE.py:NAME` of one;
    `constant`; `step:80,120` (times 0.1 at each epoch named; `step:80,120@0.2` for another factor);
    `cosine:160` (half a cosine down to 0 at that epoch). A linear warm-up over the first epochs multiplies any of them.

    >>> drops = schedule("step:80,120")
    >>> [round(drops(epoch), 6) for epoch in (0, 79.9, 80, 130)]
    [1.0, 1.0, 0.1, 0.01]
    """
    if isinstance(spec, str) and not is_own(spec):
        return _built_in(spec, warmup_epochs)
    return _warmed_up(_own(spec), warmup_epochs)


@lru_cache
def _built_in(spec: str, warmup_epochs: float) -> Factor:
    return _warmed_up(_shape(spec), warmup_epochs)


def _warmed_up(shape: Factor, warmup_epochs: float) -> Factor:
    require(0 <= warmup_epochs < math.inf, f"warmup_epochs must be 0 or more, and finite, not {warmup_epochs}")
    if warmup_epochs == 0:
        return shape
    # The first round already moves: the ramp starts at one part in a hundred, not at zero.
    return lambda epoch: shape(epoch) * min(1.0, max(0.01, epoch / warmup_epochs))


def is_own(spec: ScheduleSpec) -> bool:
    """Whether a schedule is not built in: a function, or `FILE.py:NAME` or `package.module:NAME` of one.

    >>> is_own("decay.py:halved"), is_own("step:80,120")
    (True, False)
    """
    if not isinstance(spec, str):
        return True
    where, _, name = spec.rpartition(":")
    return bool(where) and name.isidentifier() and spec.partition(":")[0] not in SCHEDULES


def resolve(spec: ScheduleSpec) -> ScheduleSpec:
    """The schedule as a method keeps it: a file by its whole path, and what it holds now is what is used from here on.

    Anything that is no schedule is an error.
    """
    if isinstance(spec, str) and is_own(spec):
        spec = absolute(spec)
        _loaded[spec] = _function(load_attribute(spec, "schedule"), spec)
    elif not isinstance(spec, str):
        _function(spec, None)
    return spec


def check(spec: ScheduleSpec, epochs: float) -> None:
    """Raise a `ConfigError` where a schedule of the user's own gives no factor, or two for one epoch."""
    if not is_own(spec):
        return
    factor = _own(spec)
    for epoch in (epochs * part / 100 for part in range(101)):
        first, second = factor(epoch), factor(epoch)
        why = f"the schedule {_name(spec)} gives {shown(first)} and then {shown(second)} for epoch {epoch:g}"
        require(first == second, f"{why}: it must depend on the epoch alone")


def _function(found: object, spec: str | None) -> Callable[[float], object]:
    what = "schedule" if spec is None else spec
    wanted = "a function of the epoch, a text such as 'cosine:160', or 'FILE.py:NAME' of a function"
    require(callable(found) and not isinstance(found, type), f"{what} must be {wanted}, not {shown(found)}")
    assert callable(found)
    try:
        inspect.signature(found).bind(0.0)
    except TypeError as error:
        raise ConfigError(f"the schedule {_name(spec or found)} must take the epoch alone: {error}") from None
    except ValueError:  # some built-in functions do not tell
        pass
    return found


def _own(spec: ScheduleSpec) -> Factor:
    """The user's function, what it gives checked."""
    function: Callable[[float], object] = spec if callable(spec) else _loaded.get(spec) or _function_of(spec)

    def factor(epoch: float) -> float:
        found = function(epoch)
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # a tensor of several numbers
            value = float(found) if hasattr(found, "__float__") and not isinstance(found, bool) else math.nan
            if 0 <= value < math.inf:
                return value
        wanted = "it must give a finite number of 0 or more"
        raise ConfigError(f"the schedule {_name(spec)} gives {shown(found)} for epoch {epoch:g}: {wanted}")

    return factor


def _function_of(spec: str) -> Callable[[float], object]:
    resolve(spec)  # in a process that was sent the method
    return _loaded[absolute(spec)]


def _name(spec: object) -> str:
    return spec if isinstance(spec, str) else getattr(spec, "__name__", repr(spec))


def _shape(spec: str) -> Factor:
    name, _, text = spec.partition(":")
    if name == "constant" and not text:
        return lambda epoch: 1.0
    if name == "step":
        epochs_text, _, factor_text = text.partition("@")
        factor = number(factor_text, "the drop factor") if factor_text else 0.1
        drops = [number(part, "a drop's epoch") for part in epochs_text.split(",")]
        require_at_most(len(drops), MOST_DROPS, "the number of drops in a schedule")
        require(factor > 0, f"the drop factor must be above 0, not {shown(factor_text)}")
        require_at_most(factor, LARGEST ** (1 / len(drops)), "the drop factor")  # or the last would be no number at all
        require(min(drops) > 0, f"a drop's epoch must be above 0, not {min(drops):g}: {shown(spec)}")
        rising = all(first < second for first, second in pairwise(drops))
        require(rising, f"the epochs of drops must rise, as in step:80,120, not {shown(spec)}")
        return lambda epoch: factor ** sum(epoch >= drop for drop in drops)
    if name == "cosine":
        end = number(text, "the cosine's last epoch")
        require(end > 0, f"the cosine's last epoch must be above 0, not {shown(text)}")
        return lambda epoch: 0.5 * (1.0 + math.cos(math.pi * min(1.0, epoch / end)))
    raise unknown_name("schedule", spec, SCHEDULES)


def last_epoch(spec: ScheduleSpec) -> float | None:
    """The epoch from which on the factor is 0; None where there is none.

    >>> last_epoch("cosine:160"), last_epoch("step:80,120")
    (160.0, None)
    """
    if is_own(spec):
        return None
    name, _, text = str(spec).partition(":")
    return number(text, "the cosine's last epoch") if name == "cosine" else None


def check_momentum(momentum: float) -> None:
    """Raise a `ConfigError` unless this is a momentum coefficient."""
    require(0 <= momentum < 1, f"momentum must be at least 0 and below 1, not {momentum}")


def check_server_rate(rate: float) -> None:
    """Raise a `ConfigError` unless this is a rate of the server."""
    require(0 < rate < math.inf, f"server_rate must be above 0, not {rate}")
    require_at_most(rate, LARGEST, "server_rate")


def number(text: str, what: str) -> float:
    """The finite number in `text`, or an error that says what it was meant to be."""
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"{what} must be a number, not {shown(text)}") from None
    require(math.isfinite(value), f"{what} must be finite, not {shown(text)}")
    return value
