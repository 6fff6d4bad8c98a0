"""A module as one flat vector: copying a model is one memcpy, an update is one pass over memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from orlomo.errors import ConfigError


class FlatModule:
    """Rebinds a module's trainable parameters and gradients as views into two contiguous vectors.

    `params` and `gradients` are the two vectors; writing to them writes to the module, and the other way round.
    Frozen parameters (`requires_grad=False`) and buffers stay where they are. Memory order within a parameter is
    kept, so a module in `channels_last` stays in `channels_last`.

    >>> flat = FlatModule(nn.Linear(2, 1))
    >>> flat.params.zero_().shape, flat.module.weight
    (torch.Size([3]), Parameter containing:
    tensor([[0., 0.]], requires_grad=True))
    """

    def __init__(self, module: nn.Module):
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise ConfigError("the model has no trainable parameters: nothing to train")
        kinds = {(p.dtype, p.device) for _, p in named}
        if len(kinds) > 1:
            raise ConfigError(f"the model's parameters must share one dtype and device, not {sorted(map(str, kinds))}")
        self.module = module
        self.slices: dict[str, slice] = {}
        total = sum(p.numel() for _, p in named)
        first = named[0][1]
        self.params = torch.empty(total, dtype=first.dtype, device=first.device)
        self.gradients = torch.zeros_like(self.params)
        offset = 0
        with torch.no_grad():
            for name, parameter in named:
                window = slice(offset, offset + parameter.numel())
                value = _view_like(self.params[window], parameter)
                value.copy_(parameter)
                parameter.data = value
                parameter.grad = _view_like(self.gradients[window], parameter)
                self.slices[name] = window
                offset = window.stop

    def float_buffers(self) -> list[Tensor]:
        """The module's floating-point buffers (running statistics and the like), in a fixed order."""
        return [b for b in self.module.buffers() if b.is_floating_point()]


def _view_like(flat: Tensor, like: Tensor) -> Tensor:
    dense = torch.empty_like(like, device="meta")  # keeps the memory order, drops gaps and overlaps
    return flat.as_strided(like.shape, dense.stride(), flat.storage_offset())
