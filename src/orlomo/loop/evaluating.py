"""The process that only evaluates: the user's program up to `attach`, then the function given there, many times."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from numbers import Real
from typing import NoReturn, cast

import torch

from orlomo.errors import ConfigError
from orlomo.loop.attached import Attached
from orlomo.loop.messages import EvaluationPort
from orlomo.seeds import derive, isolated, seed_global

VALUE = "value"
"""The name of what an evaluation returns where it returns one number."""


def serve(port: EvaluationPort, attached: Attached, evaluate: Callable[[], object]) -> NoReturn:
    """Evaluate the parameters that the server sends, until the process is ended."""
    while True:
        has_buffers = port.evaluation()
        attached.finish(port.assigned["params"], port.buffers if has_buffers else None, 0, 0)
        training = [(module, module.training) for model in attached.models for module in model.modules()]
        for model in attached.models:
            model.eval()
        with torch.no_grad(), isolated():
            seed_global(derive(port.settings.seed, "evaluation"))
            values = numbers(evaluate())
        for module, was_training in training:
            module.training = was_training
        sys.stdout.flush()
        port.measured(values)


def numbers(result: object) -> dict[str, float]:
    """What an evaluation returned, as numbers by name.

    >>> numbers(0.5), numbers({"accuracy": torch.tensor(0.5)})
    ({'value': 0.5}, {'accuracy': 0.5})
    """
    table = result if isinstance(result, Mapping) else {VALUE: result}
    values: dict[str, float] = {}
    for name, value in table.items():
        single = isinstance(value, torch.Tensor) and value.numel() == 1
        if not isinstance(name, str) or not (single or isinstance(value, Real)):
            raise ConfigError(f"evaluate must return a number, or numbers by name, not {result!r}")
        values[name] = float(cast("float", value))
    if not values:
        raise ConfigError("evaluate returned no number")
    return values
