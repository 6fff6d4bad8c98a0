"""Draw the README's first picture again: python docs/hero.py (about a minute).

Two runs on four worker processes of this machine, one of them slowed four times: a synchronous method, and OrLoMo.
Every training step waits 40 ms in place of the work of an accelerator, so that the workers do not compete for the
cores: what is shown is who waits for whom.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

from torch import Tensor, nn

import orlomo
from orlomo.report.drawing.timelines import DARK, LIGHT, hero_figure

IMAGES = Path(__file__).parent / "images"
WAIT, LOCAL_STEPS, PACE = 0.04, 8, (1.0, 1.0, 1.0, 4.0)
BARRIERS = 25


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy, after a while."""
    if model.training:
        time.sleep(WAIT)
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def main() -> None:
    """Train both, where no folder with such runs is given, and write hero.png, hero.svg and the same for dark pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="a folder with the runs prsgdm and orlomo, or where to make them")
    given = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as place:
        runs = [_run((given or Path(place)) / name, name) for name in ("prsgdm", "orlomo")]
        for ending, theme in (("", LIGHT), ("-dark", DARK)):
            for path in hero_figure(runs[0], runs[1], IMAGES / f"hero{ending}", theme):
                print(path)


def _run(folder: Path, name: str) -> orlomo.Run:
    if folder.exists():
        return orlomo.load(folder)
    task = dataclasses.replace(orlomo.task("digits"), loss=loss)
    # As many samples as whole barriers have, so that both do the same work.
    epochs = BARRIERS * LOCAL_STEPS * task.batch_size * len(PACE) / task.size
    method = orlomo.method(name, learning_rate=0.1, local_steps=LOCAL_STEPS)
    shape = {"engine": "processes", "workers": len(PACE), "threads": 1, "pace": PACE}
    return orlomo.train(task, method, epochs=epochs, evaluate_every=epochs / 4, out=folder, **shape)


if __name__ == "__main__":
    main()
