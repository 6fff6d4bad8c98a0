"""A user's models, optimizers and schedulers as a worker: loaded at the beginning of a round, measured at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from orlomo.errors import ConfigError, require, warn
from orlomo.loop.buffers import ReportedBuffers
from orlomo.loop.hooks import CountedSteps
from orlomo.loop.messages import ModelFacts
from orlomo.loop.schedulers import STEP, Schedulers, has_scheduler
from orlomo.loop.sharded import check_method, check_wrappers, reshard
from orlomo.loop.vectors import Trained, check_no_copies, named_models
from orlomo.methods.inner import check_no_rate, check_optimizers, folds_momentum
from orlomo.methods.method import Method

KEEP, RESET = STATES = ("keep", "reset")
MOMENTUM = "momentum_buffer"
"""Where SGD has its momentum, without the learning rate: u = gamma times this."""


class Attached:
    """What a worker trains. Only hooks are added to it; `close` removes them.

    Args:
        models: a module, or a list of modules that are trained together.
        optimizers: those that train them, one or a list; wrappers of others around them do not matter.
        method: says what is measured, and with what a round begins.
        scheduler: learning-rate schedulers, one or a list, that are to follow the run's clock.
        unit: what one step of a scheduler is, an optimizer `step` or an `epoch`.
        state: `keep` the optimizers' state between rounds, or `reset` it.
        on_step: called after every step of an optimizer; once `finish` was called, before it.

    >>> import orlomo
    >>> model = torch.nn.Linear(2, 1)
    >>> sgd = torch.optim.SGD(model.parameters(), lr=0.5)
    >>> attached = Attached(model, sgd, orlomo.ALSGD())
    >>> assigned, report = {"params": torch.ones(3)}, {"delta_params": torch.empty(3)}
    >>> attached.load(assigned, clock=0, epoch=0)
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> sgd.step()
    >>> attached.measure(assigned, report), report["delta_params"]
    ((1, 0.5), tensor([0.5000, 0.5000, 0.5000]))
    """

    def __init__(
        self,
        models: object,
        optimizers: object,
        method: Method,
        scheduler: object = None,
        unit: str = STEP,
        state: str = KEEP,
        on_step: Callable[[], None] | None = None,
    ):
        require(state in STATES, f"state must be 'keep' or 'reset', not {state!r}")
        self._method, self._reset, self.on_step = method, state == RESET, on_step
        self._folds = folds_momentum(method)
        require(
            not (self._folds and self._reset),
            f"state='reset' is for methods without local momentum: {method.name} sets the momentum of every round",
        )
        given = list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]
        named = named_models(models)
        self.models = [model for _, model in named]
        self._counted: list[CountedSteps] = []
        self._schedulers: Schedulers | None = None
        self._finished = False
        self._looked = False  # at the optimizers' state after a first step
        self._lent = False  # the model has other parameters than the worker's own
        self._start: Tensor | None = None  # where a round began, as rounded to the parameters' dtypes
        self._scaled: Tensor | None = None  # the momentum that was sent, without the learning rate
        self._settings: list[tuple[float, ...]] = []
        self._said: set[str] = set()
        try:
            for one in given:
                self._counted.append(CountedSteps(one, self._after_step, self._before_step))
            check_no_rate(method)
            check_optimizers(method, self.optimizers)
            check_wrappers(self.models)
            reshard(self.models)
            self._trained = Trained(named, self.optimizers)
            check_method(method, self._trained.sharded)
            self._schedulers = Schedulers(scheduler, self.optimizers, unit)
            self._buffers = ReportedBuffers(named)
            self.facts: ModelFacts = self._trained.facts(self._buffers.facts)
        except BaseException:
            self.close()
            raise

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers, without wrappers."""
        return [counted.optimizer for counted in self._counted]

    @property
    def steps(self) -> int:
        """Steps since `load`: of the optimizer that made most."""
        return max((counted.steps for counted in self._counted), default=0)

    @property
    def learning_rate(self) -> float:
        """That of the first parameter group."""
        rates = (float(group["lr"]) for group in self._groups() if "lr" in group)
        return next(rates, math.nan)

    def vector(self) -> Tensor:
        """The parameters as one vector on the CPU."""
        return self._trained.read(self._trained.empty())

    def buffers(self) -> Tensor | None:
        """The buffers of the models as bytes (see `loop.buffers.encoding`); None where there are none."""
        return self._buffers.read()

    def load_buffers(self, values: Tensor) -> None:
        """Take over such bytes."""
        self._buffers.load(values)

    @torch.no_grad()
    def load(self, vectors: Mapping[str, Tensor], clock: int, epoch: int) -> None:
        """Begin a round: parameters, momentum, learning rate. `vectors` is not changed."""
        assert self._schedulers is not None
        self._trained.check_same()
        self._warn_of_schedulers(self._schedulers)
        self._trained.load(vectors["params"])
        if not self._trained.exact:
            self._start = self._trained.read(self._trained.empty() if self._start is None else self._start)
        self._schedulers.drive(clock, epoch)
        if self._folds:
            check_optimizers(self._method, self.optimizers)  # a scheduler may have changed the momentum
            self._load_momentum(vectors.get("momentum"))
        elif self._reset:
            for optimizer in self.optimizers:
                optimizer.state.clear()
        for counted in self._counted:
            counted.steps = 0
        self._settings = self._current_settings()
        self._trained.begin_watch()

    @torch.no_grad()
    def measure(self, vectors: Mapping[str, Tensor], destination: Mapping[str, Tensor]) -> tuple[int, float]:
        """End a round: write what is reported to `destination`; the steps made, and the learning rate.

        `vectors`: the same, with the same values, as `load` was given. `destination` is empty where another process of
        a group reports.
        """
        if not destination:
            self._trained.take_part()
            return self.steps, self.learning_rate
        self._trained.check_same()
        self._trained.end_watch()
        self._check_settings()
        delta = self._trained.read(destination["delta_params"])
        torch.sub(vectors["params"] if self._start is None else self._start, delta, out=delta)
        self._check_seen(delta)
        if self.steps and not self._looked and not self._reset:
            self._looked = True
            for optimizer in self.optimizers:
                check_no_copies(optimizer)
        if self._folds:
            self._read_momentum(destination["delta_momentum"])
        return self.steps, self.learning_rate

    @contextmanager
    def loaded(self, vector: Tensor, buffers: Tensor | None = None) -> Iterator[None]:
        """Within, the models have these parameters (and buffers); afterwards their own again."""
        own = self._trained.copy()
        own_buffers = None if buffers is None else self._buffers.read()
        self._trained.load(vector)
        if buffers is not None:
            self._buffers.load(buffers)
        self._lent = True
        try:
            yield
        finally:
            self._lent = False
            self._trained.restore(own)
            if own_buffers is not None:
                self._buffers.load(own_buffers)

    @torch.no_grad()
    def finish(self, params: Tensor, buffers: Tensor | None, clock: int, epoch: int) -> None:
        """Take over the parameters and buffers of the run's end, and its learning rate.

        From now on `on_step` is called before a step: it can prevent it by an error, and the parameters stay.
        """
        assert self._schedulers is not None
        self._finished = True
        self._trained.load(params)
        if buffers is not None:
            self._buffers.load(buffers)
        self._schedulers.drive(clock, epoch)

    def close(self) -> None:
        """Remove the hooks, and give schedulers back."""
        for counted in self._counted:
            counted.close()
        if hasattr(self, "_trained"):
            self._trained.forget()
        if self._schedulers is not None:
            self._schedulers.close()

    def _before_step(self) -> None:
        if self._lent:
            raise ConfigError("an optimizer step while the model has parameters that are not its own would be lost")
        if self._finished and self.on_step is not None:
            self.on_step()

    def _after_step(self) -> None:
        if not self._finished and self.on_step is not None:
            self.on_step()

    def _groups(self) -> Iterator[dict[str, Any]]:
        for optimizer in self.optimizers:
            yield from optimizer.param_groups

    def _load_momentum(self, momentum: Tensor | None) -> None:
        """Every buffer at u / gamma, or at zero where the method sends no momentum."""
        if momentum is None:
            # Not removed: a compiled step is compiled for a state that has buffers.
            if buffers := [buffer for buffer, _ in self._momentum_buffers() if buffer is not None]:
                torch._foreach_zero_(buffers)
            return
        for optimizer in self.optimizers:
            for p in self._trained.of(optimizer):
                if optimizer.state[p].get(MOMENTUM) is None:
                    optimizer.state[p][MOMENTUM] = torch.empty_like(p)
        found = self._momentum_buffers()
        if self._scaled is None:
            self._scaled = self._trained.empty()
        self._scaled.copy_(momentum)
        for part, rate in self._trained.runs(self._scaled, [rate for _, rate in found]):
            part.div_(rate)
        torch._foreach_copy_([b for b, _ in found if b is not None], self._trained.views(self._scaled))

    def _read_momentum(self, target: Tensor) -> None:
        """gamma times the buffers; zero for a parameter that had no gradient yet."""
        found, views = self._momentum_buffers(), self._trained.views(target)
        there = [(view, buffer) for view, (buffer, _) in zip(views, found, strict=True) if buffer is not None]
        if len(there) < len(views):
            target.zero_()
        if there:
            torch._foreach_copy_([view for view, _ in there], [buffer for _, buffer in there])
        for part, rate in self._trained.runs(target, [rate for _, rate in found]):
            part.mul_(rate)

    def _momentum_buffers(self) -> list[tuple[Tensor | None, float]]:
        """SGD's buffer for each parameter, None before its first step, and the learning rate."""
        found: dict[int, tuple[Tensor | None, float]] = {}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                rate = float(group["lr"])
                for p in group["params"]:
                    found[id(p)] = (optimizer.state[p].get(MOMENTUM) if p in optimizer.state else None), rate
        ordered = [found[id(p)] for p in self._trained.params]
        require(
            all(buffer is None or buffer.layout is torch.strided for buffer, _ in ordered),
            f"a momentum buffer is sparse: leave sparse=True out of the embedding, or use a method other than "
            f"{self._method.name}, without local momentum",
        )
        return ordered

    def _current_settings(self) -> list[tuple[float, ...]]:
        return [tuple(float(group[name]) for name in ("lr", "momentum") if name in group) for group in self._groups()]

    def _check_settings(self) -> None:
        """The learning rate is to be the same in all of a round."""
        if (now := self._current_settings()) == self._settings:
            return
        number, before, after = next(
            (n, a, b) for n, (a, b) in enumerate(zip(self._settings, now, strict=True)) if a != b
        )
        change = f"the learning rate of group {number} changed within a round, from {before[0]:g} to {after[0]:g}"
        if before[0] == after[0]:
            change = f"the momentum of group {number} changed within a round"
        if self._folds:
            raise ConfigError(
                f"{change}, but {self._method.name} needs it constant: hand the scheduler over, attach(scheduler=...)"
            )
        self._warn_once(
            "rate",
            f"{change}: a schedule that counts the steps of one worker reaches only a part of its curve; hand the "
            f"scheduler over, attach(scheduler=...), to let it follow the run",
        )

    def _check_seen(self, delta: Tensor) -> None:
        """An error where the parameters of an optimizer have moved although no step of it was seen."""
        views = None
        for counted in self._counted:
            if counted.steps == 0:
                views = views or self._trained.by_parameter(delta)
                params = [p for group in counted.optimizer.param_groups for p in group["params"]]
                if any(id(p) in views and bool(views[id(p)].any()) for p in params):
                    raise ConfigError(
                        f"parameters changed, but {type(counted.optimizer).__name__} was not seen to make a step: "
                        f"call the step() of the optimizer that was attached"
                    )

    def _warn_of_schedulers(self, schedulers: Schedulers) -> None:
        for optimizer in self.optimizers:
            if has_scheduler(optimizer) and not schedulers.drives(optimizer):
                self._warn_once(
                    "scheduler",
                    f"{type(optimizer).__name__} has a learning-rate scheduler that was not handed over: it counts the "
                    f"steps of one worker, and reaches only a part of its curve; write attach(..., scheduler=...)",
                )

    def _warn_once(self, key: str, message: str) -> None:
        if key not in self._said:
            self._said.add(key)
            warn(message)
