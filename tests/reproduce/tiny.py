"""A small experiment that runs in seconds."""

from __future__ import annotations

from pathlib import Path

TINY = """
title = "Tiny"
note = "A note."
methods = ["prsgdm", "orlomo"]
seeds = 2
[scenarios]
even = "homogeneous"
uneven = "heterogeneous"
[recipe]
epochs = 4
drops = [2, 3]
batch_size = 16
momentum = 0.9
weight_decay = 0.001
[learning_rates]
how = "any will do"
[learning_rates.grid]
prsgdm = [0.05, 0.1]
orlomo = [0.01, 0.05, 1e30]
[learning_rates.tuning]
task = "digits"
scenario = "uneven"
rows = [{ workers = 2, local_steps = 2 }, { workers = 4, local_steps = 1 }]
epochs = 1
batch_size = 16
held_out = 0.1
[learning_rates.chosen]
prsgdm = 0.05
orlomo = 0.05
[[rows]]
task = "digits"
scenario = "uneven"
workers = 2
local_steps = 2
accuracy = { prsgdm = [97.5, 0.1], orlomo = [97.25, 0.2] }
loss = { prsgdm = [0.02, 0.01], orlomo = [0.03] }
[[rows]]
task = "digits"
scenario = "even"
workers = 4
local_steps = 2
"""


def write_tiny(folder: Path, text: str = TINY) -> Path:
    """The experiment as a file."""
    path = folder / "tiny.toml"
    path.write_text(text)
    return path
