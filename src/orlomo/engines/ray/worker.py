"""A worker as an actor on a Ray cluster: assignments in, reports out. Ray starts it, and ends it with its driver."""

from __future__ import annotations

import os
import platform
import threading
import time
import warnings
from typing import NamedTuple

import cloudpickle
import numpy as np
import ray.util
import torch
from numpy.typing import NDArray
from torch import Tensor

import orlomo
from orlomo.engines.memory import keep_freed_memory
from orlomo.engines.processes.starter import Failed, PackedTask, failed
from orlomo.engines.processes.worker import WorkerSettings, make_runner
from orlomo.engines.round import KeptState
from orlomo.engines.slots import Shape
from orlomo.methods.messages import Assignment, Report
from orlomo.methods.state import all_finite

Array = NDArray[np.generic]


class Where(NamedTuple):
    """Where an actor is, and what it runs on."""

    node: str
    pid: int
    versions: dict[str, str]


class ArrayReport(NamedTuple):
    """A round's report as it travels: numpy arrays are not copied on their way out of Ray's object store."""

    report: Report  # without its vectors
    vectors: dict[str, Array]
    buffers: Array | None
    compute_seconds: float


def versions() -> dict[str, str]:
    """What decides the bits here."""
    return {"orlomo": orlomo.__version__, "torch": torch.__version__, "python": platform.python_version()}


def where() -> Where:
    """Of this process."""
    node: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return Where(node, os.getpid(), versions())


def view(array: Array) -> Tensor:
    """An array of the object store as a tensor. Its memory is shared and must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def end_with_the_parent(parent: int) -> None:
    """Without the Ray of its machine an actor cannot be reached, but can take a minute to notice."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


class RayWorker:
    """The actor. What the user's code raises is an answer (`Failed`), so that whatever Ray raises is Ray's."""

    def __init__(self, settings: WorkerSettings):
        torch.set_num_threads(settings.threads)  # before anything else: it decides the bits
        keep_freed_memory()
        threading.Thread(target=end_with_the_parent, args=(os.getppid(),), daemon=True).start()
        self.settings = settings

    def where(self) -> Where:
        """Called first: returns as soon as Ray has found room for the actor."""
        return where()

    def prepare(self, pickled_task: Array, shape: Shape) -> Failed | None:
        """Build the model."""
        try:
            # It comes from our own driver, by way of Ray, which itself speaks pickle.
            packed_task: PackedTask = cloudpickle.loads(pickled_task)
            self.runner = make_runner(packed_task, self.settings.device, shape)
            self.kept = KeptState(self.runner.new_state())
            params, names = self.runner.flat.params, packed_task.config.method.report_vectors
            # One set of vectors for all rounds: Ray copies them out.
            self.destination = {name: torch.empty_like(params) for name in names} if params.device.type == "cpu" else {}
        except Exception as error:
            return failed(error)
        return None

    def compute(self, light: Assignment, *vectors: Array) -> ArrayReport | Failed:
        """A round, by an assignment and its vectors in the order in which the method declares them."""
        try:
            return self._compute(light, vectors)
        except Exception as error:
            return failed(error)

    def _compute(self, light: Assignment, vectors: tuple[Array, ...]) -> ArrayReport:
        begin = time.monotonic()
        settings = self.settings
        sent = {name: view(array) for name, array in zip(self.runner.method.sent_vectors(), vectors, strict=True)}
        assignment = light.with_vectors(sent).to(settings.device)
        report, state = self.runner.run(assignment, self.kept.begin(light.round), self.destination)
        self.kept.finish(state)
        report = report.to("cpu")
        # The check for finite numbers is done here, in parallel: the server, which all workers share, need not do it.
        light_report = report.without_vectors()
        light_report.finite = all(all_finite(vector) for vector in report.vectors.values())
        if settings.pace > 1:
            time.sleep((settings.pace - 1) * (time.monotonic() - begin))
        return ArrayReport(
            light_report,
            {name: np.asarray(vector) for name, vector in report.vectors.items()},
            None if report.buffers is None else report.buffers.numpy(),
            time.monotonic() - begin,
        )
