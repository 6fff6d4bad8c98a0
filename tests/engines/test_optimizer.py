"""A torch optimizer of the task: the same bits everywhere, its state kept by each worker, momentum folded exactly."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_conformance import StopAt
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import orlomo
from orlomo.engines.optimizer import OptimizerState, OptimizerSteps
from orlomo.engines.round import KeptState, RoundRunner
from orlomo.engines.session import checksum
from orlomo.errors import ConfigError
from orlomo.methods.messages import Assignment
from orlomo.tasks.data import fetch
from orlomo.tasks.task import classification_loss
from small import classification

METHOD = orlomo.LocalOrMoDA(local_steps=2)


def adamw(params: list[nn.Parameter]) -> Optimizer:
    return AdamW(params, lr=0.01, weight_decay=0.1)


def with_adamw(**more: Any) -> orlomo.Task:
    return classification(optimizer=adamw, **more)


def train(task: orlomo.Task, out: Path, method: orlomo.Method = METHOD, **more: Any) -> orlomo.Run:
    usual: dict[str, Any] = {"workers": 3, "epochs": 6, "jobs": 1, "out": out}
    usual |= {} if "engine" in more else {"cluster": "heterogeneous"}
    return orlomo.train(task, method, **(usual | more))


def test_the_same_bits_on_any_number_of_jobs_and_in_a_replay(tmp_path: Path) -> None:
    one, two = (train(with_adamw(), tmp_path / f"{jobs}", jobs=jobs) for jobs in (1, 2))
    for name in ("events.csv", "model.safetensors"):
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes()
    assert orlomo.replay(one.folder, task=with_adamw(), jobs=2).agrees
    assert set(one.event_columns["learning_rate"].tolist()) == {0.01}
    assert set(one.metric_columns["learning_rate"].tolist()) == {0.01}
    other = classification(optimizer=lambda params: AdamW(params, lr=0.01))
    assert not orlomo.replay(one.folder, task=other, jobs=1).agrees


def test_interrupted_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    whole = train(with_adamw(), tmp_path / "whole")
    with pytest.raises(orlomo.Interrupted):
        train(with_adamw(), tmp_path / "run", callbacks=[StopAt(7, signal.SIGINT)], jobs=2)
    saved = orlomo.load(tmp_path / "run").checkpoint
    assert saved is not None
    assert any(name.startswith("optimizer.") for name in saved.tensors)
    run = orlomo.resume(tmp_path / "run", task=with_adamw(), jobs=1)
    for name in ("events.csv", "model.safetensors"):
        assert (run.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_a_worker_that_returns_after_a_crash_begins_with_a_new_optimizer(tmp_path: Path) -> None:
    faults = (orlomo.Fault(time=4.0, worker=0, kind="crash"), orlomo.Fault(time=6.0, worker=0, kind="return"))
    cluster = orlomo.Cluster(faults=faults)
    one, two = (train(with_adamw(), tmp_path / f"{jobs}", jobs=jobs, cluster=cluster) for jobs in (1, 2))
    assert {"crash", "return"} <= set(one.event_columns["kind"].tolist())
    assert checksum(one.params) == checksum(two.params)
    saved = two.checkpoint
    assert saved is not None
    task, reports = with_adamw(), one.event_columns["worker"][one.event_columns["kind"] == "report"]
    rule = OptimizerSteps(task.build(0), task, METHOD)
    steps = []
    for worker in range(3):
        rule.kept.load(saved.tensors[f"optimizer.{worker}"])
        steps.append(int(rule.optimizer.state[rule.given[0]]["step"]))
    assert steps[1:] == [2 * int((reports == worker).sum()) for worker in (1, 2)]
    assert 0 < steps[0] < 2 * int((reports == 0).sum())


def test_processes_keep_the_state_and_replay(tmp_path: Path) -> None:
    """Stopped and continued, all workers are new ones with a new optimizer; the record says so."""
    with pytest.raises(orlomo.Interrupted):
        train(with_adamw(), tmp_path / "run", engine="processes", workers=2, callbacks=[StopAt(5, signal.SIGINT)])
    run = orlomo.resume(tmp_path / "run", task=with_adamw())
    assert sorted(set(run.event_columns["kind"].tolist())) == ["crash", "join", "report"]
    assert orlomo.replay(run.folder, task=with_adamw(), jobs=2).agrees


def test_one_worker_takes_the_steps_of_a_plain_loop(tmp_path: Path) -> None:
    """The moments of AdamW continue from round to round."""
    task = with_adamw(model=lambda: nn.Linear(4, 2).double(), train_data=doubles(), test_data=None)
    run = train(task, tmp_path / "run", orlomo.ALSGD(local_steps=2), workers=1)
    flat = task.build(0)
    optimizer = adamw(list(flat.module.parameters()))
    for number in range(len(run.event_columns["kind"])):
        for chosen in task.round_batches(0, 0, number, 2):
            optimizer.zero_grad()
            classification_loss(flat.module, fetch(task.train_data, chosen)).backward()  # type: ignore[no-untyped-call, arg-type]
            optimizer.step()
    assert torch.allclose(run.params, flat.params, rtol=0, atol=1e-12)


def doubles(samples: int = 96) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(3)
    inputs = torch.randn(samples, 4, dtype=torch.float64, generator=source)
    return inputs, (inputs[:, 0] > 0).long()


class Double(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
        self.double()


@pytest.mark.parametrize("name", ["orlomo", "prsgdm", "msgd"])
def test_folded_momentum_is_that_of_the_methods_own_steps(name: str, tmp_path: Path) -> None:
    """30 reports of uneven workers: SGD with two groups against the method's rule with the same rates and decays."""

    def sgd(params: list[nn.Parameter]) -> Optimizer:
        groups = [{"params": params[:2], "lr": 0.1, "weight_decay": 0.01}, {"params": params[2:], "lr": 0.025}]
        return SGD(groups, momentum=0.8)

    data = {"model": Double, "train_data": doubles(60), "test_data": None, "batch_size": 4}
    groups = [orlomo.Group("0.*", weight_decay=0.01), orlomo.Group("2.*", rate_factor=0.25)]
    usual = {"workers": 1 if name == "msgd" else 3, "epochs": 6, "cluster": "heterogeneous:8"}
    settings = {"momentum": 0.8, "local_steps": 3}
    own = train(classification(**data, optimizer=sgd), tmp_path / "own", orlomo.method(name, **settings), **usual)
    rule = orlomo.method(name, **settings, learning_rate=0.1)
    house = train(classification(**data, groups=groups), tmp_path / "house", rule, **usual)
    assert len(house.event_columns["kind"]) >= 30
    assert name != "orlomo" or house.event_columns["delay"].max() > 2
    assert torch.allclose(own.params, house.params, rtol=0, atol=1e-12)
    assert not torch.equal(house.params, classification(**data).initial_params(0))


