"""Runs grouped by what they compare: those that differ only in their seeds together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orlomo.config import to_table
from orlomo.loading import is_import_path
from orlomo.report.view import View, differences

NAMING = (
    "workers",
    "engine",
    "cluster.name",
    "epochs",
    "method.learning_rate",
    "method.local_steps",
    "method.momentum",
)
"""The settings that name a group first, where groups of one method differ in several."""

MOST_SETTINGS = 2
"""Settings in the name of a group."""

LONGEST = 24
"""Letters of a setting's value in the name of a group."""


def by_method(views: Sequence[View]) -> dict[str, list[View]]:
    """Runs that differ only in their seeds together; named by their method, and by what else differs where needed."""
    groups: list[tuple[dict[str, object], list[View]]] = []
    for view in views:
        table = {**to_table(view.config), "seed": 0}
        same = next((group for known, group in groups if known == table), None)
        if same is None:
            groups.append((table, [view]))
        else:
            same.append(view)
    names = [label(group[0].config.method.name) for _, group in groups]
    found: dict[str, list[View]] = {}
    for (table, group), name in zip(groups, names, strict=True):
        alike = [known for (known, _), other in zip(groups, names, strict=True) if other == name]
        if len(alike) > 1:
            shown = _settings(alike, alike.index(table))
            name = f"{name} ({', '.join(shown)})" if shown else name
        if name in found:
            name = f"{name} ({group[0].name})"
        found[name] = group
    return found


def _settings(tables: list[dict[str, object]], position: int) -> list[str]:
    """The settings by which the table at this position differs from the others, as text."""
    differing = {name: texts[position] for name, texts in differences(tables).items()}
    short = [name for name, text in differing.items() if len(text) <= LONGEST]
    chosen = sorted(short, key=lambda name: (NAMING.index(name) if name in NAMING else len(NAMING), name))
    shown = [name.removesuffix(".name").rpartition(".")[2].replace("_", " ") for name in chosen[:MOST_SETTINGS]]
    return [f"{name} {differing[key] or 'not set'}" for name, key in zip(shown, chosen[:MOST_SETTINGS], strict=True)]


def label(name: str) -> str:
    """What to call a method in tables and folders: a built-in one by its name, a user's own by file and class.

    >>> label("orlomo"), label("/home/me/my_method.py:MyMethod")
    ('orlomo', 'my_method-MyMethod')
    """
    if not is_import_path(name):
        return name
    where, _, attribute = name.rpartition(":")
    return f"{Path(where).stem if where.endswith('.py') else where}-{attribute}"
