"""How fast methods are: the one definition that tables, pages, figures and sentences all use.

Time to target: the run's clock at the first evaluation that reaches the target. Nothing is interpolated: between two
evaluations nobody knows when it was reached.

Time for equal work: the run's clock when it had done as many samples as every compared run did, which is the fewest
that any of them did. Between two evaluations samples are taken to pass evenly.

Over the seeds of a method: the median, where a seed that never reaches the target counts as infinite. A speed-up is the
reference's time divided by the method's, both rounded as they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
from numpy.typing import NDArray

from orlomo.errors import ConfigError, require
from orlomo.records.tables import Columns, MetricColumn

CLOSE = 1e-9
"""A value that misses the target by no more than this share of it reaches it: 100 * 0.29 is 28.999999999999996."""


@dataclass(frozen=True)
class Curve:
    """One run's evaluations of one metric, as they are shown (a share in percent); `done`: it came to its end."""

    seconds: NDArray[np.float64]
    samples: NDArray[np.float64]
    values: NDArray[np.float64]
    done: bool = True

    @classmethod
    def of(cls, metrics: Columns, one: MetricColumn, done: bool = True) -> Curve:
        """From the columns of metrics.csv; without a value where the run does not have the metric."""
        known = metrics[one.column] if one.column in metrics else np.full(len(metrics["seconds"]), np.nan)
        return cls(metrics["seconds"], metrics["samples"].astype(float), one.scale * known, done)

    def records(self, one: MetricColumn) -> Curve:
        """The evaluations that are better than all before them: they have every time to a target."""
        sign = 1.0 if one.better == "higher" else -1.0
        signed = np.where(np.isfinite(self.values), sign * self.values, -np.inf)
        before = np.maximum.accumulate(np.concatenate([[-np.inf], signed]))[:-1]
        better = signed > before
        return Curve(self.seconds[better], self.samples[better], self.values[better], self.done)


