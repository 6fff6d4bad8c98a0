"""A module as one flat vector: copying a model is one memcpy, an update is one pass over memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from orlomo.errors import ConfigError, nearest, require
from orlomo.values import settle

Forward: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Group:
    """Parameters whose names match a pattern, with their own learning rate or weight decay.

    Args:
        pattern: matches names of `model.named_parameters()`, with `*` and `?`, as in `head.*`.
        rate_factor: a factor on the method's learning rate.
        weight_decay: replaces the method's; None: the method's.

    >>> import orlomo
    >>> data = torch.ones(8, 4), torch.zeros(8, dtype=torch.long)
    >>> task = orlomo.Task(model=lambda: nn.Linear(4, 2), train_data=data, groups=[Group("bias", weight_decay=0.0)],
    ...                    loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]))
    >>> task.build(seed=0).group_vectors(task.groups, True, weight_decay=0.1).decays
    tensor([0.1000, 0.1000, 0.1000, 0.1000, 0.1000, 0.1000, 0.1000, 0.1000, 0.0000,
            0.0000])
    """

    pattern: str
    _: KW_ONLY
    rate_factor: float = 1.0
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        require(
            isinstance(self.pattern, str), f"a group's pattern must be a text, as in 'head.*', not {self.pattern!r}"
        )
        settle(self)
        for name in ("rate_factor", "weight_decay"):
            value = getattr(self, name)
            good = value is None or 0 <= value < math.inf
            require(good, f"group {self.pattern!r}: {name} must be a number of at least 0, not {value!r}")


class GroupVectors(NamedTuple):
    """What groups say, for each number in the vector."""

    factors: Tensor  # on the learning rate
    decays: Tensor  # the weight decay, in place of the method's


class Buffer:
    """One buffer of a module, or a frozen parameter that is treated as one, and the value that it began with."""

    def __init__(self, name: str, owner: nn.Module, key: str):
        self.name, self.owner, self.key = name, owner, key
        self._parameter = owner._parameters.get(key)
        tensor = self.value
        if tensor is not None and tensor.layout is torch.strided and 0 in tensor.stride():
            tensor = tensor.clone()  # an expanded one cannot be written to
            self._put(tensor)
        self.tensor = tensor
        self.initial = None if tensor is None else tensor.clone()

    @property
    def value(self) -> Tensor | None:
        """What it is now; the module may have put another tensor in its place."""
        return self.owner._buffers.get(self.key) if self._parameter is None else self._parameter.data

    def reset(self) -> None:
        """Give it its initial value again, in its own memory."""
        tensor = self.tensor
        self._put(None if tensor is None or self.initial is None else tensor.copy_(self.initial))

    def _put(self, tensor: Tensor | None) -> None:
        if self._parameter is None:
            self.owner._buffers[self.key] = tensor
        elif tensor is not None:
            self._parameter.data = tensor


class FlatModule:
    """Rebinds a module's trainable parameters as views into one contiguous vector, and gathers gradients in another.

    Writing to `params` writes to the module, and the other way round; `backward(loss)` leaves the gradients in
    `gradients`. Frozen parameters (`requires_grad=False`) and buffers stay where they are. Memory order within a
    parameter is kept, so a module in `channels_last` stays in `channels_last`. `moving`: the names of the frozen
    parameters that the module changes itself, which are listed among its `buffers`.

    Where parameters are of several dtypes, the vector is of float32, or float64 if one of them is. Those of another
    dtype are copies of it: call `load()` after `params` has changed and before the module is used.

    >>> flat = FlatModule(nn.Linear(2, 1))
    >>> flat.params.zero_().shape, flat.module.weight
    (torch.Size([3]), Parameter containing:
    tensor([[0., 0.]], requires_grad=True))
    """

    def __init__(self, module: nn.Module, moving: Callable[[str], bool] = lambda name: False):
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        trainable = [p for _, p in named]
        if not trainable:
            raise ConfigError("the model has no trainable parameters (requires_grad=True): nothing to train")
        devices, kinds = {p.device for p in trainable}, {p.dtype for p in trainable}
        if len(devices) > 1:
            raise ConfigError(f"the model's parameters must be on one device, not on {sorted(map(str, devices))}")
        wide = torch.float64 if torch.float64 in kinds else torch.float32
        self.module = module
        self._eager_forward: Forward = module.forward
        total = sum(p.numel() for p in trainable)
        first = trainable[0]
        self.params = torch.empty(total, dtype=first.dtype if len(kinds) == 1 else wide, device=first.device)
        self.gradients = torch.zeros_like(self.params)
        self._trainable: list[nn.Parameter] = trainable
        self.layout: dict[str, slice] = {}  # where each parameter is in the vector
        self._gradient_views: list[Tensor] = []
        self._copies: list[Tensor] = []  # parameters of another dtype than the vector
        self._sources: list[Tensor] = []  # where they are in it
        offset = 0
        with torch.no_grad():
            for name, parameter in named:
                window = self.layout[name] = slice(offset, offset + parameter.numel())
                value = _view_like(self.params[window], parameter)
                value.copy_(parameter)
                if parameter.dtype == self.params.dtype:
                    # The Parameter objects stay, so that tied weights and hooks of the module still hold.
                    parameter.data = value
                else:
                    self._copies.append(parameter.data)
                    self._sources.append(value)
                parameter.grad = None
                self._gradient_views.append(_view_like(self.gradients[window], parameter))
                offset = window.stop
        # Where each parameter has to be, for `check_views`; frozen ones may be anywhere.
        self._bound = {name: (p, p.data_ptr() if p.requires_grad else None) for name, p in module.named_parameters()}
        self.buffers = [
            Buffer(f"{path}.{key}".lstrip("."), owner, key)
            for path, owner in module.named_modules()
            for key in owner._buffers
        ]
        self._buffer_names = [(owner._buffers, set(owner._buffers)) for owner in module.modules()]
        self.buffers += [
            Buffer(name, module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2])
            for name, parameter in module.named_parameters()
            if not parameter.requires_grad and moving(name)
        ]

    def load(self) -> None:
        """Bring parameters of another dtype up to date with the vector; the others are views of it."""
        if self._copies:
            with torch.no_grad():
                torch._foreach_copy_(self._copies, self._sources)

    def check_copies(self) -> None:
        """Between `load` and the next change of the vector: an error where the model has changed a copy in place."""
        for copy, source in zip(self._copies, self._sources, strict=True):
            # Not torch.equal: a run that has diverged has NaN in both.
            if not torch.allclose(copy, source.to(copy.dtype), rtol=0, atol=0, equal_nan=True):
                [name] = (n for n, (p, _) in self._bound.items() if p.data_ptr() == copy.data_ptr())
                raise ConfigError(
                    f"the model changes its parameter {name} in place, which is lost where parameters are of several "
                    "dtypes: use torch.nn.utils.parametrizations, or one dtype"
                )

    def compile(self) -> None:
        """Compile the module's forward pass (and with it the backward pass) when it is first used.

        One version per shape of input, for training and for evaluation: there are few shapes.
        """
        self.module.forward = torch.compile(self._eager_forward, dynamic=False)

    @contextmanager
    def forward_as(self, wrap: Callable[[Forward], Forward]) -> Iterator[None]:
        """Within, the module's forward pass is `wrap` of what it is."""
        before = self.module.forward
        self.module.forward = wrap(before)
        try:
            yield
        finally:
            self.module.forward = before

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Within, the forward pass is as written, not compiled."""
        with self.forward_as(lambda _: self._eager_forward):
            yield

    def backward(self, loss: Tensor) -> Tensor:
        """Compute the gradient of a loss; returns the vector `gradients`.

        Autograd makes its own gradient tensors, which are then copied together. Letting it add into views of the
        vector instead makes a whole step of a residual network 6% slower.
        """
        self.clear_gradients()
        self.add_gradients(loss)
        return self.gathered_gradients()

    def clear_gradients(self) -> None:
        """Before the first part of a batch whose loss is computed in parts."""
        for parameter in self._trainable:
            parameter.grad = None

    def add_gradients(self, loss: Tensor) -> None:
        """Add the gradients of one part."""
        loss.backward()  # type: ignore[no-untyped-call]

    def gathered_gradients(self) -> Tensor:
        """The sum over the parts in the vector `gradients`, which is returned."""
        views, found = self._gradient_views, [p.grad for p in self._trainable]
        gradients = [gradient for gradient in found if gradient is not None]
        if len(gradients) < len(found):
            # A parameter that the loss did not use has gradient zero, not that of the step before.
            self.gradients.zero_()
            views = [view for view, gradient in zip(views, found, strict=True) if gradient is not None]
        torch._foreach_copy_(views, gradients)
        return self.gradients

    def views(self, vector: Tensor) -> list[Tensor]:
        """The parts of a vector of the model's size, each in the shape of its parameter."""
        return [_view_like(vector[w], p) for w, p in zip(self.layout.values(), self._trainable, strict=True)]

    def optimizer_params(self) -> list[nn.Parameter]:
        """The trainable parameters for an optimizer: the module's own; for copies, their parts of the vector."""
        pairs = zip(self._trainable, self.views(self.params), strict=True)
        return [own if own.dtype == part.dtype else nn.Parameter(part) for own, part in pairs]

    def pass_gradients(self, params: Sequence[nn.Parameter]) -> None:
        """After `gathered_gradients`: to those of `optimizer_params` that are not the module's own."""
        if self._copies:
            for target, own, view in zip(params, self._trainable, self._gradient_views, strict=True):
                if target is not own:
                    target.grad = None if own.grad is None else view

    def group_vectors(self, groups: Sequence[Group], decay_biases: bool, weight_decay: float) -> GroupVectors:
        """Learning-rate factors and weight decays per number in the vector; the first pattern that matches counts."""
        factors = torch.ones_like(self.params)
        decays = torch.full_like(self.params, weight_decay)
        unused = list(groups)
        for (name, window), parameter in zip(self.layout.items(), self._trainable, strict=True):
            group = next((one for one in groups if fnmatchcase(name, one.pattern)), None)
            unused = [one for one in unused if one is not group]
            if parameter.dim() <= 1 and not decay_biases:
                decays[window] = 0.0
            if group is not None:
                factors[window] = group.rate_factor
                if group.weight_decay is not None:
                    decays[window] = group.weight_decay
        if unused:
            raise self._unused(unused[0])
        return GroupVectors(factors, decays)

    def _unused(self, group: Group) -> ConfigError:
        """The error for a group without effect."""
        pattern, names = group.pattern, list(self.layout)
        if any(fnmatchcase(name, pattern) for name in names):
            return ConfigError(
                f"group {pattern!r} has no effect: earlier groups match all of its parameters, put it first"
            )
        close = nearest(pattern, names)
        hint = f": did you mean {close!r}?" if close else ""
        known = ", ".join(names if len(names) <= 12 else [*names[:6], "...", *names[-5:]])
        return ConfigError(f"group {pattern!r} matches no trainable parameter of the model{hint} (there are: {known})")

    def check_views(self) -> None:
        """An error where the module has parameters that are no longer, or never were, part of the vector."""
        for name, parameter in self.module.named_parameters():
            known, address = self._bound.get(name, (None, None))
            if known is None:
                problem = "was made while the model ran: make all layers in the model's __init__"
            elif parameter is not known:
                problem = "was replaced by another Parameter while the model ran: write self.x.data.copy_(...) instead"
            elif address is None and parameter.requires_grad:
                problem = "was frozen when the model was made and is not now: what is to be trained is decided there"
            elif address is not None and parameter.data_ptr() != address:
                problem = (
                    "was given new memory (self.x.data = ...) while the model ran: change it in place, "
                    "self.x.data.copy_(...), or use torch.nn.utils.parametrizations"
                )
            else:
                continue
            raise ConfigError(f"the model's parameter {name} {problem}")

    @torch.no_grad()
    def reset_buffers(self) -> None:
        """Give every buffer its initial value again, also those that the module has replaced by new tensors.

        Those that it has made in its forward pass are removed: it makes them again.
        """
        for buffer in self.buffers:
            buffer.reset()
        for held, names in self._buffer_names:
            for name in set(held) - names if len(held) > len(names) else ():
                del held[name]


