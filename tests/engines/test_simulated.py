"""The simulated engine: Algorithm 2 done by hand, the same bits on any number of jobs, resume at any event."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import orlomo
from orlomo.config import RunConfig
from orlomo.engines.session import checksum
from orlomo.engines.signals import Signals
from orlomo.engines.simulated.engine import plan
from orlomo.engines.simulated.execute import Execution
from orlomo.records.checkpoint import Checkpoint
from small import NAMES, Memory, classification, settings


def execution(
    method: orlomo.Method, task: orlomo.Task, recorder: Memory, jobs: int = 1, resumed: Any = None, **more: Any
) -> Execution:
    workers = method.max_workers or 4
    fields = {"cluster": orlomo.cluster("heterogeneous"), "workers": workers, "epochs": 4.0, **more}
    config = RunConfig(task="custom", method=method, **fields)
    schedule = plan(config, task, task.initial_params(0))
    return Execution(config, task, schedule, recorder, jobs=jobs, resumed=resumed)


def run_to_the_end(*arguments: Any, **more: Any) -> None:
    made = execution(*arguments, **more)
    made.run(Signals())
    made.save()


def test_the_engine_runs_algorithm_2(tmp_path: Path) -> None:
    """The same run written out as in the paper, with ordinary tensors and autograd, in the order of the trace."""
    task = classification()
    beta, gamma, steps, count = 0.9, 0.1, 3, 4
    method = orlomo.OrLoMo(learning_rate=gamma, momentum=beta, local_steps=steps, weight_decay=0.01)
    run = orlomo.train(task, method, workers=count, epochs=15, cluster="heterogeneous:4", out=tmp_path / "run", jobs=1)
    inputs, labels = task.train_data
    w = task.initial_params(0)
    u = torch.zeros_like(w)
    given, ite, rounds = [w.clone()] * count, [0] * count, [0] * count
    for t, k in enumerate(run.event_columns["worker"].tolist()):
        if ceil(t / count) > ceil((t - 1) / count):
            w, u = w - beta * u, beta * u
        local_w, local_u = given[k].clone(), torch.zeros_like(w)
        for chosen in task.round_batches(0, k, rounds[k], steps):
            x = local_w.clone().requires_grad_()
            outputs = inputs[chosen] @ x[:8].view(2, 4).T + x[8:]
            (functional.cross_entropy(outputs, labels[chosen]) + 0.005 * x.square().sum()).backward()
            local_u = beta * local_u + gamma * x.grad
            local_w = local_w - local_u
        delay = t - ite[k]
        eta = 1 / count if delay <= 2 * count else 1 / delay
        behind = ceil(t / count) - ceil(ite[k] / count)
        delta_w = given[k] - local_w
        u = u + beta**behind * eta * local_u
        w = w - eta * delta_w - beta * (1 - beta**behind) / (1 - beta) * eta * local_u
        given[k], ite[k], rounds[k] = w.clone(), t + 1, rounds[k] + 1
    assert len(run.event_columns["worker"]) > 20
    assert torch.allclose(run.params, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_every_method_learns(name: str, tmp_path: Path) -> None:
    rate = 0.3 if name in ("asgd", "al-sgd", "local-sgd") else 0.1
    workers = 1 if name == "msgd" else 4
    run = orlomo.train(
        classification(), settings(name, learning_rate=rate), workers=workers, epochs=30, out=tmp_path / "run", jobs=1
    )
    assert run.finished
    assert run.metric_columns["test_accuracy"][-1] >= 0.9
    assert run.metric_columns["train_loss"][-1] < 0.5 * run.metric_columns["train_loss"][0]


def dropped() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))


@pytest.mark.parametrize("buffers", ["recalibrate", "average"])
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_jobs_gives_the_same_bits(name: str, buffers: str) -> None:
    task = classification(model=dropped, buffers=buffers)
    recorders = []
    for jobs in (1, 2, 3):
        recorder = Memory()
        run_to_the_end(settings(name), task, recorder, jobs)
        recorders.append(recorder)
    first = recorders[0]
    assert len(first.events) > 5
    for other in recorders[1:]:
        assert [row["loss"] for row in other.events] == [row["loss"] for row in first.events]
        assert without_clock(other.metrics) == without_clock(first.metrics)
        assert checksum(other.saved[-1][1]["server.params"]) == checksum(first.saved[-1][1]["server.params"])


def without_clock(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "real_seconds"} for row in rows]


@pytest.mark.parametrize("buffers", ["recalibrate", "average", "keep"])
@pytest.mark.parametrize("name", NAMES)
def test_resumed_at_any_place_it_ends_the_same(name: str, buffers: str) -> None:
    task, whole = classification(model=dropped, buffers=buffers), Memory(due=True)
    faults = (orlomo.Fault(time=4.0, worker=0, kind="crash"), orlomo.Fault(time=6.0, worker=0, kind="return"))
    cluster = orlomo.Cluster(faults=faults)
    run_to_the_end(settings(name), task, whole, cluster=cluster)
    assert [position for position, _, _ in whole.saved[:-1]] == list(range(1, len(whole.events) + 1))
    for number in range(0, len(whole.saved) - 1, 3):
        part = Memory()
        run_to_the_end(settings(name), task, part, resumed=Checkpoint(*whole.saved[number]), cluster=cluster)
        position, _, values = whole.saved[number]
        assert [row.get("loss") for row in part.events] == [row.get("loss") for row in whole.events[position:]]
        rest = whole.metrics[len(whole.metrics) - len(part.metrics) :]
        assert without_clock(part.metrics) == without_clock(rest)
        assert len(part.metrics) >= len(values["evaluations"])
        assert checksum(part.saved[-1][1]["server.params"]) == checksum(whole.saved[-1][1]["server.params"])


def test_parameters_are_shared_and_freed() -> None:
    """At the start all workers hold one vector; later no more vectors live than there are workers."""
    task, recorder = classification(), Memory(due=True)
    run = execution(orlomo.OrLoMo(local_steps=1), task, recorder, workers=16)
    run.run(Signals())
    held = [[name for name in tensors if name.startswith("held.")] for _, tensors, _ in recorder.saved]
    assert len(held[0]) == 2  # w_0 for fifteen workers, w_1 for one
    assert max(map(len, held)) <= 16


def test_rounds_that_will_not_be_reported_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from orlomo.engines.round import Computed, RoundRunner

    computed: list[tuple[int, int]] = []
    real = RoundRunner.run

    def noted(self: RoundRunner, assignment: orlomo.Assignment, *more: Any) -> Computed:
        computed.append((assignment.worker, assignment.round))
        return real(self, assignment, *more)

    monkeypatch.setattr(RoundRunner, "run", noted)
    recorder = Memory()
    faults = (orlomo.Fault(time=1.0, worker=3, kind="crash"),)
    execution(settings("orlomo"), classification(), recorder, cluster=orlomo.Cluster(faults=faults)).run(Signals())
    reported = [(row["worker"], row["round"]) for row in recorder.events if row["kind"] == 0]
    assert computed == reported
    assert 3 not in {worker for worker, _ in computed}


def test_divergence_is_one_clear_error(tmp_path: Path) -> None:
    method = orlomo.OrLoMo(learning_rate=1e30, local_steps=4)
    for jobs in (1, 2):
        with pytest.raises(orlomo.Diverged, match=r"the run diverged at iteration .* lower the learning rate"):
            orlomo.train("quadratic", method, workers=2, epochs=2, out=tmp_path / str(jobs), jobs=jobs)


class Poisoned:
    """A data set with a mistake in it."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        raise RuntimeError("this sample is broken")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_users_mistake_comes_out_as_it_is(tmp_path: Path, jobs: int) -> None:
    task = classification(train_data=Poisoned())
    with pytest.raises(RuntimeError, match="this sample is broken"):
        orlomo.train(task, "orlomo", workers=2, epochs=1, out=tmp_path / "run", jobs=jobs)


