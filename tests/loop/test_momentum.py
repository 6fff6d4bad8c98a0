"""torch's SGD through an `Attached` against the worker rules of the methods, and the identity that OrLoMo needs."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import CyclicLR

import orlomo
from orlomo.errors import ConfigError
from orlomo.flat import GroupVectors
from orlomo.loop.attached import Attached
from orlomo.methods.inner import folds_momentum
from orlomo.methods.method import Method

RATE, DECAY, BETA = 0.05, 0.01, 0.9
FACTORS, DECAYS = (1.0, 0.3), (DECAY, 0.2)
"""Of the weight's group, and of the bias's."""


def made(method: Method, **more: Any) -> tuple[nn.Linear, SGD, Attached]:
    model = nn.Linear(4, 3, dtype=torch.float64)
    groups = [
        {"params": [p], "lr": RATE * factor, "weight_decay": decay}
        for p, factor, decay in zip(model.parameters(), FACTORS, DECAYS, strict=True)
    ]
    optimizer = SGD(groups, momentum=BETA if folds_momentum(method) else 0.0, **more)
    return model, optimizer, Attached(model, optimizer, method)


def per_number(values: tuple[float, float]) -> Tensor:
    return torch.tensor([values[0]] * 12 + [values[1]] * 3, dtype=torch.float64)


def gradient(params: Tensor, seed: int) -> Tensor:
    """Of a function of the parameters that is another one for each seed."""
    source = torch.Generator().manual_seed(seed)
    target = torch.randn(len(params), generator=source, dtype=torch.float64)
    return torch.tanh(params - target) + 0.1 * target


METHODS = [
    orlomo.OrLoMo(momentum=BETA, local_steps=4),
    orlomo.PRSGDm(momentum=BETA, local_steps=4),
    orlomo.LocalOrMoDA(momentum=BETA, local_steps=4),
    orlomo.ALSGD(local_steps=4),
    orlomo.LocalSGD(local_steps=4),
    orlomo.OrMoDA(momentum=BETA),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_torchs_sgd_is_the_methods_own_rule(method: Method) -> None:
    """K = 3, 30 folds in random order: the server's parameters and momentum are the same to 1e-12."""
    workers, folds, local = 3, 30, method.local_steps
    torch.manual_seed(0)
    start = torch.randn(15, dtype=torch.float64)
    ends = []
    for through_torch in (True, False):
        server = method.server(start, workers)
        crew = [made(method) for _ in range(workers)]
        held, waiting, choice, done = {}, [], random.Random(1), 0
        answers = server.start()
        while done < folds:
            for assignment in answers:
                held[assignment.worker] = assignment
                waiting.append(assignment.worker)
            number = waiting.pop(choice.randrange(len(waiting)))
            assignment = held[number]
            seeds = [1000 * number + 10 * assignment.round + n for n in range(local)]
            if through_torch:
                model, optimizer, attached = crew[number]
                attached.load(assignment.vectors, 0, 0)
                for seed in seeds:
                    full = gradient(attached.vector(), seed)
                    model.weight.grad, model.bias.grad = full[:12].view(3, 4).clone(), full[12:].clone()
                    optimizer.step()
                destination = {name: torch.full_like(start, torch.nan) for name in method.report_vectors}
                assert attached.measure(assignment.vectors, destination) == (local, RATE)
                report = orlomo.Report(number, assignment.index, vectors=destination, samples=1)
            else:
                params = start.clone()
                rule = method.worker(params)
                rule.groups = GroupVectors(per_number(FACTORS), per_number(DECAYS))
                rule.start(
                    orlomo.Assignment(number, assignment.index, assignment.round, assignment.vectors, RATE, local)
                )
                for seed in seeds:
                    rule.step(gradient(params, seed))
                report = rule.finish(samples=1)
            answers = server.receive(report)
            done += 1
        ends.append(server)
    assert (ends[0].params - start).abs().max() > 0.1
    for name, vector in ends[0].state.vectors.items():
        assert (vector - ends[1].state.vectors[name]).abs().max() < 1e-12, name


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(0, 99), st.booleans(), st.sampled_from([0.0, 0.1]))
def test_the_identity_of_a_round(steps: int, seed: int, fused: bool, decay: float) -> None:
    """Dw + beta/(1-beta) Du = sum of gamma g / (1-beta), with any number of steps and a gamma per group."""
    method = orlomo.OrLoMo(momentum=BETA)
    model, optimizer, attached = made(method, fused=fused)
    for group in optimizer.param_groups:
        group["weight_decay"] = decay
    source = torch.Generator().manual_seed(seed)
    vectors = {"params": torch.randn(15, generator=source, dtype=torch.float64)}
    for _ in range(2):  # the second begins with buffers that the first has left
        attached.load(vectors, 0, 0)
        total = torch.zeros(15, dtype=torch.float64)
        for _ in range(steps):
            g = torch.randn(15, generator=source, dtype=torch.float64)
            total += per_number(FACTORS) * RATE * (g + decay * attached.vector())
            model.weight.grad, model.bias.grad = g[:12].view(3, 4).clone(), g[12:].clone()
            optimizer.step()
        report = {name: torch.empty(15, dtype=torch.float64) for name in method.report_vectors}
        attached.measure(vectors, report)
        left = report["delta_params"] + BETA / (1 - BETA) * report["delta_momentum"]
        assert (left - total / (1 - BETA)).abs().max() < 1e-12


