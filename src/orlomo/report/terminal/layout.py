"""Texts and tables for a terminal of any width and encoding: nothing is broken inside a word or a number."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import IO

from orlomo.printing import printable, say

GAP = "  "
"""Between two columns, or two facts on one line."""


@dataclass(frozen=True)
class Glyphs:
    """The characters that bars are drawn with.

    `blocks`: from none to the most. `computing`, `transfer`, `waiting`: how a worker spent its time, told apart by
    shape and not by colour alone.
    """

    done: str = "━"
    left: str = "─"
    blocks: str = " ▁▂▃▄▅▆▇█"
    computing: str = "█"
    transfer: str = "▒"
    waiting: str = "·"


ASCII = Glyphs("#", ".", " .:-=+*#@", "#", "=", ".")
"""For a terminal that has only ASCII."""

IN_ASCII = {"±": "+-", "…": "...", "·": "-", "─": "-", "→": "->", "≤": "<=", "≥": ">="}
"""What is written in place of these where the encoding lacks them."""


def glyphs(encoding: str | None) -> Glyphs:
    """The characters for a terminal with this encoding.

    >>> glyphs("ascii").done, glyphs("utf-8").done
    ('#', '━')
    """
    return Glyphs() if (encoding or "").lower().startswith("utf") else ASCII


def encodable(text: str, encoding: str | None) -> str:
    """The text with ASCII in place of signs that this encoding lacks.

    >>> encodable("97.2% ± 0.1", "ascii")
    '97.2% +- 0.1'
    """
    for sign, instead in IN_ASCII.items():
        try:
            sign.encode(encoding or "utf-8")
        except UnicodeEncodeError:
            text = text.replace(sign, instead)
    return text


def wrapped(text: str, width: int | None) -> list[str]:
    """A text in lines of at most this width, broken between words; a number stays with the word after it, and
    a command in backquotes is not broken.

    >>> wrapped("It took 363 virtual seconds.", 12)
    ['It took', '363 virtual', 'seconds.']
    """
    if width is None:
        return [text]
    joined = re.sub(r"`[^`]{1,40}`", lambda code: code[0].replace(" ", "\xa0"), text)
    joined = re.sub(r"(\d%?) (?=[a-zA-Z]|\(\d)", "\\1\xa0", joined)
    joined = re.sub(r" (\d\S*)$", "\xa0\\1", joined)  # nor is a number alone on the last line
    lines = textwrap.wrap(joined, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines] or [""]


def flow(facts: Iterable[str], width: int) -> list[str]:
    """Facts side by side, as many on a line as fit; empty ones are left out.

    >>> flow(["12 s left", "loss 0.5", "", "80 samples/s"], 22)
    ['12 s left  loss 0.5', '80 samples/s']
    """
    lines: list[str] = []
    for fact in filter(None, facts):
        if lines and len(lines[-1]) + len(GAP) + len(fact) <= width:
            lines[-1] += GAP + fact
        else:
            lines += wrapped(fact, width)
    return lines


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, words: int = 1) -> list[str]:
    """A table in lines; the first `words` columns are aligned left, the others, of numbers, right.

    Where it is wider than `width`, every row becomes a block of lines, one for each cell.

    >>> for line in table(["method", "time"], [["orlomo", "363 s"], ["prsgdm", "558 s"]], 80):
    ...     print(line)
    method   time
    ──────  ─────
    orlomo  363 s
    prsgdm  558 s
    """
    heads = []
    for column, heading in enumerate(headings):  # on two lines where the cells are much shorter
        longest = max((len(row[column]) for row in rows), default=0)
        heads.append(wrapped(heading, max(longest, -(-len(heading) // 2))))
    height = max(map(len, heads))
    above = list(zip(*([""] * (height - len(lines)) + lines for lines in heads), strict=True))
    widths = [max(len(row[column]) for row in (*above, *rows)) for column in range(len(headings))]
    gap = next(
        (gap for gap in (GAP, " ") if width is None or len(gap.join("-" * size for size in widths)) <= width), ""
    )
    if not gap:
        return _blocks(headings, rows, width or 0)
    drawn = [
        [
            cell.ljust(size) if column < words else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        for row in (*above, *rows)
    ]
    drawn.insert(height, ["─" * size for size in widths])
    return [gap.join(cells).rstrip() for cells in drawn]


def _blocks(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    label = max(map(len, headings[1:]), default=0)
    lines: list[str] = []
    for row in rows:
        lines += [*([""] if lines else []), row[0]]
        for heading, cell in zip(headings[1:], row[1:], strict=True):
            first, *more = wrapped(cell, max(8, width - label - 2 * len(GAP)))
            lines.append(f"{GAP}{heading.ljust(label)}{GAP}{first}")
            lines += [" " * (label + 2 * len(GAP)) + line for line in more]
    return lines


def listed(entries: Sequence[tuple[str, Sequence[str]]], width: int | None) -> list[str]:
    """Names with what is to be said of each beside them; below the name where there is little room.

    >>> listed([("orlomo", ["asynchronous", "AAAI 2026"])], 40)
    ['orlomo  asynchronous', '        AAAI 2026']
    """
    size = max((len(name) for name, _ in entries), default=0) + len(GAP)
    beside = width is None or width - size >= 30
    lines: list[str] = []
    for name, texts in entries:
        indent = size if beside else len(name) - len(name.lstrip()) + len(GAP)
        shown = [line for text in texts for line in wrapped(text, None if width is None else width - indent)]
        if beside:
            lines.append(f"{name.ljust(size)}{shown[0] if shown else ''}".rstrip())
            shown = shown[1:]
        else:
            lines.append(name.rstrip())
        lines += [" " * indent + line for line in shown]
    return lines


def document(text: str, width: int | None) -> list[str]:
    """A short text in Markdown, of headings, tables, lists and paragraphs, for a terminal; else as it is.

    >>> document("# Runs\\n\\n| method | loss |\\n|---|---:|\\n| orlomo | 0.1 |\\n\\n- one\\n", 80)
    ['Runs', '', 'method  loss', '──────  ────', 'orlomo   0.1', '', '- one']
    """
    if width is None:
        return text.splitlines()
    lines: list[str] = []
    for is_table, group in groupby(text.splitlines(), lambda line: line.startswith("|")):
        if is_table:
            headings, _, *rows = ([cell.strip() for cell in _cells(line)] for line in group)
            lines += table(headings, rows, width, words=sum(heading in ("row", "method") for heading in headings[:2]))
            continue
        for line in group:
            mark = "- " if line.startswith("- ") else ""
            first, *more = wrapped(line.removeprefix("- ").lstrip("# "), width - len(mark))
            lines += [mark + first, *(" " * len(mark) + part for part in more)]
    return lines


def _cells(line: str) -> list[str]:
    """The cells of a table's row in Markdown, without the signs that keep them apart."""
    return [re.sub(r"\\(.)", r"\1", cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def split(total: int, shares: Sequence[float]) -> list[int]:
    """So many cells divided by these shares, all of them used.

    >>> split(10, [0.5, 0.25, 0.25])
    [5, 3, 2]
    """
    ends, reached = [0], 0.0
    for share in shares:
        reached += share
        ends.append(round(total * reached / (sum(shares) or 1)))
    return [end - begin for begin, end in pairwise(ends)]


class Answer:
    """Where an answer is printed, standard output: its columns and its encoding.

    `width`: the terminal's; None, as many as needed, elsewhere.
    """

    def __init__(self) -> None:
        self.width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        self.encoding = sys.stdout.encoding

    def text(self, text: object, lines: bool = False) -> str:
        """A text that others chose, as it is printed here; `lines`: of several lines."""
        return encodable(printable(text, lines), self.encoding)


def tell(text: object, to: IO[str]) -> None:
    """Print a text as one line, or at a terminal as lines that are broken between words."""
    width = shutil.get_terminal_size().columns if to.isatty() else None
    for line in wrapped(printable(text), width):
        say(line, to)
