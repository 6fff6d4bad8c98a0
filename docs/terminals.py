"""Take the pictures of the terminal again, of real runs: python docs/terminals.py."""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

import orlomo
from orlomo.report.terminal.screen import TerminalProgress

IMAGES = Path(__file__).parent / "images"
sys.path.append(str(Path(__file__).parents[1] / "tests"))
from terminal import frames  # noqa: E402

FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""No fonts from elsewhere."""

SLOW = ("--workers", 8, "--cluster", "heterogeneous:4", "--local-steps", 32, "--epochs", 40)


def main() -> None:
    """Runs while they are under way, at 80 and 40 columns, with 8 and with 64 workers; the end of a comparison."""
    faults = (orlomo.Fault(time=150.0, worker=2, kind="crash"), orlomo.Fault(time=250.0, worker=2, kind="return"))
    cluster = orlomo.Cluster(speeds=orlomo.cluster("heterogeneous:4").speeds, faults=faults)
    settings = {"workers": 8, "epochs": 40, "cluster": cluster}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, screens in (
            ("orlomo", [Recorded("screen", 40, 80), Recorded("screen-40-columns", 40, 40)]),
            ("prsgdm", [Recorded("screen-synchronous", 42, 80)]),
        ):
            method = orlomo.method(name, learning_rate=0.1, local_steps=32)
            orlomo.train("digits", method, out=folder / name, callbacks=screens, **settings)
        many = [Recorded("screen-64-workers", 400, 80)]
        method = orlomo.method("orlomo", learning_rate=0.05, local_steps=4)
        orlomo.train("digits", method, out=folder / "many", callbacks=many, **settings | {"workers": 64})
        words = ("compare", "digits", "--methods", "prsgdm,orlomo", *SLOW, "--out", "runs/both")
        for name, columns in (("ending", 80), ("ending-40-columns", 40)):  # the second time the runs are there
            end = frames(*words, folder=folder, columns=columns, lines=60)[-1]
            console = recorder(columns)
            console.print(Text(end))
            save(console, name, "orlomo compare")


def recorder(columns: int) -> Console:
    """What is printed here can be saved as a picture."""
    return Console(record=True, width=columns, height=24, file=io.StringIO(), force_terminal=True)


def save(console: Console, name: str, title: str) -> None:
    """Write what was printed."""
    path = IMAGES / f"{name}.svg"
    # By its name: rich would take a number from the content, which has times in it.
    console.save_svg(str(path), title=title, code_format=FORMAT, unique_id=name)
    print(path)


class Recorded(TerminalProgress):
    """The screen of `orlomo train`, as it was after so many reports."""

    def __init__(self, name: str, after: int, columns: int):
        self._recorder = recorder(columns)
        super().__init__(console=self._recorder)
        self.name, self.after = name, after

    def event(self, row: dict[str, Any]) -> None:
        """One more report."""
        super().event(row)
        if row["kind"] == "report" and row["reports"] == self.after:
            self._next_update = 0.0
            self.update(self.run)
            self._recorder.print(self.screen())
            save(self._recorder, self.name, "orlomo train")


if __name__ == "__main__":
    main()
