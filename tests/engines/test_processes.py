"""The processes engine when all goes well: sharing memory, threads, pace, devices, start-up."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import faulty
import orlomo
from orlomo.config import RunConfig
from orlomo.engines.live.crew import Arrived
from orlomo.engines.processes.crew import ProcessCrew
from orlomo.engines.processes.starter import PackedTask, Starter
from orlomo.engines.slots import Shape, Slot
from small import call_cli, classification, settings, started, wait_for

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def double(slot: Slot, pipe: multiprocessing.connection.Connection) -> None:
    slot.report["double"].copy_(2 * slot.assignment["params"])
    pipe.send("done")


def test_a_slot_is_the_same_memory_in_both_processes() -> None:
    slot = Slot(Shape(5, torch.float64, buffers=2, report=("double",)))
    slot.assignment["params"].copy_(torch.arange(5))
    process, pipe = Starter().start(double, slot)
    assert pipe.recv() == "done"
    process.join()
    pipe.close()
    assert slot.report["double"].tolist() == [0, 2, 4, 6, 8]
    assert (slot.buffers.numel(), slot.buffers.dtype) == (2, torch.uint8)
    slot.close()


def test_a_vector_is_copied_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server folds the report where the worker computed it, and writes its answer where the worker reads it."""
    task = classification()
    method = settings("orlomo", learning_rate=0.05)
    config = RunConfig(
        task="custom", method=method, cluster=orlomo.cluster("homogeneous"), workers=1, engine="processes", threads=1
    )
    params = task.initial_params(0)
    server = method.server(params, 1)
    with ProcessCrew(Starter(), PackedTask(config, task), Shape.of(task, method, 0, params)) as crew:
        crew.start(0, rank=0)
        slot = crew.members[0].slot
        server.destination = crew.destination
        [assignment] = server.start()
        assert assignment.params.data_ptr() == slot.assignment["params"].data_ptr()
        crew.send(assignment)
        events = []
        while not events:
            events = crew.wait(10.0)
        [arrived] = events
        assert isinstance(arrived, Arrived)
        assert arrived.report.delta_params.data_ptr() == slot.report["delta_params"].data_ptr()
        assert arrived.report.delta_momentum is not None
        assert arrived.report.delta_momentum.data_ptr() == slot.report["delta_momentum"].data_ptr()
        [answer] = server.receive(arrived.report)
        assert answer.params.data_ptr() == slot.assignment["params"].data_ptr()
        assert torch.equal(slot.assignment["params"], server.params)


def test_reports_are_told_in_the_order_in_which_they_were_done() -> None:
    """First come, first served, also when several are there by the time that the server looks."""
    task = classification()
    method = settings("orlomo")
    config = RunConfig(
        task="custom", method=method, cluster=orlomo.cluster("homogeneous"), workers=4, engine="processes", threads=1
    )
    params = task.initial_params(0)
    server = method.server(params, 4)
    with ProcessCrew(Starter(), PackedTask(config, task), Shape.of(task, method, 0, params)) as crew:
        for worker in range(4):
            crew.start(worker, rank=worker)
        server.destination = crew.destination
        assignments = server.start()
        while not all(member.ready for member in crew.members.values()):
            crew.wait(0.1)
        for assignment in reversed(assignments):  # the last is sent off first
            crew.send(assignment)
            assert crew.members[assignment.worker].pipe.poll(60)  # done, and not looked at
        arrived = crew.wait(1.0)
        assert [event.report.worker for event in arrived if isinstance(event, Arrived)] == [3, 2, 1, 0]


def test_the_slow_worker_holds_no_other_up(tmp_path: Path) -> None:
    run = orlomo.train(
        faulty.task(tmp_path / "faults"),
        orlomo.OrLoMo(local_steps=4),
        workers=3,
        epochs=30,
        engine="processes",
        pace=(1, 1, 20),
        out=tmp_path / "run",
    )
    rounds = np.bincount(run.event_columns["worker"])
    assert rounds[:2].min() > 4 * rounds[2]
    busy = [run.event_columns["compute"][run.event_columns["worker"] == worker].mean() for worker in range(3)]
    assert busy[2] > 5 * max(busy[:2])


