"""The trainable parameters of a user's model as one flat vector, and the way there and back.

Parameters stay where the user has them: a round copies them once in each direction. In the vector they are in the order
of `named_parameters()`, each in its logical order of numbers, whatever its memory format.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from orlomo.errors import ConfigError, require, warn
from orlomo.loop.messages import ModelFacts
from orlomo.loop.sharded import copy_part, is_sharded, part, reshard, whole

COPIES = ("z", "slow_buffer", "slow_buff", "lookahead_slow_buff", "cached_params")
"""What ScheduleFree and Lookahead optimizers call the parameters that they keep in their state."""

WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
"""Parts of names that come from a wrapper around a module, not from the user."""


def plain_name(*parts: str) -> str:
    """The name of a parameter or buffer as it is without wrappers.

    >>> plain_name("", "_orig_mod.encoder", "weight")
    'encoder.weight'
    """
    return ".".join(part for part in ".".join(parts).split(".") if part and part not in WRAPPERS)


def named_models(given: object) -> list[tuple[str, nn.Module]]:
    """The models without compilers and DDP around them; where there are several, each with a prefix for names.

    >>> [(prefix, type(model).__name__) for prefix, model in named_models([nn.Linear(2, 1), torch.nn.ReLU()])]
    [('0', 'Linear'), ('1', 'ReLU')]
    """
    several = isinstance(given, (list, tuple))
    models = list(given) if isinstance(given, (list, tuple)) else [given]
    found = []
    for number, model in enumerate(models):
        if not isinstance(model, nn.Module):
            what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
            raise ConfigError(f"model must be a torch.nn.Module or a list of them, not {what}")
        found.append((str(number) if several and len(models) > 1 else "", _inner(model)))
    require(bool(found), "no model was given")
    return found


def _inner(model: nn.Module) -> nn.Module:
    while True:
        if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        elif isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        else:
            return model


class Trained:
    """The parameters that an optimizer trains: tied ones once, frozen ones not.

    >>> model = nn.Linear(2, 1)
    >>> trained = Trained([("", model)], [torch.optim.SGD(model.parameters(), lr=0.1)])
    >>> trained.names, trained.size, trained.dtype
    (['weight', 'bias'], 3, torch.float32)
    """

    def __init__(self, models: Sequence[tuple[str, nn.Module]], optimizers: Sequence[Optimizer]):
        self._optimizers = optimizers
        self._models = [model for _, model in models]
        self._listed = _listed(optimizers)
        owned = {id(p) for one in self._listed for p in one}
        self.names: list[str] = []
        self.params: list[Tensor] = []
        self._still: dict[str, nn.Parameter] = {}  # not trained
        named = {id(p): (n, p) for n, p in reversed(list(_named(models)))}  # a tied one by its first name
        for name, parameter in reversed(named.values()):
            if parameter.requires_grad and id(parameter) in owned:
                _check(name, parameter)
                self.names.append(name)
                self.params.append(parameter)
            else:
                self._still[name] = parameter
        self._check_owners(set(named))
        require(bool(self.params), "the optimizers have no parameter with requires_grad=True: nothing to train")
        self._vector_ids = {id(p) for p in self.params}
        self.dtype = torch.float64 if any(p.dtype == torch.float64 for p in self.params) else torch.float32
        self.exact = all(p.dtype == self.dtype for p in self.params)  # a vector's numbers are not rounded
        self.sharded = any(is_sharded(p) for p in self.params)
        self._sizes = [p.numel() for p in self.params]
        self._split: dict[int, tuple[Tensor, list[Tensor]]] = {}
        self._versions: dict[str, int] = {}
        self._said = False
        if loose := [name for name, p in self._still.items() if p.requires_grad]:
            warn(f"{_some(loose)} in none of the optimizers: it is not trained, and not exchanged")

    @property
    def size(self) -> int:
        """The length of the vector."""
        return sum(self._sizes)

    def facts(self, buffers: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]) -> ModelFacts:
        """What the server compares among workers."""
        return ModelFacts(
            names=tuple(self.names),
            shapes=tuple(tuple(p.shape) for p in self.params),
            dtypes=tuple(p.dtype for p in self.params),
            dtype=self.dtype,
            frozen=_checksum(self._still),
            buffers=buffers,
            optimizers=tuple(type(one).__name__ for one in self._optimizers),
        )

    def views(self, vector: Tensor) -> list[Tensor]:
        """The parts of a vector in the shapes of the parameters."""
        kept = self._split.get(id(vector))
        if kept is None or kept[0] is not vector:
            found = f"{tuple(vector.shape)} {vector.dtype}"
            wanted = f"{(self.size,)} {self.dtype}"
            require(found == wanted, f"the vector is {found}, not {wanted}: it belongs to another model")
            if len(self._split) >= 8:  # a round uses the same few vectors as the last
                self._split.clear()
            parts = torch.split(vector, self._sizes)
            kept = vector, [part.view(p.shape) for part, p in zip(parts, self.params, strict=True)]
            self._split[id(vector)] = kept
        return kept[1]

    def forget(self) -> None:
        """Let go of the vectors that were used."""
        self._split.clear()

    def by_parameter(self, vector: Tensor) -> dict[int, Tensor]:
        """The same by the parameters' ids."""
        return {id(p): view for p, view in zip(self.params, self.views(vector), strict=True)}

    def of(self, optimizer: Optimizer) -> list[Tensor]:
        """Those that this optimizer trains."""
        return [p for group in optimizer.param_groups for p in group["params"] if id(p) in self._vector_ids]

    def runs(self, vector: Tensor, values: Sequence[float]) -> Iterator[tuple[Tensor, float]]:
        """The parts of a vector in which all parameters have the same one of these values, with it."""
        first = last = 0
        for (size, value), after in zip(zip(self._sizes, values, strict=True), [*values[1:], None], strict=True):
            last += size
            if value != after:
                yield vector[first:last], value
                first = last

    @torch.no_grad()
    def load(self, vector: Tensor) -> None:
        """Parameters from a vector."""
        if not self.sharded:
            torch._foreach_copy_(self.params, self.views(vector))
            return
        reshard(self._models)
        for view, parameter in zip(self.views(vector), self.params, strict=True):
            copy_part(parameter, view)

    @torch.no_grad()
    def read(self, vector: Tensor) -> Tensor:
        """A vector from the parameters. Where they are sharded, all ranks call it, or `take_part`."""
        if not self.sharded:
            torch._foreach_copy_(self.views(vector), self.params)
            return vector
        for view, parameter in zip(self.views(vector), self.params, strict=True):
            view.copy_(whole(parameter))
        return vector

    @torch.no_grad()
    def take_part(self) -> None:
        """In what another rank reads."""
        for parameter in self.params if self.sharded else ():
            whole(parameter)

    @torch.no_grad()
    def copy(self) -> list[Tensor]:
        """Copies of the parameters; of sharded ones, of this rank's parts."""
        return [part(p).clone() for p in self.params]

    @torch.no_grad()
    def restore(self, copy: list[Tensor]) -> None:
        """Parameters from such copies."""
        if self.sharded:
            reshard(self._models)
        torch._foreach_copy_([part(p) for p in self.params], copy)

    def empty(self) -> Tensor:
        """A vector of this size on the CPU."""
        return torch.empty(self.size, dtype=self.dtype)

    def check_same(self) -> None:
        """An error where what is trained is not what it was when attached."""
        listed = _listed(self._optimizers)
        for now, before in zip(listed, self._listed, strict=True):
            same = len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))
            require(same, "the optimizer has other parameters than when it was attached: attach after the last change")
            if late := [p for p in now if p.requires_grad and id(p) not in self._vector_ids]:
                name = next((name for name, p in self._still.items() if p is late[0]), "a parameter")
                raise ConfigError(f"{name} was frozen when attached and is not now: unfreeze before, or attach again")

    def begin_watch(self) -> None:
        """Remember the state of what is not trained."""
        self._versions = {name: p._version for name, p in self._still.items() if not p.is_inference()}

    def end_watch(self) -> None:
        """An error where a parameter that is not exchanged was trained; a warning where a frozen one has changed."""
        changed = [name for name, version in self._versions.items() if self._still[name]._version != version]
        if not changed:
            return
        for name in changed:
            require(
                not self._still[name].requires_grad,
                f"{name} changes in training, but is in none of the optimizers: attach the one that it is in, too",
            )
        if not self._said:
            self._said = True
            warn(f"{_some(changed)} frozen, but changes in training: each worker has its own values, not exchanged")

    def _check_owners(self, known: set[int]) -> None:
        """Every parameter of the optimizers is in a model, and in one optimizer."""
        seen: dict[int, int] = {}
        for number, listed in enumerate(self._listed):
            for p in listed:
                shape, other = tuple(p.shape), seen.setdefault(id(p), number)
                require(other == number, f"optimizers {other} and {number} have the same parameter, of shape {shape}")
                require(
                    id(p) in known or not p.requires_grad,
                    f"optimizer {number} has a parameter of shape {shape} that is in no model: attach its module, "
                    f"too, as in attach([model, criterion], optimizer)",
                )


