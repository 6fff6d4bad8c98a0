"""Runs as one HTML page with all that can be seen of them. It needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import functools
import gzip
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, cast

from orlomo import __version__, config
from orlomo.errors import OrlomoError, RunFolderError, require
from orlomo.files import check_target, write_text_atomically, writing_to
from orlomo.printing import printable
from orlomo.records.run import Run
from orlomo.report.charts import RunView, Spec, drawn
from orlomo.report.colours import DARK, LIGHT
from orlomo.report.comparison.for_page import RowTable, TargetTable, row_json, target_json
from orlomo.report.comparison.groups import by_method
from orlomo.report.comparison.rows import method_table
from orlomo.report.story import first_run, story_of
from orlomo.report.streaming.events import EventReader
from orlomo.report.view import differences, view_of

WEB = Path(__file__).parent

SCRIPTS = (
    *("page.js", "zoom.js", "story.js", "curves.js", "charts.js"),
    *("timeline.js", "timelines.js", "members.js", "start.js"),
)
"""In the order in which they are put into the page."""

MOST_NAMED = 4
"""Methods that the title names."""


class Content(TypedDict):
    """What the page draws, ready for JSON."""

    title: str
    notes: list[str]
    story: list[str]
    target: TargetTable | None
    methods: list[RowTable]
    first: int
    times: str
    colours: dict[str, object]
    charts: list[Spec]
    runs: list[RunView]
    differences: dict[str, list[str]]


def write_report(folders: Sequence[Path], path: Path, target: str | None = None) -> Content:
    """Write the page of the folders that are runs; returns what it draws, with notes on what could not be shown.

    `target`: the value of the first metric that times are measured to, as a user types it; default: a round one.
    """
    runs, notes = [], []
    for folder in folders:
        try:
            runs.append(Run(folder))
        except OrlomoError as error:
            if len(folders) == 1:
                raise
            notes.append(f"{error}; it is left out.")
    if not runs:
        raise RunFolderError(f"there is no run among these {len(folders)} folders: {notes[0]}")
    check_target(path)
    content = page_content(runs, notes, target=target)
    with writing_to(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, page_of(content))
    return content


def page_content(
    runs: Sequence[Run],
    notes: Sequence[str] = (),
    events: Sequence[EventReader] = (),
    target: str | None = None,
) -> Content:
    """What the page draws, with these notes and those on what could not be shown.

    `events`: one for each run that has read its events before, and reads only what is new. `target` as `write_report`.
    """
    notes = list(notes)
    names = _names([run.folder for run in runs])
    readers = events or [EventReader(run.folder / "events.csv") for run in runs]
    seen = [view_of(run, name, notes, read) for run, name, read in zip(runs, names, readers, strict=True)]
    charts, views = drawn(seen)
    table = method_table(by_method(seen), target).ranked()
    title = _title(runs, names)
    tables = [config.to_table(run.config) for run in runs]
    content: Content = {
        "title": title,
        "notes": notes,
        "story": story_of(table),
        "target": target_json(table, seen),
        "methods": row_json(table, seen),
        "first": first_run(table, seen),
        "times": table.note,
        "colours": {"light": LIGHT, "dark": DARK},
        "charts": charts,
        "runs": views,
        "differences": differences(tables),
    }
    return cast(Content, _all_printable(content))


def _all_printable(value: object, lines: bool = False) -> object:
    """Plain nested values with every text in them printable; the config has lines."""
    if isinstance(value, str):
        return printable(value, lines)
    if isinstance(value, dict):
        return {printable(key): _all_printable(part, lines=key == "config") for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [part if isinstance(part, (int, float)) else _all_printable(part) for part in value]
    return value


def page_of(content: Mapping[str, object], connect: str = "'none'") -> str:
    """The page's text. `connect`: the addresses that it may ask for data, as its content security policy says them."""
    data = json.dumps(content, allow_nan=False).replace("<", "\\u003c")  # or a name could end the script element
    sizes = {"plotly.js (compressed)": len(_plotly()), "data": len(data)}
    weight = ", ".join(f"{_bytes(size)} of {name}" for name, size in sizes.items())
    parts = {
        "title": html.escape(printable(content.get("title", "orlomo"))),
        "version": __version__,
        "connect": connect,
        "style": "\n".join((WEB / name).read_text("utf-8") for name in ("page.css", "timeline.css")),
        "plotly": _plotly(),
        "data": data,
        "weight": f"This page holds {weight}.",
        "script": "\n".join((WEB / name).read_text("utf-8") for name in SCRIPTS),
    }
    # Not str.format: style and script are full of braces. Nothing that is filled in is searched again.
    before, *rest = (WEB / "page.html").read_text("utf-8").split("{{")
    pieces = [before]
    for piece in rest:
        name, _, text = piece.partition("}}")
        pieces += [parts[name], text]
    return "".join(pieces)


def _bytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{max(1, round(size / 1e3))} kB"


@functools.cache
def _plotly() -> str:
    """plotly.js as the package `plotly` brings it, compressed: a page of 2 MB instead of 5."""
    from plotly.offline import get_plotlyjs  # not needed by most commands

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _title(runs: Sequence[Run], names: Sequence[str]) -> str:
    """The methods and the tasks; of many only how many."""
    methods = list(dict.fromkeys(run.config.method.name for run in runs))
    tasks = list(dict.fromkeys(run.config.task.rpartition("/")[2] for run in runs))  # of a file without its folder
    shown = [
        f"{len(them)} {word}" if len(them) > MOST_NAMED else ", ".join(them)
        for them, word in ((methods, "methods"), (tasks, "tasks"))
    ]
    return f"{names[0]}: {' on '.join(shown)}" if len(runs) == 1 else f"{' on '.join(shown)}: {len(runs)} runs"


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that differ from one another."""
    paths = [folder.resolve() for folder in folders]
    for number, folder in enumerate(folders):
        require(paths[number] not in paths[:number], f"{folder} is named more than once")
    parts = [path.parts for path in paths]
    length = 1  # ends: the paths differ
    while len({part[-length:] for part in parts}) < len(parts):
        length += 1
    names: list[str] = []
    for part in parts:
        name = printable("/".join(part[-length:]))
        alike = sum(one == name or one.startswith(f"{name} (") for one in names)  # differ only in how they are escaped
        names.append(f"{name} ({alike + 1})" if name in names else name)
    return names
