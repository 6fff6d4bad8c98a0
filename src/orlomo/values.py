"""Settings as a TOML file or a command line holds them <-> typed values. A wrong type is an error that says so.

A setting is defined once: a dataclass field carries its type, its default and its help text (`setting`); flags, docs
and conversions come from that.

A value comes from a flag as text (`from_text`), from a TOML file or a Python call as a value (`convert`), and goes back
to a TOML file as a plain value (`plain`). All three go by the type of a dataclass field. What numpy and torch have for
a number, a list or a device becomes a plain one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from orlomo.errors import ConfigError, require, unknown_name
from orlomo.errors import shown as shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")
Hint: TypeAlias = object
"""The annotation of a field: `int`, `tuple[float, ...] | None`. Not every annotation is a class."""

Table: TypeAlias = dict[str, object]
"""A table of a TOML file."""

READERS: dict[Hint, Callable[[str], object]] = {int: int, float: float, str: str}
WORDS: dict[Hint, str] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
KINDS: dict[Hint, type] = {int: numbers.Integral, float: numbers.Real}
"""What is taken for a type beside its own objects: they become such."""
WHOLE = range(-(2**63), 2**63)
"""Whole numbers that TOML, CSV files read by numpy, and torch can hold: 64 bits."""

LONGEST_TEXT = 1 << 17
"""Characters of a text: Linux gives a program no longer argument."""

LONGEST_PATH = 4096
"""Characters of a file's name with its folders: Linux takes no more."""

MOST_PARTS = 100_000
"""Of a list: more than any setting has use for."""

BOOLEANS = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


def setting(default: T, help: str, flag: bool = True) -> T:
    """A field of a config: its default, its help text, and whether the command line has a flag for it."""
    made: T = dataclasses.field(default=default, metadata=about(help, flag))
    return made


def about(help: str, flag: bool = True) -> dict[str, object]:
    """The metadata of such a field, for one without a default."""
    return {"help": help, "flag": flag}


def helps(kind: type[DataclassInstance]) -> Iterator[tuple[str, str, bool]]:
    """Every documented field of a config: its name, its help text, whether it has a flag."""
    for field in dataclasses.fields(kind):
        if "help" in field.metadata:
            yield field.name, field.metadata["help"], field.metadata["flag"]


def documented(kind: type[DataclassInstance], skip: tuple[str, ...] = ()) -> Callable[[T], T]:
    """Put the settings of `kind` into a docstring, in place of the line `{settings}`."""

    def fill(documented: T) -> T:
        for line in (documented.__doc__ or "").splitlines():
            if line.strip() == "{settings}":
                indent = line.removesuffix("{settings}")
                lines = [f"{indent}{name}: {text}." for name, text, _ in helps(kind) if name not in skip]
                documented.__doc__ = str(documented.__doc__).replace(line, "\n".join(lines))
        return documented

    return fill


def hints_of(kind: type[DataclassInstance], names: Mapping[str, object] | None = None) -> dict[str, Hint]:
    """The types of a dataclass's fields. `names`: what its module imports for type checkers only."""
    every = typing.get_type_hints(kind, localns=None if names is None else dict(names))
    return {field.name: every[field.name] for field in dataclasses.fields(kind) if field.init}


def from_text(text: str, hint: Hint) -> object:
    """The value of a setting of this type, written on a command line.

    >>> from_text("16", int), from_text("1,1,2", tuple[float, ...] | None), from_text("GPU=1", dict[str, float])
    (16, (1.0, 1.0, 2.0), {'GPU': 1.0})
    """
    if choices := _choices(hint):
        # So that `--set clip_norm=none` can undo what a TOML file sets.
        if type(None) in choices and text.strip().lower() == "none":
            return None
        return _first(lambda choice: from_text(text, choice), choices)
    origin = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if origin is typing.Literal:
        known = {str(choice): choice for choice in inner}
        require(text in known, f"must be one of {', '.join(known)}, not {shown(text)}")
        return known[text]
    if origin in (tuple, list):
        parts = [part.strip() for part in text.split(",") if part.strip()]
        values = _each(parts, inner[0], f"must be {_many(inner[0])} with commas between, not {shown(text)}")
        require(_fits(len(values), hint), f"must be {len(inner)} values with commas between, not {shown(text)}")
        return tuple(values) if origin is tuple else values
    if origin is dict:
        return _pairs_from_text(text, inner[1])
    if hint not in WORDS:
        raise ConfigError(f"is a {_name(hint)}, which has no form on the command line: use Python")
    try:
        return BOOLEANS[text.strip().lower()] if hint is bool else READERS[hint](text)
    except (ValueError, KeyError):
        raise ConfigError(f"must be {WORDS[hint]}, not {shown(text)}") from None


