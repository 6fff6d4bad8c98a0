"""Hostile values in the fields of a run folder's files: of tables, TOML, JSON and the headers of safetensors files."""

from __future__ import annotations

import json
import random
from typing import Any

from fuzz_corpus import seal

DEEP = 100_000

FIELDS = [
    "nan",
    "inf",
    "-inf",
    "1e999",
    "-1",
    "0",
    "1",
    "2.5",
    str(10**18),
    str(2**63),
    "9" * 5000,
    "",
    '"',
    '"a,b"',
    "'",
]
FIELDS += [
    "\x1b[31mred",
    "[/red]",
    "<script>",
    "\0",
    "x" * 200_000,
    "report",
    "crash",
    "None",
    "true",
    "1_000",
    "٣",
    "é",
]
"""Text for fields of tables and values of TOML, which may be of another type or none."""

VALUES = [*FIELDS, "null", "[]", "{}", '""', '"\\ud800"', '"\\u001b[31m"', "-0.0", "1e308", "[" * DEEP, '{"a":' * DEEP]
VALUES += [
    '[[[["a"]]]]',
    '{"a": 1, "a": 2}',
    "Infinity",
    "-Infinity",
    "NaN",
    '"/etc/passwd"',
    '"../../outside"',
    "false",
]
"""Values of JSON and TOML."""

SETTINGS = ['"nan"', '["a"]', "[1, 2]", "1e-320", "10**9", '"gamma:1e-320"', '"file:/dev/zero"', '"os:abort"', "1e18"]
"""Values of a config."""

HEADERS = [(b"F32", b"I64"), (b"F32", b"F16"), (b"F32", b"BF16"), (b"[0,", b"[4,"), (b'"shape"', b'"s"')]

Changed = tuple[bytes, str, bool]
"""The new content, what was done (empty: nothing), and whether the file's own checksum was computed again."""


def changed_field(name: str, content: bytes, source: random.Random) -> Changed:
    """The content of a file with another value in one place."""
    kinds = {"csv": _cell, "toml": _setting, "json": _value, "safetensors": _header}
    kind = kinds.get(name.rpartition(".")[2])
    return kind(name, content, source) if kind and content else (content, "", False)


def _cell(name: str, content: bytes, source: random.Random) -> Changed:
    rows = [line.split(b",") for line in content.splitlines()]
    row, column = source.randrange(len(rows)), source.randrange(len(rows[0]))
    row = 0 if source.random() < 0.15 else row
    title, text = rows[0][column].decode(), source.choice(FIELDS)
    if source.random() < 0.2:
        rows, done = [[*cells[:column], *cells[column + 1 :]] for cells in rows], f"no column {title}"
    else:
        rows[row][column], done = text.encode(), f"{title} of row {row}: {_shown(text)}"
    return b"".join(b",".join(cells) + b"\n" for cells in rows), done, False


def _setting(name: str, content: bytes, source: random.Random) -> Changed:
    lines = content.decode().splitlines()
    number = source.choice([n for n, line in enumerate(lines) if " = " in line])
    key, value = lines[number].split(" = ", 1)
    new = source.choice([*VALUES, *SETTINGS])
    lines[number] = source.choice([*[f"{key} = {new}"] * 8, f"{key}x = {value}", f"{key} = {value}\n" * 2])
    return "\n".join([*lines, ""]).encode(), f"line {number}: {_shown(lines[number])}", False


def _value(name: str, content: bytes, source: random.Random) -> Changed:
    table = json.loads(content)
    place, new = source.choice(_places(table)), source.choice(VALUES)
    if place and source.random() < 0.25:
        _at(table, place[:-1]).pop(place[-1])
        done = f"no {place}"
    elif place:
        _at(table, place[:-1])[place[-1]] = "@@"
        done = f"{place} is {_shown(new)}"
    else:
        table, done = "@@", f"all is {_shown(new)}"
    text = json.dumps(table, indent=1)
    if "checkpoints" in name and source.random() < 0.6 and (forged := _sealed_again(text, new)):
        return forged, f"{done}, with the checksum of that", True
    return text.replace('"@@"', new).encode("utf-8", "surrogatepass"), done, False


def _header(name: str, content: bytes, source: random.Random) -> Changed:
    """The header of a safetensors file: its length in 8 bytes, then JSON."""
    length = int.from_bytes(content[:8], "little")
    header, rest = content[8 : 8 + length], content[8 + length :]
    fake = source.choice([0, 1, length - 1, length + 8, 2**31, 2**63, 2**64 - 1])
    if source.random() < 0.3:
        return fake.to_bytes(8, "little") + content[8:], f"a header of {fake} bytes", False
    old, new = source.choice(HEADERS)
    changed = header.replace(old, new, 1)
    if source.random() < 0.3:
        changed, new = source.choice(VALUES).encode("utf-8", "surrogatepass"), b"another"
    return len(changed).to_bytes(8, "little") + changed + rest, f"{new.decode()} in its header", False


def _shown(text: str) -> str:
    """For display."""
    return ascii(text if len(text) < 60 else f"{text[:40]}... ({len(text)} characters)")


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to every value in a JSON document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, one in inner for place in _places(one, (*at, key)))]


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def _sealed_again(written: str, new: str) -> bytes:
    """The JSON file of a checkpoint with a checksum that fits; empty where the value is no JSON."""
    try:
        content = json.loads(written.replace('"@@"', new))
        content.pop("sha256")
        return json.dumps({"sha256": seal(content), **content}, indent=1).encode()
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
        return b""
