"""Theorem 1 put to the test: the weighted mean of squared gradient norms against its bound, under wild delays.

Chang-Wei Shi, Shi-Shang Wang, Wu-Jun Li. Ordered Local Momentum for Asynchronous Distributed Learning under Arbitrary
Delays. AAAI 2026, Theorem 1 and the remarks after it: with 16 L S gamma <= (1-beta)^2 and the delay-adaptive eta,

    E|grad F(w-bar_T)|^2 <= 4 K (1-beta) (F(w_0) - F*) / (gamma S T)        `descent_term`
                          + 4 gamma L sigma^2 / (K (1-beta)^2)              `noise_term`
                          + gamma^2 L^2 (S-1) sigma^2 / (1-beta)^2          `drift_term`

Symbols -> fields: K -> `workers`, S -> `local_steps`, T -> `iterations`, beta -> `momentum`, gamma -> `learning_rate`,
L -> `smoothness`, sigma -> `deviation`, F(w_0) - F* -> `gap`, the left side -> `measured`.

sigma is the standard deviation of the gradient that one step takes. The task's fact is that of one sample; the mean of
a batch drawn with replacement has sigma / sqrt(batch_size). All seeds of a row share one schedule: the theorem holds
for any, and only the gradients are random in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from orlomo.errors import require
from orlomo.methods.papers.orlomo import OrLoMo
from orlomo.report.summary import markdown
from orlomo.reproduce.theorem_run import (
    LAWS,
    Case,
    Law,
    checked_facts,
    largest_delay,
    settled_trace,
    squared_norms,
    weights,
)

CASES = (
    Case(),
    Case(momentum=0.9),
    # so long that the remark's gamma is below the limit
    Case(workers=2, local_steps=2, iterations=11_000, momentum=0.25),
)


@dataclass(frozen=True)
class Facts:
    """What the theorem needs to know of the function and of one step's gradient."""

    smoothness: float
    deviation: float
    gap: float


@dataclass(frozen=True, kw_only=True)
class TheoremRow:
    """The theorem's left side, as a mean over seeds with its standard error, beside the right side."""

    law: str
    covered: bool  # whether the theorem holds for this law
    workers: int
    local_steps: int
    iterations: int
    momentum: float
    batch_size: int
    seeds: int
    max_delay: int
    rate_name: str
    learning_rate: float
    measured: float
    standard_error: float
    descent_term: float
    noise_term: float
    drift_term: float

    @property
    def bound(self) -> float:
        """The theorem's right side."""
        return self.descent_term + self.noise_term + self.drift_term

    @property
    def ratio(self) -> float:
        """Measured over bound: below 1 where the theorem holds."""
        return self.measured / self.bound


def measure(
    cases: Sequence[Case] = CASES, laws: Sequence[Law] = LAWS, seeds: int = 8, schedule_seed: int = 0
) -> list[TheoremRow]:
    """One row per case, law of delays and gamma.

    >>> rows = measure([Case(workers=2, local_steps=2, iterations=50)], LAWS[:1], seeds=2)
    >>> all(row.measured <= row.bound for row in rows)
    True
    """
    require(seeds >= 2, f"seeds must be at least 2, for a standard error, not {seeds}")
    chosen = [(case, _rates(case)) for case in cases]  # all are checked before anything is computed
    return [row for case, rates in chosen for law in laws for row in _rows(case, rates, law, seeds, schedule_seed)]


def facts_of(case: Case) -> Facts:
    """The constants of the task, for this case's batches."""
    require(case.batch_size >= 1, f"batch_size must be at least 1, not {case.batch_size}")
    known = checked_facts()
    return Facts(known["L"], known["sigma"] / math.sqrt(case.batch_size), known["initial"] - known["minimum"])


def bound_terms(case: Case, facts: Facts, rate: float) -> dict[str, float]:
    """The right side of Theorem 1, term by term."""
    k, s, t, slack = case.workers, case.local_steps, case.iterations, 1 - case.momentum
    variance = facts.deviation**2
    return {
        "descent_term": 4 * k * slack * facts.gap / (rate * s * t),
        "noise_term": 4 * rate * facts.smoothness * variance / (k * slack**2),
        "drift_term": rate**2 * facts.smoothness**2 * (s - 1) * variance / slack**2,
    }


