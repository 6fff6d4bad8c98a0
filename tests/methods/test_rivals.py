"""The rivals against their rules, written down again in a few lines, under orders of arrival drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from arrivals import Drive, Received, close
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import orlomo
from orlomo.methods.messages import Assignment, WorkerState
from orlomo.methods.papers.adamw import NUMBERS, VECTORS, AdamWSteps

ORDERS = st.lists(st.integers(0, 1000), min_size=1, max_size=60)


def driven(method: orlomo.Method, workers: int, order: list[int]) -> Drive:
    drive = Drive(method, workers)
    for pick in order:
        drive.arrive(pick % workers)
    return drive


def async_momentum(w: Tensor, workers: int, received: list[Received]) -> Tensor:
    m = torch.zeros_like(w)
    for one in received:
        m = 0.8 * m + one.delta_w / workers
        w = w - 0.5 * m
    return w


def delayed_nesterov(w: Tensor, n: int, received: list[Received], c: float, beta: float, rate: float) -> Tensor:
    m, buffer = torch.zeros_like(w), torch.zeros_like(w)
    for t, one in enumerate(received, start=1):
        buffer = buffer + one.delta_w
        if t % n == 0:
            m = beta * m + buffer / n
            w = w - rate * ((1 - c * n + c) * beta * m + one.delta_w / n)
            buffer = torch.zeros_like(w)
        else:
            w = w - rate * (c * beta * m + one.delta_w / n)
    return w


def fedbuff(w: Tensor, m: int, received: list[Received], age: Callable[[Received], int]) -> Tensor:
    buffer = torch.zeros_like(w)
    for t, one in enumerate(received, start=1):
        buffer = buffer + one.delta_w / math.sqrt(1 + age(one))
        if t % m == 0:
            w, buffer = w - 0.7 * buffer / m, torch.zeros_like(w)
    return w


@settings(max_examples=60)
@given(st.integers(1, 8), ORDERS)
def test_async_momentum(workers: int, order: list[int]) -> None:
    drive = driven(orlomo.method("async-momentum", momentum=0.8, server_rate=0.5, local_steps=2), workers, order)
    assert close(drive.server.params, async_momentum(drive.initial, workers, drive.received))


@settings(max_examples=60)
@given(st.integers(1, 8), ORDERS, st.sampled_from([0.0, 0.1, 0.25]))
def test_delayed_nesterov(workers: int, order: list[int], spread: float) -> None:
    fixed = orlomo.method("delayed-nesterov", every=4, spread=spread, momentum=0.7, server_rate=0.3, local_steps=3)
    drive = driven(fixed, workers, order)
    assert close(drive.server.params, delayed_nesterov(drive.initial, 4, drive.received, spread, 0.7, 0.3))
    drive = driven(orlomo.method("delayed-nesterov", local_steps=3), workers, order)  # N is the number of workers
    assert close(drive.server.params, delayed_nesterov(drive.initial, workers, drive.received, 0.0, 0.9, 0.7))


@settings(max_examples=60)
@given(st.integers(1, 8), ORDERS, st.integers(1, 5))
def test_fedbuff(workers: int, order: list[int], every: int) -> None:
    drive = driven(orlomo.method("fedbuff", every=every, server_rate=0.7, local_steps=2), workers, order)
    assert close(drive.server.params, fedbuff(drive.initial, every, drive.received, lambda one: one.fold.delay))
    drive = driven(
        orlomo.method("fedbuff", every=every, server_rate=0.7, local_steps=2, staleness="updates"), workers, order
    )
    # Counted by hand: how often the parameters had changed when the worker was answered, and how often by now.
    version, assigned = 0, dict.fromkeys(range(workers), 0)
    ages: dict[int, int] = {}
    for t, one in enumerate(drive.received, start=1):
        ages[id(one)] = version - assigned[one.fold.worker]
        version += t % every == 0
        assigned[one.fold.worker] = version
    assert close(drive.server.params, fedbuff(drive.initial, every, drive.received, lambda one: ages[id(one)]))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_steps_are_torchs_own_across_rounds(weight_decay: float) -> None:
    """Moments and step count stay with the worker: two rounds of five steps are ten steps of torch.optim.AdamW."""
    source = torch.Generator().manual_seed(0)
    start = torch.randn(7, generator=source)
    theirs = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([theirs], lr=0.01, weight_decay=weight_decay, foreach=False)
    params, ours = torch.empty(7), start.clone()
    rule = AdamWSteps(params, weight_decay)
    rule.state = WorkerState({name: torch.zeros(7) for name in VECTORS}, dict(NUMBERS))
    for number in range(2):
        rule.start(Assignment(0, number, number, {"params": ours}, 0.01, 5))
        for _ in range(5):
            gradient = torch.randn(7, generator=source)
            theirs.grad = gradient.clone()
            optimizer.step()
            rule.step(gradient)
        ours = ours - rule.finish().delta_params
    assert torch.allclose(ours, theirs.detach(), rtol=1e-6, atol=1e-7)
    assert rule.state.numbers == {"steps": 10}
    assert torch.equal(rule.state.vectors["first_moment"], optimizer.state[theirs]["exp_avg"])


def test_wrong_settings_are_named() -> None:
    cases = {
        "async-momentum": ({"momentum": 1.5}, {"server_rate": 0.0}),
        "delayed-nesterov": ({"every": 0}, {"every": 4, "spread": 0.5}, {"momentum": -1.0}),
        "fedbuff": ({"every": 0}, {"staleness": "report"}),
    }
    for name, tables in cases.items():
        for table in tables:
            with pytest.raises(orlomo.OrlomoError, match=f"{list(table)[-1]}|did you mean"):
                orlomo.method(name, **table)
