"""Which optimizer goes with which method, and the identity that decides it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

import orlomo
from orlomo.errors import ConfigError
from orlomo.methods.inner import check_no_rate, check_optimizers, folds_momentum
from orlomo.methods.registry import METHODS, method_class
from orlomo.methods.worker import PlainSteps, WorkerRule

ANY = ("al-sgd", "local-sgd", "local-ormo-da", "fedbuff", "async-momentum")
FOLDING = ("orlomo", "prsgdm", "msgd")
PLAIN = ("asgd", "ormo-da")


def sgd(*groups: dict[str, Any], **settings: Any) -> SGD:
    """SGD with these groups, each with a parameter of its own."""
    return SGD([{"params": [torch.zeros(2)], **group} for group in groups or ({},)], **{"lr": 0.1, **settings})


def adamw() -> AdamW:
    return AdamW([torch.zeros(2)])


def refusal(method: orlomo.Method, *optimizers: Optimizer) -> str:
    with pytest.raises(ConfigError) as error:
        check_optimizers(method, optimizers)
    return str(error.value)


def test_every_method_is_in_the_table() -> None:
    assert sorted((*ANY, *FOLDING, *PLAIN, "delayed-nesterov")) == sorted(METHODS)
    assert [name for name in METHODS if folds_momentum(method_class(name)())] == [n for n in METHODS if n in FOLDING]


@pytest.mark.parametrize("name", ANY)
def test_methods_that_need_the_change_alone_take_any_optimizer(name: str) -> None:
    method = method_class(name)()
    check_optimizers(method, [adamw()])
    check_optimizers(method, [sgd(momentum=0.7, nesterov=True), adamw()])


@pytest.mark.parametrize("name", FOLDING)
def test_methods_that_fold_momentum_take_sgd_with_their_own(name: str) -> None:
    method = method_class(name)(momentum=0.8)
    check_optimizers(method, [sgd({"lr": 0.3}, {"weight_decay": 0.1}, momentum=0.8), sgd(momentum=0.8, foreach=True)])
    check_optimizers(method, [sgd(lr=torch.tensor(0.1), momentum=0.8)])


@pytest.mark.parametrize("name", PLAIN)
def test_methods_of_single_gradients_take_sgd_without_momentum(name: str) -> None:
    method = method_class(name)()
    check_optimizers(method, [sgd(weight_decay=0.1)])
    other = {"asgd": "al-sgd", "ormo-da": "local-ormo-da"}[name]
    assert refusal(method, adamw()) == (
        f"{name} needs SGD without momentum, not AdamW. For AdamW use {other}, with local_steps=1"
    )
    assert f"group 0 has 0.9. Or use {other}" in refusal(method, sgd(momentum=0.9))


@pytest.mark.parametrize(
    ("optimizers", "expected"),
    [
        ([adamw()], "orlomo needs SGD(momentum=0.9), not AdamW. For AdamW use local-ormo-da"),
        (
            [sgd({}, {"momentum": 0.0}, momentum=0.9)],
            "orlomo needs SGD(momentum=0.9) in every group; group 1 has 0.0. For AdamW use local-ormo-da",
        ),
        (
            [sgd(momentum=0.9), sgd({"dampening": 0.5}, momentum=0.9)],
            "orlomo needs SGD with dampening=0; group 0 of optimizer 1 has 0.5. Or use local-ormo-da",
        ),
        (
            [sgd(momentum=0.9, nesterov=True)],
            "orlomo needs SGD with nesterov=False; group 0 has True. Or use local-ormo-da",
        ),
        (
            [sgd(momentum=0.9, maximize=True)],
            "orlomo needs SGD with maximize=False; group 0 has True. Or use local-ormo-da",
        ),
        ([], "no optimizer was given: give the one that trains the model"),
        (["adam"], "optimizer must be a torch.optim.Optimizer, not a str"),
    ],
)
def test_refusals_name_the_way_out(optimizers: list[Any], expected: str) -> None:
    assert refusal(orlomo.OrLoMo(), *optimizers) == expected


def test_a_synchronous_method_names_a_synchronous_one() -> None:
    assert refusal(orlomo.PRSGDm(), adamw()) == "prsgdm needs SGD(momentum=0.9), not AdamW. For AdamW use local-sgd"


def test_a_rate_of_zero_is_refused_only_where_it_divides() -> None:
    still = sgd({"lr": 0.0}, momentum=0.9)
    check_optimizers(orlomo.OrLoMo(), [still])
    assert "prsgdm needs a learning rate above 0; group 0 has 0.0" in refusal(orlomo.PRSGDm(), still)


def test_no_momentum_to_fold_is_another_method() -> None:
    assert refusal(orlomo.OrLoMo(momentum=0), sgd()) == "orlomo with momentum=0 is al-sgd: use that"


def test_a_subclass_of_sgd_may_not_step_otherwise() -> None:
    class Named(SGD):
        """Says nothing of steps."""

    class Halved(SGD):
        def step(self, closure: Callable[[], float] | None = None) -> Any:
            return None

    check_optimizers(orlomo.OrLoMo(), [Named([torch.zeros(2)], momentum=0.9)])
    assert "not Halved, whose step is its own" in refusal(orlomo.OrLoMo(), Halved([torch.zeros(2)], momentum=0.9))


def test_a_method_with_more_than_an_optimizer_knows_is_refused() -> None:
    assert refusal(method_class("delayed-nesterov")(), adamw()) == (
        "delayed-nesterov has its own local optimizer, which keeps first_moment, second_moment, steps: "
        "use local-ormo-da"
    )

    class Near(PlainSteps):
        def step(self, gradient: Tensor) -> None:
            super().step(gradient + 0.1 * (self.params - self.assignment.params))

    class Proximal(orlomo.ALSGD):
        def worker(self, params: Tensor) -> WorkerRule:
            return Near(params)

    class Controlled(orlomo.ALSGD):
        server_vectors: ClassVar[tuple[str, ...]] = ("params", "control")
        assignment_vectors: ClassVar[tuple[str, ...]] = ("params", "control")

    @dataclass(frozen=True, kw_only=True)
    class Own(orlomo.ALSGD):
        strength: float = 1.0

    check_optimizers(Own(), [adamw()])
    assert "Proximal has local steps of its own (Near), which an optimizer" in refusal(Proximal(), adamw())
    assert "Controlled sends control, which an optimizer does not know" in refusal(Controlled(), adamw())


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("learning_rate", 0.5, "the optimizer has the learning rate: leave learning_rate out of the method"),
        ("weight_decay", 0.1, "the optimizer has the weight decay: leave weight_decay out of the method"),
        ("clip_norm", 1.0, "gradients are clipped before the optimizer's step: leave clip_norm out of the method"),
        ("schedule", "cosine:10", "the optimizer has the learning rate: leave schedule out of the method"),
        ("warmup_epochs", 1.0, "the optimizer has the learning rate: leave warmup_epochs out of the method"),
    ],
)
def test_what_the_optimizer_has_is_left_out_of_the_method(setting: str, value: Any, expected: str) -> None:
    check_no_rate(orlomo.OrLoMo(momentum=0.8, local_steps=3))
    with pytest.raises(ConfigError) as error:
        check_no_rate(orlomo.OrLoMo(**{setting: value}))
    assert str(error.value) == expected


def identity(rates: list[list[float]], decay: float, beta: float, seed: int, **settings: Any) -> float:
    """The largest error of the identity; `rates`: by step, one for each of two groups."""
    source = torch.Generator().manual_seed(seed)
    params = [torch.randn(3, dtype=torch.float64, generator=source) for _ in range(2)]
    first, total = [p.clone() for p in params], [torch.zeros_like(p) for p in params]
    groups = [{"params": [p], "lr": rate} for p, rate in zip(params, rates[0], strict=True)]
    optimizer = SGD(groups, momentum=beta, weight_decay=decay, **settings)
    for step in rates:
        for i, (p, rate) in enumerate(zip(params, step, strict=True)):
            optimizer.param_groups[i]["lr"] = rate
            p.grad = torch.randn(3, dtype=torch.float64, generator=source)
            total[i] += rate * (p.grad + decay * p)
        optimizer.step()
    errors = []
    for i, p in enumerate(params):
        moved, momentum = first[i] - p, rates[-1][i] * optimizer.state[p]["momentum_buffer"]
        errors.append((moved + beta / (1 - beta) * momentum - total[i] / (1 - beta)).abs().max())
    return float(torch.stack(errors).max())


RATE = st.floats(1e-3, 0.5)
ROUND = st.tuples(
    st.lists(RATE, min_size=2, max_size=2), st.integers(2, 12), st.floats(0, 0.1), st.floats(0.1, 0.95), st.integers()
)


@settings(max_examples=60)
@given(ROUND)
def test_the_identity_holds_for_momentum_alone_and_a_constant_rate(
    drawn: tuple[list[float], int, float, float, int],
) -> None:
    rates, steps, decay, beta, seed = drawn
    seed %= 2**32
    assert identity([rates] * steps, decay, beta, seed) < 1e-12 / (1 - beta)
    assert identity([rates] * steps, decay, beta, seed, dampening=0.5) > 1e-6
    assert identity([rates] * steps, decay, beta, seed, nesterov=True) > 1e-6
    assert identity([rates] * (steps - 1) + [[rate / 2 for rate in rates]], decay, beta, seed) > 1e-6