def test_metrics_carry_virtual_and_real_time(tmp_path: Path) -> None:
    run = orlomo.train(classification(), settings("orlomo"), workers=4, epochs=5, out=tmp_path / "run", jobs=1)
    virtual, real = run.metric_columns["seconds"], run.metric_columns["real_seconds"]
    assert virtual[0] == 0
    assert (np.diff(virtual) > 0).all()
    assert (np.diff(real) > 0).all()
    assert virtual[-1] == run.event_columns["finish"][-1]
    assert run.metric_columns["epoch"][-1] >= 5


def test_a_schedule_of_the_learning_rate_reaches_the_workers(tmp_path: Path) -> None:
    method = orlomo.OrLoMo(learning_rate=0.1, local_steps=2, schedule="step:2,3")
    run = orlomo.train(classification(), method, workers=2, epochs=5, out=tmp_path / "run", jobs=1)
    assert sorted({round(rate, 9) for rate in run.event_columns["learning_rate"].tolist()}) == [0.001, 0.01, 0.1]
    assert run.metric_columns["learning_rate"][-1] == pytest.approx(0.001)


def test_the_written_model_is_the_trained_model(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    task = classification(model=dropped)
    run = orlomo.train(task, settings("orlomo"), workers=2, epochs=20, out=tmp_path / "run", jobs=2)
    model = dropped()
    model.load_state_dict(load_file(run.folder / "model.safetensors"))
    model.eval()
    inputs, labels = task.test_data
    accuracy = (model(inputs).argmax(1) == labels).float().mean()
    assert float(accuracy) == pytest.approx(run.metric_columns["test_accuracy"][-1])
