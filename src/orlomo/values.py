"""Settings as a TOML file or a command line holds them <-> typed values. A wrong type is an error that says so.

A setting is defined once: a dataclass field carries its type, its default and its help text (`setting`); flags, docs
and conversions come from that.

A value comes from a flag as text (`from_text`), from a TOML file as a plain value (`convert`), and goes back to a TOML
file as a plain value (`plain`). All three go by the type of a dataclass field.
"""

from __future__ import annotations

import contextlib
import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from orlomo.errors import ConfigError, require, unknown_name

T = TypeVar("T")
Hint = Any  # what stands behind the colon of a field: `int`, `tuple[float, ...] | None`

WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
BOOLEANS = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


def setting(default: T, help: str, flag: bool = True) -> T:
    """A field of a config: its default, what it is, and whether the command line has a flag for it."""
    made: T = dataclasses.field(default=default, metadata=about(help, flag))
    return made


def about(help: str, flag: bool = True) -> dict[str, Any]:
    """The metadata of such a field, for one without a default."""
    return {"help": help, "flag": flag}


def helps(kind: type[Any]) -> Iterator[tuple[str, str, bool]]:
    """Every field of a config that says what it is: its name, its help, whether it is a flag."""
    for field in dataclasses.fields(kind):
        if "help" in field.metadata:
            yield field.name, field.metadata["help"], field.metadata["flag"]


def documented(kind: type[Any], skip: tuple[str, ...] = ()) -> Callable[[T], T]:
    """Put the settings of `kind` into a docstring, in place of the line `{settings}`."""

    def fill(documented: T) -> T:
        for line in (documented.__doc__ or "").splitlines():
            if line.strip() == "{settings}":
                indent = line.removesuffix("{settings}")
                lines = [f"{indent}{name}: {text}." for name, text, _ in helps(kind) if name not in skip]
                documented.__doc__ = str(documented.__doc__).replace(line, "\n".join(lines))
        return documented

    return fill


def hints_of(kind: type[Any], names: Mapping[str, Any] | None = None) -> dict[str, Hint]:
    """The types of a dataclass's fields. `names`: what its module imports for type checkers only."""
    every = typing.get_type_hints(kind, localns=None if names is None else dict(names))
    return {field.name: every[field.name] for field in dataclasses.fields(kind) if field.init}


def from_text(text: str, hint: Hint) -> Any:
    """The value of a setting of this type, written on a command line.

    >>> from_text("16", int), from_text("1,1,2", tuple[float, ...] | None), from_text("GPU=1", dict[str, float])
    (16, (1.0, 1.0, 2.0), {'GPU': 1.0})
    """
    if choices := _choices(hint):
        if type(None) in choices and text.strip().lower() == "none":
            return None
        return _first(lambda choice: from_text(text, choice), choices)
    origin: Any = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if origin is typing.Literal:
        known = {str(choice): choice for choice in inner}
        require(text in known, f"must be one of {', '.join(known)}, not {text!r}")
        return known[text]
    if origin in (tuple, list):
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return origin(_each(parts, inner[0], f"must be {_many(inner[0])} with commas between, not {text!r}"))
    if origin is dict:
        return _pairs_from_text(text, inner[1])
    try:
        if hint is bool:
            return BOOLEANS[text.strip().lower()]
        return hint(text) if hint in WORDS else _no_text(hint)
    except (ValueError, KeyError):
        raise ConfigError(f"must be {WORDS[hint]}, not {text!r}") from None


def _pairs_from_text(text: str, inner: Hint) -> dict[str, Any]:
    """`zone=eu,disk=ssd`. A comma within brackets does not separate: Ray has `zone=in(eu,uk)`."""
    example = "GPU=1,CPU=4" if inner is float else "zone=eu,disk=ssd"
    wrong = f"must be names and {'amounts' if inner is float else 'values'}, as in {example}, not {text!r}"
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    pairs = [part.partition("=") for part in parts]
    require(all(name.strip() and equals for name, equals, _ in pairs), wrong)
    values = _each([value.strip() for _, _, value in pairs], inner, wrong)
    return dict(zip((name.strip() for name, _, _ in pairs), values, strict=True))


def _each(parts: list[str], hint: Hint, wrong: str) -> list[Any]:
    try:
        return [from_text(part, hint) for part in parts]
    except ConfigError:
        raise ConfigError(wrong) from None


def _many(hint: Hint) -> str:
    return {int: "whole numbers", float: "numbers", str: "names"}.get(hint, "values")


def _no_text(hint: Hint) -> Any:
    raise ConfigError(f"is a {getattr(hint, '__name__', hint)}, which has no form on the command line: use Python")


def build(kind: type[T], table: dict[str, Any], where: str, names: Mapping[str, Any] | None = None) -> T:
    """A config from the table of a TOML file; unknown keys are errors that name the nearest key."""
    hints = hints_of(kind, names)
    values = {}
    for key, value in table.items():
        if key not in hints:
            raise unknown_name(f"key in {where}", key, hints)
        values[key] = convert(value, hints[key], f"{where}, {key}")
    return kind(**values)


def convert(value: Any, hint: Hint, where: str) -> Any:
    """A value of a TOML file as one of this type; anything else is an error that says `where`."""
    if choices := _choices(hint):
        return None if value is None else _first(lambda choice: convert(value, choice, where), choices)
    origin: Any = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if origin is dict:
        require(isinstance(value, dict), f"{where} must be a table, not {value!r}")
        return {str(key): convert(part, inner[1], f"{where} {key}") for key, part in value.items()}
    if origin in (tuple, list):
        require(isinstance(value, (list, tuple)), f"{where} must be a list, not {value!r}")
        return origin(convert(part, inner[0], where) for part in value)
    if origin is typing.Literal:
        require(value in inner, f"{where} must be one of {', '.join(map(str, inner))}, not {value!r}")
        return value
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return build(typing.cast(type[Any], hint), value, where)
    if hint is float and type(value) is int:
        return float(value)
    if not isinstance(hint, type):  # a type that a config cannot check, as typing.Any
        return value
    wanted = WORDS.get(hint, getattr(hint, "__name__", str(hint)))
    good = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    require(good, f"{where} must be {wanted}, not {value!r}")
    return value


def plain(value: Any) -> Any:
    """Plain nested values, as in a TOML file; None is left out."""
    if dataclasses.is_dataclass(value):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if part is not None}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return value


def _choices(hint: Hint) -> tuple[Hint, ...]:
    """The types of `int | None`; none for a type that is one."""
    origin: Any = typing.get_origin(hint)
    return typing.get_args(hint) if origin in (types.UnionType, typing.Union) else ()


def _first(make: Callable[[Hint], Any], choices: tuple[Hint, ...]) -> Any:
    """What the first type takes that takes it; where none does, the last one's error."""
    *others, last = (choice for choice in choices if choice is not type(None))
    for choice in others:
        with contextlib.suppress(ConfigError):
            return make(choice)
    return make(last)
