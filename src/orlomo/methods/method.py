"""The contract of a method: frozen hyperparameters, a server rule (`fold`, `close`) and a worker rule.

A method knows nothing of time, processes or machines.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from orlomo.errors import ConfigError, require
from orlomo.methods import rates
from orlomo.methods.ledger import AsynchronousLedger, BarrierLedger, Fold, Ledger
from orlomo.methods.messages import Report
from orlomo.methods.server import Server, Vectors
from orlomo.methods.worker import WorkerRule


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """What every method has.

    Args:
        learning_rate: gamma, the local learning rate before the schedule's factor.
        local_steps: S, local steps in a round.
        weight_decay: L2, added to the local gradient.
        clip_norm: largest norm of a local gradient; None: no limit.
        schedule: of the learning rate, by epochs folded in: `constant`, `step:80,120`, `cosine:160`.
        warmup_epochs: epochs over which the learning rate rises linearly at the start.

    >>> import orlomo
    >>> isinstance(orlomo.OrLoMo(schedule="step:80,120"), orlomo.Method)
    True
    """

    name: ClassVar[str]
    synchronous: ClassVar[bool] = False
    reports_momentum: ClassVar[bool] = False  # reports bring delta_momentum
    carries_momentum: ClassVar[bool] = False  # assignments bring momentum
    keeps_momentum: ClassVar[bool] = False  # the server has u
    max_workers: ClassVar[int | None] = None

    learning_rate: float = 0.1
    local_steps: int = 16
    weight_decay: float = 0.0
    clip_norm: float | None = None
    schedule: str = "constant"
    warmup_epochs: float = 0.0

    def __post_init__(self) -> None:
        positive = math.isfinite(self.learning_rate) and self.learning_rate > 0
        require(positive, f"learning_rate must be above 0, not {self.learning_rate}")
        whole = isinstance(self.local_steps, int) and self.local_steps >= 1
        require(whole, f"local_steps must be a whole number of at least 1, not {self.local_steps}")
        require(self.weight_decay >= 0, f"weight_decay must be 0 or more, not {self.weight_decay}")
        require(self.clip_norm is None or self.clip_norm > 0, f"clip_norm must be above 0, not {self.clip_norm}")
        rates.schedule(self.schedule, self.warmup_epochs)
        momentum = getattr(self, "momentum", 0.0)
        require(0 <= momentum < 1, f"momentum must be at least 0 and below 1, not {momentum}")
        rates.global_rate(self.eta_spec)

    @property
    def eta_spec(self) -> str:
        """The global rate's name; a mean's weight (1/K) where the method has no such choice."""
        return getattr(self, "global_rate", "constant")

    def server(self, initial_params: Tensor, workers: int, epoch_samples: int | None = None) -> Server:
        """A server at w_0; `epoch_samples` (the data set's size) turns samples into epochs for the schedule."""
        flat = initial_params.dim() == 1 and initial_params.is_floating_point()
        require(flat, "initial_params must be a 1-D tensor of floating-point numbers")
        params = initial_params.detach().clone()

        def zeros(wanted: bool) -> Tensor | None:
            return params.new_zeros(params.shape) if wanted else None

        vectors = Vectors(
            params,
            zeros(self.keeps_momentum),
            zeros(self.synchronous),
            zeros(self.synchronous and self.keeps_momentum),
        )
        return Server(self, self.ledger(workers, epoch_samples), vectors, workers)

    def ledger(self, workers: int, epoch_samples: int | None = None) -> Ledger:
        """The server's bookkeeping alone, not started: what a schedule is made with."""
        require(workers >= 1, f"workers must be at least 1, not {workers}")
        if self.max_workers is not None and workers > self.max_workers:
            raise ConfigError(f"{self.name} runs on {self.max_workers} worker, not {workers}")
        varies = self.schedule != "constant" or self.warmup_epochs > 0
        require(epoch_samples is not None or not varies, "a learning-rate schedule needs epoch_samples")
        factor = rates.schedule(self.schedule, self.warmup_epochs)
        size = epoch_samples or 1

        def local_rate(samples: int) -> float:
            return self.learning_rate * factor(samples / size) if varies else self.learning_rate

        kind = BarrierLedger if self.synchronous else AsynchronousLedger
        return kind(rates.global_rate(self.eta_spec), local_rate, self.max_workers)

    @abstractmethod
    def worker(self, params: Tensor) -> WorkerRule:
        """The worker rule, bound to the flat parameters it is to change."""

    @abstractmethod
    def fold(self, vectors: Vectors, fold: Fold, report: Report) -> None:
        """Take one report into the server's vectors, in place."""

    def close(self, vectors: Vectors, reports: int) -> None:
        """A barrier of this many reports is full (synchronous methods only)."""
        raise NotImplementedError(f"{self.name} has no barrier")

    def to_table(self) -> dict[str, Any]:
        """Name and hyperparameters as plain values; None is left out."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}
        return {"name": self.name} | {key: value for key, value in values.items() if value is not None}
