"""Micro-batches, autocast and parameters of several dtypes: the right arithmetic, on every engine, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import orlomo
from orlomo.engines.round import RoundRunner
from orlomo.tasks.evaluation import evaluate, load_trained
from orlomo.tasks.task import classification_loss
from small import classification


def deep() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2))


def assignment(task: orlomo.Task, steps: int = 3, rate: float = 0.1) -> orlomo.Assignment:
    return orlomo.Assignment(1, 0, 2, {"params": task.initial_params(0)}, rate, steps)


def reported(task: orlomo.Task, method: orlomo.Method | None = None) -> orlomo.Report:
    return RoundRunner(task, method or orlomo.OrLoMo(), seed=0).run(assignment(task)).report


@pytest.mark.parametrize("most", [1, 3, 4, 7])
def test_micro_batches_give_the_gradient_of_the_batch(most: int) -> None:
    whole, parts = (reported(classification(model=deep, micro_batch=size)) for size in (None, most))
    assert torch.allclose(whole.delta_params, parts.delta_params, atol=1e-6)
    assert whole.loss == pytest.approx(parts.loss, rel=1e-5)
    assert whole.samples == parts.samples == 24


def test_parts_are_of_equal_size() -> None:
    task = classification(micro_batch=4)
    for samples, sizes in ((8, [4, 4]), (9, [3, 3, 3]), (4, [4]), (1, [1]), (11, [3, 4, 4])):
        parts = task.parts(np.arange(samples))
        assert [len(part) for _, part in parts] == sizes
        assert np.concatenate([part for _, part in parts]).tolist() == list(range(samples))
        assert [first for first, _ in parts] == [int(part[0]) for _, part in parts]


def test_micro_batches_as_large_as_the_batch_change_no_bit() -> None:
    whole, same = (reported(classification(model=deep, micro_batch=size)) for size in (None, 8))
    assert torch.equal(whole.delta_params, same.delta_params)


def test_only_a_part_is_fetched_at_a_time_and_each_draws_for_itself() -> None:
    inputs, labels = classification().train_data
    events: list[object] = []

    class Watched:
        def __len__(self) -> int:
            return len(inputs)

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            events.append("sample")
            return inputs[index], labels[index]

    def augment(batch: Any, source: torch.Generator) -> Any:
        events.append(torch.rand((), generator=source).item())
        return batch

    def loss(model: nn.Module, batch: Any) -> Tensor:
        events.append("loss")
        return classification_loss(model, batch)

    reported(classification(train_data=Watched(), augment=augment, loss=loss, micro_batch=4))
    drawn = [event for event in events if isinstance(event, float)]
    assert len(set(drawn)) == 6  # two parts in each of three steps
    assert [event for event in events if not isinstance(event, float)] == (["sample"] * 4 + ["loss"]) * 6


def test_evaluation_and_recalibration_stay_within_the_micro_batch() -> None:
    seen: list[int] = []

    class Counting(nn.BatchNorm1d):
        def forward(self, inputs: Tensor) -> Tensor:
            seen.append(len(inputs))
            return super().forward(inputs)

    task = classification(model=lambda: nn.Sequential(Counting(4), nn.Linear(4, 2)), micro_batch=4)
    evaluate(task, task.build(0), task.initial_params(0), 0)
    assert set(seen) == {4}


def test_autocast_computes_as_torch_does() -> None:
    kinds: list[tuple[torch.dtype, torch.dtype]] = []

    class Watched(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            outputs = super().forward(inputs)
            kinds.append((self.weight.dtype, outputs.dtype))
            return outputs

    task = classification(model=lambda: nn.Sequential(nn.BatchNorm1d(4), Watched(4, 2)), autocast="bfloat16")
    report = reported(task, orlomo.ALSGD())
    plain = task.build(0).module
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    inputs, labels = task.train_data
    for chosen in task.round_batches(0, 1, 2, 3):
        index = torch.from_numpy(chosen)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(plain(inputs[index]), labels[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    moved = task.initial_params(0) - torch.cat([p.detach().flatten() for p in plain.parameters()])
    assert torch.equal(report.delta_params, moved)
    assert report.delta_params.dtype == torch.float32
    flat = task.build(0)
    load_trained(task, flat, flat.params.clone(), 0)  # recalibration
    evaluate(task, flat, flat.params.clone(), 0)
    assert set(kinds) == {(torch.float32, torch.bfloat16)}


def test_autocast_sees_weights_that_the_model_changes() -> None:
    """Its cache would give the weights of the first of two passes to the second."""

    class Halved(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            first = super().forward(inputs)
            self.weight.data.mul_(0.5)
            second = super().forward(inputs)
            self.weight.data.mul_(2.0)
            return first - 2 * second

    task = classification(model=lambda: Halved(4, 2, bias=False), autocast=torch.bfloat16)
    model = task.build(0).module
    seen: list[Tensor] = []

    def hook(*parts: Any) -> None:
        seen.append(parts[2])

    model.register_forward_hook(hook)
    task.loss_of(model, (task.train_data[0][:8], task.train_data[1][:8]))
    assert not seen[0].any()


@pytest.mark.parametrize("fields", [{"autocast": "bfloat16"}, {"micro_batch": 3}, {"model": lambda: Mixed()}])
@pytest.mark.parametrize("settings", [{"jobs": 2}, {"engine": "processes"}], ids=["jobs", "processes"])
def test_runs_replay_bit_for_bit(fields: dict[str, Any], settings: dict[str, Any], tmp_path: Path) -> None:
    task = classification(**{"model": deep, **fields})
    run = orlomo.train(task, orlomo.OrLoMo(local_steps=2), workers=2, epochs=4, out=tmp_path / "run", **settings)
    assert orlomo.replay(run.folder, task=task, jobs=1).agrees


class Mixed(nn.Module):
    """A bfloat16 trunk, the norm and the head in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.norm = nn.Linear(4, 16).bfloat16(), nn.LayerNorm(16)
        self.head = nn.Linear(16, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.norm(self.trunk(inputs.bfloat16()).float()))


