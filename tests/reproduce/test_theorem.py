"""Theorem 1: weights by hand, the limit on gamma, what sigma is, and measured values below the bound."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import orlomo
from orlomo.reproduce import theorem, theorem_run
from orlomo.reproduce.theorem import Case, Facts

SLOW = orlomo.Cluster(speeds=(orlomo.Speed(law="fixed"), orlomo.Speed(count=1, factor=9, law="fixed")))
"""Worker 0 reports at 1, 2, 3 ..., worker 1 at 9, 18 ... and before worker 0 at equal times."""


def by_definition(schedule: orlomo.Schedule, workers: int, iterations: int) -> list[float]:
    """eta-hat_{t,k} = eta_{next(t,k)}, next(t,k) = min{j >= t: k_j = k}, in the paper's words."""
    k, eta = schedule["worker"].tolist(), schedule["eta"].tolist()

    def eta_hat(t: int, worker: int) -> float:
        return float(eta[next(j for j in range(t, len(k)) if k[j] == worker)])

    return [sum(eta_hat(0, worker) for worker in range(workers))] + [eta_hat(t, k[t - 1]) for t in range(1, iterations)]


@pytest.mark.parametrize(
    ("iterations", "expected"),
    [
        (5, [0.5 + 1 / 8, *[0.5] * 4]),  # worker 1 reports w_0 at t=8, after the end, 8 late: eta is 1/8
        (9, [0.5 + 1 / 8, *[0.5] * 8]),  # now that is the last report; w_8 is worker 0's, reported after the end
        (10, [0.5 + 1 / 8, *[0.5] * 8, 1 / 9]),  # w_9 is worker 1's, reported at t=18
    ],
)
def test_weights_by_hand(iterations: int, expected: list[float]) -> None:
    schedule = theorem_run.settled_trace(orlomo.OrLoMo(local_steps=1), SLOW, 2, iterations)
    assert theorem_run.weights(schedule, iterations).tolist() == expected
    assert theorem_run.largest_delay(schedule, iterations) == (0 if iterations == 5 else 8)


@pytest.mark.parametrize("law", [law for law in theorem_run.LAWS if law.covered], ids=lambda law: law.name)
def test_weights_are_those_of_the_definition(law: theorem_run.Law) -> None:
    workers, iterations = 5, 60
    schedule = theorem_run.settled_trace(orlomo.OrLoMo(), law.cluster(workers, 16, iterations), workers, iterations)
    found = theorem_run.weights(schedule, iterations)
    assert found == pytest.approx(by_definition(schedule, workers, iterations), rel=1e-12)
    assert found.sum() >= iterations / (2 * workers)  # the proof's last step


def test_a_lost_round_has_no_weight() -> None:
    faults = (orlomo.Fault(time=3.5, worker=1, kind="crash"), orlomo.Fault(time=5.5, worker=1, kind="return"))
    cluster = orlomo.Cluster(speeds=SLOW.speeds, faults=faults)
    schedule = theorem_run.settled_trace(orlomo.OrLoMo(local_steps=1), cluster, 2, 5)
    # Alone, worker 0 has eta 1; its report of w_3 comes at 4. Worker 1 is sent w_5, which is not in the mean.
    assert theorem_run.weights(schedule, 5).tolist() == [0.5, 0.5, 0.5, 1.0, 1.0]


def test_the_facts_are_true_and_sigma_is_that_of_a_step() -> None:
    known = theorem_run.checked_facts()
    errors, start = theorem_run.task_vectors()
    batches = errors[torch.randint(len(errors), (40_000, 4), generator=torch.Generator().manual_seed(0))].mean(dim=1)
    variance = float(batches.square().sum(dim=1).mean())
    facts = theorem.facts_of(Case(batch_size=4))
    assert facts.deviation == known["sigma"] / 2
    assert variance == pytest.approx(facts.deviation**2, rel=0.02)
    assert facts.gap == pytest.approx(float((start**2 / (1 + start**2)).sum()), rel=1e-6)


