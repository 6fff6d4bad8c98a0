"""Parameter groups: the same steps as torch.optim's with param_groups, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orlomo
from orlomo import Group
from orlomo.engines.round import RoundRunner
from small import OWN_METHOD, classification

STEPS, RATE, DECAY = 6, 0.1, 0.3


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.body(inputs))))


GROUPS = [
    Group("head.bias", weight_decay=0.5),
    Group("head.*", rate_factor=0.1, weight_decay=0.0),
    Group("norm.*", rate_factor=3),
]


def settings_of(name: str, parameter: Tensor, decay_biases: bool) -> tuple[float, float]:
    """The factor and the decay that the groups above give, written out."""
    if name == "head.bias":
        return 1.0, 0.5
    if name == "head.weight":
        return 0.1, 0.0
    decay = 0.0 if parameter.dim() == 1 and not decay_biases else DECAY
    return (3.0 if name.startswith("norm.") else 1.0), decay


def by_torch(task: orlomo.Task, make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer]) -> Tensor:
    """How far torch's optimizer moves the parameters in the steps of round 0 of worker 0."""
    model = task.build(0).module
    groups = []
    for name, parameter in model.named_parameters():
        factor, decay = settings_of(name, parameter, task.decay_biases)
        groups.append({"params": [parameter], "lr": factor * RATE, "weight_decay": decay})
    optimizer = make(groups)
    inputs, labels = task.train_data
    for chosen in task.round_batches(0, 0, 0, STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
        optimizer.step()
    return task.initial_params(0) - torch.cat([p.detach().flatten() for p in model.parameters()])


def moved(task: orlomo.Task, method: orlomo.Method) -> Tensor:
    start = {name: torch.zeros_like(task.initial_params(0)) for name in method.sent_vectors()}
    assignment = orlomo.Assignment(0, 0, 0, {**start, "params": task.initial_params(0)}, RATE, STEPS)
    return RoundRunner(task, method, seed=0).run(assignment).report.delta_params


METHODS = {
    "local-sgd": lambda groups: torch.optim.SGD(groups, lr=RATE),
    "al-sgd": lambda groups: torch.optim.SGD(groups, lr=RATE),
    "orlomo": lambda groups: torch.optim.SGD(groups, lr=RATE, momentum=0.9),
    "prsgdm": lambda groups: torch.optim.SGD(groups, lr=RATE, momentum=0.9),
    "delayed-nesterov": lambda groups: torch.optim.AdamW(groups, lr=RATE),
}


@pytest.mark.parametrize("decay_biases", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_the_steps_are_those_of_torch(name: str, decay_biases: bool) -> None:
    task = classification(model=Named, groups=GROUPS, decay_biases=decay_biases)
    method = orlomo.method(name, learning_rate=RATE, local_steps=STEPS, weight_decay=DECAY)
    assert torch.allclose(moved(task, method), by_torch(task, METHODS[name]), atol=2e-6)
    ungrouped = classification(model=Named)
    assert not torch.allclose(moved(ungrouped, method), moved(task, method), atol=1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_groups_that_say_nothing_new_change_nothing(name: str) -> None:
    method = orlomo.method(name, learning_rate=RATE, local_steps=STEPS, weight_decay=DECAY)
    plain, same = (moved(classification(model=Named, groups=groups), method) for groups in ((), [Group("*")]))
    assert torch.allclose(plain, same, atol=1e-6)


def test_a_group_with_factor_0_stays_where_it_is() -> None:
    task = classification(model=Named, groups=[Group("body.*", rate_factor=0)])
    for name in METHODS:
        found = moved(task, orlomo.method(name, local_steps=STEPS, weight_decay=DECAY))
        body = task.build(0).layout
        assert not found[body["body.weight"]].any()
        assert not found[body["body.bias"]].any()
        assert found[body["head.weight"]].all()


def test_a_run_with_groups_replays(tmp_path: Path) -> None:
    task = classification(model=Named, groups=GROUPS, decay_biases=False)
    method = orlomo.OrLoMo(local_steps=2, weight_decay=0.01)
    run = orlomo.train(task, method, workers=2, epochs=4, engine="processes", out=tmp_path / "run")
    assert orlomo.replay(run.folder, task=task, jobs=2).agrees


def test_a_rule_that_knows_no_groups_is_refused() -> None:
    task, own = classification(model=Named, groups=GROUPS), orlomo.method(OWN_METHOD)
    with pytest.raises(orlomo.OrlomoError, match=r"its worker rule SignSteps must use self\.groups"):
        RoundRunner(task, own, seed=0)
    RoundRunner(classification(model=Named), own, seed=0)

    class Changed(orlomo.methods.worker.PlainSteps):
        def step(self, gradient: Tensor) -> None:
            self.params.sub_(gradient)

    assert not Changed.uses_groups  # what its parent's step does is not what this one does
