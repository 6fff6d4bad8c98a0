"""Code that a file names, and not the user: shown and asked about at a terminal, refused elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from orlomo.commands.flags import Parser
from orlomo.errors import ConfigError
from orlomo.files import short
from orlomo.loading import source_of
from orlomo.printing import printable
from orlomo.trust import Code, refused, remember

FRAME_LINES = 6
"""Of the terminal, for what is said around the code."""

FEWEST_LINES = 5


def add_trust(command: Parser) -> None:
    """The flag."""
    command.add_argument(
        "--trust", action="store_true", help="run the code that the folder or TOML file names, unasked"
    )


def confirm(code: Sequence[Code], where: Path, trust: bool) -> bool:
    """Return True if this code may be run, and remember that; else raise a `ConfigError`."""
    if code and not trust:
        if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise refused(code, where, "add --trust")
        _show(code, where)
        print("Run this code? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise ConfigError(f"the code that {short(where)} names is not run")
    remember(code)
    return True


def _show(code: Sequence[Code], where: Path) -> None:
    size = shutil.get_terminal_size()
    most = max(FEWEST_LINES, (size.lines - FRAME_LINES) // len(code) - 2)
    lines = [f"orlomo: {printable(short(where))} would run this code, and all that it imports:"]
    for one in code:
        lines.append(f"--- {printable(str(one))}")
        if one.more:
            folder, *words = map(printable, one.more)
            lines.append(f"in {folder}" + (f", with {' '.join(words)}" if words else ""))
        content = None if one.path is None else source_of(one.path)
        if content is None:
            lines.append("(its file is not found, or cannot be read)")
            continue
        text = [printable(line.expandtabs(4)) for line in content.decode("utf-8", "backslashreplace").splitlines()]
        lines += [line if len(line) < size.columns else line[: size.columns - 4] + " ..." for line in text[:most]]
        cut = sum(len(line) >= size.columns for line in text[:most])
        if cut or len(text) > most:
            more = [f"{len(text) - most} more lines"] * (len(text) > most) + [f"{cut} long lines are cut"] * bool(cut)
            lines.append(f"--- ({' and '.join(more)}: the whole is in {printable(str(one.path))})")
    print("\n".join(lines), file=sys.stderr)
