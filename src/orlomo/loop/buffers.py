"""The buffers of a user's model: each worker's stay its own, and are reported for evaluation and the final model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from orlomo.errors import require
from orlomo.loop.vectors import plain_name
from orlomo.tasks.buffers import AVERAGE, KEEP, Encoding

BufferFacts = tuple[str, torch.dtype, tuple[int, ...]]
"""A buffer's name, dtype and shape."""


def encoding(buffers: Sequence[BufferFacts]) -> Encoding:
    """How these are one vector of bytes: floating-point ones can be averaged, of others the newest counts.

    >>> encoding([("1.running_mean", torch.float32, (4,)), ("1.num_batches_tracked", torch.int64, ())]).bytes
    24
    """
    return Encoding(
        [
            (name, AVERAGE if dtype.is_floating_point else KEEP, torch.empty(shape, dtype=dtype, device="meta"))
            for name, dtype, shape in buffers
        ]
    )


class ReportedBuffers:
    """The buffers that are part of the models' state: those that `state_dict()` has.

    >>> buffers = ReportedBuffers([("", nn.BatchNorm1d(2))])
    >>> [name for name, _, _ in buffers.facts]
    ['running_mean', 'running_var', 'num_batches_tracked']
    """

    def __init__(self, models: Iterable[tuple[str, nn.Module]]):
        self._owners: dict[str, tuple[nn.Module, str]] = {}
        seen: set[int] = set()
        for prefix, model in models:
            for path, owner in model.named_modules():
                for key, value in owner._buffers.items():
                    if value is None or key in owner._non_persistent_buffers_set or id(value) in seen:
                        continue
                    if value.layout is not torch.strided or value.device.type == "meta":
                        continue
                    seen.add(id(value))
                    self._owners[plain_name(prefix, path, key)] = owner, key
        self.facts: tuple[BufferFacts, ...] = tuple(
            (name, value.dtype, tuple(value.shape)) for name in self._owners if (value := self._value(name)) is not None
        )
        self._encoding = encoding(self.facts)

    @torch.no_grad()
    def read(self) -> Tensor | None:
        """Their values as bytes on the CPU; None where there are none."""
        if not self.facts:
            return None
        values = []
        for part in self._encoding.parts:
            value = self._value(part.buffer)
            found = "None" if value is None else f"{tuple(value.shape)} {value.dtype}"
            wanted = f"{tuple(part.shape)} {part.dtype}"
            require(
                found == wanted,
                f"the buffer {part.buffer} was {wanted} when attached and is now {found}: give it its full size in "
                f"__init__, or register it with persistent=False",
            )
            assert value is not None
            values.append(value.detach().cpu())
        return self._encoding.encode(values)

    @torch.no_grad()
    def load(self, values: Tensor) -> None:
        """Take over what was read, or combined."""
        size, wanted = values.numel(), self._encoding.bytes
        require(size == wanted, f"the buffers are {size} bytes, not {wanted}: they are another model's")
        for part in self._encoding.parts:
            value = self._value(part.buffer)
            if value is not None:
                value.copy_(part.of(values).view(part.shape))

    def _value(self, name: str) -> Tensor | None:
        """What it is now: a module may put another tensor in its place."""
        owner, key = self._owners[name]
        return owner._buffers.get(key)