class Counting(Optimizer):
    """Sign steps; keeps nested values, numbers in a group and a tensor of another type."""

    def __init__(self, params: Any, lr: float = 0.01):
        super().__init__(params, {"lr": lr, "count": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["count"] += 1
            for p in group["params"]:
                state = self.state[p]
                seen = state.setdefault("seen", {"signs": [], "share": (0.0, None)})
                seen["signs"] = [*seen["signs"][-2:], p.grad > 0]
                seen["share"] = (float(p.grad.mean()), f"step {group['count']}")
                mean = torch.stack(seen["signs"]).double().mean(0)
                p.sub_((2 * mean - 1).to(p.dtype), alpha=group["lr"] / group["count"])
        self.state["steps"] = {"all": self.state.get("steps", {"all": 0})["all"] + 1}  # type: ignore[index, arg-type, call-overload]


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], Optimizer]] = {
    **{
        kind: getattr(torch.optim, kind)
        for kind in ("Adam", "NAdam", "RMSprop", "Adagrad", "Rprop", "RAdam", "Adafactor")
    },
    "SGD": lambda params: SGD(params, momentum=0.9, dampening=0.5),
    "amsgrad": lambda params: AdamW([{"params": [p]} for p in params], lr=torch.tensor(0.01), amsgrad=True, fused=True),
    "own": Counting,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_in_bytes_is_the_whole_state(name: str) -> None:
    """Another optimizer that is given the state before each step continues with the same bits."""
    source = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (5,), (2, 3, 4, 4)]
    params = [nn.Parameter(torch.randn(shape, generator=source)) for shape in shapes]
    params[2].data = params[2].data.to(memory_format=torch.channels_last)
    twins = [nn.Parameter(p.detach().clone()) for p in params]
    optimizers = [OPTIMIZERS[name](params), OPTIMIZERS[name](twins)]
    states = [OptimizerState(optimizers[0], params), OptimizerState(optimizers[1], twins)]
    states[1].load(None)
    for step in range(6):
        for p, twin in zip(params, twins, strict=True):
            p.grad = torch.randn(p.shape, generator=source)
            twin.grad = p.grad.clone()
        contents = [state.save() for state in states]
        assert torch.equal(*contents), step
        states[1].load(None)
        optimizers[1].step()  # something else between
        for p, twin in zip(params, twins, strict=True):
            twin.data.copy_(p.data)
        states[1].load(contents[0])
        for optimizer in optimizers:
            optimizer.step()
        assert all(torch.equal(p, twin) for p, twin in zip(params, twins, strict=True))