def _pairs_from_text(text: str, inner: Hint) -> dict[str, object]:
    """`zone=eu,disk=ssd`. A comma within brackets does not separate: Ray has `zone=in(eu,uk)`."""
    example = "GPU=1,CPU=4" if inner is float else "zone=eu,disk=ssd"
    wrong = f"must be names and {'amounts' if inner is float else 'values'}, as in {example}, not {shown(text)}"
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


def _each(parts: list[str], hint: Hint, wrong: str) -> list[object]:
    try:
        return [from_text(part, hint) for part in parts]
    except ConfigError:
        raise ConfigError(wrong) from None


def _many(hint: Hint) -> str:
    words: dict[Hint, str] = {int: "whole numbers", float: "numbers", str: "names"}
    return words.get(hint, "values")


def _name(hint: Hint) -> str:
    return str(getattr(hint, "__name__", hint))


def build(kind: type[D], table: Mapping[str, object], where: str, names: Mapping[str, object] | None = None) -> D:
    """A config from the table of a TOML file; unknown keys are errors that name the nearest key."""
    hints = hints_of(kind, names)
    values = {}
    for key, value in table.items():
        if key not in hints:
            raise unknown_name(f"key in {where}", key, hints)
        values[key] = convert(value, hints[key], f"{where}, {key}")
    return kind(**values)


def settle(config: DataclassInstance, names: Mapping[str, object] | None = None, only: Collection[str] = ()) -> None:
    """Convert the fields of a new config in place, those of `only` or all: a wrong type is an error that names it.

    For `__post_init__`. `names`: as for `hints_of`.
    """
    for field in dataclasses.fields(config):
        if not field.init or (only and field.name not in only):
            continue
        value = getattr(config, field.name)
        if value is None and field.default is None:  # `limit: float = None`: a user's own words for `float | None`
            continue
        try:
            hint = _hint_of(type(config), field.name, names or {})
        except (NameError, AttributeError, TypeError):  # it names what only a type checker, or a function, knows
            continue
        found = convert(value, hint, field.name)
        if found is not value:
            object.__setattr__(config, field.name, found)  # the class is frozen for users; this is its construction


def _hint_of(kind: type, field: str, names: Mapping[str, object]) -> Hint:
    """The type of one field: those of the others may not be known at run time."""
    owner = next(base for base in kind.__mro__ if field in vars(base).get("__annotations__", {}))
    written = vars(owner)["__annotations__"][field]
    known = vars(sys.modules[owner.__module__]) if owner.__module__ in sys.modules else {}
    return eval(written, {**known, **names}) if isinstance(written, str) else written  # as typing.get_type_hints does


