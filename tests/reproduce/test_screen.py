"""What a person sees while `orlomo reproduce` works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tiny import TINY, write_tiny

import orlomo
from orlomo.reproduce import progress as module
from orlomo.reproduce.experiment import experiment
from orlomo.reproduce.plan import Scale, cells
from orlomo.reproduce.progress import CellProgress
from terminal import shown_at_a_terminal


def test_the_screen_of_a_real_terminal(tmp_path: Path) -> None:
    write_tiny(tmp_path, TINY.replace("epochs = 4\ndrops = [2, 3]", "epochs = 40\ndrops = [20, 30]"))
    words = ("reproduce", "./tiny.toml", "--seeds", 1, "--rows", "uneven", "--methods", "orlomo", "--jobs", 1)
    text = shown_at_a_terminal(*words, folder=tmp_path)
    assert re.search(r"all runs .* 0 of 1 done, \d+ s left, [\d,]+ samples/s", text)
    assert re.search(r"digits-uneven-K2-S2 orlomo seed 0 .* loss [\d.e-]+ accuracy [\d.]+%", text)
    assert re.search(r"worker +rounds +last delay +computing +waiting +transfer", text)
    assert re.search(r"\b1 +at work +\d+ +\d+ +\d+%", text)
    assert re.search(r"delays +0 .*[▁▂▃▄▅▆▇█]", text)


def test_a_line_every_few_seconds_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_tiny(tmp_path)
    scale = Scale(seeds=1, methods=("orlomo",), rows=("uneven",))
    tasks = {"digits": orlomo.task("digits")}
    [cell] = cells(experiment(str(tmp_path / "tiny.toml")), scale, tasks, tmp_path, "cpu")
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    row = {"kind": "report", "worker": 0, "delay": 1, "start": 0.0, "finish": 1.0, "compute": 1.0, "loss": 0.5}
    with CellProgress() as progress:
        progress.begin([cell], [cell])
        progress.started(cell, 2, 100, None)
        for done in range(1, 101):
            now[0] += 0.2
            progress.event(cell, {**row, "samples": 16 * done, "reports": done})
        progress.done(cell)
    first, *lines, last = capsys.readouterr().err.splitlines()
    assert first == "1 runs: 0 done, 1 to do"
    assert len(lines) == 3
    assert lines[0] == "0 of 1 done, 15 s left, 77 samples/s; digits-uneven-K2-S2 orlomo seed 0: 25%, loss 0.5"
    assert last == "[1/1] digits-uneven-K2-S2 orlomo seed 0"
    with CellProgress(quiet=True) as progress:
        progress.begin([cell], [cell])
        progress.started(cell, 2, 100, None)
        now[0] += 100
        progress.event(cell, {**row, "reports": 1})
    assert capsys.readouterr().err == ""