def largest_rate(case: Case, facts: Facts) -> float:
    """The largest gamma with 16 L S gamma <= (1-beta)^2."""
    return (1 - case.momentum) ** 2 / (16 * facts.smoothness * case.local_steps)


def remark_rate(case: Case, facts: Facts) -> float:
    """The gamma of the remark on the rate of convergence: the least of three."""
    k, s, t, slack = case.workers, case.local_steps, case.iterations, 1 - case.momentum
    smooth, sigma, gap = facts.smoothness, facts.deviation, facts.gap
    against_noise = k * slack * math.sqrt(slack * gap) / (math.sqrt(smooth * s * t) * sigma)
    against_drift: float = math.inf  # one local step does not drift
    if s > 1:
        against_drift = slack * math.cbrt(4 * k * gap / (s * (s - 1) * t * (smooth * sigma) ** 2))
    return min(largest_rate(case, facts), against_noise, against_drift)


def usual_rates(case: Case, facts: Facts) -> dict[str, float]:
    """The largest gamma, its half and its tenth, and the remark's where that differs."""
    largest, remark = largest_rate(case, facts), remark_rate(case, facts)
    if remark == largest:
        return {"largest, remark's": largest, "half": largest / 2, "tenth": largest / 10}
    return {"largest": largest, "remark's": remark, "half": largest / 2, "tenth": largest / 10}


HEADINGS = ["K", "S", "T", "beta", "delays", "largest delay", "gamma", "measured", "bound"]
HEADINGS += ["descent", "noise", "drift", "ratio"]  # the bound's terms, and measured over bound


def theorem_table(rows: Sequence[TheoremRow]) -> str:
    """The rows as a table."""
    return markdown(HEADINGS, map(_cells, rows), words=("delays", "gamma"))


def _cells(row: TheoremRow) -> tuple[str, ...]:
    law = row.law if row.covered else f"{row.law} (beyond the theorem)"
    return (
        f"{row.workers}",
        f"{row.local_steps}",
        f"{row.iterations:,}",
        f"{row.momentum:g}",
        law,
        f"{row.max_delay:,}",
        f"{row.learning_rate:.3g} ({row.rate_name})",
        f"{row.measured:.4f} ± {row.standard_error:.4f}",
        f"{row.bound:.4f}",
        f"{row.descent_term:.4f}",
        f"{row.noise_term:.4f}",
        f"{row.drift_term:.4f}",
        f"{row.ratio:.3f}",
    )


def _rates(case: Case) -> Mapping[str, float]:
    facts = facts_of(case)
    rates = usual_rates(case, facts) if case.learning_rates is None else case.learning_rates
    limit = largest_rate(case, facts)
    for name, rate in rates.items():
        allowed = 0 < rate <= limit * (1 + 1e-12)  # a file may have the limit itself, rounded
        require(allowed, f"learning rate {name!r}: Theorem 1 needs it above 0 and at most {limit:.6g}, not {rate:.6g}")
    return rates


def _rows(case: Case, rates: Mapping[str, float], law: Law, seeds: int, schedule_seed: int) -> list[TheoremRow]:
    facts = facts_of(case)
    k, s, t = case.workers, case.local_steps, case.iterations
    schedule = settled_trace(OrLoMo(local_steps=s), law.cluster(k, s, t), k, t, schedule_seed)
    weight = torch.from_numpy(weights(schedule, t))
    # All gammas at once, on one schedule and with the same samples: their rows differ by gamma alone.
    norms = squared_norms(case, schedule, list(rates.values()), seeds)
    means = torch.einsum("t,tgs->gs", weight, norms) / weight.sum()  # for each gamma and seed
    return [
        TheoremRow(
            law=law.name,
            covered=law.covered,
            workers=k,
            local_steps=s,
            iterations=t,
            momentum=case.momentum,
            batch_size=case.batch_size,
            seeds=seeds,
            max_delay=largest_delay(schedule, t),
            rate_name=name,
            learning_rate=rate,
            measured=float(values.mean()),
            standard_error=float(values.std()) / math.sqrt(seeds),  # std is the unbiased one
            **bound_terms(case, facts, rate),
        )
        for (name, rate), values in zip(rates.items(), means, strict=True)
    ]
