"""Draw the README's first picture again: python docs/hero.py (about a minute; best on an otherwise idle machine).

Two runs on four worker processes of this machine, one of them slowed four times: a synchronous method, and OrLoMo.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import orlomo
from orlomo.report.drawing.timelines import DARK, LIGHT, hero_figure

IMAGES = Path(__file__).parent / "images"
PACE = (6.0, 6.0, 6.0, 24.0)
"""All are slowed, so that four workers do not compete for two cores; the last one four times as much."""


def main() -> None:
    """Train both, where no folder with such runs is given, and write hero.png, hero.svg and the same for dark pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="a folder with the runs prsgdm and orlomo, or where to make them")
    given = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as place:
        folder = given or Path(place)
        runs = [_run(folder / name, name) for name in ("prsgdm", "orlomo")]
        for ending, theme in (("", LIGHT), ("-dark", DARK)):
            for path in hero_figure(runs[0], runs[1], IMAGES / f"hero{ending}", theme):
                print(path)


def _run(folder: Path, name: str) -> orlomo.Run:
    if folder.exists():
        return orlomo.load(folder)
    method = orlomo.method(name, learning_rate=0.1, local_steps=64)
    shape = {"engine": "processes", "workers": 4, "threads": 1, "pace": PACE}
    return orlomo.train("digits", method, epochs=28, evaluate_every=7, out=folder, **shape)


if __name__ == "__main__":
    main()
