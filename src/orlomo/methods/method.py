"""The contract of a method: frozen hyperparameters, a server rule (`fold`, `close`) and a worker rule.

A method knows nothing of time, processes or machines. It declares its vectors by name; servers, engines and checkpoints
carry whatever is declared.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from torch import Tensor

from orlomo.errors import ConfigError, require, require_at_most
from orlomo.methods import rates
from orlomo.methods.ledger import AsynchronousLedger, BarrierLedger, Fold, Ledger, check_workers
from orlomo.methods.messages import Report, WorkerState
from orlomo.methods.server import Server
from orlomo.methods.state import Layout, ServerState, plain_numbers
from orlomo.methods.worker import WorkerRule
from orlomo.values import convert, settle

RESERVED = ("ledger", "numbers")
"""Keys of a server's `state_dict` that are not vectors."""


MOST_LOCAL_STEPS = 1_000_000
"""In a round: which samples all of its steps take is drawn at once."""

RULES = ("rate", "eta", "weight")
"""What a method is asked for numbers; what a user's own gives is checked."""


def _checked(rule: Callable[..., object], name: str) -> Callable[..., float]:
    """The same rule, with an error that names the method where it does not give a number."""

    @functools.wraps(rule)
    def call(self: Method, *arguments: object, **named: object) -> float:
        value = rule(self, *arguments, **named)
        if type(value) is float and math.isfinite(value):
            return value
        if name == "weight" and isinstance(value, float) and math.isnan(value):  # there is none
            return value
        number = convert(value, float, f"{self.name}: what {name}(...) returns")
        require(math.isfinite(number), f"{self.name}: what {name}(...) returns must be finite, not {number}")  # type: ignore[arg-type]
        return cast(float, number)

    return call


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Base class of all methods. Derive from it, or from a similar method, to write your own.

    A class declares what it keeps and sends. All vectors have the model's size, and all start at zero except the
    server's `params`, which are the model's initial parameters:

    - `server_vectors`: kept by the server, in every checkpoint; `params` is among them.
    - `server_numbers`: the same for single numbers, with their initial values.
    - `assignment_vectors`: sent to a worker with each round: a tuple of the server's names, or a table from the name
      sent to the server's name; `params` is among the names sent.
    - `report_vectors`: sent back.
    - `worker_vectors`, `worker_numbers`: kept by a worker between its rounds, like the state of an optimizer. They are
      lost with the worker; its replacement starts at zero.

    Args:
        learning_rate: gamma, the local learning rate before the schedule's factor.
        local_steps: S, local steps in a round.
        weight_decay: L2, added to the local gradient.
        clip_norm: largest norm of a local gradient; None: no limit.
        schedule: of the learning rate, by epochs folded in: `constant`, `step:80,120`, `cosine:160`; or a function
            epoch -> factor, best as `FILE.py:NAME`, which a run can record (see docs/how-to/resume-and-change.md).
        warmup_epochs: epochs over which the learning rate rises linearly at the start.

    >>> import orlomo
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Halved(orlomo.ALSGD):
    ...     def fold(self, state, fold, report):
    ...         for w, delta in state.chunks("params", report=report):
    ...             w.sub_(delta, alpha=fold.eta / 2)
    >>> run = orlomo.train("quadratic", Halved(), workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> run.config.method.name
    'Halved'
    """

    name: ClassVar[str]  # for display; a class that gives none has its own name
    synchronous: ClassVar[bool] = False  # reports wait at a barrier, which `close` ends
    max_workers: ClassVar[int | None] = None
    ledger_class: ClassVar[type[Ledger] | None] = None  # None: one of the two in ledger.py
    one_pass: ClassVar[bool] = False
    """`fold` changes what is sent to workers in one loop over `chunks` and nowhere else, with torch's own operations:
    the server may then copy the answer piece by piece in the same pass over memory."""

    server_vectors: ClassVar[tuple[str, ...]] = ("params",)
    server_numbers: ClassVar[Mapping[str, float]] = {}
    assignment_vectors: ClassVar[tuple[str, ...] | Mapping[str, str]] = ("params",)
    report_vectors: ClassVar[tuple[str, ...]] = ("delta_params",)
    worker_vectors: ClassVar[tuple[str, ...]] = ()
    worker_numbers: ClassVar[Mapping[str, float]] = {}

    learning_rate: float = 0.1
    local_steps: int = 16
    weight_decay: float = 0.0
    clip_norm: float | None = None
    schedule: str | Callable[[float], float] = "constant"
    warmup_epochs: float = 0.0

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        if "name" not in vars(cls):  # never the parent's: that is another method
            cls.name = cls.__name__
        if "fold" in vars(cls) and "one_pass" not in vars(cls):  # nor what is true of the parent's fold
            cls.one_pass = False
        for rule in RULES if not cls.__module__.startswith("orlomo.") else ():
            if inspect.isfunction(vars(cls).get(rule)):
                setattr(cls, rule, _checked(vars(cls)[rule], rule))

    def __post_init__(self) -> None:
        self._check_class()
        settle(self)
        positive = math.isfinite(self.learning_rate) and self.learning_rate > 0
        require(positive, f"learning_rate must be above 0, not {self.learning_rate}")
        require_at_most(self.learning_rate, rates.LARGEST_LEARNING_RATE, "learning_rate")
        require(self.local_steps >= 1, f"local_steps must be at least 1, not {self.local_steps}")
        require_at_most(self.local_steps, MOST_LOCAL_STEPS, "local_steps")
        require(
            0 <= self.weight_decay < math.inf, f"weight_decay must be 0 or more, and finite, not {self.weight_decay}"
        )
        require_at_most(self.weight_decay, rates.LARGEST, "weight_decay")
        require(self.clip_norm is None or self.clip_norm > 0, f"clip_norm must be above 0, not {self.clip_norm}")
        object.__setattr__(self, "schedule", rates.resolve(self.schedule))
        rates.schedule(self.schedule, self.warmup_epochs)(0.0)
        self._check_vectors()

    def _check_class(self) -> None:
        """What a class can say that Python would not complain about, and that would have no effect."""
        settings, own = {field.name for field in dataclasses.fields(self)}, set(BASE_SETTINGS)
        for name in sorted(settings - own):
            require(not hasattr(Method, name) and name != "name", f"{self.name}: a setting cannot be called {name!r}")
        for kind in type(self).__mro__[: type(self).__mro__.index(Method)]:
            typed = {
                name for name, hint in vars(kind).get("__annotations__", {}).items() if "ClassVar" not in str(hint)
            }
            decorator = "@dataclass(frozen=True, kw_only=True)"
            named = ", ".join(sorted(typed))
            decorated = "__dataclass_params__" in vars(kind) or not typed
            require(decorated, f"{kind.__name__} has settings ({named}): write {decorator} above the class")
            for name in sorted(settings & set(vars(kind)) - typed):
                value = vars(kind)[name]
                require(
                    False, f"{kind.__name__}: {name} = {value!r} has no type and no effect: as in {name}: float = ..."
                )
        overridden = {name for name in ("drops", "close") if getattr(type(self), name) is not getattr(Method, name)}
        if self.synchronous:
            require(
                "close" in overridden, f"{self.name} is synchronous: define close(state, reports), which ends a barrier"
            )
            require("drops" not in overridden, f"{self.name} is synchronous: no report is dropped at a barrier")

    def _check_vectors(self) -> None:
        sent, kept = self.sent_vectors(), self.server_vectors
        for what in ("server_vectors", "report_vectors", "worker_vectors"):
            names = getattr(self, what)
            good = isinstance(names, tuple) and all(isinstance(n, str) and n.isidentifier() for n in names)
            require(good, f"{self.name}: {what} must be a tuple of names, as in ('params',), not {names!r}")
            require(len(set(names)) == len(names), f"{self.name}: {what} has a name twice: {names}")
        require("params" in kept, f"{self.name}: server_vectors must have 'params', not only {kept}")
        require("params" in sent, f"{self.name}: assignment_vectors must have 'params', not only {tuple(sent)}")
        require(
            bool(self.report_vectors), f"{self.name}: report_vectors is empty: a worker reports at least one vector"
        )
        for name, source in sent.items():
            require(source in kept, f"{self.name}: assignment_vectors sends {name!r} from {source!r}: not kept: {kept}")
        for what in ("server_numbers", "worker_numbers"):
            found = getattr(self, what)
            require(
                isinstance(found, Mapping), f"{self.name}: {what} must be a table, as in {{'count': 0}}, not {found!r}"
            )
            plain_numbers(self.name, found, found)
        for name in RESERVED:
            require(name not in kept, f"{self.name}: a server vector cannot be called {name!r}: choose another name")

    def sent_vectors(self) -> dict[str, str]:
        """The names of an assignment's vectors -> the server's names for them."""
        names = self.assignment_vectors
        good = isinstance(names, (tuple, Mapping))
        require(good, f"{self.name}: assignment_vectors must be a tuple of names or a table, not {names!r}")
        return dict(names) if isinstance(names, Mapping) else {name: name for name in names}

    @property
    def keeps_worker_state(self) -> bool:
        """Whether a worker's round depends on its earlier rounds."""
        return bool(self.worker_vectors or self.worker_numbers)

    @property
    def varies(self) -> bool:
        """Whether the learning rate changes in a run."""
        return self.schedule != "constant" or self.warmup_epochs > 0

    @property
    def may_drop(self) -> bool:
        """Whether this method may drop reports."""
        return type(self).drops is not Method.drops

    def rate(self, samples: int, epoch_samples: int) -> float:
        """gamma after this many samples."""
        if not self.varies:
            return self.learning_rate
        factor = rates.schedule(self.schedule, self.warmup_epochs)(samples / epoch_samples)
        rate = self.learning_rate * factor
        if not rate <= rates.LARGEST_LEARNING_RATE:
            raise ConfigError(f"the schedule gives the learning rate {rate:g} at epoch {samples / epoch_samples:g}")
        return rate

    def check_schedule(self, epochs: float) -> None:
        """Raise a `ConfigError` where the schedule gives no learning rate for an epoch up to this one."""
        rates.check(self.schedule, epochs)

    def eta(self, delay: int, workers: int) -> float:
        """The global rate: the server's weight for a report with this delay. 1/K, unless a method defines another."""
        return 1.0 / workers

    def drops(self, fold: Fold) -> bool:
        """Whether to drop a report. This may depend on the fold only, not on vectors."""
        return False

    def weight(self, fold: Fold) -> float:
        """The weight of a report in the momentum, for the trace; NaN if there is none."""
        return math.nan

    def server(
        self, initial_params: Tensor, workers: int, epoch_samples: int | None = None, layout: Layout | None = None
    ) -> Server:
        """A server that starts from these parameters; `epoch_samples` is the size of the data set, for the schedule."""
        flat = initial_params.dim() == 1 and initial_params.is_floating_point()
        require(flat, "initial_params must be a 1-D tensor of floating-point numbers")
        params = initial_params.detach().clone()
        vectors = {name: params if name == "params" else params.new_zeros(params.shape) for name in self.server_vectors}
        state = ServerState(vectors, dict(self.server_numbers), layout)
        return Server(self, self.ledger(workers, epoch_samples), state, workers)

    def ledger(self, workers: int, epoch_samples: int | None = None) -> Ledger:
        """The server's bookkeeping alone, not started: what a schedule is made with."""
        check_workers(workers)
        if self.max_workers is not None and workers > self.max_workers:
            raise ConfigError(f"{self.name} runs on {self.max_workers} worker, not {workers}")
        require(epoch_samples is not None or not self.varies, "a learning-rate schedule needs epoch_samples")
        usual: type[Ledger] = BarrierLedger if self.synchronous else AsynchronousLedger
        return (self.ledger_class or usual)(self, epoch_samples or 1)

    def worker_state(self, params: Tensor) -> WorkerState:
        """What a new worker keeps before its first round."""
        return WorkerState(
            {name: params.new_zeros(params.shape) for name in self.worker_vectors}, dict(self.worker_numbers)
        )

    @abstractmethod
    def worker(self, params: Tensor) -> WorkerRule:
        """The worker rule, bound to the flat parameters it is to change."""

    @abstractmethod
    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        """Add one report to the server's state, in place."""

    def close(self, state: ServerState, reports: int) -> None:
        """A barrier of this many reports is full (synchronous methods only)."""
        raise NotImplementedError(f"{self.name} has no barrier")


BASE_SETTINGS = tuple(field.name for field in dataclasses.fields(Method))
"""The settings that every method has."""
