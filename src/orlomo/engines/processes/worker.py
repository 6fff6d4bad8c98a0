"""A worker in a process of its own: assignments in, reports out, until it is told to stop or the server is gone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from torch import Tensor

from orlomo.config import RunConfig
from orlomo.engines.processes.slots import Shape, Slot
from orlomo.engines.processes.starter import Work, failed, receive, send
from orlomo.engines.round import RoundRunner
from orlomo.errors import ConfigError
from orlomo.methods.messages import Assignment
from orlomo.methods.server import all_finite
from orlomo.methods.worker import Outbox
from orlomo.tasks.evaluation import read_buffers
from orlomo.tasks.task import Task


@dataclass(frozen=True)
class Job:
    """What one worker is, for its whole life."""

    worker: int
    device: str
    threads: int
    pace: float  # how many times slower than it could be


def job_for(config: RunConfig, worker: int, rank: int) -> Job:
    """The job of this worker in this rank."""
    assert config.threads is not None
    pace = config.pace[rank] if config.pace and rank < len(config.pace) else 1.0
    return Job(worker, device_of(config, rank), config.threads, pace)


def device_of(config: RunConfig, rank: int) -> str:
    """Where the model of this rank is."""
    devices = config.devices or (config.device,)
    return devices[rank % len(devices)]


class Order(NamedTuple):
    """A round to compute; the vectors are in the slot."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    round: int
    learning_rate: float
    local_steps: int
    carries_momentum: bool

    @classmethod
    def of(cls, a: Assignment) -> Order:
        """What is small about an assignment."""
        return cls(a.index, a.round, a.learning_rate, a.local_steps, a.momentum is not None)


class Ready(NamedTuple):
    """The worker has its model."""


class Done(NamedTuple):
    """A round is computed; the vectors are in the slot. `finished` is by the system's monotonic clock."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    round: int
    samples: int
    loss: float
    finite: bool
    compute_seconds: float
    finished: float


def serve(work: Work, job: Job, slot: Slot, pipe: Connection) -> None:
    """A worker's life."""
    torch.set_num_threads(job.threads)  # before anything else: it decides the bits
    try:
        worker = _Worker(work, job, slot)
        send(pipe, Ready())
        while True:
            send(pipe, worker.compute(receive(pipe)))
    except Exception as error:
        send(pipe, failed(error))


def shape_of(task: Task, seed: int, params: Tensor) -> Shape:
    """What goes to and fro between the server and a worker."""
    buffers = read_buffers(task.build(seed)).numel() if task.buffers == "average" else 0
    return Shape(params.numel(), buffers, params.dtype)


def make_runner(work: Work, device: str, shape: Shape) -> RoundRunner:
    """A model to compute on, which must be of the server's size."""
    runner = RoundRunner(work.load(), work.config.method, work.config.seed, device)
    found = runner.flat.params
    if found.numel() != shape.parameters or found.dtype != shape.dtype:
        here, there = f"{found.numel()} parameters ({found.dtype})", f"{shape.parameters} ({shape.dtype})"
        raise ConfigError(f"the model has {here} in this process, but {there} in the server")
    return runner


class _Worker:
    def __init__(self, work: Work, job: Job, slot: Slot):
        self.job, self.slot, self.method = job, slot, work.config.method
        self.runner = make_runner(work, job.device, slot.shape)
        kind = self.runner.flat.params.device.type
        if kind == "cpu":  # computed where the server reads it
            self.runner.rule.outbox = Outbox(slot.delta, slot.momentum)
        elif kind == "cuda":
            slot.pin()

    def compute(self, order: Order) -> Done:
        begin = time.monotonic()
        job, slot = self.job, self.slot
        momentum = slot.momentum if order.carries_momentum else None
        assignment = Assignment(
            job.worker, order.index, order.round, slot.params, order.learning_rate, order.local_steps, momentum
        )
        report = self.runner.run(assignment.to(job.device))
        if self.runner.rule.outbox is None:
            slot.delta.copy_(report.delta_params)
            if report.delta_momentum is not None:
                slot.momentum.copy_(report.delta_momentum)
        if report.buffers is not None:
            slot.buffers.copy_(report.buffers)
        finite = all_finite(slot.delta) and (not self.method.reports_momentum or all_finite(slot.momentum))
        if job.pace > 1:
            time.sleep((job.pace - 1) * (time.monotonic() - begin))
        end = time.monotonic()
        return Done(order.index, order.round, report.samples, report.loss, finite, end - begin, end)
