"""`orlomo new method NAME` and `orlomo new task NAME`: a short commented file that runs as it is."""

from __future__ import annotations

import argparse
import keyword
import sys
from importlib.util import find_spec
from pathlib import Path

from orlomo.commands.parser import Commands
from orlomo.errors import ConfigError, require, unknown_name
from orlomo.files import writing_to
from orlomo.printing import say

KINDS = ("method", "task")
TEMPLATES = Path(__file__).parent / "templates"


def add(commands: Commands) -> None:
    """Add the command to the parser's."""
    command = commands.add_parser(
        "new",
        help="write a file to start your own method or task from",
        description="Write a short commented file that runs as it is, to start your own method or task from.",
        examples=("orlomo new task my_task", "orlomo new method my_method"),
    )
    command.add_argument("kind", metavar="KIND", help="method or task")
    command.add_argument("name", metavar="NAME", help="the file is NAME.py, in this folder")
    command.set_defaults(call=call)


def call(options: argparse.Namespace) -> int:
    """Write the file, print the command that runs it."""
    if options.kind not in KINDS:
        raise unknown_name("kind of file", options.kind, KINDS)
    path, command = write(options.kind, options.name, Path())
    say(f"{path}: run it with")
    say(command)
    return 0


def _is_installed(name: str) -> bool:
    """Whether a module of Python itself, or one that was installed, has this name."""
    found = find_spec(name)
    roots = [Path(root) for root in (sys.prefix, sys.base_prefix)]
    return found is not None and (
        not found.has_location or any(Path(found.origin or "").is_relative_to(r) for r in roots)
    )


def write(kind: str, name: str, folder: Path) -> tuple[Path, str]:
    """Write `NAME.py` into a folder; the file, and the command that runs it. Nothing is overwritten."""
    stem = name.removesuffix(".py").replace("-", "_")
    good = stem.isidentifier() and not keyword.iskeyword(stem)
    require(good, f"{name!r} is not a name for a Python file: use letters, digits and _, as in my_{kind}")
    # In this folder `import json` would find it in place of the other.
    require(
        not _is_installed(stem),
        f"{stem} is the name of a Python module that is installed: choose another, as my_{stem}",
    )
    path = folder / f"{stem}.py"
    own = "".join(part.capitalize() for part in stem.split("_")) if kind == "method" else "task"
    # The templates are working files: names are replaced in them, nothing is filled in.
    text = (TEMPLATES / f"{kind}.py.txt").read_text("utf-8").replace("MyMethod", own).replace(f"my_{kind}", stem)
    try:
        file = path.open("x", encoding="utf-8")  # "x": not over a file that is there
    except FileExistsError:
        raise ConfigError(f"{path} is there already: choose another name") from None
    try:
        with writing_to(folder), file:
            file.write(text)
    except BaseException:
        path.unlink()
        raise
    command = f"orlomo train {path}:task" if kind == "task" else f"orlomo train digits --method {path}:{own}"
    return path, command
