"""The pool of jobs: large buffers, modules with careless buffers, jobs that die, all with the same bits."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from test_simulated import run_to_the_end, without_clock
from torch import Tensor, nn

import orlomo
from orlomo.engines.simulated import pool as pools
from orlomo.engines.simulated.pool import ProcessPool
from small import Memory, classification, settings


class Careless(nn.Module):
    """Keeps a running mean by assigning a new tensor, and lets it into the output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.linear(x - self.mean)


class Masked(nn.Module):
    """Carries a large buffer of another dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.register_buffer("mask", torch.ones(300, 1000, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def instance_normed() -> nn.Module:
    norm = nn.InstanceNorm1d(1, track_running_stats=True)
    return nn.Sequential(nn.Unflatten(1, (1, 4)), norm, nn.Flatten(), nn.Linear(4, 2))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    model[1].weight = model[0].weight
    return model


@pytest.mark.parametrize("buffers", ["recalibrate", "average", "keep"])
@pytest.mark.parametrize("model", [Careless, Masked, instance_normed, tied])
def test_modules_with_buffers_of_all_kinds(model: type[nn.Module], buffers: str) -> None:
    task = classification(model=model, buffers=buffers)
    recorders = [Memory(), Memory()]
    for jobs, recorder in enumerate(recorders, start=1):
        run_to_the_end(settings("orlomo"), task, recorder, jobs, evaluate_every=0.25)
    one, two = recorders
    assert without_clock(one.metrics) == without_clock(two.metrics)
    for name, tensor in one.saved[-1][1].items():
        assert torch.equal(tensor, two.saved[-1][1][name])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_floating_point_types(dtype: torch.dtype, tmp_path: Path) -> None:
    inputs, labels = classification().train_data
    task = classification(
        model=lambda: nn.Linear(4, 2, dtype=dtype), train_data=(inputs.to(dtype), labels), test_data=None
    )
    run = orlomo.train(task, settings("orlomo"), workers=3, epochs=4, out=tmp_path / "run", jobs=2)
    assert run.params.dtype == dtype
    assert orlomo.replay(run.folder, task=task, jobs=1).agrees


def test_the_models_file_is_the_same_each_time(tmp_path: Path) -> None:
    task = classification(model=lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)))
    files = []
    for number in range(2):
        torch.manual_seed(number)
        run = orlomo.train(task, settings("orlomo"), workers=3, epochs=2, out=tmp_path / str(number), jobs=1)
        before = torch.get_rng_state()
        torch.manual_seed(number)
        assert torch.equal(before, torch.get_rng_state())  # the caller's generator was left alone
        files.append((run.folder / "model.safetensors").read_bytes())
        assert (run.folder / "model.safetensors").stat().st_mode == (run.folder / "events.csv").stat().st_mode
    assert files[0] == files[1]


def test_training_data_that_leaves_a_batch_of_one_over(tmp_path: Path) -> None:
    inputs, labels = (part[:33] for part in classification().train_data)
    task = classification(
        model=lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)), train_data=(inputs, labels), batch_size=8
    )
    assert orlomo.train(task, settings("orlomo"), workers=2, epochs=2, out=tmp_path / "run", jobs=1).finished


@pytest.mark.parametrize("busy", [True, False])
def test_a_job_that_dies_is_one_clear_error(busy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it computes, or while it waits for work."""
    made: list[ProcessPool] = []
    real = pools.open_pool

    def noted(*arguments: object) -> object:
        made.append(real(*arguments))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr("orlomo.engines.simulated.execute.open_pool", noted)

    class Killer(orlomo.Callback):
        def event(self, row: dict[str, Any]) -> None:
            if row["reports"] == 5:
                job = max(made[0]._jobs, key=lambda job: job.running if busy else -job.running)
                os.kill(job.process.pid, signal.SIGKILL)

    workers = 4 if busy else 1
    with pytest.raises(orlomo.OrlomoError, match="a job ended unexpectedly"):
        orlomo.train(
            classification(),
            settings("orlomo"),
            workers=workers,
            epochs=50,
            out=tmp_path / "a",
            jobs=2,
            callbacks=[Killer()],
        )