def test_a_round_that_is_refused_is_computed_again_from_the_same_state() -> None:
    task = with_adamw()
    runner = RoundRunner(task, METHOD, seed=0)
    kept, params = KeptState(runner.new_state()), {"params": task.initial_params(0)}
    reports = []
    for number in (0, 1, 1):
        report, state = runner.run(Assignment(0, 0, number, params, 0.1, 2), kept.begin(number))
        kept.finish(state)
        reports.append(report)
    assert torch.equal(reports[1].delta_params, reports[2].delta_params)
    fresh = runner.run(Assignment(0, 0, 1, params, 0.1, 2)).report
    assert not torch.equal(reports[1].delta_params, fresh.delta_params)


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8).bfloat16(), nn.Linear(8, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(inputs.bfloat16()).float())
        return out


def test_parameters_of_several_types_are_trained_in_full_precision(tmp_path: Path) -> None:
    task = classification(Mixed, optimizer=lambda params: AdamW(params, lr=1e-4))
    run = train(task, tmp_path / "run", jobs=2)
    body = run.params[task.build(0).layout["body.weight"]]
    assert not torch.equal(body, task.initial_params(0)[task.build(0).layout["body.weight"]])
    assert not torch.equal(body, body.bfloat16().float())  # a step of 1e-4 would be lost in bfloat16
    assert orlomo.replay(run.folder, task=task, jobs=1).agrees


def test_what_needs_no_state_keeps_none() -> None:
    for method, make, keeps in (
        (orlomo.ALSGD(), lambda params: SGD(params, lr=0.1), False),
        (orlomo.ALSGD(), lambda params: SGD(params, lr=0.1, momentum=0.5), True),
        (orlomo.OrLoMo(), lambda params: SGD(params, lr=0.1, momentum=0.9), False),
    ):
        task = classification(optimizer=make)
        assert OptimizerSteps(task.build(0), task, method).keeps == keeps


