"""JSON and TOML from files that may be damaged, or made to do harm: everything refused is an error in one line.

Limits: a file's size, how deep its values are nested, how many digits a number has, and that numbers are finite.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from orlomo.errors import OrlomoError, RunFolderError
from orlomo.files import TEXT_BYTES, read_text

DEEPEST = 32
"""Tables and lists within one another."""

DIGITS = 100
"""Of a whole number: the states of random generators have 39."""

TOML_BYTES = 1 << 19
"""The largest TOML file."""

LONG_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[A-Za-z0-9_-]{1,200}+|"(?:[^"\\\n]|\\.){0,200}+"|'[^'\n]{0,200}+')[ \t]*+\.[ \t]*+){40}"""
)
"""A dotted key of forty parts: the time and memory that tomllib takes for one grow with the square of its parts."""


def read_json(path: Path, limit: int = TEXT_BYTES, finite: bool = True) -> Any:
    """The value in a JSON file."""
    try:
        return parse_json(read_text(path, limit), str(path), finite)
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None


def parse_json(text: str, where: str, finite: bool = True) -> Any:
    """The value that a JSON text holds; `where` it is from, for errors. `finite`: refuse NaN and infinity."""
    try:
        value = json.loads(
            text,
            parse_constant=_refuse if finite else None,
            parse_float=_finite if finite else None,
            parse_int=_whole,
        )
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{where} is damaged: {_reason(error)}") from None
    check_depth(value, where)
    return value


def read_toml(path: Path, follow: bool = False, error: type[OrlomoError] = RunFolderError) -> dict[str, Any]:
    """The table in a TOML file. `follow`: also through a link, for a file that the user has named."""
    try:
        text = read_text(path, TOML_BYTES, follow)
        if LONG_KEY.search(text):
            raise error(f"{path} is not a config: it has a key of more than 40 parts")
        table = tomllib.loads(text, parse_float=_toml_float)
    except OSError as failure:
        raise error(f"cannot read {path}: {failure.strerror}") from None
    except RunFolderError as refusal:
        raise error(str(refusal)) from None
    except (ValueError, RecursionError) as failure:
        raise error(f"{path} is not a whole TOML file: {_reason(failure)}") from None
    check_depth(table, str(path), error)
    _check_whole(table, str(path), error)
    return table


def _check_whole(table: dict[str, Any], where: str, error: type[OrlomoError]) -> None:
    """Refuse whole numbers that TOML does not have: Python reads a hexadecimal one of any length."""
    waiting: list[object] = [table]
    while waiting:
        value = waiting.pop()
        if isinstance(value, int) and value.bit_length() > 63:
            raise error(f"{where} has a whole number of {value.bit_length()} bits: at most 64")
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def check_depth(value: object, where: str, error: type[OrlomoError] = RunFolderError) -> None:
    """Refuse values that are nested deeper than anything of ours: code that walks through them would not return."""
    level, depth = [value], 0
    while level:
        level = [
            part
            for one in level
            if isinstance(one, (dict, list))
            for part in (one.values() if isinstance(one, dict) else one)
            if isinstance(part, (dict, list))
        ]
        depth += 1
        if depth > DEEPEST:
            raise error(f"{where} is damaged: values within values, more than {DEEPEST} deep")


def _whole(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]}, which is too large")
    return value


def _toml_float(text: str) -> float:
    """TOML has `inf` and `nan`, which the settings themselves refuse; 1e999 is a mistake."""
    return float(text) if text.strip("+-") in ("inf", "nan") else _finite(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text}, which is not a number")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"values within values, more than {DEEPEST} deep"
    text = " ".join(str(error).split())
    return "a number of more than 4300 digits" if "integer string conversion" in text else text[:200]
