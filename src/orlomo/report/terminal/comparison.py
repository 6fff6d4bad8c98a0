"""The table of methods at a terminal."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from orlomo.printing import printable
from orlomo.report.comparison.rows import MethodTable
from orlomo.report.comparison.texts import columns


def terminal_table(table: MethodTable, title: str) -> Table:
    """The table for a terminal."""
    drawn = Table(
        title=Text(printable(title)),
        caption=Text(printable(table.note)),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    found = columns(table)
    for heading, _ in found:
        first, _, rest = printable(heading).partition(" ")
        shown = f"{first}\n{rest}" if len(heading) > 10 else printable(heading)
        drawn.add_column(
            Text(shown), justify="left" if heading == "method" else "right", no_wrap=True, vertical="bottom"
        )
    for cells in zip(*(cells for _, cells in found), strict=True):
        drawn.add_row(*(Text(printable(cell)) for cell in cells))
    return drawn
