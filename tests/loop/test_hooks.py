"""Steps seen = steps made, whatever wraps, compiles, skips or interrupts them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from orlomo.errors import ConfigError
from orlomo.loop.hooks import CountedSteps, unwrapped


class Doubled(SGD):
    """Its step is its parent's and something more."""

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.add_(1.0)
        return result


class Lookahead(Optimizer):
    """A wrapper that is an optimizer itself, and calls another's step."""

    def __init__(self, inner: Optimizer):
        self.optimizer = inner
        super().__init__(inner.param_groups, {})

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


class Plain:
    """A wrapper that is no optimizer."""

    def __init__(self, inner: object, name: str):
        setattr(self, name, inner)


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


@pytest.fixture
def compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def backward(weight: torch.Tensor, factor: float = 1.0) -> None:
    weight.grad = torch.full_like(weight, factor)


def test_a_step_within_a_step_is_one_and_the_outer_ends_it(weight: torch.Tensor) -> None:
    SGD([weight], lr=0.1)  # from now on torch hooks SGD's own step, too
    optimizer = Doubled([weight], lr=0.1)
    seen = []
    counted = CountedSteps(optimizer, lambda: seen.append(weight.detach().clone()))
    for _ in range(3):
        backward(weight)
        optimizer.step()
    assert counted.steps == 3
    assert [round(float(value[0]), 4) for value in seen] == [1.9, 2.8, 3.7]


def test_an_optimizer_that_calls_another_makes_one_step(weight: torch.Tensor) -> None:
    outer = Lookahead(SGD([weight], lr=0.1))
    counted = CountedSteps(outer, lambda: None)
    backward(weight)
    outer.step()
    outer.step()
    assert counted.steps == 2
    assert counted.optimizer is outer.optimizer


@pytest.mark.parametrize("kind", [SGD, Doubled])
def test_a_step_that_raises_is_none_and_the_next_is_seen(weight: torch.Tensor, kind: type[SGD]) -> None:
    optimizer = kind([weight], lr=0.1)
    counted = CountedSteps(optimizer, lambda: None)

    def fails() -> float:
        raise MemoryError

    for _ in range(2):
        with pytest.raises(MemoryError):
            optimizer.step(fails)
        backward(weight)
        optimizer.step()
        optimizer.step()
    assert counted.steps == 4


def test_an_error_of_the_callback_does_not_disturb_the_count(weight: torch.Tensor) -> None:
    def ends() -> None:
        raise KeyboardInterrupt

    optimizer = SGD([weight], lr=0.1)
    counted = CountedSteps(optimizer, ends)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            optimizer.step()
    assert counted.steps == 2


@pytest.mark.parametrize("make", [lambda p: AdamW(p, fused=True), lambda p: AdamW(p), lambda p: SGD(p, fused=True)])
def test_a_step_skipped_by_a_scaler_is_none(make: Callable[[list[torch.Tensor]], Optimizer]) -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = make([weight])
    counted = CountedSteps(optimizer, lambda: None)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    counts = []
    for factor in (1.0, float("inf"), 1.0, float("nan"), float("inf"), 1.0):
        before = weight.detach().clone()
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        counts.append(counted.steps)
        assert torch.equal(before, weight) == (counts[-1:] == counts[-2:-1])
    assert counts == [1, 1, 2, 2, 2, 3]


def test_clipping_after_unscaling_is_a_step(weight: torch.Tensor) -> None:
    optimizer = AdamW([weight], fused=True)
    counted = CountedSteps(optimizer, lambda: None)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_([weight], 1.0)
    scaler.step(optimizer)
    assert counted.steps == 1


def test_closures_are_part_of_one_step(weight: torch.Tensor) -> None:
    optimizer = torch.optim.LBFGS([weight], max_iter=4)
    counted = CountedSteps(optimizer, lambda: None)
    calls = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = ((weight - 3) ** 2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        calls.append(1)
        return loss

    optimizer.step(closure)
    optimizer.step(closure)
    assert len(calls) > 2
    assert counted.steps == 2


@pytest.mark.usefixtures("compiler")
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("kind", [SGD, Adam, Doubled])
@pytest.mark.parametrize("whole", [False, True])
def test_steps_of_a_compiled_function_are_seen(kind: Callable[..., Optimizer], whole: bool) -> None:
    model = nn.Linear(3, 1)
    optimizer = kind(model.parameters(), lr=0.1)
    seen = []
    counted = CountedSteps(optimizer, lambda: seen.append(counted.steps))

    def step() -> None:
        optimizer.step()

    compiled = torch.compile(step if whole else optimizer.step, backend="eager")
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        compiled()
    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["optimizer", "_optimizer", "optim"])
def test_wrappers_are_taken_off(weight: torch.Tensor, name: str) -> None:
    inner = SGD([weight], lr=0.1)
    assert unwrapped(Plain(Plain(inner, name), name))[-1] is inner
    counted = CountedSteps(Plain(inner, name), lambda: None)
    inner.step()
    assert counted.steps == 1


def test_what_is_no_optimizer_is_refused(weight: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match="not the class SGD"):
        unwrapped(SGD)
    with pytest.raises(ConfigError, match="not a list"):
        unwrapped([SGD([weight], lr=0.1)])


def test_hooks_survive_what_is_done_to_step_and_are_removed(weight: torch.Tensor) -> None:
    optimizer = SGD([weight], lr=0.1)
    counted = CountedSteps(optimizer, lambda: None)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)  # replaces optimizer.step
    patched = optimizer.step
    optimizer.step = lambda *args: patched(*args)  # type: ignore[assignment]  # as accelerate does
    SGD.step(optimizer)
    scheduler.optimizer.step()
    assert counted.steps == 2
    counted.close()
    optimizer.step()
    assert counted.steps == 2
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    model = nn.Linear(3, 1)
    model, optimizer = accelerate.Accelerator(cpu=True).prepare(model, AdamW(model.parameters()))
    counted = CountedSteps(optimizer, lambda: None)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    assert type(counted.optimizer) is AdamW
    assert counted.steps == 1


@pytest.mark.parametrize("fused", [False, True])
def test_accelerates_scaler(fused: bool) -> None:
    wrapper = pytest.importorskip("accelerate.optimizer", reason="accelerate is not installed")
    importlib.import_module("accelerate").Accelerator(cpu=True)  # it wants its state
    weight = torch.ones(3, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = wrapper.AcceleratedOptimizer(AdamW([weight], fused=fused), device_placement=False, scaler=scaler)
    counted = CountedSteps(optimizer, lambda: None)
    for factor in (1.0, float("inf"), 1.0):
        scaler.scale((weight * factor).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert counted.steps == 2


def test_lightning() -> None:
    wrapper = pytest.importorskip("lightning.pytorch.core.optimizer", reason="Lightning is not installed")
    weight = torch.ones(3, requires_grad=True)
    optimizer = SGD([weight], lr=0.1)
    counted = CountedSteps(wrapper.LightningOptimizer(optimizer), lambda: None)
    optimizer.step()
    assert counted.optimizer is optimizer
    assert counted.steps == 1
