"""What the values of a checkpoint must be, so that what reads them need not ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from orlomo.errors import RunFolderError

Check: TypeAlias = Callable[[Any], bool]


def whole(value: object) -> bool:
    """A whole number from -1, which stands for none, to what 8 bytes hold."""
    return type(value) is int and -1 <= value < 2**63


def number(value: object) -> bool:
    """Any number."""
    return type(value) in (int, float)


def text(value: object) -> bool:
    return isinstance(value, str)


def table(value: object) -> bool:
    return isinstance(value, dict)


def rows(value: object) -> bool:
    return isinstance(value, list) and all(map(table, value))


def _none_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _table_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _fields(*checks: Check) -> Check:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(checks)
        and all(check(one) for check, one in zip(checks, value, strict=True))
    )


def numbers(value: object) -> bool:
    """Numbers, in lists and tables."""
    if isinstance(value, list):
        return all(map(numbers, value))
    return all(map(numbers, value.values())) if isinstance(value, dict) else value is None or number(value)


def _sizes(value: object) -> bool:
    """How long the tables were."""
    good = isinstance(value, dict) and {"events", "metrics"} <= value.keys()
    return good and _table_of(lambda size: whole(size) and size >= 0)(value)


SHAPES: dict[str, Check] = {
    "files": _sizes,
    "config_sha256": text,
    "changes": rows,
    "sealed": table,
    "finished": lambda value: isinstance(value, bool),
    "stopped": _none_or(text),
    "ledger": lambda value: isinstance(value, dict) and numbers(value) and whole(value.get("samples", 0)),
    "numbers": _table_of(number),
    "held": _list_of(_fields(whole, whole, whole, number, whole, whole)),
    "worker_numbers": _list_of(_fields(whole, table)),
    "evaluations": rows,
    "evaluated": whole,
    "evaluated_at": whole,
    "reports": lambda value: whole(value) and value >= 0,
    "real_seconds": number,
    "params_checksum": text,
    "schedule": text,
    "membership": table,
    "blocks": _none_or(lambda value: isinstance(value, dict) and numbers(value)),
    "clock": whole,
    "initial": text,
    "virtual": table,
    "loop": table,
}
"""By name. A checkpoint of a run has those that its engine needs."""


def check_shapes(values: object) -> None:
    """An error where the values of a checkpoint are not of their types."""
    if not isinstance(values, dict):
        raise RunFolderError("it has no values")
    for name, check in SHAPES.items():
        if name in values and not check(values[name]):
            raise RunFolderError(f"{name!r} is not what a run writes")


@contextmanager
def restoring(position: int) -> Iterator[None]:
    """While something is restored from a checkpoint: what is missing in it, or does not fit, is an error."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, AssertionError) as error:
        reason = " ".join(str(error).split())[:200]
        what = f"it has no {reason}" if isinstance(error, KeyError) else reason or type(error).__name__
        raise RunFolderError(f"checkpoint {position} is damaged: {what}") from None
