"""200 random faults over 4 workers while a small task trains; the run must reach its target with its books in order.

    python benchmarks/faults.py processes [--faults 200] [--seed 0]

Workers are killed, stopped and continued, made to raise, to report numbers that are not finite, and to start slowly.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

TARGET = 0.95


def main() -> int:
    """Make trouble, print what came of it; 1 if anything is amiss."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from troublemaker import make_trouble

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["processes"])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print every loss and refusal")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        say = print if options.verbose else lambda text: None
        outcome = make_trouble(Path(place), options.faults, options.seed, say)
    print(outcome)
    return 0 if outcome.is_well(options.faults, TARGET) else 1


if __name__ == "__main__":
    sys.exit(main())
