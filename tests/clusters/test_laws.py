"""Laws of time: their means, spreads and tails; links; presets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import orlomo
from orlomo.clusters.cluster import ComputeTimes
from orlomo.clusters.laws import law


@pytest.mark.parametrize("spec", ["fixed", "gamma:0.25", "gamma:1", "exponential", "lognormal:0.5", "stall:0.08"])
def test_every_law_has_the_mean_it_is_asked_for(spec: str) -> None:
    times = law(spec)(np.random.default_rng(0), 200_000, 3.0)
    assert times.min() >= 0
    assert times.mean() == pytest.approx(3.0, rel=0.03)


def test_spreads() -> None:
    for spec, spread in (("gamma:0.25", 0.25), ("lognormal:0.5", 0.5), ("exponential", 1.0)):
        times = law(spec)(np.random.default_rng(0), 200_000, 2.0)
        assert times.std() / times.mean() == pytest.approx(spread, rel=0.03)


def test_a_stall_is_rare_and_long() -> None:
    times = law("stall:0.08")(np.random.default_rng(0), 100_000, 10.0)
    stalled = times > 50
    assert stalled.mean() == pytest.approx(0.08, rel=0.05)
    assert times[stalled].mean() == pytest.approx(1 + 9 / 0.08, rel=0.01)


def test_times_are_a_function_of_seed_worker_and_round() -> None:
    cluster = orlomo.cluster("heterogeneous")
    first, second = ComputeTimes(cluster, 8, 4, seed=1), ComputeTimes(cluster, 8, 4, seed=1)
    forward = {(w, n): first(w, n) for w in range(8) for n in range(40)}
    backward = {(w, n): second(w, n) for n in reversed(range(40)) for w in reversed(range(8))}
    assert forward == backward
    assert forward != {(w, n): ComputeTimes(cluster, 8, 4, seed=2)(w, n) for w, n in forward}


def test_a_law_for_each_step_is_summed_over_the_round() -> None:
    speed = orlomo.Speed(law="gamma:1")
    by_step = orlomo.Cluster(speeds=(speed,), per="step")
    by_round = orlomo.Cluster(speeds=(speed,), per="round")
    steps, rounds = ComputeTimes(by_step, 1, 64, 0), ComputeTimes(by_round, 1, 64, 0)
    a, b = np.array([steps(0, n) for n in range(2000)]), np.array([rounds(0, n) for n in range(2000)])
    assert a.mean() == pytest.approx(64, rel=0.05)
    assert b.mean() == pytest.approx(64, rel=0.1)
    assert a.std() == pytest.approx(8, rel=0.1)  # 64 independent steps of spread 1
    assert b.std() == pytest.approx(64, rel=0.1)


def test_recorded_times_are_taken_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("worker,seconds\na,1.5\nb,10\na,2.5\n")
    cluster = orlomo.Cluster(speeds=(orlomo.Speed(law=f"file:{path}"),))
    times = ComputeTimes(cluster, 3, local_steps=4, seed=0)
    assert [times(0, n) for n in range(4)] == [1.5, 2.5, 1.5, 2.5]
    assert [times(1, n) for n in range(2)] == [10, 10]
    assert times(2, 0) == 1.5
    assert times(0, 17) == 2.5


@pytest.mark.parametrize(
    ("content", "text"),
    [("", "first line must name"), ("worker,seconds\n", "no times"), ("worker,seconds\na,x\n", "line 2")],
)
def test_bad_recorded_times(tmp_path: Path, content: str, text: str) -> None:
    path = tmp_path / "times.csv"
    path.write_text(content)
    with pytest.raises(orlomo.OrlomoError, match=text):
        orlomo.Speed(law=f"file:{path}")
    with pytest.raises(orlomo.OrlomoError, match="cannot read"):
        orlomo.Speed(law=f"file:{tmp_path / 'missing'}")


def test_presets() -> None:
    assert orlomo.cluster("heterogeneous").factors(16) == [1.0] * 12 + [2.0] * 4
    assert orlomo.cluster("heterogeneous:4").factors(8) == [1.0] * 6 + [4.0] * 2
    assert orlomo.cluster("slow-worker:50").factors(4) == [1.0, 1.0, 1.0, 50.0]
    assert orlomo.cluster("homogeneous").factors(3) == [1.0] * 3
    assert [sum(f > 1 for f in orlomo.cluster("heterogeneous").factors(k)) for k in (1, 2, 3, 4, 6, 8)] == [
        0,
        1,
        1,
        1,
        2,
        2,
    ]
    for bad in ("heterogeneous:0.5", "heterogeneous:x", "slow-worker", "fast"):
        with pytest.raises(orlomo.OrlomoError):
            orlomo.cluster(bad)


def test_speeds_with_counts_and_shares() -> None:
    cluster = orlomo.Cluster(
        speeds=(orlomo.Speed(share=1), orlomo.Speed(count=2, factor=5), orlomo.Speed(share=1, factor=3))
    )
    assert cluster.factors(6) == [1, 1, 5, 5, 3, 3]
    assert cluster.factors(2) == [5, 5]