def convert(value: object, hint: Hint, where: str) -> object:
    """A value of a TOML file or a Python call as one of this type; anything else is an error that says `where`.

    >>> convert(3, float, "epochs"), convert("cpu", tuple[str, ...] | None, "devices")
    (3.0, ('cpu',))
    """
    if choices := _choices(hint):
        absent = value is None and type(None) in choices
        return None if absent else _first(lambda choice: convert(value, choice, where), choices)
    origin = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if origin in (tuple, list, dict, typing.Literal) or hint in WORDS:
        value = _of_python(value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be a table, as in {{'name': ...}}, not {shown(value)}")
        return {str(key): convert(part, inner[1], f"{where} {key}") for key, part in value.items()}
    if origin in (tuple, list):
        if isinstance(value, str) and inner[0] is str:  # one name, or several as a flag has them
            return from_text(value, hint)
        if not isinstance(value, (list, tuple, range)):
            raise ConfigError(f"{where} must be a list of {_many(inner[0])}, not {shown(value)}")
        # Not by its length: that of a range may be more than Python can say.
        require(not value[MOST_PARTS : MOST_PARTS + 1], f"{where} has more than {MOST_PARTS:,} parts")
        require(_fits(len(value), hint), f"{where} must be a list of {len(inner)} values, not {shown(value)}")
        parts = [convert(part, inner[0], where) for part in value]
        return tuple(parts) if origin is tuple else parts
    if origin is typing.Literal:
        require(value in inner, f"{where} must be one of {', '.join(map(str, inner))}, not {shown(value)}")
        return value
    table = isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict)
    if table and not inspect.isabstract(hint):
        return build(typing.cast(type, hint), typing.cast(dict[str, object], value), where)
    if not isinstance(hint, type) or hint is typing.Any or getattr(hint, "_is_protocol", False):  # cannot be checked
        return value
    # A bool is an int to Python, but `workers = true` is a mistake.
    kind: type = KINDS.get(hint, hint)
    good = isinstance(value, kind) and (hint is bool or not isinstance(value, bool))
    good = good and not (hint is float and value != value)  # NaN
    require(good, f"{where} must be {WORDS.get(hint) or f'a {_name(hint)}'}, not {shown(value)}")
    if hint is float:
        try:
            return float(value)  # type: ignore[arg-type]  # an int, a Fraction
        except OverflowError:
            raise ConfigError(f"{where} is larger than any float: {shown(value)}") from None
    if hint is int:
        number = int(value)  # type: ignore[call-overload]  # an IntEnum
        require(number in WHOLE, f"{where} must be a whole number of at most 64 bits, not {shown(number)}")
        return number
    return _checked_text(value, where) if isinstance(value, str) else value


def _checked_text(value: str, where: str) -> str:
    text = str.__str__(value)
    require(len(text) <= LONGEST_TEXT, f"{where} has {len(text):,} characters: at most {LONGEST_TEXT:,}")
    require("\0" not in text, f"{where} has a NUL character in it: {shown(text)}")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError(f"{where} cannot be written to a config, which is UTF-8: {shown(text)}") from None
    return text


def whole(value: object, where: str) -> int:
    """A whole number, plain."""
    return typing.cast(int, convert(value, int, where))


def _of_python(value: object) -> object:
    """What numpy and torch have for a number, a list or a device, as Python's own; anything else as it is."""
    # By their attributes: to know their classes, both would have to be loaded.
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return value.tolist()
    if type(value).__module__ == "torch" and type(value).__name__ == "device":
        return str(value)
    return value


def path_of(value: object, where: str) -> Path:
    """The path that a text or a Path names, `~` expanded; anything else is an error that says `where`."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str):
        raise ConfigError(f"{where} must be the name of a folder or file, not {shown(value)}")
    require(bool(given.strip()), f"{where} is empty: give the name of a folder or file")
    require(len(given) <= LONGEST_PATH, f"{where} is longer than the name of a file can be: {shown(given)}")
    require("\0" not in given, f"{where} is not a name of a folder or file: {shown(given)}")
    try:
        return Path(given).expanduser()
    except RuntimeError as error:  # ~somebody, who has no home here
        raise ConfigError(f"{where} is {shown(given)}: {error}") from None


def plain(value: object) -> object:
    """Plain nested values, as in a TOML file; None is left out."""
    if dataclasses.is_dataclass(value):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if part is not None}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return value


def _fits(count: int, hint: Hint) -> bool:
    """Whether a tuple of so many values is one of this type: `tuple[float, float]` has two, `tuple[float, ...]` any."""
    inner = typing.get_args(hint)
    return typing.get_origin(hint) is not tuple or inner[-1] is Ellipsis or count == len(inner)


def is_many(hint: Hint) -> bool:
    """Whether a setting of this type has several values, with commas between on a command line."""
    return any(typing.get_origin(one) in (tuple, list, dict) for one in (hint, *_choices(hint)))


def _choices(hint: Hint) -> tuple[Hint, ...]:
    """The types of `int | None`; none for a type that is one."""
    origin = typing.get_origin(hint)
    return typing.get_args(hint) if origin in (types.UnionType, typing.Union) else ()


def _first(make: Callable[[Hint], T], choices: tuple[Hint, ...]) -> T:
    """The value by the first of these types that accepts it; where none does, the error of the last."""
    *others, last = (choice for choice in choices if choice is not type(None))
    # In the order of the annotation: `int | str` takes "3" as a number.
    for choice in others:
        with contextlib.suppress(ConfigError):
            return make(choice)
    return make(last)
