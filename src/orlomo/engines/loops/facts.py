"""What workers say that they train, and what they are told of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from orlomo.engines.slots import Shape
from orlomo.loop.buffers import encoding
from orlomo.loop.messages import ModelFacts, Welcome
from orlomo.methods.method import Method


class Present(NamedTuple):
    """The run as it is now: what a worker that says hello is given."""

    vectors: Mapping[str, Tensor]
    welcome: Welcome


class End(NamedTuple):
    """The run at its end: what every worker is given."""

    params: Tensor
    buffers: Tensor | None
    clock: int
    epoch: int


def shape_of(model: ModelFacts, method: Method) -> Shape:
    """What the memory of a worker holds."""
    size = encoding(model.buffers).bytes
    sent, reported = tuple(method.sent_vectors()), method.report_vectors
    return Shape(model.parameters, model.dtype, size, False, sent, reported)


def differs(found: ModelFacts, first: ModelFacts) -> str | None:
    """How what a worker trains differs from what the first one does, in one line; None: it does not."""
    for number, (name, shape, kind) in enumerate(zip(first.names, first.shapes, first.dtypes, strict=True)):
        if number >= len(found.names):
            return f"it has no parameter {name}"
        here = found.names[number], found.shapes[number], found.dtypes[number]
        if here != (name, shape, kind):
            return f"it has {here[0]} {here[1]} {here[2]} where the first has {name} {shape} {kind}"
    if len(found.names) > len(first.names):
        return f"it also has the parameter {found.names[len(first.names)]}"
    if found.frozen != first.frozen:
        return "its parameters that are not trained are others: initialise them from one seed or one file"
    if found.buffers != first.buffers:
        return f"its buffers are {found.buffers}, those of the first {first.buffers}"
    return None
