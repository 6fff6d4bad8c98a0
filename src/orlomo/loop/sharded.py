"""Parameters of which each process of a group has a part, as `fully_shard` (FSDP2) makes them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor, nn

from orlomo.errors import ConfigError, require
from orlomo.methods.inner import folds_momentum
from orlomo.methods.method import Method


def is_sharded(parameter: Tensor) -> bool:
    """Whether it is a DTensor.

    >>> is_sharded(nn.Linear(2, 1).weight)
    False
    """
    tensors = sys.modules.get("torch.distributed.tensor")  # where there is a DTensor, it is loaded
    return tensors is not None and isinstance(parameter, tensors.DTensor)


def part(parameter: Any) -> Tensor:
    """This rank's part: its own memory, not a copy."""
    local: Tensor = parameter.to_local() if is_sharded(parameter) else parameter
    return local


def whole(parameter: Any) -> Tensor:
    """All of it. All ranks must call this."""
    full: Tensor = parameter.full_tensor() if is_sharded(parameter) else parameter
    return full


def copy_part(parameter: Any, full: Tensor) -> None:
    """Take over this rank's part of `full`, which all ranks have."""
    if is_sharded(parameter):
        distribute = sys.modules["torch.distributed.tensor"].distribute_tensor
        full = distribute(full, parameter.device_mesh, parameter.placements, src_data_rank=None).to_local()
    part(parameter).copy_(full)


def reshard(models: Iterable[nn.Module]) -> None:
    """Let the modules give up what they have gathered: after a change of the parts they must gather it again.

    A module that was called without a backward pass after it, as in an evaluation, still has all its parameters.
    """
    kind = _of_fsdp("FSDPModule")
    if kind is not None:
        for module in [module for model in models for module in model.modules() if isinstance(module, kind)]:
            cast("Any", module).reshard()


def check_wrappers(models: Iterable[nn.Module]) -> None:
    """An error where parameters are in parts that cannot be exchanged."""
    old = _of_fsdp("FullyShardedDataParallel")
    if old is not None and any(isinstance(module, old) for model in models for module in model.modules()):
        raise ConfigError(
            "the model is in FullyShardedDataParallel, which hides its parameters: use fully_shard(model) of "
            "torch.distributed.fsdp, or DistributedDataParallel(model)"
        )


def check_method(method: Method, sharded: bool) -> None:
    """An error where parameters are sharded and the method needs more than their change."""
    require(
        not (sharded and folds_momentum(method)),
        f"{method.name} exchanges momentum, which is not possible where parameters are sharded: with fully_shard use "
        f"local-ormo-da, al-sgd or local-sgd, or use DistributedDataParallel(model) instead",
    )


def _of_fsdp(name: str) -> type | None:
    """A class of FSDP, which is loaded where a model has it."""
    found: type | None = getattr(sys.modules.get("torch.distributed.fsdp"), name, None)
    return found
