"""One HTML page with all that can be seen of some runs. It needs nothing else: no network, no other file."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orlomo import __version__, config
from orlomo.errors import RunFolderError
from orlomo.records.checkpoint import write_atomically, write_text
from orlomo.records.run import Run
from orlomo.report.plot import COLOURS
from orlomo.report.story import differences, story

WEB = Path(__file__).parent / "web"


def write_report(folders: Sequence[Path], path: Path) -> list[str]:
    """Write the page of these runs; what could not be shown."""
    runs = [Run(folder) for folder in folders]
    told = told_of(runs)
    write_atomically(path, lambda temporary: write_text(temporary, page_of(told)))
    notes: list[str] = told["notes"]
    return notes


def told_of(runs: Sequence[Run]) -> dict[str, Any]:
    """What the page draws."""
    notes: list[str] = []
    names = _names([run.folder for run in runs])
    stories = [story(run, name, notes) for run, name in zip(runs, names, strict=True)]
    first = runs[0].config
    title = f"{names[0]}: {first.method.name} on {first.task}" if len(runs) == 1 else f"{len(runs)} runs"
    tables = [config.to_table(run.config) for run in runs]
    return {"title": title, "notes": notes, "colours": COLOURS, "runs": stories, "differences": differences(tables)}


def page_of(told: dict[str, Any], connect: str = "'none'") -> str:
    """The page's text; `connect` is what it may ask for while it is open."""
    parts = {
        "title": html.escape(str(told.get("title", "orlomo"))),
        "version": __version__,
        "connect": connect,
        "style": (WEB / "page.css").read_text(),
        "plotly": (WEB / "plotly-basic.min.js").read_text(),
        "data": json.dumps(told, allow_nan=False).replace("<", "\\u003c"),  # nothing in it ends the script
        "script": (WEB / "page.js").read_text(),
    }
    before, *rest = (WEB / "page.html").read_text().split("{{")
    pieces = [before]
    for piece in rest:
        name, _, text = piece.partition("}}")
        pieces += [parts[name], text]
    return "".join(pieces)


def _names(folders: Sequence[Path]) -> list[str]:
    """As short as tells them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise RunFolderError(f"{folders[0]} is named more than once")
