"""Settings as a TOML file holds them <-> typed values. A wrong type is an error that says where."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from orlomo.errors import require, unknown_name

WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def build(kind: Any, table: dict[str, Any], where: str) -> Any:
    """A dataclass from a table; an unknown key is an error that names the nearest."""
    hints = typing.get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]
    values = {}
    for key, value in table.items():
        if key not in known:
            raise unknown_name(f"key in {where}", key, known)
        values[key] = convert(value, hints[key], f"{where}, {key}")
    return kind(**values)


def convert(value: Any, hint: Any, where: str) -> Any:
    """The value as this type; whole numbers will do for numbers, lists for tuples."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if value is None:
            return None
        hint = next(choice for choice in typing.get_args(hint) if choice is not type(None))
    if typing.get_origin(hint) is dict:
        inner = typing.get_args(hint)[1]
        require(isinstance(value, dict), f"{where} must be a table, not {value!r}")
        return {str(key): convert(part, inner, f"{where} {key}") for key, part in value.items()}
    if typing.get_origin(hint) in (tuple, list):
        inner = typing.get_args(hint)[0]
        require(isinstance(value, (list, tuple)), f"{where} must be a list, not {value!r}")
        return typing.get_origin(hint)(convert(part, inner, where) for part in value)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return build(hint, value, where)
    if hint is float and type(value) is int:
        return float(value)
    if not isinstance(hint, type):  # a type that a config cannot check, as typing.Any
        return value
    wanted = WORDS.get(hint, getattr(hint, "__name__", str(hint)))
    good = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    require(good, f"{where} must be {wanted}, not {value!r}")
    return value


def plain(value: Any) -> Any:
    """Nested tables, lists and single values; None is left out of tables."""
    if dataclasses.is_dataclass(value):
        return plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if part is not None}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return value
