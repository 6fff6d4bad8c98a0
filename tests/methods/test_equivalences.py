"""Methods that must coincide: with one another, and with torch's own optimizer."""

from __future__ import annotations

import pytest
import torch
from arrivals import Drive, close
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lemmas import wild_arrivals

import orlomo


def same_history(a: orlomo.Method, b: orlomo.Method, workers: int, arrivals: list[int]) -> None:
    first, second = Drive(a, workers), Drive(b, workers)
    for worker in arrivals:
        one, two = first.arrive(worker), second.arrive(worker)
        assert one.fold == two.fold
        assert close(one.params, two.params)
        assert close(one.momentum, two.momentum) or b.name in ("al-sgd", "asgd")


@settings(max_examples=40)
@given(wild_arrivals(), st.sampled_from([0.5, 0.9]))
def test_one_local_step_is_ormo_da(made: tuple[int, list[int]], beta: float) -> None:
    same_history(orlomo.OrLoMo(local_steps=1, momentum=beta), orlomo.OrMoDA(momentum=beta), *made)
    same_history(orlomo.LocalOrMoDA(local_steps=1, momentum=beta), orlomo.OrMoDA(momentum=beta), *made)


@settings(max_examples=40)
@given(wild_arrivals(), st.integers(1, 4))
def test_no_momentum_is_al_sgd(made: tuple[int, list[int]], local_steps: int) -> None:
    same_history(orlomo.OrLoMo(local_steps=local_steps, momentum=0.0), orlomo.ALSGD(local_steps=local_steps), *made)
    same_history(
        orlomo.LocalOrMoDA(local_steps=local_steps, momentum=0.0), orlomo.ALSGD(local_steps=local_steps), *made
    )


@settings(max_examples=20)
@given(wild_arrivals())
def test_one_plain_step_is_asgd(made: tuple[int, list[int]]) -> None:
    same_history(orlomo.ALSGD(local_steps=1), orlomo.ASGD(), *made)


@pytest.mark.parametrize("method", [orlomo.PRSGDm(local_steps=4), orlomo.MSGD(local_steps=4)])
def test_one_synchronous_worker_is_torchs_momentum_sgd(method: orlomo.Method) -> None:
    drive = Drive(method, workers=1, seed=3)
    w = torch.nn.Parameter(drive.initial.clone())
    optimizer = torch.optim.SGD([w], lr=method.learning_rate, momentum=0.9)
    twin = torch.Generator().manual_seed(3)
    torch.randn(3, dtype=torch.float64, generator=twin)  # the initial parameters
    for _ in range(6):
        for _ in range(method.local_steps):
            w.grad = torch.randn(3, dtype=torch.float64, generator=twin)
            optimizer.step()
        assert close(drive.arrive(0).params, w.detach())


def test_prsgdm_averages_parameters_and_momentum_and_resets_neither() -> None:
    drive = Drive(orlomo.PRSGDm(local_steps=3, momentum=0.5), workers=2)
    first = [drive.arrive(0), drive.arrive(1)]
    assert close(drive.server.params, drive.initial - (first[0].delta_w + first[1].delta_w) / 2)
    mean = (first[0].delta_u + first[1].delta_u) / 2
    assert close(drive.server.momentum, mean)
    assert close(drive.held[0].momentum, mean)
    assert close(drive.held[1].momentum, mean)


def test_local_sgd_is_prsgdm_without_momentum() -> None:
    arrivals = [0, 1, 2, 2, 0, 1, 1, 2, 0]
    first, second = Drive(orlomo.LocalSGD(local_steps=3), 3), Drive(orlomo.PRSGDm(local_steps=3, momentum=0.0), 3)
    for worker in arrivals:
        assert close(first.arrive(worker).params, second.arrive(worker).params)


def test_weight_decay_is_l2_in_the_gradient_and_clipping_comes_first() -> None:
    method = orlomo.MSGD(local_steps=1, learning_rate=0.1, weight_decay=0.01, clip_norm=1.0)
    params = torch.empty(2, dtype=torch.float64)
    rule = method.worker(params)
    start = torch.tensor([10.0, -10.0], dtype=torch.float64)
    rule.start(orlomo.Assignment(0, 0, 0, {"params": start}, 0.1, 1))
    rule.step(torch.tensor([30.0, 40.0], dtype=torch.float64))
    expected = start - 0.1 * (torch.tensor([0.6, 0.8], dtype=torch.float64) + 0.01 * start)
    assert torch.allclose(params, expected, atol=1e-6)