@dataclass(frozen=True)
class Target:
    """A value of a metric, as it is shown.

    >>> accuracy = MetricColumn("test_accuracy", "test accuracy", "accuracy", "accuracy", scale=100.0)
    >>> print(Target(accuracy, 97.0))
    97%
    """

    metric: MetricColumn
    value: float

    def __str__(self) -> str:
        return f"{self.value:.10g}%" if self.metric.scale == 100 else f"{self.value:.10g}"

    def reached(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of these reach it; what is not a number does not."""
        room = CLOSE * abs(self.value)
        found: NDArray[np.bool_] = (
            values >= self.value - room if self.metric.better == "higher" else values <= self.value + room
        )
        return found


@dataclass(frozen=True)
class Speed:
    """How fast one method is over its seeds; infinite: not reached; NaN: not known.

    `reached` of `seeds` runs reached the target. The speed-ups are over the reference; NaN where either has no time.
    """

    seeds: int
    reached: int
    to_target: float
    to_target_speed_up: float
    for_work: float
    for_work_speed_up: float


@dataclass(frozen=True)
class Speeds:
    """The speeds of methods, by name, and what they are measured by; None: there is nothing that they all have."""

    target: Target | None
    work: float | None
    reference: str | None
    methods: dict[str, Speed]


def speeds(
    curves: Mapping[str, Sequence[Curve | None]],
    one: MetricColumn | None,
    target: float | None = None,
    reference: str | None = None,
) -> Speeds:
    """The speed of each method from the curves of its seeds; None stands for a run that diverged.

    `target`: in place of the default one. `reference`: the method that speed-ups are over.
    """
    value = target
    if value is None and one is not None:
        value = default_target(curves, one)
    goal = None if one is None or value is None else Target(one, value)
    work = equal_work([curve for group in curves.values() for curve in group if curve is not None])
    found: dict[str, tuple[int, float, float]] = {}
    for name, group in curves.items():
        times = [math.inf if goal is None or curve is None else time_to(curve, goal) for curve in group]
        spent = [math.inf if work is None or curve is None else time_for(curve, work) for curve in group]
        found[name] = sum(map(math.isfinite, times)), median(times), median(spent)
    reached, to_target, for_work = found.get(reference or "", (0, math.inf, math.inf))
    if reference is None or reached < len(curves[reference]):
        to_target = math.inf  # a ratio to those seeds alone that reached it would be of other runs
    methods = {}
    for name, (own_reached, own_to_target, own_for_work) in found.items():
        whole = own_reached == len(curves[name])
        methods[name] = Speed(
            seeds=len(curves[name]),
            reached=own_reached,
            to_target=math.nan if goal is None else own_to_target,
            to_target_speed_up=ratio(to_target, own_to_target if whole else math.inf),
            for_work=math.nan if work is None else own_for_work,
            for_work_speed_up=ratio(for_work, own_for_work),
        )
    return Speeds(goal, work, reference, methods)


def time_to(curve: Curve, target: Target) -> float:
    """The clock at the first evaluation that reaches the target; infinite where none does.

    >>> loss = MetricColumn("train_loss", "training loss", "loss", "loss", better="lower")
    >>> curve = Curve(np.array([0.0, 5.0, 9.0]), np.array([0.0, 64.0, 128.0]), np.array([2.0, 0.4, 0.6]))
    >>> time_to(curve, Target(loss, 0.5)), time_to(curve, Target(loss, 0.3))
    (5.0, inf)
    """
    where = np.flatnonzero(target.reached(curve.values))
    return float(curve.seconds[where[0]]) if len(where) else math.inf


def time_for(curve: Curve, samples: float) -> float:
    """The clock when so many samples were done; infinite where the run did fewer."""
    if not len(curve.samples) or curve.samples[-1] < samples:
        return math.inf
    return float(np.interp(samples, curve.samples, curve.seconds))


def equal_work(curves: Sequence[Curve]) -> float | None:
    """The fewest samples that a run did, of those that came to their end where any did; None: nothing was done."""
    known = [curve for curve in curves if len(curve.samples) and curve.samples[-1] > 0]
    chosen = [curve for curve in known if curve.done] or known
    return min((float(curve.samples[-1]) for curve in chosen), default=None)


def default_target(curves: Mapping[str, Sequence[Curve | None]], one: MetricColumn) -> float | None:
    """The strictest round value that all seeds of two methods have reached, or of the only method.

    Round: whole percents where the metric is shown in percent, else two significant digits. None where there is no such
    value that training was needed for.
    """
    sign = 1.0 if one.better == "higher" else -1.0
    bests = []
    for group in curves.values():
        reach = [_best(curve, sign) for curve in group]
        if reach and math.isfinite(min(reach)):
            bests.append(min(reach))
    if not bests:
        return None
    bound = sign * sorted(bests, reverse=True)[min(1, len(bests) - 1)]
    value = round_target(bound, one)
    target = Target(one, value)
    first = [curve for group in curves.values() for curve in group if curve is not None and len(curve.values)]
    untrained = [curve for curve in first if target.reached(curve.values[:1])[0]]
    return None if len(untrained) == len(first) else value


def _best(curve: Curve | None, sign: float) -> float:
    """The best value times `sign`; minus infinity where there is none."""
    if curve is None:
        return -math.inf
    finite = curve.values[np.isfinite(curve.values)]
    return float((sign * finite).max()) if len(finite) else -math.inf


def round_target(bound: float, one: MetricColumn) -> float:
    """The strictest round value that `bound` reaches.

    >>> accuracy = MetricColumn("test_accuracy", "test accuracy", "accuracy", "accuracy", scale=100.0)
    >>> loss = MetricColumn("train_loss", "training loss", "loss", "loss", better="lower")
    >>> round_target(97.8, accuracy), round_target(0.03412, loss)
    (97.0, 0.035)
    """
    exact = Decimal(f"{bound:.10g}")  # 28.999999999999996 is 29
    step = Decimal(1) if one.scale == 100 or not exact else Decimal(1).scaleb(exact.adjusted() - 1)
    return float((exact / step).to_integral_value(ROUND_FLOOR if one.better == "higher" else ROUND_CEILING) * step)


def given_target(text: str, one: MetricColumn) -> float:
    """A target as a user types it: `97` or `97%` for a metric that is shown in percent, else a number."""
    percent = one.scale == 100
    require(percent or not text.rstrip().endswith("%"), f"--target {text}: {one.label} is not in percent")
    try:
        value = float(text.rstrip().removesuffix("%"))
    except ValueError:
        raise ConfigError(f"--target must be a number such as {'97%' if percent else '0.1'}, not {text!r}") from None
    require(math.isfinite(value), f"--target must be a number, not {text}")
    if percent and 0 < abs(value) < 1 and not text.rstrip().endswith("%"):
        raise ConfigError(f"--target {text}: {one.label} is shown in percent: write {100 * value:.10g} or {text}%")
    return value


def median(values: Sequence[float]) -> float:
    """The median, infinite where half of them or more are; NaN of none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2


def ratio(reference: float, seconds: float) -> float:
    """The speed-up, of the two times as they are shown; NaN where either is not known."""
    above, below = shown(reference), shown(seconds)
    return above / below if math.isfinite(above) and math.isfinite(below) and below > 0 else math.nan


def shown(seconds: float) -> float:
    """Seconds, rounded as they are shown: three digits, or all digits before the point."""
    if not math.isfinite(seconds) or seconds == 0:
        return seconds
    return round(seconds, max(0, 2 - math.floor(math.log10(abs(seconds)))))


def time_text(seconds: float) -> str:
    """Seconds for display.

    >>> time_text(1276.4), time_text(53.52), time_text(float("inf")), time_text(float("nan"))
    ('1,276', '53.5', 'not reached', '-')
    """
    if math.isnan(seconds):
        return "-"
    if math.isinf(seconds):
        return "not reached"
    rounded = shown(seconds)
    return f"{rounded:,.0f}" if abs(rounded) >= 100 or rounded == 0 else f"{rounded:.3g}"


def ratio_text(value: float) -> str:
    """A speed-up for display.

    >>> ratio_text(2.385), ratio_text(12.34), ratio_text(float("nan"))
    ('2.38x', '12.3x', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:.2f}x" if value < 10 else f"{value:.1f}x" if value < 100 else f"{value:,.0f}x"
