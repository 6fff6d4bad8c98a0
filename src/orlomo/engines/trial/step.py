"""One training step and one batch of every metric, in this process, before there is a run folder.

What a user's own code raises goes up as it is; what breaks our contract is one line. Nothing of the run changes: it is
the same bits with or without a trial.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from orlomo.config import RunConfig
from orlomo.engines.optimizer import OptimizerSteps
from orlomo.engines.round import RoundRunner
from orlomo.engines.simulated.pool import on_threads
from orlomo.engines.trial.numbers import bad_data
from orlomo.engines.trial.watched import GENERATORS, changed, look, places, restore
from orlomo.errors import ConfigError, OrlomoError, require
from orlomo.flat import checked
from orlomo.methods.messages import Assignment
from orlomo.seeds import derive, isolated, seed_global
from orlomo.tasks.batches import epoch_order
from orlomo.tasks.buffers import Watch
from orlomo.tasks.data import Batch
from orlomo.tasks.evaluation import measure_all
from orlomo.tasks.task import Task

OF_OPTIMIZER = "the optimizer"
FRESH = "model must make a new module at each call"


def try_task(config: RunConfig, task: Task, warn: Callable[[str], None]) -> None:
    """Try a task; nothing is left of it but what is said."""
    device = config.compute_device
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        device = "cpu"  # the workers' machines have it, this one does not
    eager = dataclasses.replace(task, compile=False, loss=functools.partial(_on_device, task.loss, device))
    if task.augment is not None:
        eager = dataclasses.replace(eager, augment=functools.partial(_augmented, task.augment))
    # On one thread: processes that are forked later could not use several where this one has used them.
    with isolated(), on_threads(1):
        _check_sampler(config, task)
        seed_global(derive(config.seed, "model"))
        other = checked(task.model())
        runner = RoundRunner(eager, config.method, config.seed, device)
        module = runner.flat.module
        optimizer = runner.rule.optimizer if isinstance(runner.rule, OptimizerSteps) else None
        shared = _check_fresh(module, other)
        del other
        before, buffers = look(places(task, module, optimizer)), Watch(runner.flat, task.buffers)
        assignment = _first_assignment(config, task, runner)
        with _without_scaler():
            loss = runner.run(assignment).report.loss
            _check_finite(config, task, assignment, runner, loss)
            if warning := buffers.warning():
                warn(warning)
            after = look(places(task, module, optimizer))
            if suspects := changed(before, after):
                # A cache is the same after the same step again; what is not is state.
                runner.run(assignment)
                again = look(places(task, module, optimizer))
                if found := [name for name in changed(after, again) if name in suspects]:
                    draws = [name for name in found if isinstance(after[name].place.value, GENERATORS)]
                    _say_draws(draws, warn)
                    _say_state([name for name in found if name not in draws], warn)
            for name, buffer, held in shared:
                require(buffer.equal(held), f"{FRESH}; two calls share the buffer {name}, which changes: {_copies()}")
            module.eval()
            _try_metrics(task, runner, config.seed)
        restore(before, changed(before, look(places(task, module, optimizer))))


def _try_metrics(task: Task, runner: RoundRunner, seed: int) -> None:
    try:
        measure_all(task, runner.flat, seed, most=max(32, task.batch_size))
    except OrlomoError:
        raise
    except Exception:
        # A metric may need more than a few samples, as the area under a curve needs both classes.
        measure_all(task, runner.flat, seed)


def _check_fresh(module: nn.Module, other: nn.Module) -> list[tuple[str, Tensor, Tensor]]:
    """Two calls of `model` must share nothing that trains; the buffers that they share, with copies of them."""
    require(module is not other, f"{FRESH}; it gave the same one: {_copies()}")
    known = {id(p) for p in other.parameters() if p.requires_grad}
    for name, parameter in module.named_parameters():
        require(id(parameter) not in known, f"{FRESH}; two calls share the parameter {name}: {_copies()}")
    values = dict(other.named_parameters()) | dict(other.named_buffers())
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        twin = values.get(name)
        same = twin is not None and twin.shape == value.shape and torch.equal(twin.to(value), value)
        require(
            same or bool(value.isnan().any()),
            f"model gives other values at two calls with the same seed ({name}): draw them from torch's, numpy's or "
            "random's global generators, which the run's seed sets",
        )
    buffers = {id(buffer) for buffer in other.buffers()}
    return [(name, b, b.clone()) for name, b in module.named_buffers() if id(b) in buffers]


def _copies() -> str:
    return "write model=lambda: copy.deepcopy(m)"


def _first_assignment(config: RunConfig, task: Task, runner: RoundRunner) -> Assignment:
    """What worker 0 is given first, cut to one local step."""
    flat = runner.flat
    server = config.method.server(flat.params.clone(), config.workers, task.size, flat.layout)
    first = server.start()[0]
    return dataclasses.replace(first, local_steps=1)


def _on_device(loss: Callable[[nn.Module, Batch], Any], device: str, model: nn.Module, batch: Batch) -> Any:
    """The loss as it is given, with a look at where it is and at what it has done to the gradients."""
    before = _gradients(model)
    given = loss(model, batch)
    pairs = zip(before, _gradients(model), strict=False)  # a layer made in forward is named elsewhere
    if not all(one is other and version == now for (one, version), (other, now) in pairs):
        raise ConfigError(
            "the loss changes the parameters' .grad: return the loss alone; the backward pass, zero_grad and the "
            "optimizer's step are the run's"
        )
    if isinstance(given, Tensor) and given.device.type != torch.device(device).type:
        raise ConfigError(f"loss(model, batch) gives a tensor on {given.device}, but the model is on {device}")
    return given


def _gradients(model: nn.Module) -> list[tuple[Tensor | None, int]]:
    return [(p.grad, -1 if p.grad is None else p.grad._version) for p in model.parameters()]


def _augmented(augment: Callable[[Batch, torch.Generator], Batch], batch: Batch, draw: torch.Generator) -> Batch:
    given = augment(batch, draw)
    require(given is not None, "augment(batch, generator) gives None: does it return the batch?")
    return given


def _check_sampler(config: RunConfig, task: Task) -> None:
    """The order of an epoch must be a function of the seed, the worker and the epoch alone."""
    if task.sampler is not None:
        first, second = (epoch_order(task, config.seed, 0, 0, task.size) for _ in range(2))
        same = bool((first == second).all())
        require(
            same,
            "the sampler gives another order when it is asked again for the same epoch: it must draw from torch's, "
            "numpy's or random's global generators, which the run's seed sets, and keep nothing",
        )


def _check_finite(config: RunConfig, task: Task, assignment: Assignment, runner: RoundRunner, loss: float) -> None:
    """At the initial parameters nothing has diverged: what is not finite there is in the data or in the code."""
    wrong = "" if math.isfinite(loss) else f"the loss of the first batch is {loss}"
    for name, window in () if wrong else runner.flat.layout.items():
        if not bool(runner.flat.gradients[window].isfinite().all()):
            wrong = f"the gradient of {name} is not finite in the first batch"
            break
    if wrong:
        cause = bad_data(task, config.seed, assignment, infinite=True)
        raise ConfigError(f"{wrong}: {cause or 'its data are finite, so look at the loss, the model and augment'}")


@contextmanager
def _without_scaler() -> Iterator[None]:
    """Within, a loss that is scaled by a GradScaler is an error: its gradient would be taken 65536-fold."""
    scale = torch.amp.GradScaler.scale

    def refuse(scaler: torch.amp.GradScaler, outputs: Any) -> Any:
        if scaler.is_enabled():
            raise ConfigError(
                "the loss is scaled by a GradScaler, which nothing undoes: leave the scaler out and write "
                'Task(autocast="bfloat16")'
            )
        return scale(scaler, outputs)

    torch.amp.GradScaler.scale = refuse  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.amp.GradScaler.scale = scale  # type: ignore[method-assign]


def _say_draws(names: list[str], warn: Callable[[str], None]) -> None:
    for name in names:
        warn(
            f"{name} is a generator that the run's seed does not set: the run cannot be computed again bit for bit; "
            "draw from torch's, numpy's or random's global generators, or from the one that augment is given"
        )


def _say_state(names: list[str], warn: Callable[[str], None]) -> None:
    if not names:
        return
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    verb = "changes" if len(names) == 1 else "change"
    instead = 'use a buffer with Task(buffers={"NAME": "keep"}), or a callback'
    if all(OF_OPTIMIZER in name for name in names):
        instead = "keep it in the optimizer's `state`"
    warn(
        f"{', '.join(names[:3])}{more} {verb} in a training step: workers are separate copies, so it is not the same "
        f"for all and not saved; {instead}"
    )
