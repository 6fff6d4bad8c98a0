"""What the user's own loop trains, as its workers say: its model, its data, its length."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from orlomo.config import RunConfig
from orlomo.engines.loops.blocks import Blocks
from orlomo.engines.work import Initial, Work
from orlomo.errors import ConfigError
from orlomo.loop.buffers import encoding
from orlomo.loop.messages import SHARED, DataFacts, Lease, ModelFacts
from orlomo.methods.messages import Assignment
from orlomo.methods.state import Layout


class LoopWork(Work):
    """The user's own loop. `params` and `buffers`: what the first worker would begin with."""

    is_loop: ClassVar[bool] = True

    def __init__(self, model: ModelFacts, data: DataFacts, params: Tensor, buffers: Tensor | None):
        self.model, self.data = model, data
        self._params, self._buffers = params, buffers
        self.evaluates = model.evaluates
        self.encoding = encoding(model.buffers)

    @property
    def size(self) -> int:
        """In an epoch: samples with shared sampling, else batches; where there are none, optimizer steps."""
        assert self.data.size is not None
        return self.data.size

    def initial(self, config: RunConfig) -> Initial:
        # The learning rate is the optimizer's, and known from the first report on.
        return Initial(self._params, layout_of(self.model), self.encoding, self._buffers, rate=math.nan)

    def planned_samples(self, config: RunConfig) -> int:
        return round(config.epochs * self.size)

    def planned_reports(self, config: RunConfig) -> int:
        samples, block = self.planned_samples(config), self.block(config)
        if self.data.sampling != SHARED:
            return -(-samples // block)
        epochs, rest = divmod(samples, self.size)
        return epochs * -(-self.size // block) + -(-rest // block)

    def block(self, config: RunConfig) -> int:
        """What a round uses: samples with shared sampling, else batches."""
        if self.data.block is not None:
            return self.data.block
        batches = config.method.local_steps * self.data.accumulate
        return batches * self.data.batch_size * (config.group or 1) if self.data.sampling == SHARED else batches

    def steps_in(self, assignment: Assignment, config: RunConfig) -> int:
        """Optimizer steps for which this round has samples."""
        data = self.data
        if data.sampling != SHARED or data.block is not None:
            return assignment.local_steps
        per_step = data.batch_size * data.accumulate * (config.group or 1)
        lease: Lease = assignment.order.leases[0]
        return max(1, -(-lease.samples // per_step))

    def blocks(self, config: RunConfig) -> Blocks:
        """All samples of the run, none of them used yet."""
        return Blocks(self.size, self.block(config), self.planned_samples(config), config.workers)

    def ahead(self, config: RunConfig) -> int:
        """Blocks that a worker's data loader asks for while another is in use."""
        per_block = -(-self.block(config) // (self.data.batch_size * (config.group or 1)))
        return -(-self.data.ahead // per_block)

    def model_state(self, config: RunConfig, params: Tensor, buffers: Tensor | None) -> dict[str, Tensor]:
        """The trained parameters and the combined buffers, by name; what is not trained the server does not know."""
        model, state = self.model, {}
        for (name, place), shape, kind in zip(layout_of(model).items(), model.shapes, model.dtypes, strict=True):
            state[name] = params[place].view(shape).to(kind)
        values = self._buffers if buffers is None else buffers
        for part in self.encoding.parts if values is not None else ():
            assert values is not None
            state[part.buffer] = part.of(values).view(part.shape)
        return state


def layout_of(model: ModelFacts) -> Layout:
    """Where each parameter is in the vector."""
    ends = itertools.accumulate(torch.Size(shape).numel() for shape in model.shapes)
    starts = [0, *ends]
    return {name: slice(starts[number], starts[number + 1]) for number, name in enumerate(model.names)}


def planned(config: RunConfig, data: DataFacts) -> tuple[RunConfig, DataFacts]:
    """The config with the length of the run in epochs, and the data with the size of one."""
    per_step = data.accumulate * (data.batch_size * (config.group or 1) if data.sampling == SHARED else 1)
    if config.steps is not None:
        total = config.steps * per_step
        data = data if data.size is not None else dataclasses.replace(data, size=total)
        assert data.size is not None
        return dataclasses.replace(config, epochs=total / data.size), data
    if data.epochs is None:
        raise ConfigError(
            "the loop does not say how long the run is: iterate over worker.epochs(N), or give the run --steps N "
            "(optimizer steps of all workers together)"
        )
    if data.size is None:
        raise ConfigError(
            "the length of an epoch is not known: iterate over worker.batches(loader) with a loader that has a length, "
            "or give the run --steps N (optimizer steps of all workers together)"
        )
    return dataclasses.replace(config, epochs=float(data.epochs)), data


def to_json(model: ModelFacts, data: DataFacts) -> dict[str, Any]:
    """What a loop trains, as plain values for a checkpoint."""
    table = dataclasses.asdict(model)
    table["dtypes"] = [str(kind) for kind in model.dtypes]
    table["dtype"] = str(model.dtype)
    table["buffers"] = [[name, str(kind), list(shape)] for name, kind, shape in model.buffers]
    return {"model": table, "data": dataclasses.asdict(data)}


def from_json(values: Mapping[str, Any]) -> tuple[ModelFacts, DataFacts]:
    """What `to_json` gave."""
    table = dict(values["model"])
    table["names"], table["optimizers"] = tuple(table["names"]), tuple(table["optimizers"])
    table["shapes"] = tuple(tuple(shape) for shape in table["shapes"])
    table["dtypes"] = tuple(_dtype(text) for text in table["dtypes"])
    table["dtype"] = _dtype(table["dtype"])
    table["buffers"] = tuple((name, _dtype(kind), tuple(shape)) for name, kind, shape in table["buffers"])
    return ModelFacts(**table), DataFacts(**values["data"])


def _dtype(text: str) -> torch.dtype:
    found = getattr(torch, text.removeprefix("torch."))
    assert isinstance(found, torch.dtype)
    return found
