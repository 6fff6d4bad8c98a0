"""Draw the README's first picture again: python docs/hero.py (a minute, on an otherwise idle machine).

Two runs on four worker processes of this machine, one of them slowed four times: a synchronous method, and OrLoMo. With
--simulated the same in the simulator, on any machine: seconds are virtual then.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import orlomo
from orlomo.report.drawing.timelines import DARK, LIGHT, hero_figure

IMAGES = Path(__file__).parent / "images"
PACE = (8.0, 8.0, 8.0, 32.0)
"""All are slowed, so that four workers do not compete for two cores; the last one four times as much."""


def main() -> None:
    """Train both and write hero.png, hero.svg and the same for dark pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="in the simulator")
    simulated = parser.parse_args().simulated
    with tempfile.TemporaryDirectory() as place:
        runs = [_run(Path(place) / name, name, simulated) for name in ("prsgdm", "orlomo")]
        for ending, theme in (("", LIGHT), ("-dark", DARK)):
            for path in hero_figure(runs[0], runs[1], IMAGES / f"hero{ending}", theme):
                print(path)


def _run(folder: Path, name: str, simulated: bool) -> orlomo.Run:
    method = orlomo.method(name, learning_rate=0.1, local_steps=64)
    if simulated:
        more: dict[str, Any] = {"cluster": orlomo.Cluster(speeds=(orlomo.Speed(), orlomo.Speed(count=1, factor=4.0)))}
    else:
        more = {"engine": "processes", "threads": 1, "pace": PACE}
    return orlomo.train("digits", method, workers=4, epochs=28, evaluate_every=7, out=folder, **more)


if __name__ == "__main__":
    main()
