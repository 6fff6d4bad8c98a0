"""The last lines of a command: the story of the runs, a table of methods, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orlomo.files import short
from orlomo.printing import printable, quoted
from orlomo.records.run import Run
from orlomo.report.comparison.rows import MethodTable
from orlomo.report.comparison.texts import columns
from orlomo.report.story import story
from orlomo.report.summary import summarise
from orlomo.report.terminal.layout import Answer, listed, table, wrapped

WIDEST = 100
"""Columns of sentences: longer lines are hard to read."""


def told(sentences: Sequence[str], width: int | None) -> list[str]:
    """Sentences in lines; where the width is not known, as in a file, a line for each.

    >>> told(["It took 363 virtual seconds."], 20)
    ['It took 363 virtual', 'seconds.']
    """
    limit = None if width is None else min(width, WIDEST)
    return [line for sentence in sentences for line in wrapped(printable(sentence), limit)]


def run_lines(run: Run, screen: Answer) -> list[str]:
    """What came of a run, where it is, and what can be done with it."""
    width = screen.width
    notes = [f"changed {change}" for change in run.changes]
    if run.stopped is not None:
        notes.append(f"stopped: {run.stopped}")
    folder = quoted(str(short(run.folder)))
    results = summarise(run).results
    steps = {"result": printable(", ".join(results))} if results else {}
    steps |= {
        "run": printable(short(run.folder)),
        "page": f"orlomo report {folder}",
        "replay": f"orlomo replay {folder}",
    }
    if run.config.is_loop:
        steps["audit"] = f"orlomo audit {folder}"
    return [*told([*story([run]), *notes], width), "", *_steps(steps, width)]


def comparison_lines(
    found: MethodTable, sentences: Sequence[str], title: str, folder: Path, files: Sequence[Path], screen: Answer
) -> list[str]:
    """What came of a comparison: a row per method, how they are measured, the story, the files, and the page."""
    cells, width = columns(found), screen.width
    headings = [printable(heading) for heading, _ in cells]
    rows = [[screen.text(cell) for cell in row] for row in zip(*(column for _, column in cells), strict=True)]
    steps = {
        "files": f"{printable(folder)}: {', '.join(printable(path.name) for path in files)}",
        "page": f"orlomo report {quoted(str(folder))}",
    }
    return [
        *told([title], width),
        "",
        *table(headings, rows, width),
        "",
        *told([found.note], WIDEST if width is None else width),
        "",
        *told(sentences, width),
        "",
        *_steps(steps, width),
    ]


def report_lines(sentences: Sequence[str], pages: Sequence[Path], screen: Answer) -> list[str]:
    """What a page tells, and where it is; with it the figures."""
    page, *figures = pages
    shown = [("page", [f"{printable(page)} (open it in a browser)"])]
    if figures:
        shown.append(("figures", [printable(path) for path in figures]))
    return [*told(sentences, screen.width), "", *listed(shown, screen.width)]


def _steps(steps: dict[str, str], width: int | None) -> list[str]:
    """Facts and commands by name; a command that needs several lines can be copied."""
    room = None if width is None else width - max(map(len, steps)) - 4
    shown = []
    for name, text in steps.items():
        lines = wrapped(text, room) if text.startswith("orlomo ") else [text]
        shown.append((name, [*(f"{line} \\" for line in lines[:-1]), lines[-1]]))
    return listed(shown, width)
