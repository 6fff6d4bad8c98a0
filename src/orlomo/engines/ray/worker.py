"""A worker as an actor on a Ray cluster: assignments in, reports out. Ray starts it, and ends it with its driver."""

from __future__ import annotations

import os
import platform
import threading
import time
import warnings
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import ray.util
import torch
from numpy.typing import NDArray
from torch import Tensor

import orlomo
from orlomo.engines.memory import keep_freed_memory
from orlomo.engines.processes.slots import Shape
from orlomo.engines.processes.starter import Failed, Work, failed
from orlomo.engines.processes.worker import Job, Order, make_runner
from orlomo.methods.messages import Assignment
from orlomo.methods.server import all_finite
from orlomo.methods.worker import Outbox

Array = NDArray[Any]


class Where(NamedTuple):
    """Where an actor is, and what it runs on."""

    node: str
    pid: int
    versions: dict[str, str]


class Answer(NamedTuple):
    """A round's report as it travels: numpy arrays are not copied on their way out of Ray's object store."""

    delta: Array
    momentum: Array | None
    buffers: Array | None
    samples: int
    loss: float
    finite: bool
    compute_seconds: float


def versions() -> dict[str, str]:
    """What decides the bits here."""
    return {"orlomo": orlomo.__version__, "torch": torch.__version__, "python": platform.python_version()}


def view(array: Array) -> Tensor:
    """An array of the object store as a tensor. Its memory is shared and must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _end_with_the_parent(parent: int) -> None:
    """Without the Ray of its machine an actor is lost to everybody, but can take a minute to notice."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


class RayWorker:
    """The actor. What the user's code raises is an answer (`Failed`), so that whatever Ray raises is Ray's."""

    def __init__(self, job: Job):
        torch.set_num_threads(job.threads)  # before anything else: it decides the bits
        keep_freed_memory()
        threading.Thread(target=_end_with_the_parent, args=(os.getppid(),), daemon=True).start()
        self.job = job

    def where(self) -> Where:
        """Asked first: answered as soon as there is a place for it."""
        node: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return Where(node, os.getpid(), versions())

    def prepare(self, parcel: Array, shape: Shape) -> Failed | None:
        """Build the model."""
        try:
            work: Work = cloudpickle.loads(parcel)  # from our own driver, by way of Ray, which itself speaks pickle
            self.runner = make_runner(work, self.job.device, shape)
            self.method = work.config.method
            if self.runner.flat.params.device.type == "cpu":  # one set of vectors for all rounds: Ray copies them out
                delta, momentum = (torch.empty_like(self.runner.flat.params) for _ in range(2))
                self.runner.rule.outbox = Outbox(delta, momentum)
        except Exception as error:
            return failed(error)
        return None

    def compute(self, order: Order, params: Array, momentum: Array | None) -> Answer | Failed:
        """A round."""
        try:
            return self._compute(order, params, momentum)
        except Exception as error:
            return failed(error)

    def _compute(self, order: Order, params: Array, momentum: Array | None) -> Answer:
        begin = time.monotonic()
        job = self.job
        sent = None if momentum is None else view(momentum)
        assignment = Assignment(
            job.worker, order.index, order.round, view(params), order.learning_rate, order.local_steps, sent
        )
        report = self.runner.run(assignment.to(job.device)).to("cpu")
        delta, own = report.delta_params, report.delta_momentum
        finite = all_finite(delta) and (own is None or all_finite(own))
        buffers = None if report.buffers is None else report.buffers.numpy()
        if job.pace > 1:
            time.sleep((job.pace - 1) * (time.monotonic() - begin))
        return Answer(
            np.asarray(delta),
            None if own is None else np.asarray(own),
            buffers,
            report.samples,
            report.loss,
            finite,
            time.monotonic() - begin,
        )
