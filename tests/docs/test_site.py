"""The documentation site is built without a warning, has every public name, and fetches nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented import ROOT, name_of

import orlomo
from small import command_parsers

pytest.importorskip("sphinx", reason="Sphinx is not installed (the extra `docs`)")

FETCHED = re.compile(
    r"""<(?:script|img|source|iframe)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\shref=["']?(?:https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    flags = ["--quiet", "--fail-on-warning", "--keep-going", "--doctree-dir", out / "doctrees"]
    command = [sys.executable, "-m", "sphinx", *flags, ROOT / "docs", out / "html"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_the_reference_has_every_public_name(site: Path) -> None:
    reference = "".join(path.read_text("utf-8") for path in (site / "reference").glob("*.html"))
    assert [name for name in orlomo.__all__ if f'id="orlomo.{name}"' not in reference] == []


def test_the_reference_has_every_command(site: Path) -> None:
    page = (site / "reference" / "command-line.html").read_text("utf-8")
    assert [name for name in command_parsers() if f'<section id="orlomo-{name}">' not in page] == []
    assert "--local-steps" in page


def test_docstrings_speak_to_readers_of_the_site(site: Path) -> None:
    for page in (site / "reference").glob("*.html"):
        assert "getfixture" not in page.read_text("utf-8"), page.name


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert FETCHED.findall(page.read_text("utf-8")) == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\(\s*['\"]?(?:https?:)?//", sheet.read_text("utf-8")), sheet.name


def test_pages_of_the_repository_name_files_that_exist() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "examples").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"