def test_the_number_of_threads_is_recorded_and_used_by_a_replay(tmp_path: Path) -> None:
    run = orlomo.train(
        "digits", settings("orlomo"), workers=1, epochs=0.5, engine="processes", out=tmp_path / "default"
    )
    cores = len(os.sched_getaffinity(0))
    assert run.config.threads == cores
    wide = orlomo.train(
        classification(lambda: nn.Sequential(nn.Linear(4, 4096), nn.ReLU(), nn.Linear(4096, 2)), samples=544),
        settings("orlomo"),
        workers=2,
        epochs=1,
        engine="processes",
        threads=2,
        batch_size=512,
        out=tmp_path / "two",
    )
    assert wide.config.threads == 2
    task = classification(lambda: nn.Sequential(nn.Linear(4, 4096), nn.ReLU(), nn.Linear(4096, 2)), samples=544)
    for jobs in (1, 2):
        assert orlomo.replay(wide.folder, task=task, jobs=jobs).agrees


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Lambdas, functions of the script itself, and no `if __name__ == "__main__"`."""
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, orlomo\n"
        "print('once')\n"
        "def loss(model, batch):\n"
        "    return ((model(batch[0]) - batch[1]) ** 2).mean()\n"
        "data = (torch.randn(64, 3), torch.randn(64, 1))\n"
        "task = orlomo.Task(model=lambda: torch.nn.Linear(3, 1), loss=loss, train_data=data, batch_size=8)\n"
        "run = orlomo.train(task, orlomo.OrLoMo(local_steps=4), workers=2, epochs=4, engine='processes', out='run')\n"
        "print(run.finished)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["once", "True"], done.stderr


def test_a_data_set_of_many_tensors(tmp_path: Path) -> None:
    """More than a process can be sent file descriptors; views of one memory; and one large tensor, which is shared."""
    both = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    pairs = [(both[number], torch.tensor(number % 2)) for number in range(600)]
    large = torch.zeros(1 << 19)
    task = classification(
        lambda: nn.Linear(4, 2),
        train_data=pairs,
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]) + large[0],
    )
    run = orlomo.train(task, settings("orlomo"), workers=2, epochs=1, engine="processes", out=tmp_path / "run")
    assert orlomo.replay(run.folder, task=task, jobs=1).agrees


def test_a_task_that_cannot_be_sent_is_one_clear_error(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        task = classification(lambda: print("", file=file) or nn.Linear(4, 2))
        with pytest.raises(orlomo.OrlomoError, match="this task cannot be sent to other processes"):
            orlomo.train(task, settings("orlomo"), workers=1, epochs=1, engine="processes", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_of_another_size_in_the_workers_is_one_clear_error(tmp_path: Path) -> None:
    task = classification(lambda: nn.Linear(4, 2 if multiprocessing.parent_process() is None else 3))
    message = r"ConfigError: the model has 15 parameters .* in this process, but 10 .* in the server"
    with pytest.raises(orlomo.OrlomoError, match=message):
        orlomo.train(
            task,
            settings("orlomo"),
            workers=1,
            epochs=1,
            engine="processes",
            out=tmp_path / "run",
            warn=lambda text: None,
        )


def test_digits_to_98_percent_on_uneven_processes_across_a_killed_server(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flags = "train digits --engine processes --workers 4 --pace 1,1,2,4 --epochs 80 --local-steps 8 --learning-rate 0.3"
    more = f"--weight-decay 0.001 --schedule step:60,75 --seed 1 --checkpoint-seconds 0.5 --out {folder}"
    with started(*flags.split(), *more.split()) as server:
        wait_for(lambda: list(folder.glob("checkpoints/*.json")) != [], server)
        server.send_signal(signal.SIGKILL)
        server.communicate()
    again = call_cli("resume", folder, folder=tmp_path)
    assert again.returncode == 0, again.stderr
    run = orlomo.load(folder)
    assert run.metric_columns["test_accuracy"].max() >= 0.98
    assert len(set(run.event_columns["worker"].tolist())) == 4
    assert orlomo.replay(folder, jobs=2).agrees


@GPU
def test_workers_on_a_gpu_and_on_the_cpu(tmp_path: Path) -> None:
    run = orlomo.train(
        classification(), settings("orlomo"), workers=2, epochs=20, engine="processes", devices=("cuda:0", "cpu"),
        out=tmp_path / "run",
    )  # fmt: skip
    assert run.metric_columns["test_accuracy"][-1] > 0.9


@GPU
def test_a_gpu_run_replays(tmp_path: Path) -> None:
    run = orlomo.train(
        classification(),
        settings("prsgdm"),
        workers=2,
        epochs=5,
        engine="processes",
        device="cuda",
        out=tmp_path / "run",
    )
    assert orlomo.replay(run.folder, task=classification()).agrees