def checked(module: object) -> nn.Module:
    """The module; an error that names the first parameter that cannot be part of a vector of numbers."""
    if not isinstance(module, nn.Module):
        what = "None: does it return the module?" if module is None else f"a {type(module).__name__}"
        raise ConfigError(f"model() must give a torch.nn.Module, not {what}")
    for layer in module.modules():
        if isinstance(layer, torch.jit.ScriptModule):
            raise ConfigError("model() gives a module of torch.jit, which cannot be trained here: leave torch.jit out")
    known: dict[int, str] = {}
    for name, parameter in module.named_parameters():
        owner, _, _ = name.rpartition(".")
        where = f"parameter {name} of the layer {type(module.get_submodule(owner)).__name__}"
        if nn.parameter.is_lazy(parameter):
            raise ConfigError(f"{where} has no shape yet: call the model once on a sample in model(), or give its size")
        if parameter.device.type == "meta":
            raise ConfigError(f"{where} is on the device meta, without values: build the model on the CPU")
        if parameter.layout is not torch.strided:
            raise ConfigError(f"{where} is sparse ({parameter.layout}): make it dense, with .to_dense()")
        if parameter.requires_grad and parameter.is_complex():
            raise ConfigError(f"{where} is {parameter.dtype}: keep its real and imaginary parts as real parameters")
        twin = known.setdefault(parameter.data_ptr(), name) if parameter.numel() else name
        if twin != name and parameter.requires_grad:  # in a vector, each would have memory of its own
            raise ConfigError(f"{where} has the memory of {twin}: tie them as parameters, b.weight = a.weight")
    for name, layer in module.named_modules():
        if getattr(layer, "sparse", False) is True and isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            raise ConfigError(f"layer {name or type(layer).__name__} gives sparse gradients: leave sparse=True out")
    return module


def _view_like(flat: Tensor, like: Tensor) -> Tensor:
    dense = torch.empty_like(like, device="meta")  # keeps the memory order, drops gaps and overlaps
    return flat.as_strided(like.shape, dense.stride(), flat.storage_offset())
