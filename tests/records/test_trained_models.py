"""`run.model()`: a module with everything that was in the trained one, wherever its code comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import orlomo
from small import classification

TASK = """
import torch, orlomo
from torch import nn

INPUTS = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))

def task():
    return orlomo.Task(
        model=lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)),
        loss=lambda model, batch: model(batch).square().mean(), train_data=INPUTS, batch_size=8,
    )
"""


class Rich(nn.Module):
    """Frozen layers, tied weights, buffers of both kinds, and something that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 6).requires_grad_(False)
        self.first, self.second = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.second.weight = self.first.weight
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 2)
        self.register_buffer("scale", torch.rand(6))
        self.register_buffer("noise", torch.rand(6), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.frozen(inputs) * self.scale + self.noise
        out: Tensor = self.head(self.norm(self.second(self.first(hidden))))
        return out

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        raise AssertionError("it is not in the file")


def test_everything_in_a_model_comes_back(tmp_path: Path) -> None:
    task = classification(Rich)
    best = orlomo.KeepBest("test_accuracy")
    run = orlomo.train(task, "al-sgd", workers=2, epochs=4, jobs=1, seed=3, out=tmp_path / "run", callbacks=[best])
    expected = task.build(3)
    expected.params.copy_(run.params)
    inputs, labels = task.test_data  # type: ignore[misc]
    into = Rich()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    for model in (run.model(task), run.model(task.model), run.model(Rich), run.model(into), run.best.model(task)):  # type: ignore[union-attr]
        assert isinstance(model, Rich)
        assert not model.training
        assert model.second.weight is model.first.weight
    assert torch.equal(torch.get_rng_state(), state)
    model = run.model(task)
    for name, value in expected.module.named_parameters():
        assert torch.equal(model.get_parameter(name), value)
    for name in ("scale", "noise"):  # drawn when the model was built, from the run's seed
        assert torch.equal(model.get_buffer(name), expected.module.get_buffer(name))
    accuracy = (model(inputs).argmax(1) == labels).double().mean()
    assert float(accuracy) == run.metric_columns["test_accuracy"][-1]
    assert into.norm.num_batches_tracked == model.norm.num_batches_tracked


def test_a_task_that_has_a_name_needs_no_argument(tmp_path: Path) -> None:
    path = tmp_path / "my_task.py"
    path.write_text(TASK)
    runs = [
        orlomo.train(name, workers=2, epochs=0.2, jobs=1, out=tmp_path / f"run-{number}")
        for number, name in enumerate(("digits", f"{path}:task"))
    ]
    for run in runs:
        params = torch.cat([p.flatten() for p in run.model().parameters()])
        assert torch.equal(params, run.params)


def test_a_module_that_does_not_fit_is_left_as_it_was(tmp_path: Path) -> None:
    run = orlomo.train(classification(), "al-sgd", workers=2, epochs=1, jobs=1, out=tmp_path / "run")
    other = nn.Linear(4, 3)
    before = other.weight.clone()
    with pytest.raises(orlomo.OrlomoError, match=r"weight is \(2, 4\) in the file and \(3, 4\) in the module"):
        run.model(other)
    assert torch.equal(other.weight, before)
    with pytest.raises(orlomo.OrlomoError, match="the module has no bias"):
        run.model(lambda: nn.Linear(4, 2, bias=False))
    with pytest.raises(orlomo.OrlomoError, match=r"give a Task, a function that makes the module, or a module, not 3"):
        run.model(3)  # type: ignore[arg-type]
