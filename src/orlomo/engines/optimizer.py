"""Local steps by a torch optimizer of the task, and its state as bytes: it stays with the worker between rounds.

The state is whatever an optimizer keeps: tensors of any shape and type, plain numbers and texts, lists and tables of
them. In bytes it is two numbers (the length of the header and of the whole), the header as JSON, and the tensors.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from orlomo.errors import ConfigError, require
from orlomo.flat import FlatModule
from orlomo.methods.inner import check_optimizers, folds_momentum, keeps_state
from orlomo.methods.messages import Assignment, Report
from orlomo.methods.method import Method
from orlomo.methods.worker import WorkerRule, delta
from orlomo.seeds import isolated
from orlomo.tasks.task import Task

ALIGNMENT = 64
LENGTHS = 16  # bytes of the two numbers at the beginning


class OptimizerSteps(WorkerRule):
    """The steps of the task's optimizer in place of the method's own; it reports what the method's own would.

    Where the method folds momentum, the optimizer is SGD: a round begins with its buffer at u / gamma, or empty, and
    Delta u is gamma times the buffer (see methods/inner.py).
    """

    def __init__(self, flat: FlatModule, task: Task, method: Method):
        assert task.optimizer is not None
        self.flat, self.params = flat, flat.params
        self.given = flat.optimizer_params()
        self.optimizer = task.optimizer(list(self.given))
        _check(self.optimizer, self.given, method)
        self.folds, self.keeps = folds_momentum(method), keeps_state(method, [self.optimizer])
        self.method = method
        self.kept = OptimizerState(self.optimizer, self.given)

    @property
    def learning_rate(self) -> float:
        """Of the first group; NaN where it has none."""
        return float(self.optimizer.param_groups[0].get("lr", math.nan))

    @torch.no_grad()
    def start(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.params.copy_(assignment.params)
        self.kept.load(self.state.optimizer)
        self._rates = self._group_rates()
        if assignment.momentum is not None:
            for parameter, rate, part in self._parts(assignment.momentum):
                self.optimizer.state[parameter]["momentum_buffer"] = part / rate

    def step(self, gradient: Tensor) -> None:
        self.flat.pass_gradients(self.given)
        self.optimizer.step()

    @torch.no_grad()
    def finish(self, samples: int = 0, loss: float = math.nan) -> Report:
        a = self.assignment
        moved = delta(a.params, self.params, self.destination.get("delta_params"))
        momentum = self._momentum() if self.folds else None
        if self.keeps:
            self.state.optimizer = self.kept.save()
        return Report(a.worker, a.index, moved, momentum, samples, loss, a.round, learning_rate=self.learning_rate)

    def _momentum(self) -> Tensor:
        """Delta u."""
        constant = self._rates == self._group_rates()
        require(constant, f"{self.method.name} needs a learning rate that does not change within a round")
        given = self.destination.get("delta_momentum")
        momentum = torch.empty_like(self.params) if given is None else given
        momentum.zero_()
        for parameter, rate, part in self._parts(momentum):
            buffer = self.optimizer.state[parameter].get("momentum_buffer")
            if buffer is not None:  # a parameter that no loss has used has none
                torch.mul(buffer, rate, out=part)
        return momentum

    def _group_rates(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups] if self.folds else []

    def _parts(self, vector: Tensor) -> list[tuple[Tensor, float, Tensor]]:
        """Each parameter with its learning rate and its part of a vector."""
        groups = zip(self.optimizer.param_groups, self._rates, strict=True)
        rates = {parameter: rate for group, rate in groups for parameter in group["params"]}
        return [(p, rates[p], part) for p, part in zip(self.given, self.flat.views(vector), strict=True)]


def state_bytes(task: Task, method: Method, seed: int) -> int:
    """How many bytes to reserve for the state, by one step at zero gradients; 0: there is none, or none is kept."""
    if task.optimizer is None:
        return 0
    flat = task.build(seed)
    rule = OptimizerSteps(flat, task, method)
    if not rule.keeps:
        return 0
    for parameter in rule.given:
        parameter.grad = torch.zeros_like(parameter)
    with isolated():
        rule.optimizer.step()
    content = rule.kept.save()
    # Numbers in the header may have more digits later.
    return content.numel() + 2 * int(_lengths(content)[0]) + 4096


def put(content: Tensor | None, memory: Tensor) -> None:
    """Write a state, or that there is none, into memory that may be larger."""
    if content is None:
        memory[:LENGTHS].zero_()
        return
    fits = content.numel() <= memory.numel()
    require(fits, f"the optimizer's state has grown to {content.numel():,} bytes after its first step: use jobs=1")
    memory[: content.numel()].copy_(content)


def taken(memory: Tensor) -> Tensor | None:
    """The state in such memory, as a view; None: there is none."""
    length = int(_lengths(memory)[1]) if memory.numel() else 0
    return memory[:length] if length else None


class OptimizerState:
    """Reads and writes the state of an optimizer; `given`: its parameters, in the order by which they are known.

    Settings of its groups are part of the state only where they are not as they were when it was made.

    >>> weights = nn.Parameter(torch.zeros(3))
    >>> adam = torch.optim.Adam([weights])
    >>> state = OptimizerState(adam, [weights])
    >>> weights.grad = torch.ones(3)
    >>> adam.step()
    >>> content = state.save()
    >>> state.load(None)
    >>> len(adam.state)
    0
    >>> state.load(content)
    >>> adam.state[weights]["exp_avg"]
    tensor([0.1000, 0.1000, 0.1000])
    """

    def __init__(self, optimizer: Optimizer, given: Sequence[nn.Parameter]):
        self._optimizer, self._given = optimizer, given
        self._numbers: dict[Tensor, int] = {parameter: number for number, parameter in enumerate(given)}
        self._settings = [copy.deepcopy(_settings(group)) for group in optimizer.param_groups]
        self._initial = self.save()

    def save(self) -> Tensor:
        """The state, in bytes of their own."""
        kept = {self._numbers[k] if isinstance(k, Tensor) else k: v for k, v in self._optimizer.state.items()}
        groups = zip(self._optimizer.param_groups, self._settings, strict=True)
        changed = [
            {name: value for name, value in _settings(group).items() if not _same(value, first.get(name, _ABSENT))}
            for group, first in groups
        ]
        tensors: list[Tensor] = []
        packed = [_packed(part, tensors, type(self._optimizer).__name__) for part in (kept, changed)]
        places: list[list[Any]] = []
        end = 0
        for tensor in tensors:
            stride = torch.empty_like(tensor, device="meta").stride()  # keeps the memory order, drops gaps
            kind = str(tensor.dtype).removeprefix("torch.")
            places.append([kind, list(tensor.shape), list(stride), end, tensor.device.type == "cpu"])
            end = -(-(end + tensor.nbytes) // ALIGNMENT) * ALIGNMENT
        header = json.dumps([packed, places]).encode()
        first = -(-(LENGTHS + len(header)) // ALIGNMENT) * ALIGNMENT
        content = torch.zeros(first + end, dtype=torch.uint8)
        _lengths(content).copy_(torch.tensor([len(header), len(content)]))
        content[LENGTHS : LENGTHS + len(header)] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
        for place, tensor in zip(places, tensors, strict=True):
            _view(content[first:], *place[:4]).copy_(tensor.detach())
        return content

    def load(self, content: Tensor | None) -> None:
        """Become what was saved; None: as it was made."""
        content = self._initial if content is None else content
        length = int(_lengths(content)[0])
        packed, places = json.loads(content[LENGTHS : LENGTHS + length].numpy().tobytes())
        first = -(-(LENGTHS + length) // ALIGNMENT) * ALIGNMENT
        device = self._given[0].device
        tensors = [_view(content[first:], *place[:4]).to("cpu" if place[4] else device, copy=True) for place in places]
        kept, changed = (_unpacked(part, tensors) for part in packed)
        state = self._optimizer.state
        state.clear()
        state.update({self._given[k] if isinstance(k, int) else k: v for k, v in kept.items()})
        for group, first_settings, others in zip(self._optimizer.param_groups, self._settings, changed, strict=True):
            for name in _settings(group).keys() - first_settings.keys():
                del group[name]
            group.update(copy.deepcopy(first_settings) | others)


_ABSENT = object()


def _check(optimizer: object, given: Sequence[nn.Parameter], method: Method) -> None:
    check_optimizers(method, [optimizer])  # type: ignore[list-item]  # it says what a user's function must give
    assert isinstance(optimizer, Optimizer)
    kind = type(optimizer).__name__
    known, own = {id(p) for p in given}, [id(p) for group in optimizer.param_groups for p in group["params"]]
    require(set(own) <= known, "the optimizer has parameters that are not the model's: use those that it is given")
    left = len(known - set(own))
    require(
        not left, f"the optimizer leaves {left} trainable parameters out: freeze them (requires_grad=False) instead"
    )
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    needs = closure is not None and closure.default is inspect.Parameter.empty
    require(not needs, f"{kind} needs a closure for its step, which a Task has not: use another optimizer")
    scheduled = "step" in vars(optimizer)
    require(not scheduled, "the optimizer has a scheduler, whose state is not kept between rounds: leave it out")


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in ("params", "param_names")}


def _same(one: object, other: object) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    return type(one) is type(other) and one == other


def _lengths(content: Tensor) -> Tensor:
    return content[:LENGTHS].view(torch.int64)


def _view(content: Tensor, kind: str, shape: list[int], stride: list[int], offset: int) -> Tensor:
    dtype: torch.dtype = getattr(torch, kind)
    numbers = content[offset : offset + math.prod(shape) * dtype.itemsize].view(dtype)
    return numbers.as_strided(shape, stride, numbers.storage_offset())


def _packed(value: object, tensors: list[Tensor], owner: str) -> object:
    """As plain values for JSON; tensors as their numbers in the list, to which they are added."""
    match value:
        case Tensor():
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        case None | bool() | int() | float() | str():
            return value
        case dict() if type(value) is dict and all(isinstance(key, (int, str)) for key in value):
            return {"dict": [[key, _packed(inner, tensors, owner)] for key, inner in value.items()]}
        case list() | tuple() if type(value) in (list, tuple):
            return {type(value).__name__: [_packed(inner, tensors, owner) for inner in value]}
    kind = type(value).__name__
    raise ConfigError(f"{owner} keeps a {kind} in its state, which cannot be saved: keep tensors, numbers and texts")


def _unpacked(value: Any, tensors: list[Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    [(kind, inner)] = value.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "dict":
        return {key: _unpacked(one, tensors) for key, one in inner}
    return {"list": list, "tuple": tuple}[kind](_unpacked(one, tensors) for one in inner)
