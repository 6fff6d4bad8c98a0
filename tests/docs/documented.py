"""The pages of the documentation, and what on them can be run.

Every Python block and every `orlomo` command is run by the tests of this folder, unless a comment on the line before
its block says why not:

    <!-- needs: cluster -->                         or gpu, download (of data), time (more than seconds)
    <!-- tested by: tests/loop/test_attached.py --> where a test has this code, or more of it
    <!-- code of another library -->                in comparisons
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])
SHELL = ("", "bash", "console", "sh")
NEEDS = ("cluster", "gpu", "download", "time")
MARK = r"(?:<!-- (?P<mark>[^\n]*) -->\n)?"
BLOCK = re.compile(rf"^{MARK}```(?P<language>[^`\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(orlomo [a-z]+[^`\n]*)`")


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    page: str
    language: str
    code: str
    mark: str

    @property
    def runs(self) -> bool:
        """Whether the tests run it."""
        return not self.mark

    @property
    def is_marked_well(self) -> bool:
        """Whether its mark, if it has one, is one of those above."""
        kind, _, value = self.mark.partition(": ")
        if kind == "needs":
            return all(need in NEEDS for need in value.split(", "))
        if kind == "tested by":
            return (ROOT / value).is_file()
        return self.mark in ("", "code of another library")


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in their order."""
    found = BLOCK.finditer(page.read_text("utf-8"))
    return [Block(name_of(page), match["language"], match["code"], match["mark"] or "") for match in found]


def python_of(page: Path) -> str:
    """All Python of a page that is to be run, one block after another."""
    return "\n".join(block.code for block in blocks(page) if block.language in ("py", "python") and block.runs)


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each `orlomo` command in a block, without the first."""
    if block.language not in SHELL:
        return
    for line in block.code.replace("\\\n", " ").splitlines():
        if line.strip().removeprefix("$ ").startswith(("orlomo ", "python -m orlomo ")):
            words = shlex.split(line, comments=True)
            yield words[words.index("orlomo") + 1 :]


def mentioned(page: Path) -> set[str]:
    """The commands within the sentences of a page."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    return set(INLINE.findall(text))