def _named(models: Sequence[tuple[str, nn.Module]]) -> Iterator[tuple[str, nn.Parameter]]:
    for prefix, model in models:
        for name, parameter in model.named_parameters():
            yield plain_name(prefix, name), parameter


def _listed(optimizers: Sequence[Optimizer]) -> list[list[nn.Parameter]]:
    """The parameters of each optimizer."""
    return [[p for group in optimizer.param_groups for p in group["params"]] for optimizer in optimizers]


def _check(name: str, parameter: nn.Parameter) -> None:
    """An error for one that cannot be part of a vector of numbers."""
    if nn.parameter.is_lazy(parameter):
        raise ConfigError(f"the parameter {name} has no shape yet: call the model once on a sample before attach")
    if parameter.device.type == "meta":
        raise ConfigError(f"the parameter {name} is on the device meta, without values: load them before attach")
    if parameter.layout is not torch.strided:
        raise ConfigError(f"the parameter {name} is sparse ({parameter.layout}): make it dense, with .to_dense()")
    if not parameter.is_floating_point():
        raise ConfigError(f"the parameter {name} is {parameter.dtype}: only floating-point parameters can be trained")


def check_no_copies(optimizer: Optimizer) -> None:
    """An error where, after a step, an optimizer's state has a copy of the parameters from which it continues.

    Parameters that are loaded would be lost with the next step, as with float32 copies of bfloat16 parameters.
    """
    for parameter, state in optimizer.state.items():
        for key, found in state.items() if isinstance(parameter, Tensor) and isinstance(state, dict) else ():
            if not isinstance(found, Tensor) or found.shape != parameter.shape or not found.is_floating_point():
                continue
            p, value = part(parameter), part(found)  # of a group, only one process looks
            # torch.optim.ASGD's ax is an average of the parameters that its steps do not use.
            if key in COPIES or (key != "ax" and p.numel() > 1 and bool(p.any()) and _equal(value, p)):
                raise ConfigError(
                    f"{type(optimizer).__name__} keeps a copy of the parameters in its state ({key!r}), which those of "
                    f"the next round would not change: write attach(..., state='reset')"
                )


def _equal(value: Tensor, parameter: Tensor) -> bool:
    return value.shape == parameter.shape and torch.equal(value.to(parameter), parameter)


def _checksum(still: dict[str, nn.Parameter]) -> str:
    """Of names, shapes and bytes; "" where nothing is frozen."""
    total = 0
    for name, p in still.items():
        total = zlib.crc32(f"{name} {p.dtype} {'lazy' if nn.parameter.is_lazy(p) else tuple(p.shape)}".encode(), total)
        plain = type(p) is nn.Parameter and p.layout is torch.strided and p.device.type != "meta"
        if plain and not nn.parameter.is_lazy(p):
            value = p.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            total = zlib.crc32(value.numpy().data, total)
    return f"{total:08x}" if still else ""


def _some(names: list[str]) -> str:
    """These parameters and a verb, as in "the parameter bias is"."""
    if len(names) == 1:
        return f"the parameter {names[0]} is"
    return f"each of the {len(names)} parameters {names[0]}, {names[1]}{', ...' if len(names) > 2 else ''} is"
