"""Schedulers follow the run's clock, forwards only, and between rounds only."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim import lr_scheduler as lr

import orlomo
from orlomo.errors import ConfigError, OrlomoWarning
from orlomo.loop.attached import Attached
from orlomo.loop.schedulers import Schedulers

MAKE: dict[str, Callable[[Optimizer], lr.LRScheduler]] = {
    "cosine": lambda o: lr.CosineAnnealingLR(o, 40),
    "step": lambda o: lr.StepLR(o, 7, 0.5),
    "lambda": lambda o: lr.LambdaLR(o, lambda step: 1 / (1 + step)),
    "restarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 5, 2),
    "one-cycle": lambda o: lr.OneCycleLR(o, 1.0, total_steps=60),
    "sequential": lambda o: lr.SequentialLR(
        o, [lr.LinearLR(o, 0.1, total_iters=5), lr.CosineAnnealingLR(o, 40)], milestones=[5]
    ),
    "chained": lambda o: lr.ChainedScheduler([lr.LinearLR(o, 0.1, total_iters=5), lr.ExponentialLR(o, 0.9)]),
}


def made(momentum: float = 0.0) -> Optimizer:
    return SGD([{"params": [torch.ones(2, requires_grad=True)]}, {"params": [], "lr": 0.5}], lr=1.0, momentum=momentum)


def rates(optimizer: Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.filterwarnings("ignore::UserWarning:torch.optim.lr_scheduler")  # of SequentialLR in its own __init__
def test_the_curve_is_that_of_a_loop_alone(name: str) -> None:
    alone, driven = made(0.9), made(0.9)
    scheduler, curve = MAKE[name](alone), []
    for _ in range(50):
        curve.append(rates(alone))
        alone.step()
        scheduler.step()
    own = MAKE[name](driven)
    schedulers = Schedulers(own, [driven])
    for clock in (0, 1, 2, 9, 9, 7, 30, 49):
        own.step()  # the user's: nothing happens
        schedulers.drive(clock, epoch=0)
        assert rates(driven) == curve[max(clock, 9 if clock == 7 else 0)]
        assert own.get_last_lr() == rates(driven)


def test_one_cycle_stays_at_its_end() -> None:
    for wrap in (lambda o, s: s, lambda o, s: lr.ChainedScheduler([s]), lambda o, s: lr.SequentialLR(o, [s], [])):
        optimizer = made(0.9)
        schedulers = Schedulers(wrap(optimizer, lr.OneCycleLR(optimizer, 1.0, total_steps=20)), [optimizer])
        schedulers.drive(15, 0)
        schedulers.drive(200, 0)
        schedulers.drive(300, 0)
        assert rates(optimizer) == pytest.approx([1.0 / 25 / 1e4] * 2, rel=1e-6)


def test_epochs_are_followed_where_they_are_the_unit() -> None:
    optimizer = made()
    schedulers = Schedulers(lr.StepLR(optimizer, 1, 0.5), [optimizer], unit="epoch")
    schedulers.drive(clock=1000, epoch=3)
    assert rates(optimizer) == [0.125, 0.0625]


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: lr.ChainedScheduler([s])])
def test_a_scheduler_from_a_checkpoint_is_where_the_run_was(
    wrap: Callable[[lr.LRScheduler], lr.LRScheduler],
) -> None:
    optimizer = made()
    scheduler = wrap(lr.StepLR(optimizer, 10, 0.5))
    for _ in range(9):
        optimizer.step()
        scheduler.step()
    schedulers = Schedulers(scheduler, [optimizer])
    schedulers.drive(9, 0)
    assert rates(optimizer) == [1.0, 0.5]
    schedulers.drive(10, 0)
    assert rates(optimizer) == [0.5, 0.25]
    schedulers.close()
    with pytest.warns(OrlomoWarning, match="is at step 10 and the run at 3"):
        Schedulers(scheduler, [optimizer]).drive(3, 0)
    assert rates(optimizer) == [0.5, 0.25]


def test_several_are_driven_together() -> None:
    first, second = made(), made()
    Schedulers([lr.StepLR(first, 1, 0.5), lr.StepLR(first, 1, 0.1), lr.StepLR(second, 2, 0.5)], [first, second]).drive(
        2, 0
    )
    assert rates(first) == pytest.approx([0.0025, 0.00125])
    assert rates(second) == [0.5, 0.25]


def test_a_late_joiner_begins_in_the_middle_without_a_warning() -> None:
    optimizer = made()
    Schedulers(lr.CosineAnnealingLR(optimizer, 100), [optimizer]).drive(50, 0)
    assert rates(optimizer) == pytest.approx([0.5, 0.25])


def test_closing_gives_the_scheduler_back_and_its_state_is_its_own() -> None:
    optimizer = made()
    scheduler = lr.StepLR(optimizer, 1, 0.5)
    keys = set(scheduler.state_dict())
    schedulers = Schedulers(scheduler, [optimizer])
    assert isinstance(scheduler, lr.StepLR)
    assert type(scheduler).__name__ == "StepLR"
    assert set(scheduler.state_dict()) == keys  # nothing of ours in what a user saves
    schedulers.drive(1, 0)
    schedulers.close()
    assert type(scheduler) is lr.StepLR
    optimizer.step()
    scheduler.step()
    assert rates(optimizer) == [0.25, 0.125]


def test_wrappers_of_schedulers_are_taken_off() -> None:
    class Wrapper:
        def __init__(self, scheduler: object):
            self.scheduler = scheduler

        def step(self) -> None:
            self.scheduler.step()  # type: ignore[attr-defined]

    optimizer = made()
    wrapper = Wrapper(lr.StepLR(optimizer, 1, 0.5))
    schedulers = Schedulers(wrapper, [optimizer])
    wrapper.step()
    assert rates(optimizer) == [1.0, 0.5]
    schedulers.drive(1, 0)
    assert rates(optimizer) == [0.5, 0.25]


def test_accelerates_scheduler() -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    inner = made()
    accelerator = accelerate.Accelerator(cpu=True)
    optimizer, scheduler = accelerator.prepare(inner, lr.StepLR(inner, 1, 0.5))
    schedulers = Schedulers(scheduler, [inner])
    optimizer.step()
    scheduler.step()
    assert rates(inner) == [1.0, 0.5]
    schedulers.drive(1, 0)
    assert rates(inner) == [0.5, 0.25]


def test_what_cannot_follow_a_clock_is_refused() -> None:
    optimizer = made()
    with pytest.raises(ConfigError, match="ReduceLROnPlateau cannot follow the run's clock"):
        Schedulers(lr.ReduceLROnPlateau(optimizer), [optimizer])
    with pytest.raises(ConfigError, match=r"one of torch.optim.lr_scheduler, not a function"):
        Schedulers(lambda step: 0.1, [optimizer])
    with pytest.raises(ConfigError, match="belongs to an optimizer that is not attached"):
        Schedulers(lr.StepLR(optimizer, 1), [made()])
    with pytest.raises(ConfigError, match="given twice"):
        Schedulers([scheduler := lr.StepLR(optimizer, 1), scheduler], [optimizer])
    with pytest.raises(ConfigError, match="unit must be 'step' or 'epoch'"):
        Schedulers(None, [optimizer], unit="batch")


def test_a_scheduler_that_is_not_handed_over_is_said_once() -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = lr.StepLR(optimizer, 1, 0.5)
    attached = Attached(model, optimizer, orlomo.ALSGD())
    vectors, report = {"params": attached.vector()}, {"delta_params": torch.empty(3)}

    def rounds(number: int) -> None:
        for _ in range(number):
            attached.load(vectors, 0, 0)
            for _ in range(2):
                optimizer.step()
                scheduler.step()
            attached.measure(vectors, report)

    with pytest.warns(OrlomoWarning) as said:
        rounds(3)
    assert {one.filename for one in said} == {__file__}
    assert ["not handed over" in str(one.message) for one in said] == [True, False]
    assert "changed within a round, from 0.1 to 0.025" in str(said[1].message)


@pytest.mark.parametrize("workers", [1, 8])
def test_a_cosine_ends_with_the_run(workers: int) -> None:
    """The learning rate of the last rounds is that of the curve's last K S steps, for any number of workers."""
    local, total = 4, 480
    method = orlomo.LocalOrMoDA(local_steps=local, momentum=0.9)
    crew = []
    for _ in range(workers):
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = SGD(model.parameters(), lr=1.0)
        scheduler = lr.CosineAnnealingLR(optimizer, T_max=total)
        crew.append((model, optimizer, scheduler, Attached(model, optimizer, method, scheduler)))
    server = method.server(crew[0][3].vector(), workers)
    held, clock, last, choice = {}, 0, [1.0] * workers, random.Random(3)
    for assignment in server.start():
        held[assignment.worker] = assignment
        crew[assignment.worker][3].load(assignment.vectors, clock, 0)
    while clock < total:
        number = choice.randrange(workers)
        model, optimizer, scheduler, attached = crew[number]
        for _ in range(local):
            optimizer.zero_grad()
            (1e-3 * model(torch.ones(1, 2))).sum().backward()
            optimizer.step()
            scheduler.step()
        moved = torch.empty(3)
        steps, rate = attached.measure(held[number].vectors, {"delta_params": moved})
        assert rate <= last[number]
        last[number] = rate
        clock += steps
        [held[number]] = server.receive(orlomo.Report(number, held[number].index, moved))
        attached.load(held[number].vectors, clock, 0)
        assert attached.learning_rate == pytest.approx((1 + math.cos(math.pi * clock / total)) / 2, abs=1e-9)
    assert clock == total
    assert attached.learning_rate == pytest.approx(0, abs=1e-9)
    within = (1 + math.cos(math.pi * (total - workers * local) / total)) / 2
    assert rate <= within + 1e-9
