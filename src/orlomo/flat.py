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
        trainable = [p for p in module.parameters() if p.requires_grad]
        if not trainable:
            raise ConfigError("the model has no trainable parameters: nothing to train")
        kinds = {(p.dtype, p.device) for p in trainable}
        if len(kinds) > 1:
            raise ConfigError(f"the model's parameters must share one dtype and device, not {sorted(map(str, kinds))}")
        self.module = module
        total = sum(p.numel() for p in trainable)
        first = trainable[0]
        self.params = torch.empty(total, dtype=first.dtype, device=first.device)
        self.gradients = torch.zeros_like(self.params)
        offset = 0
        with torch.no_grad():
            for parameter in trainable:
                window = slice(offset, offset + parameter.numel())
                value = _view_like(self.params[window], parameter)
                value.copy_(parameter)
                parameter.data = value
                parameter.grad = _view_like(self.gradients[window], parameter)
                offset = window.stop
        self._initial_buffers = [
            (owner, name, buffer, buffer.clone())
            for owner in module.modules()
            for name, buffer in owner.named_buffers(recurse=False)
        ]

    @torch.no_grad()
    def reset_buffers(self) -> None:
        """Give every buffer its initial value again, also those that the module has replaced by new tensors."""
        for owner, name, buffer, initial in self._initial_buffers:
            owner._buffers[name] = buffer.copy_(initial)

    def float_buffers(self) -> list[Tensor]:
        """The module's floating-point buffers (running statistics and the like), in a fixed order."""
        return [b for b in self.module.buffers() if b.is_floating_point()]


def _view_like(flat: Tensor, like: Tensor) -> Tensor:
    dense = torch.empty_like(like, device="meta")  # keeps the memory order, drops gaps and overlaps
    return flat.as_strided(like.shape, dense.stride(), flat.storage_offset())
