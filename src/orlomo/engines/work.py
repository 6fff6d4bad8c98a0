"""What a run trains, as its server needs it: where parameters begin, how much there is to do, what model results."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from torch import Tensor

from orlomo.clusters.cluster import check_reports
from orlomo.config import RunConfig
from orlomo.engines.optimizer import OptimizerSteps
from orlomo.engines.trial.numbers import bad_data
from orlomo.errors import require
from orlomo.methods.messages import Assignment
from orlomo.methods.state import Layout
from orlomo.tasks.buffers import Buffers, Encoding
from orlomo.tasks.evaluation import load_trained
from orlomo.tasks.task import Task
from orlomo.values import WHOLE


class Initial(NamedTuple):
    """The parameters w_0, where each tensor of the model is in them, and the buffers that workers report."""

    params: Tensor
    layout: Layout
    encoding: Encoding
    buffers: Tensor | None
    keeps_optimizer: bool = False  # workers keep the state of an optimizer of the user's own
    rate: float | None = None  # that optimizer's learning rate


class Work(ABC):
    """What is trained: a task, or what the user's own loop says of itself."""

    is_loop: ClassVar[bool] = False
    """Whether it is the user's own loop."""

    evaluates: bool = True
    """Whether the model is evaluated now and then."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Samples in an epoch."""

    @abstractmethod
    def initial(self, config: RunConfig) -> Initial:
        """What the run begins with."""

    @abstractmethod
    def planned_reports(self, config: RunConfig) -> int:
        """Reports in the run; a synchronous one ends with the barrier that this falls into."""

    @abstractmethod
    def planned_samples(self, config: RunConfig) -> int:
        """Samples after which the run ends."""

    @abstractmethod
    def model_state(self, config: RunConfig, params: Tensor, buffers: Tensor | None) -> dict[str, Tensor]:
        """The state dict of the model at these parameters."""

    def why_not_finite(self, config: RunConfig, assignment: Assignment) -> str:
        """What is wrong with the data of a round whose report is not finite; empty where nothing is known."""
        return ""


class TaskWork(Work):
    """A task."""

    def __init__(self, task: Task):
        self.task = task

    @property
    def size(self) -> int:
        return self.task.size

    def initial(self, config: RunConfig) -> Initial:
        built = self.task.build(config.seed)
        buffers = Buffers(built, self.task.buffers)
        found = Initial(built.params, built.layout, buffers.encoding, buffers.read())
        if self.task.optimizer is None:
            return found
        own = OptimizerSteps(built, self.task, config.method)
        return found._replace(keeps_optimizer=own.keeps, rate=own.learning_rate)

    def planned_reports(self, config: RunConfig) -> int:
        return planned_reports(config, self.task)

    def planned_samples(self, config: RunConfig) -> int:
        return planned_samples(config, self.task)

    def model_state(self, config: RunConfig, params: Tensor, buffers: Tensor | None) -> dict[str, Tensor]:
        """With running statistics as in an evaluation."""
        flat = self.task.build(config.seed, config.server_device)
        load_trained(self.task, flat, params, config.seed, buffers)
        return flat.module.state_dict()

    def why_not_finite(self, config: RunConfig, assignment: Assignment) -> str:
        return bad_data(self.task, config.seed, assignment)


def planned_samples(config: RunConfig, task: Task) -> int:
    """Samples after which the run ends: whole rounds of the method's usual length."""
    return planned_reports(config, task) * config.method.local_steps * task.batch_size


def planned_reports(config: RunConfig, task: Task) -> int:
    """Reports in the run; a synchronous one ends with the barrier that this falls into."""
    a_round = config.method.local_steps * task.batch_size
    reports = max(1, math.ceil(config.epochs * task.size / a_round))
    good = reports * a_round in WHOLE
    require(good, f"{config.epochs:g} epochs of {task.size:,} samples are too many to count them in 64 bits")
    if config.clock == "virtual":
        check_reports(reports)  # here too: before a change of epochs is written to the run's folder
    return reports
