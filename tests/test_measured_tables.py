"""The page with the README's tables has the numbers of the file that the benchmark wrote."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_is_made_of_what_was_measured() -> None:
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    measured = json.loads((ROOT / "docs/results/uneven-workers.json").read_text("utf-8"))
    assert (ROOT / "docs/results/uneven-workers.md").read_text("utf-8") == benchmark["page"](measured)
