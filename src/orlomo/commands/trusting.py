"""Code that a file names, and not the user: shown and asked about at a terminal, refused elsewhere."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from orlomo.commands.parser import Parser
from orlomo.errors import ConfigError
from orlomo.files import short
from orlomo.loading import source_of
from orlomo.printing import printable, say
from orlomo.trust import Code, refused, remember

FRAME_LINES = 6
"""Of the terminal, for what is said around the code."""

FEWEST_LINES = 5

MARGIN = "  | "
"""Before each line of the code: none of them can look like one of ours."""


def add_trust(command: Parser) -> None:
    """The flag."""
    command.add_argument(
        "--trust", action="store_true", help="run the code that the folder or TOML file names without asking"
    )


def confirm(code: Sequence[Code], where: Path, trust: bool) -> bool:
    """Return True if this code may be run, and remember that; else raise a `ConfigError`."""
    if code and not trust:
        if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise refused(code, where, "add --trust")
        _show(code, where)
        sys.stderr.write("Run this code? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise ConfigError(f"the code that {short(where)} names is not run")
    remember(code)
    return True


def _show(code: Sequence[Code], where: Path) -> None:
    """Say what would be run, and where: of each file as much as fits on the screen."""
    size = shutil.get_terminal_size()
    most, width = max(FEWEST_LINES, (size.lines - FRAME_LINES) // len(code) - 2), size.columns - len(MARGIN) - 1
    say(f"orlomo: {short(where)} would run this code, and all that it imports:", sys.stderr)
    for one in code:
        say(f"--- {one}" + (f", in {one.more[0]}, with {shlex.join(one.more[1:])}" if one.more else ""), sys.stderr)
        content = None if one.path is None else source_of(one.path)
        if content is None:
            say("--- (its file is not found, or cannot be read)", sys.stderr)
            continue
        text = content.decode("utf-8", "backslashreplace").splitlines()
        shown = [printable(line.expandtabs(4)) for line in text[:most]]
        for line in shown:
            say(MARGIN + (line if len(line) <= width else f"{line[: width - 4]} ..."), sys.stderr)
        cut = sum(len(line) > width for line in shown)
        if cut or len(text) > most:
            more = [f"{len(text) - most} more lines"] * (len(text) > most) + [f"{cut} long lines are cut"] * bool(cut)
            say(f"--- ({' and '.join(more)}: the whole is in {one.path})", sys.stderr)
