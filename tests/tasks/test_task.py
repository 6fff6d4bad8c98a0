"""Tasks: batches by (seed, worker, round, step) alone, BatchNorm, dropout, map-style data."""

from __future__ import annotations

import random
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


def assignment(task: orlomo.Task, worker: int = 1, round: int = 2, steps: int = 3) -> orlomo.Assignment:
    return orlomo.Assignment(worker, 0, round, {"params": task.initial_params(0)}, 0.1, steps)


def test_an_epoch_of_a_worker_takes_every_sample_once() -> None:
    task = classification(batch_size=10)  # 64 samples: batches reach over the ends of epochs
    stream = np.concatenate([np.concatenate(task.round_batches(0, 3, n, 4)) for n in range(16)])
    assert len(stream) == 640
    for epoch in stream.reshape(10, 64):
        assert sorted(epoch) == list(range(64))
    other = np.concatenate(task.round_batches(0, 4, 0, 4))
    assert not np.array_equal(other, stream[:40])


def test_rounds_do_not_depend_on_one_another() -> None:
    for sampling in ("epochs", "replacement"):
        task = classification(sampling=sampling)
        late = task.round_batches(5, 2, 7, 3)
        task.round_batches(5, 2, 6, 3)
        assert np.array_equal(np.stack(late), np.stack(task.round_batches(5, 2, 7, 3)))
        assert not np.array_equal(np.stack(late), np.stack(task.round_batches(6, 2, 7, 3)))


def test_batches_larger_than_the_data() -> None:
    task = classification(batch_size=150)
    [batch] = task.round_batches(0, 0, 0, 1)
    assert len(batch) == 150
    assert sorted(batch[:64]) == list(range(64))


def noisy(batch: Any, source: torch.Generator) -> Any:
    inputs, labels = batch
    return inputs + torch.randn(inputs.shape, generator=source), labels


def drawn() -> float:
    return random.random() + np.random.random() + torch.rand(()).item()


