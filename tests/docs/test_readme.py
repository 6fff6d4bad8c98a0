"""The README: tables that `python benchmarks/readme.py` wrote, links that are files, and not too long."""

from __future__ import annotations

import re

from documented import ROOT, blocks

README = (ROOT / "README.md").read_text("utf-8")
MEASURED = ROOT / "docs/results/uneven-workers.md"
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def test_every_table_of_the_readme_was_measured() -> None:
    written = MEASURED.read_text("utf-8")
    tables = TABLE.findall(README)
    assert tables
    for table in tables:
        assert table in written, f"not a table that benchmarks/readme.py wrote:\n{table}"


def test_the_readme_is_short_and_its_code_is_narrow() -> None:
    assert README.count("\n") < 120
    for block in blocks(ROOT / "README.md"):
        assert max(map(len, block.code.splitlines())) <= 100


def test_every_link_of_the_readme_is_a_file() -> None:
    for link in re.findall(r"\]\(([^)#]+)|srcset=\"([^\"]+)\"|src=\"([^\"]+)\"", README):
        [path] = [part for part in link if part]
        assert path.startswith("http") or (ROOT / path).exists(), path
