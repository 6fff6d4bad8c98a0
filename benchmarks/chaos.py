"""200 random faults over 4 workers while a small task trains; the run must reach its target with its books in order.

    python benchmarks/chaos.py [--faults 200] [--seed 0]

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
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print every loss and refusal")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        say = print if options.verbose else lambda text: None
        outcome = make_trouble(Path(place), options.faults, options.seed, say)
    faults = sum(outcome.faults.values())
    print(f"{faults} faults in {outcome.seconds:.0f} s: {dict(sorted(outcome.faults.items()))}")
    print(f"{outcome.reports} reports folded, {outcome.lost} workers lost, {outcome.refused} reports refused")
    print(f"acknowledged reports equal what replay folds, bit for bit: {'yes' if outcome.agrees else 'NO'}")
    print(f"accuracy {outcome.accuracy:.2%} (target {TARGET:.0%})")
    print(f"left behind: {', '.join(outcome.left_behind) or 'nothing'}")
    good = outcome.agrees and outcome.accuracy >= TARGET and not outcome.left_behind
    return 0 if good and faults == options.faults else 1


if __name__ == "__main__":
    sys.exit(main())
