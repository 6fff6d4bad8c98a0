"""How long `orlomo` takes to answer, beside how long `import torch` takes: python benchmarks/start.py

The answers that need no training must come in a quarter of that time. Medians of several processes, taken in turn.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

REPEATS = 7
WORDS = (["--help"], ["train", "--help"], ["methods"], ["train", "digits", "--lr", "0.1"])


def seconds(*command: str) -> float:
    """How long a process of Python takes with these arguments."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    """Print the ratios."""
    commands: dict[str, tuple[str, ...]] = {name: ("-c", name) for name in ("import torch", "import orlomo")}
    commands |= {f"orlomo {' '.join(words)}": ("-m", "orlomo", *words) for words in WORDS}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(REPEATS):
        for name, command in commands.items():
            taken[name].append(seconds(*command))
    torch = median(taken["import torch"])
    for name, times in taken.items():
        print(f"{name:<28} {median(times):6.3f} s  {median(times) / torch:5.1%} of import torch")


if __name__ == "__main__":
    main()