def test_a_parameter_without_a_gradient_reports_no_momentum() -> None:
    method = orlomo.OrLoMo(momentum=BETA)
    model, optimizer, attached = made(method)
    vectors = {"params": attached.vector()}
    attached.load(vectors, 0, 0)
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    report = {name: torch.full((15,), torch.nan, dtype=torch.float64) for name in method.report_vectors}
    attached.measure(vectors, report)
    assert report["delta_momentum"][12:].tolist() == [0, 0, 0]
    assert report["delta_params"][12:].tolist() == [0, 0, 0]


def test_a_sent_momentum_is_carried_into_the_round_and_back() -> None:
    method = orlomo.PRSGDm(momentum=BETA)
    _, _, attached = made(method)
    vectors = {"params": attached.vector(), "momentum": torch.randn(15, dtype=torch.float64)}
    kept = {name: vector.clone() for name, vector in vectors.items()}
    attached.load(vectors, 0, 0)
    report = {name: torch.full((15,), torch.nan, dtype=torch.float64) for name in method.report_vectors}
    assert attached.measure(vectors, report)[0] == 0
    assert torch.allclose(report["delta_momentum"], kept["momentum"], rtol=1e-15)
    assert all(torch.equal(vectors[name], kept[name]) for name in kept)


def test_a_learning_rate_that_changes_in_a_round_is_refused() -> None:
    _, optimizer, attached = made(orlomo.OrLoMo(momentum=BETA))
    vectors = {"params": attached.vector()}
    attached.load(vectors, 0, 0)
    optimizer.param_groups[1]["lr"] = 0.5
    report = {name: torch.empty(15, dtype=torch.float64) for name in ("delta_params", "delta_momentum")}
    with pytest.raises(ConfigError, match=r"group 1 changed within a round, from 0.015 to 0.5, but orlomo needs it"):
        attached.measure(vectors, report)


def test_a_momentum_that_a_scheduler_changes_is_refused() -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=BETA)
    cyclic = CyclicLR(optimizer, 0.1, 0.2, step_size_up=5, base_momentum=0.8, max_momentum=BETA)
    attached = Attached(model, optimizer, orlomo.OrLoMo(momentum=BETA), scheduler=cyclic)
    vectors = {"params": attached.vector()}
    attached.load(vectors, 0, 0)
    with pytest.raises(ConfigError, match=r"orlomo needs SGD\(momentum=0.9\) in every group; group 0 has 0.8"):
        attached.load(vectors, 3, 0)


def test_a_method_with_a_rate_of_its_own_is_refused() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ConfigError, match="leave learning_rate out of the method"):
        Attached(model, SGD(model.parameters(), lr=0.1), orlomo.ALSGD(learning_rate=0.2))


def test_rounds_in_bfloat16_fold_what_sgd_had() -> None:
    method = orlomo.PRSGDm(momentum=BETA)
    model = nn.Linear(4, 3, dtype=torch.bfloat16)
    optimizer = SGD(model.parameters(), lr=1e-3, momentum=BETA)
    attached = Attached(model, optimizer, method)
    vectors = {"params": attached.vector(), "momentum": torch.rand(15) * 1e-3}
    attached.load(vectors, 0, 0)
    model(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    report = {name: torch.empty(15) for name in method.report_vectors}
    attached.measure(vectors, report)
    buffer = optimizer.state[model.weight]["momentum_buffer"]
    assert buffer.dtype == torch.bfloat16
    assert torch.equal(report["delta_momentum"][:12], buffer.float().flatten() * 1e-3)
