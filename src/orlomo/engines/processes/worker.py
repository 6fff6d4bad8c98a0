"""A worker in a process of its own: assignments in, reports out, until it is stopped or the server is gone."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch

from orlomo.config import RunConfig
from orlomo.engines.processes.starter import PackedTask, failed, receive, send
from orlomo.engines.round import KeptState, RoundRunner
from orlomo.engines.slots import Shape, Slot
from orlomo.errors import ConfigError
from orlomo.methods.messages import Assignment, Report
from orlomo.methods.state import all_finite


@dataclass(frozen=True)
class WorkerSettings:
    """What one worker is, as long as it runs."""

    worker: int
    device: str
    threads: int
    pace: float  # how many times slower than it could be


def worker_settings(config: RunConfig, worker: int, rank: int) -> WorkerSettings:
    """The settings of this worker in this rank."""
    assert config.threads is not None
    pace = config.pace[rank] if config.pace and rank < len(config.pace) else 1.0
    return WorkerSettings(worker, device_of(config, rank), config.threads, pace)


def device_of(config: RunConfig, rank: int) -> str:
    """Where the model of this rank is."""
    devices = config.devices or (config.device,)
    return devices[rank % len(devices)]


class Ready(NamedTuple):
    """The worker has its model."""


class SlotReport(NamedTuple):
    """The report of a round, its vectors in the slot. `finished` is by the system's monotonic clock."""

    report: Report
    compute_seconds: float
    finished: float


def serve(packed_task: PackedTask, settings: WorkerSettings, slot: Slot, pipe: Connection) -> None:
    """The worker's main loop."""
    torch.set_num_threads(settings.threads)  # before anything else: it decides the bits
    try:
        worker = _Worker(packed_task, settings, slot)
        send(pipe, Ready())
        while True:
            send(pipe, worker.compute(receive(pipe, Assignment)))
    except Exception as error:
        send(pipe, failed(error))


def make_runner(packed_task: PackedTask, device: str, shape: Shape, trains: bool = True) -> RoundRunner:
    """A model to compute on, which must be of the server's size; `trains` is false where it only evaluates."""
    task = packed_task.load()
    if not trains:
        task = dataclasses.replace(task, optimizer=None)  # torch takes a second to make a process's first optimizer
    runner = RoundRunner(task, packed_task.config.method, packed_task.config.seed, device)
    found = runner.flat.params
    if found.numel() != shape.parameters or found.dtype != shape.dtype:
        here, there = f"{found.numel()} parameters ({found.dtype})", f"{shape.parameters} ({shape.dtype})"
        raise ConfigError(f"the model has {here} in this process, but {there} in the server")
    return runner


class _Worker:
    def __init__(self, packed_task: PackedTask, settings: WorkerSettings, slot: Slot):
        self.settings, self.slot = settings, slot
        self.runner = make_runner(packed_task, settings.device, slot.shape)
        self.kept = KeptState(self.runner.new_state())
        self.shares_memory = self.runner.flat.params.device.type == "cpu"
        if self.runner.flat.params.device.type == "cuda":
            slot.pin()

    def compute(self, light: Assignment) -> SlotReport:
        """A round, by an assignment whose vectors are in the slot."""
        begin = time.monotonic()
        settings, slot = self.settings, self.slot
        assignment = light.with_vectors(slot.assignment).to(settings.device)
        # On the CPU a report is computed where the server reads it, elsewhere it is copied there.
        report, state = self.runner.run(
            assignment, self.kept.begin(light.round), slot.report if self.shares_memory else None
        )
        self.kept.finish(state)
        if not self.shares_memory:
            for name, vector in report.vectors.items():
                slot.report[name].copy_(vector)
        if report.buffers is not None:
            slot.buffers.copy_(report.buffers)
        light_report = report.without_vectors()
        light_report.finite = all(all_finite(vector) for vector in slot.report.values())
        if settings.pace > 1:  # asleep, not busy: a slow worker must not take the others' cores
            time.sleep((settings.pace - 1) * (time.monotonic() - begin))
        end = time.monotonic()
        return SlotReport(light_report, end - begin, end)
