"""A policy per buffer: what workers keep, what they report, what is evaluated and saved; the same bits everywhere."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from test_conformance import StopAt
from test_simulated import run_to_the_end, without_clock
from test_survival import Script
from torch import Tensor, nn

import faulty
import orlomo
from orlomo.engines.round import KeptState, RoundRunner
from orlomo.engines.session import checksum
from orlomo.methods.messages import Assignment
from orlomo.records.checkpoint import Checkpoint
from orlomo.tasks.buffers import Buffers
from small import Memory, classification, settings
from stateful import Caching, Lazy, Queued, Taught, saved

KEPT = {"queue": "keep", "pointer": "keep", "steps": "keep"}


def queued(**more: Any) -> orlomo.Task:
    return classification(Queued, buffers=KEPT, **more)


def train(task: orlomo.Task, folder: Path, **more: Any) -> orlomo.Run:
    usual = {"workers": 3, "epochs": 6, "jobs": 1, "out": folder}
    usual |= {} if "engine" in more else {"cluster": "heterogeneous"}
    return orlomo.train(task, settings("orlomo"), **(usual | more))


def test_a_counter_counts_and_a_queue_is_filled(tmp_path: Path) -> None:
    run = train(queued(), tmp_path / "run", workers=1)
    state, steps = saved(run), 2 * len(run.event_columns["kind"])
    assert state["steps"] == steps
    assert state["pointer"] == steps % 8
    assert (state["queue"] != 0).any(1).all()


def test_floats_are_averaged_over_workers_and_the_rest_is_of_the_newest_report(tmp_path: Path) -> None:
    run = train(queued(), tmp_path / "run")
    checkpoint = run.checkpoint
    assert checkpoint is not None
    workers = run.event_columns["worker"]
    own, newest = Buffers(queued().build(0), KEPT), workers.tolist()[-1]
    parts = {part.buffer: part for part in own.encoding.parts}
    reports = [checkpoint.tensors[f"buffers.{worker}"] for worker in range(3)]
    queues, steps = ([parts[name].of(report) for report in reports] for name in ("queue", "steps"))
    assert [int(one) for one in steps] == [2 * int((workers == worker).sum()) for worker in range(3)]
    assert len({int(one) for one in steps}) > 1
    state = saved(run)
    assert torch.equal(state["queue"].flatten(), torch.stack(queues).mean(0))
    assert state["steps"] == steps[newest]


@pytest.mark.parametrize("buffers", ["keep", KEPT, {"steps": "keep", "queue": "average", "pointer": "reset"}])
def test_any_number_of_jobs_gives_the_same_bits(buffers: Any, tmp_path: Path) -> None:
    task = classification(Queued, buffers=buffers)
    one, three = (train(task, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 3))
    for name in ("events.csv", "model.safetensors"):
        assert (one.folder / name).read_bytes() == (three.folder / name).read_bytes()
    reset = train(classification(Queued, buffers="reset"), tmp_path / "reset")
    assert (checksum(one.params) != checksum(reset.params)) == (buffers in ("keep", KEPT))


@pytest.mark.parametrize("jobs", [1, 2])
def test_resumed_at_any_place_it_ends_the_same(jobs: int) -> None:
    """One worker crashes and returns: it begins with the initial values."""
    faults = (orlomo.Fault(time=4.0, worker=0, kind="crash"), orlomo.Fault(time=6.0, worker=0, kind="return"))
    cluster, whole = orlomo.Cluster(faults=faults), Memory(due=True)
    run_to_the_end(settings("orlomo"), queued(), whole, cluster=cluster)
    for position, tensors, values in whole.saved[:-1:2]:
        part = Memory()
        resumed = Checkpoint(position, tensors, values)
        run_to_the_end(settings("orlomo"), queued(), part, jobs, resumed=resumed, cluster=cluster)
        assert [row.get("loss") for row in part.events] == [row.get("loss") for row in whole.events[position:]]
        assert without_clock(part.metrics) == without_clock(whole.metrics[len(whole.metrics) - len(part.metrics) :])
        for name, tensor in whole.saved[-1][1].items():
            assert torch.equal(part.saved[-1][1][name], tensor)
    steps = Buffers(queued().build(0), KEPT).encoding.parts[-1]
    assert steps.buffer == "steps"
    done, after = 0, False
    for row in whole.events:
        after |= row["worker"] == 0 and "loss" not in row
        done += after and row["worker"] == 0 and "loss" in row
    assert steps.of(whole.saved[-1][1]["buffers.0"]) == 2 * done


def test_stopped_by_ctrl_c_it_ends_the_same(tmp_path: Path) -> None:
    whole = train(queued(), tmp_path / "whole")
    with pytest.raises(orlomo.Interrupted):
        train(queued(), tmp_path / "run", callbacks=[StopAt(7, signal.SIGINT)], jobs=2)
    run = orlomo.resume(tmp_path / "run", task=queued(), jobs=1)
    for name in ("events.csv", "model.safetensors"):
        assert (run.folder / name).read_bytes() == (whole.folder / name).read_bytes()
    assert orlomo.replay(run.folder, task=queued(), jobs=2).agrees


def test_a_round_that_is_refused_is_computed_again_from_the_same_buffers() -> None:
    task = queued()
    runner = RoundRunner(task, orlomo.ALSGD(local_steps=2), seed=0)
    kept, params = KeptState(runner.new_state()), {"params": task.initial_params(0)}
    reports = []
    for number in (0, 1, 1, 2):
        report, state = runner.run(Assignment(0, 0, number, params, 0.1, 2), kept.begin(number))
        kept.finish(state)
        reports.append(report)
    assert [int(runner.buffers.encoding.parts[-1].of(report.buffers)) for report in reports] == [2, 4, 4, 6]
    assert torch.equal(reports[1].delta_params, reports[2].delta_params)


def test_processes_keep_buffers_and_replay(tmp_path: Path) -> None:
    """Stopped and continued, all workers are new ones, and begin with the initial values; the record says so."""
    with pytest.raises(orlomo.Interrupted):
        train(queued(), tmp_path / "run", engine="processes", epochs=20, callbacks=[StopAt(11, signal.SIGINT)])
    before = orlomo.load(tmp_path / "run")
    assert orlomo.replay(before.folder, task=queued(), jobs=1).agrees
    run = orlomo.resume(tmp_path / "run", task=queued())
    assert sorted(set(run.event_columns["kind"].tolist())) == ["crash", "join", "report"]
    assert orlomo.replay(run.folder, task=queued(), jobs=2).agrees
    last = run.event_columns["worker"].tolist()[-1]
    assert saved(run)["steps"] == 2 * (run.event_columns["worker"] == last)[run.event_columns["kind"] == "report"].sum()


def test_a_killed_worker_is_replaced_by_one_with_the_initial_values(tmp_path: Path) -> None:
    task = faulty.task(tmp_path / "faults", layer=Counted, buffers={"1.*": "keep"})
    kill = Script({30: lambda done: os.kill(faulty.trainers(tmp_path / "faults")[0], signal.SIGKILL)})
    run = train(task, tmp_path / "run", engine="processes", callbacks=[kill], warn=lambda text: None)
    assert "crash" in run.event_columns["kind"]
    assert orlomo.replay(run.folder, task=task, jobs=1).agrees
    checkpoint = run.checkpoint
    assert checkpoint is not None
    steps = Buffers(task.build(0), task.buffers).encoding.parts[-1]
    for worker in {int(name.partition(".")[2]) for name in checkpoint.tensors if name.startswith("buffers.")}:
        rounds = ((run.event_columns["worker"] == worker) & (run.event_columns["kind"] == "report")).sum()
        assert steps.of(checkpoint.tensors[f"buffers.{worker}"]) == 2 * rounds


def test_frozen_parameters_that_the_model_moves_are_buffers_where_a_policy_says_so(tmp_path: Path) -> None:
    task = classification(Taught, buffers={"teacher.*": "keep"})
    runs = [train(task, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 3)]
    assert (runs[0].folder / "model.safetensors").read_bytes() == (runs[1].folder / "model.safetensors").read_bytes()
    assert not torch.equal(saved(runs[0])["teacher.weight"], Taught().teacher.weight)
    real = train(task, tmp_path / "real", engine="processes")
    assert orlomo.replay(real.folder, task=task, jobs=1).agrees


@pytest.mark.parametrize("made", [Caching, Lazy])
def test_buffers_made_in_forward_do_not_outlive_a_round(made: type[nn.Module], tmp_path: Path) -> None:
    runs = [train(classification(made), tmp_path / str(jobs), jobs=jobs) for jobs in (1, 3)]
    assert torch.equal(runs[0].params, runs[1].params)


def test_a_checkpoint_of_an_earlier_version_still_reads() -> None:
    """It has averaged buffers as numbers, not as bytes."""
    normed = lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))  # noqa: E731
    task, whole, part = classification(normed, buffers="average"), Memory(due=True), Memory()
    run_to_the_end(settings("orlomo"), task, whole)
    position, tensors, values = whole.saved[5]
    earlier = {name: t.view(torch.float32) if "buffers" in name else t for name, t in tensors.items()}
    run_to_the_end(settings("orlomo"), task, part, resumed=Checkpoint(position, earlier, values))
    assert without_clock(part.metrics) == without_clock(whole.metrics[len(whole.metrics) - len(part.metrics) :])


def test_buffers_of_all_types_survive_their_encoding() -> None:
    values = [
        torch.tensor([True, False, True]),
        torch.randn(3, dtype=torch.bfloat16),
        torch.randn(2, 3, dtype=torch.float64).T,
        torch.tensor(3, dtype=torch.int16),
        torch.randn(2, dtype=torch.complex128),
        torch.randn(1, 2, 2, 2).to(memory_format=torch.channels_last),
        torch.zeros(0),
    ]
    module = nn.Linear(2, 1)
    for number, value in enumerate(values):
        module.register_buffer(f"b{number}", value.clone(), persistent=bool(number % 2))
    flat = orlomo.Task(model=lambda: module, loss=lambda m, b: m(b).mean(), train_data=torch.ones(4, 2)).build(0)
    own = Buffers(flat, "keep")
    written = own.read()
    assert written is not None
    for name in dict(module.named_buffers()):
        getattr(module, name).zero_()
    own.load(written)
    for value, found in zip(values, dict(module.named_buffers()).values(), strict=True):
        assert torch.equal(value, found)
    assert torch.equal(own.encoding.combine([written, written], written), written)


class Counted(nn.Module):
    """Counts its training steps, and lets them into the output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        return x / (1 + 0.01 * self.steps)