def test_parameters_of_several_dtypes_have_float32_between_steps() -> None:
    task = classification(model=Mixed)
    report = reported(task, orlomo.ALSGD())
    master = task.initial_params(0)
    model = task.build(0).module
    inputs, labels = task.train_data
    for chosen in task.round_batches(0, 1, 2, 3):
        offset = 0
        for parameter in model.parameters():
            dtype = torch.bfloat16 if parameter.shape[0] == 16 and offset < 80 else torch.float32
            values = master[offset : offset + parameter.numel()]
            parameter.data = values.view_as(parameter).to(dtype).clone()
            offset += parameter.numel()
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
        gradient = torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])
        master = master - 0.1 * gradient
    assert torch.allclose(report.delta_params, task.initial_params(0) - master, atol=1e-7)


def test_the_saved_model_has_its_own_dtypes(tmp_path: Path) -> None:
    task = classification(model=Mixed)
    run = orlomo.train(task, orlomo.OrLoMo(local_steps=2), workers=2, epochs=4, jobs=1, out=tmp_path / "run")
    assert run.params.dtype == torch.float32
    model = run.model(Mixed)
    wanted = {name: value.dtype for name, value in Mixed().state_dict().items()}
    assert {name: value.dtype for name, value in model.state_dict().items()} == wanted
    saved = torch.cat([p.detach().float().flatten() for p in model.parameters()])
    assert torch.allclose(saved, run.params, rtol=2**-8)
    assert not torch.equal(saved, run.params)
    with torch.no_grad():
        right = model(task.test_data[0]).argmax(1) == task.test_data[1]
    assert run.metric_columns["test_accuracy"][-1] == right.double().mean()


@pytest.mark.parametrize("fields", [{"autocast": "bfloat16"}, {"micro_batch": 3}, {"model": Mixed}])
def test_they_work_compiled(fields: dict[str, Any], tmp_path: Path) -> None:
    runs = {}
    for choice in ("on", "off"):
        task = classification(**{"model": deep, **fields})
        settings: dict[str, Any] = {"workers": 2, "epochs": 2, "jobs": 1, "compile": choice}
        runs[choice] = orlomo.train(task, orlomo.OrLoMo(local_steps=2), out=tmp_path / choice, **settings)
    assert runs["on"].config.compile == "on"
    assert torch.allclose(runs["on"].params, runs["off"].params, atol=1e-2)
    assert runs["on"].params.dtype == torch.float32
