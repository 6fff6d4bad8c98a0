r"""Text that others chose, as the names of folders, on a terminal, on a page or in a log: nothing in it acts or hides.

Control characters and those that turn or hide what follows are shown as Python writes them in a string, `\x1b`,
`\u202e`, and bytes that are no text as `\xff`.
"""

from __future__ import annotations

import re
import shlex
import sys
import unicodedata
from typing import IO

ACTING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of Unicode that are not shown: control, format, surrogate, and the two that end a line."""

LINES = "\n\t"
"""What a text of several lines keeps."""

_BYTES = re.compile("[\udc80-\udcff]+")
"""What Python makes of the bytes in a file's name that are no text."""


def printable(text: object, lines: bool = False) -> str:
    r"""A text, or what is written as one, without control characters; `lines`: of several lines, which are kept.

    >>> print(printable("run\x1b[31m\n"))
    run\x1b[31m\n
    """
    found = str(text)
    if found.isprintable():
        return found
    found = _BYTES.sub(_decoded, found)
    return "".join(_shown(letter) if letter not in LINES or not lines else letter for letter in found)


def _decoded(match: re.Match[str]) -> str:
    """Where Python's own encoding is not UTF-8, what is text in UTF-8 is still shown as text."""
    return match[0].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _shown(letter: str) -> str:
    no_character = ord(letter) & 0xFFFE == 0xFFFE  # also not allowed in an SVG file
    if not no_character and unicodedata.category(letter) not in ACTING:
        return letter
    return f"\\u{ord(letter):04x}" if "\x7f" < letter <= "\xff" else letter.encode("unicode_escape").decode()


def quoted(text: str) -> str:
    r"""A word as a shell takes it; one with control characters as bash and zsh take it.

    >>> print(quoted("my run"), quoted("a\rb"))
    'my run' $'a\rb'
    """
    if text.isprintable():
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{printable(escaped)}'"


def say(text: object, to: IO[str] | None = None, lines: bool = False) -> None:
    r"""Print one line, or with `lines` several, to standard output unless `to` is given.

    >>> say("the folder a\rb")
    the folder a\rb
    """
    print(printable(text, lines), file=sys.stdout if to is None else to)