class Jittered:
    """A map-style data set that draws from every global generator, as careless ones do."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((4,), drawn() + index), index % 2


@pytest.mark.parametrize(
    "fields",
    [
        {"model": lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))},
        {"augment": noisy},
        {"loss": lambda model, batch: drawn() * classification_loss(model, batch)},
        {"train_data": Jittered()},
        {"model": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), "buffers": "average"},
    ],
)
def test_a_round_is_a_pure_function_and_leaves_the_callers_randomness_alone(fields: dict[str, Any]) -> None:
    task, method = classification(**fields), orlomo.OrLoMo(local_steps=3)
    first = RoundRunner(task, method, seed=0)
    torch.manual_seed(11), random.seed(12), np.random.seed(13)
    a = first.run(assignment(task)).report
    drawn = torch.rand(1), random.random(), np.random.random()
    first.run(assignment(task, worker=5))
    first.evaluate(task.initial_params(0))
    torch.manual_seed(99), random.seed(98), np.random.seed(97)
    b = RoundRunner(task, method, seed=0).run(assignment(task)).report
    again = first.run(assignment(task)).report
    for other in (b, again):
        assert torch.equal(a.delta_params, other.delta_params)
        assert torch.equal(a.delta_momentum, other.delta_momentum)
        assert a.loss == other.loss
        assert (a.buffers is None) == (other.buffers is None)
        assert a.buffers is None or torch.equal(a.buffers, other.buffers)
    torch.manual_seed(11), random.seed(12), np.random.seed(13)
    assert (torch.rand(1), random.random(), np.random.random()) == drawn
    different = first.run(assignment(task, round=3)).report
    assert not torch.equal(a.delta_params, different.delta_params)


def normed() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(4, affine=True), nn.Linear(4, 2), nn.Dropout(0.5))


def test_recalibration_gives_the_statistics_of_the_data() -> None:
    task = classification(model=normed, batch_size=64)  # one batch is the whole training data
    flat = task.build(0)
    load_trained(task, flat, flat.params.clone(), seed=0)
    inputs = task.train_data[0]
    norm = flat.module[0]
    assert torch.allclose(norm.running_mean, inputs.mean(0), atol=1e-5)
    assert torch.allclose(norm.running_var, inputs.var(0), atol=1e-4)


def test_an_evaluation_does_not_depend_on_what_was_computed_before() -> None:
    task = classification(model=normed)
    flat = task.build(0)
    params = task.initial_params(1)
    first = evaluate(task, flat, params, seed=0)
    flat.module.train()
    flat.module(torch.randn(100, 4) * 100)
    assert evaluate(task, flat, params, seed=0) == first
    assert 0 <= first["test_accuracy"] <= 1


def test_what_an_evaluation_draws_comes_from_the_seed() -> None:
    noise = orlomo.Metric.mean("noise", lambda model, batch: drawn())
    task = classification(loss=lambda model, batch: drawn() * model(batch[0]).square().mean(), metrics=[noise])
    flat, params = task.build(0), task.initial_params(0)
    first = evaluate(task, flat, params, seed=0)
    drawn()
    assert evaluate(task, flat, params, seed=0) == first
    assert evaluate(task, flat, params, seed=1)["test_noise"] != first["test_noise"]
    alone = evaluate(classification(loss=task.loss), flat, params, seed=0)
    assert alone["test_loss"] == first["test_loss"]  # whatever is measured beside it


def test_averaged_buffers_are_used_where_the_task_averages() -> None:
    task = classification(model=normed, buffers="average")
    runner = RoundRunner(task, orlomo.ALSGD(local_steps=2), seed=0)
    report = runner.run(assignment(task, steps=2)).report
    assert report.buffers is not None
    seen = torch.cat([task.train_data[0][i] for i in torch.tensor(np.stack(task.round_batches(0, 1, 2, 2)))])
    values = report.buffers.view(torch.float32)
    assert torch.allclose(values[:4], seen.mean(0), atol=1e-5)  # a plain mean over the round's batches
    good = evaluate(task, runner.flat, task.initial_params(0), 0, report.buffers)
    bad = evaluate(task, runner.flat, task.initial_params(0), 0, (values + 100).view(torch.uint8))
    assert good != bad
    found = runner.buffers.read()
    assert found is not None
    assert torch.allclose(found.view(torch.float32), values + 100)


def test_buffers_stay_out_of_the_momentum_algebra() -> None:
    task = classification(model=normed)
    names = dict(task.build(0).module.named_parameters())
    assert task.initial_params(0).numel() == sum(p.numel() for p in names.values())


@pytest.mark.parametrize("name", ["digits", "nonconvex", "quadratic"])  # those that need no data
def test_built_in_tasks(name: str) -> None:
    task = orlomo.task(name)
    params = task.initial_params(0)
    result = evaluate(task, task.build(0), params, 0)
    assert np.isfinite(result["train_loss"])
    assert (name == "digits") == np.isfinite(result.values.get("test_accuracy", np.nan))


@pytest.mark.parametrize("name", ["quadratic", "nonconvex"])
def test_known_constants_of_the_theory_tasks(name: str) -> None:
    task = orlomo.task(name)
    flat = task.build(0)
    noise = task.train_data
    assert torch.allclose(noise.mean(0), torch.zeros(32), atol=1e-6)
    assert task.facts["sigma"] ** 2 == pytest.approx(float((noise**2).sum(1).mean()), rel=1e-5)
    source = torch.Generator().manual_seed(0)

    def gradient(w: Tensor) -> Tensor:
        flat.params.copy_(w)
        return flat.backward(task.loss(flat.module, noise)).clone()

    largest = 0.0
    for scale in (0.001, 0.3, 1.0, 3.0):
        for step in 0.01 * torch.eye(32):
            a = scale * torch.randn(32, generator=source)
            b = a + step
            largest = max(largest, float((gradient(a) - gradient(b)).norm() / (a - b).norm()))
    assert 0.95 * task.facts["L"] < largest <= task.facts["L"] * 1.01
    flat.params.zero_()
    assert task.loss(flat.module, noise).item() == pytest.approx(task.facts["minimum"], abs=1e-6)


def test_a_users_own_task_by_file(tmp_path: Any) -> None:
    path = tmp_path / "mine.py"
    (tmp_path / "neighbour.py").write_text("")
    (tmp_path / "broken.py").write_text("def task(:\n")
    path.write_text(
        "from __future__ import annotations\n"
        "import dataclasses, torch, orlomo, neighbour\n"
        "@dataclasses.dataclass\n"
        "class Settings:\n"
        "    width: int = 1\n"
        "def make():\n"
        "    return orlomo.Task(model=lambda: torch.nn.Linear(1, 1), loss=lambda m, b: m(b).square().mean(),\n"
        "                       train_data=torch.ones(8, 1), batch_size=2)\n"
        "other = 3\n"
    )
    assert orlomo.task(f"{path}:make").size == 8
    for name, text in (
        (f"{path}:mke", "did you mean 'make'"),
        (f"{tmp_path}/no.py:make", "no such file"),
        (f"{tmp_path}/broken.py:task", "line 1"),
    ):
        with pytest.raises(orlomo.OrlomoError, match=text):
            orlomo.task(name)
    with pytest.raises(orlomo.OrlomoError, match="cannot import"):
        orlomo.task("no_such_module:task")


def test_numpy_arrays_are_tensors_too_and_accuracy_needs_no_asking() -> None:
    inputs, labels = classification().train_data
    task = classification(train_data=(inputs.numpy(), labels.numpy()))
    result = evaluate(task, task.build(0), task.initial_params(0), 0)
    assert 0 <= result["test_accuracy"] <= 1
    regression = classification(test_data=(inputs, inputs), loss=lambda model, batch: model(batch[0]).square().mean())
    assert np.isnan(evaluate(regression, regression.build(0), regression.initial_params(0), 0)["test_accuracy"])
    assert "tensor(" not in repr(task)


def test_bad_tasks() -> None:
    for fields, text in (
        ({"batch_size": 0}, "batch_size"),
        ({"sampling": "epoch"}, "did you mean 'epochs'"),
        ({"buffers": "averaged"}, "did you mean 'average'"),
        ({"train_data": torch.empty(0, 4)}, "train_data is empty"),
        ({"test_data": torch.empty(0, 4)}, "test_data is empty"),
        ({"train_data": iter([1, 2])}, "an iterator, which can be read only once"),
        ({"model": nn.Linear(4, 2)}, "a function that makes the module"),
        ({"loss": 3}, "loss must be a function"),
        ({"train_data": (torch.ones(3), torch.ones(4))}, "equal length"),
    ):
        with pytest.raises(orlomo.OrlomoError, match=text):
            classification(**fields)
