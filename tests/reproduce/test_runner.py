"""What a terminal shows while `orlomo reproduce` runs cells."""

from __future__ import annotations

import re
from pathlib import Path

from tiny import TINY, write_tiny

from terminal import shown_at_a_terminal


def test_the_screen_of_a_real_terminal(tmp_path: Path) -> None:
    write_tiny(tmp_path, TINY.replace("epochs = 4\ndrops = [2, 3]", "epochs = 40\ndrops = [20, 30]"))
    words = ("reproduce", "./tiny.toml", "--seeds", 1, "--rows", "uneven", "--methods", "orlomo", "--jobs", 1)
    text = shown_at_a_terminal(*words, folder=tmp_path)
    assert re.search(r"all runs .*%  \d+ s left\n0 of 1 done  [\d,]+ samples/s", text)
    assert re.search(
        r"digits-uneven-K2-S2 orlomo seed 0 .*%\n.* reports  .*\nloss [\d.e-]+  test accuracy [\d.]+%", text
    )
    assert re.search(r" 1  computing +\d+ +\d+  █+ +\d+%", text)
    assert re.search(r"delay  0 .*[▁▂▃▄▅▆▇█]", text)
