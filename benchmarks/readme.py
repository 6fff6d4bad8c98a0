"""Measure the README's tables: four workers, one of them four times slower (about three minutes).

    python benchmarks/readme.py

Writes docs/results/uneven-workers.json and, from it, uneven-workers.md, whose tables the README has too.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from orlomo.report.speed import ratio_text, shown, time_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "uneven-workers"
SEEDS = 3
COMMAND = (
    "orlomo compare examples/uneven_processes.py:task --engine processes --methods prsgdm,orlomo --workers 4 "
    f"--pace 1,1,1,4 --local-steps 8 --learning-rate 0.1 --epochs 20 --seeds {SEEDS}"
)


def against_the_synchronous_twin() -> dict[str, Any]:
    """What `orlomo compare` writes."""
    with tempfile.TemporaryDirectory() as place:
        arguments = [*COMMAND.split()[1:], "--target", "97", "--out", f"{place}/runs", "--quiet", "--json"]
        call = [sys.executable, "-m", "orlomo", *arguments]
        printed = subprocess.run(call, stdout=subprocess.PIPE, cwd=ROOT, check=True).stdout
    found: dict[str, Any] = json.loads(printed)
    del found["folder"]
    return found


def against_ddp() -> dict[str, dict[str, list[float]]]:
    """Samples per second and accuracy of a training script, by seed."""
    from own_loop import OURS, THEIRS, WAIT, ours, theirs

    found: dict[str, dict[str, list[float]]] = {}
    for name, measure, rate in (("DDP", theirs, THEIRS), ("orlomo", ours, OURS)):
        pairs = [measure(rate, WAIT, seed) for seed in range(SEEDS)]
        found[name] = {"samples_per_second": [a for a, _ in pairs], "accuracy": [b for _, b in pairs]}
    return found


def machine() -> dict[str, str | int]:
    """Where and when."""
    import torch

    today = datetime.date.today()
    return {
        "cores": os.cpu_count() or 1,
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
        "date": f"{today.day} {today:%B %Y}",
    }


def page(found: dict[str, Any]) -> str:
    """The Markdown page of what was measured."""
    where = found["machine"]
    return f"""# Four workers, one of them four times slower

Measured by `python benchmarks/readme.py` on {where["cores"]} cores with PyTorch {where["torch"]}, {where["date"]}.
Times are medians, accuracies means of {SEEDS} seeds. Every training step waits (5 ms in the first table, 20 ms in the
second) in place of the work of an accelerator, so that four workers do not compete for two cores: what is measured
is who waits for whom. If every step took the same time, and nothing else took any, the gain would be 3.25; on a busy
machine, where times vary, waiting for the slowest costs more, and larger ratios occur.

## Worker processes against the synchronous twin

{twin_table(found["twin"])}

```bash
{chr(10).join(lines_of(COMMAND))}
```

Time to 97%: the clock at the first evaluation that reaches it. Both methods have the learning rate 0.1 and the same
number of local steps between two exchanges.

## A training script against DDP

{ddp_table(found["ddp"])}

The script of `benchmarks/own_loop.py`: 12 epochs of digits, SGD with momentum and a cosine schedule, 16 samples per
worker and step. DDP exchanges gradients in every step (gloo), `orlomo` after every 4 steps; each has the best of four
learning rates. The standard error of the difference of the accuracies is 1.3 points for one seed.
"""


def lines_of(command: str, width: int = 100) -> list[str]:
    """A command on lines of at most this width; a flag stays with its value."""
    first, *flags = command.split(" --")
    lines = [first]
    for flag in flags:
        if len(lines[-1]) + len(flag) + 5 > width:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" --{flag}"
    return lines


def twin_table(found: dict[str, Any]) -> str:
    """One row per method."""
    names = {"prsgdm": "prsgdm (synchronous)", "orlomo": "**orlomo**"}
    rows = [
        "| four processes, 20 epochs of digits | seconds to 97% | for all 20 epochs | test accuracy | time computing |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in found["methods"]:
        times = []
        for what in ("to_target", "for_equal_work"):
            faster = row[f"speed_up_{what}"]
            ratio = f" ({ratio_text(faster)})" if faster is not None and row["method"] != found["reference"] else ""
            times.append(f"{time_text(row[f'seconds_{what}'] or float('inf'))}{ratio}")
        shares = f"{row['test_accuracy']:.1%} | {row['computing']:.0%}"
        rows.append(f"| {names[row['method']]} | {times[0]} | {times[1]} | {shares} |")
    return "\n".join(rows)


def ddp_table(found: dict[str, dict[str, list[float]]]) -> str:
    """One row for each of the two."""
    rows = [
        "| four processes, a training script, 12 epochs of digits | samples per second | test accuracy |",
        "|---|---:|---:|",
    ]
    base = shown(statistics.median(found["DDP"]["samples_per_second"]))
    for name, label in (("DDP", "DDP"), ("orlomo", "**orlomo**")):
        speed = shown(statistics.median(found[name]["samples_per_second"]))
        ratio = "" if name == "DDP" else f" ({ratio_text(speed / base)})"
        rows.append(f"| {label} | {speed:.0f}{ratio} | {statistics.mean(found[name]['accuracy']):.1%} |")
    return "\n".join(rows)


def main() -> None:
    """Measure, and write both files."""
    found = {"machine": machine(), "twin": against_the_synchronous_twin(), "ddp": against_ddp()}
    RESULTS.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    RESULTS.with_suffix(".md").write_text(page(found))
    print(page(found))


if __name__ == "__main__":
    main()