class Growing(Counting):
    """Keeps every gradient."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["all"] = [*state.get("all", []), p.grad.flatten().repeat(50)]
                p.sub_(p.grad, alpha=group["lr"])


def test_a_state_that_grows_is_for_one_job(tmp_path: Path) -> None:
    task = classification(optimizer=Growing)
    assert orlomo.replay(train(task, tmp_path / "one").folder, task=task, jobs=1).agrees
    with pytest.raises(ConfigError, match=r"the optimizer's state has grown to [\d,]+ bytes .*: use jobs=1"):
        train(task, tmp_path / "two", jobs=2)


class Secret(Counting):
    """Keeps a number where it is not seen."""

    calls = 0

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.calls += 1
        super().step()


def test_state_that_is_not_kept_is_warned_of(tmp_path: Path) -> None:
    def make(params: list[nn.Parameter]) -> Optimizer:
        made = Secret(params)
        made.calls = 0
        return made

    said: list[str] = []
    train(classification(optimizer=make), tmp_path / "run", warn=said.append)
    assert any("the optimizer's attribute calls changes" in text and "optimizer's `state`" in text for text in said)
    said.clear()
    train(classification(optimizer=Counting), tmp_path / "other", warn=said.append)
    assert not said


class Keeps(Counting):
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.state[self.param_groups[0]["params"][0]]["when"] = object()


def scheduled(params: list[nn.Parameter]) -> Optimizer:
    made = AdamW(params)
    made.register_step_post_hook(lambda *given: rates.step())
    rates = torch.optim.lr_scheduler.StepLR(made, 10)
    return made


def falling(params: list[nn.Parameter]) -> Optimizer:
    made = SGD(params, lr=0.1, momentum=0.9)

    def halve(optimizer: Optimizer, *given: Any) -> None:
        optimizer.param_groups[0]["lr"] /= 2

    made.register_step_post_hook(halve)
    return made


@pytest.mark.parametrize(
    ("make", "method", "text"),
    [
        (adamw, orlomo.OrLoMo(), "orlomo needs SGD(momentum=0.9), not AdamW. For AdamW use local-ormo-da"),
        (adamw, orlomo.method("delayed-nesterov"), "delayed-nesterov has its own local optimizer"),
        (adamw, orlomo.ALSGD(learning_rate=0.5), "the optimizer has the learning rate: leave learning_rate out"),
        (lambda params: None, METHOD, "optimizer must be a torch.optim.Optimizer, not a NoneType"),
        (lambda params: AdamW(params[1:]), METHOD, "the optimizer leaves 1 trainable parameters out: freeze them"),
        (lambda params: AdamW([nn.Parameter(torch.zeros(2))]), METHOD, "parameters that are not the model's"),
        (torch.optim.LBFGS, METHOD, "LBFGS needs a closure for its step"),
        (scheduled, METHOD, "the optimizer has a scheduler, whose state is not kept between rounds"),
        (Keeps, METHOD, "Keeps keeps a object in its state, which cannot be saved"),
    ],
)
def test_refused_before_there_is_a_folder(make: Any, method: orlomo.Method, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        train(classification(optimizer=make), tmp_path / "run", method)
    assert text in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_rate_that_changes_within_a_round_is_refused_where_momentum_is_folded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="orlomo needs a learning rate that does not change within a round"):
        train(classification(optimizer=falling), tmp_path / "run", orlomo.OrLoMo(local_steps=2))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"optimizer": adamw([nn.Parameter(torch.zeros(2))])}, "optimizer must be a function that makes the optimizer"),
        ({"optimizer": lambda: None}, "optimizer must be a function that makes the optimizer, as in lambda params:"),
        ({"optimizer": adamw, "groups": [orlomo.Group("0.*")]}, "groups has no effect with an optimizer of your own"),
        ({"optimizer": adamw, "decay_biases": False}, "decay_biases has no effect with an optimizer of your own"),
    ],
)
def test_a_task_refuses_what_would_have_no_effect(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        classification(**fields)


def test_the_rate_is_not_changed_by_a_resume(tmp_path: Path) -> None:
    run = train(with_adamw(), tmp_path / "run")
    before = checksum(run.params)
    with pytest.raises(ConfigError, match="the task's optimizer has the learning rate: leave learning_rate out"):
        orlomo.resume(run.folder, task=with_adamw(), epochs=12, learning_rate=0.1, jobs=1)
    longer = orlomo.resume(run.folder, task=with_adamw(), epochs=8, jobs=2)
    assert checksum(longer.params) != before
    assert orlomo.replay(longer.folder, task=with_adamw(), jobs=1).agrees
