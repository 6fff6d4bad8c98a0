"""The paper's algebra, under wild delays: closed forms, Lemmas 1 to 3, the y-invariant, the sum of delays."""

from __future__ import annotations

from math import ceil

import torch
from arrivals import Drive, close
from hypothesis import given, settings
from hypothesis import strategies as st

import orlomo

MAX_WORKERS = 12


@st.composite
def wild_arrivals(draw: st.DrawFn) -> tuple[int, list[int]]:
    """K workers and the order in which they report: uniform, one worker over and over, or a few favourites."""
    workers = draw(st.integers(1, MAX_WORKERS))
    anyone = st.integers(0, workers - 1)
    burst = st.tuples(anyone, st.integers(1, 30)).map(lambda pair: [pair[0]] * pair[1])
    pieces = draw(st.lists(st.one_of(burst, st.lists(anyone, min_size=1, max_size=20)), min_size=1, max_size=6))
    return workers, [worker for piece in pieces for worker in piece]


@st.composite
def drives(draw: st.DrawFn) -> tuple[Drive, int, float]:
    """A finished drive; the number of iterations before every worker was flushed once more; beta."""
    workers, arrivals = draw(wild_arrivals())
    beta = draw(st.sampled_from([0.0, 0.5, 0.9, 0.99]))
    method = orlomo.OrLoMo(
        learning_rate=0.1,
        momentum=beta,
        local_steps=draw(st.integers(1, 4)),
        global_rate=draw(st.sampled_from(["delay-adaptive", "constant"])),
    )
    drive = Drive(method, workers, seed=draw(st.integers(0, 1000)))
    for worker in arrivals:
        drive.arrive(worker)
    for worker in range(workers):  # so that every vector assigned by then has a next(t, k) and an eta
        drive.arrive(worker)
    return drive, len(arrivals), beta


@settings(max_examples=60)
@given(drives())
def test_ledger_is_the_papers_ite_group_delay_and_eta(made: tuple[Drive, int, float]) -> None:
    drive, _, _ = made
    count = drive.workers
    ite = [0] * count
    for t, item in enumerate(drive.received):
        fold = item.fold
        assert (fold.iteration, fold.index, fold.delay) == (t, ite[fold.worker], t - ite[fold.worker])
        assert fold.group == ceil(fold.index / count)
        assert fold.behind == ceil(t / count) - ceil(fold.index / count)
        assert fold.boundary == (t > 0 and (t - 1) % count == 0)
        if drive.method.global_rate == "delay-adaptive":
            assert fold.eta == (1 / count if fold.delay <= 2 * count else 1 / fold.delay)
        ite[fold.worker] = t + 1
    total = len(drive.received)
    assert sum(item.fold.delay for item in drive.received) + sum(total - last for last in ite) == (count - 1) * total


@settings(max_examples=60)
@given(drives())
def test_closed_form_of_w_and_u(made: tuple[Drive, int, float]) -> None:
    drive, _, beta = made
    for t, now in enumerate(drive.received):
        newest = ceil(t / drive.workers)
        u, w = torch.zeros(3, dtype=torch.float64), drive.initial.clone()
        for item in drive.received[: t + 1]:
            age = newest - item.fold.group
            u += beta**age * item.fold.eta * item.delta_u
            reach = sum(beta**power for power in range(1, age + 1))
            w -= item.fold.eta * (item.delta_w + reach * item.delta_u)
        assert close(now.momentum, u)
        assert close(now.params, w)


@settings(max_examples=60)
@given(drives())
def test_y_moves_like_plain_sgd(made: tuple[Drive, int, float]) -> None:
    drive, _, beta = made
    y = drive.initial.clone()
    for item in drive.received:
        y -= item.fold.eta / (1 - beta) * item.delta_h
        assert close(item.params - beta / (1 - beta) * item.momentum, y)


@settings(max_examples=60)
@given(drives())
def test_lemmas_1_2_3_with_the_papers_hat_variables(made: tuple[Drive, int, float]) -> None:
    drive, iterations, beta = made
    count, received = drive.workers, drive.received
    items = {(item.fold.worker, item.fold.index): item for item in received}
    worker_at = [item.fold.worker for item in received]

    def scaled(worker: int, index: int, name: str) -> torch.Tensor:
        item = items[worker, index]  # eta_hat(index, worker) is the eta with which this very item was folded
        return item.fold.eta * getattr(item, name)

    u_hat = sum((scaled(k, 0, "delta_u") for k in range(count)), torch.zeros(3, dtype=torch.float64))
    w_hat = drive.initial - sum(scaled(k, 0, "delta_w") for k in range(count))
    y_hat = drive.initial - sum(scaled(k, 0, "delta_h") for k in range(count)) / (1 - beta)
    ite = [0] * count
    for t in range(iterations):
        if t > 0:
            previous = worker_at[t - 1]
            if (t - 1) % count == 0:
                w_hat = w_hat - beta * u_hat
                u_hat = beta * u_hat
            w_hat = w_hat - scaled(previous, t, "delta_w")
            u_hat = u_hat + scaled(previous, t, "delta_u")
            y_hat = y_hat - scaled(previous, t, "delta_h") / (1 - beta)
            ite[previous] = t
        gap_u, gap_w = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
        for k in range(count):
            if k == worker_at[t]:
                continue
            age = ceil(t / count) - ceil(ite[k] / count)
            gap_u += beta**age * scaled(k, ite[k], "delta_u")
            gap_w -= scaled(k, ite[k], "delta_w")
            gap_w -= beta * (1 - beta**age) / (1 - beta) * scaled(k, ite[k], "delta_u")
        assert close(u_hat - received[t].momentum, gap_u)  # Lemma 1
        assert close(w_hat - received[t].params, gap_w)  # Lemma 2
        assert close(y_hat - w_hat, -beta / (1 - beta) * u_hat)  # Lemma 3


def test_the_papers_worked_example() -> None:
    """Figure 1: K=3, t=8, constant eta; reports arrive with the indexes 0, 0, 0, 2, 3, 5, 4, 7 and then 1."""
    beta, eta = 0.9, 1 / 3
    method = orlomo.OrLoMo(momentum=beta, local_steps=2, global_rate="constant")
    drive = Drive(method, workers=3)
    for worker in (0, 2, 1, 2, 1, 1, 2, 2, 0):
        drive.arrive(worker)
    assert [item.fold.index for item in drive.received] == [0, 0, 0, 2, 3, 5, 4, 7, 1]
    weights = {0: beta**3, 1: beta**2, 2: beta**2, 3: beta**2, 4: beta, 5: beta, 7: 1.0}
    u9 = sum(eta * weights[item.fold.index] * item.delta_u for item in drive.received)
    assert close(drive.received[-1].momentum, u9)
    last = drive.received[-1]
    reach = {0: beta + beta**2 + beta**3, 1: beta + beta**2, 2: beta + beta**2, 3: beta + beta**2, 4: beta, 5: beta}
    w9 = drive.initial - sum(
        eta * (item.delta_w + reach.get(item.fold.index, 0.0) * item.delta_u) for item in drive.received
    )
    assert close(last.params, w9)