def test_the_bound_and_the_remarks_gamma_by_hand() -> None:
    case = Case(workers=4, local_steps=2, iterations=100, momentum=0.5)
    facts = Facts(smoothness=2.0, deviation=3.0, gap=5.0)
    found = theorem.bound_terms(case, facts, 0.001)
    assert found["descent_term"] == pytest.approx(4 * 4 * 0.5 * 5 / (0.001 * 2 * 100))
    assert found["noise_term"] == pytest.approx(4 * 0.001 * 2 * 9 / (4 * 0.25))
    assert found["drift_term"] == pytest.approx(1e-6 * 4 * 1 * 9 / 0.25)
    assert theorem.remark_rate(case, facts) == theorem.largest_rate(case, facts) == 0.25 / 64
    longer = Case(workers=4, local_steps=2, iterations=10**7, momentum=0.5)
    assert theorem.remark_rate(longer, facts) == pytest.approx(4 * 0.5**1.5 * 5**0.5 / ((2 * 2 * 10**7) ** 0.5 * 3))
    loud = Facts(smoothness=2.0, deviation=3.0, gap=1e4)
    drift = 0.5 * (16 * 1e4) ** (1 / 3) / ((2 * 10**9) ** (1 / 3) * 6 ** (2 / 3))
    noisy = Case(workers=4, local_steps=2, iterations=10**9, momentum=0.5)
    assert theorem.remark_rate(noisy, loud) == pytest.approx(min(drift, 4 * 0.5**1.5 * 100 / (4e9**0.5 * 3)))
    assert theorem.remark_rate(Case(local_steps=1), facts) > 0


def test_a_learning_rate_beyond_the_limit_is_an_error() -> None:
    limit = theorem.largest_rate(Case(), theorem.facts_of(Case()))
    for rate in (limit * 1.001, 0.0):
        with pytest.raises(orlomo.OrlomoError, match="Theorem 1 needs"):
            theorem.measure([Case(learning_rates={"mine": rate})])
    with pytest.raises(orlomo.OrlomoError, match="seeds"):
        theorem.measure(seeds=1)


def test_side_by_side_is_one_by_one() -> None:
    """Seeds and gammas in one vector give what the library's server gives for each alone."""
    case = Case(workers=3, local_steps=2, iterations=20, momentum=0.9, batch_size=2)
    schedule = theorem_run.settled_trace(orlomo.OrLoMo(local_steps=2), orlomo.cluster("slow-worker:5"), 3, 20)
    together = theorem_run.squared_norms(case, schedule, [0.01, 0.002], seeds=2)
    alone = theorem_run.squared_norms(case, schedule, [0.002], seeds=1)
    assert torch.allclose(together[:, 1, :1], alone[:, 0], rtol=1e-12)

    errors, start = theorem_run.task_vectors()
    server = orlomo.OrLoMo(learning_rate=0.002, momentum=0.9, local_steps=2).server(start, workers=3)
    chosen = orlomo.seeds.generator(0, "theorem").integers(0, len(errors), (20, 2, 2), dtype=np.int32)
    held = {assignment.worker: assignment for assignment in server.start()}
    for t, worker in enumerate(schedule["worker"][:20].tolist()):
        norm = (2 * server.params / (1 + server.params**2) ** 2).square().sum()
        assert float(norm) == pytest.approx(float(alone[t, 0, 0]), rel=1e-12)
        given = held.pop(worker)
        w, u = given.params.clone(), torch.zeros_like(given.params)
        for indices in chosen[t]:
            u = 0.9 * u + 0.002 * (2 * w / (1 + w**2) ** 2 + errors[indices.tolist()].mean(dim=0))
            w = w - u
        [held[worker]] = server.receive(orlomo.Report(worker, given.index, given.params - w, u))


def test_measured_values_are_below_the_bound() -> None:
    cases = [
        Case(workers=4, local_steps=4, iterations=500, momentum=0.5),
        Case(workers=3, local_steps=1, iterations=500, momentum=0.0, batch_size=4),
    ]
    rows = theorem.measure(cases, seeds=3)
    assert {row.law for row in rows} == {law.name for law in theorem_run.LAWS}
    for row in rows:
        assert 0 < row.measured + 3 * row.standard_error <= row.bound, row
    assert max(row.max_delay for row in rows) > 400
    text = theorem.theorem_table(rows)
    assert len(text.splitlines()) == 2 + len(rows)
    assert len({line.count("|") for line in text.splitlines()}) == 1
