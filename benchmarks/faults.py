"""200 random faults over the workers of a small run, which must reach its target with its books in order.

    python benchmarks/faults.py processes|ray [--faults 200] [--seed 0]

Workers are killed, stopped and continued, made to raise, to report numbers that are not finite, and to start slowly; on
Ray, nodes are killed, too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
TARGET = 0.95


def main() -> int:
    """Make trouble, print what came of it; 1 if anything is amiss."""
    sys.path.append(str(TESTS))
    from namespaces import reason_against, run_isolated
    from troublemaker import make_trouble

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["processes", "ray"])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print every loss and refusal")
    options = parser.parse_args()
    if options.engine == "ray" and (reason := reason_against()):
        print(f"skipped: {reason}")
        return 0
    with tempfile.TemporaryDirectory() as place:
        if options.engine == "ray":
            words = [TESTS / "ray_faults.py", place, options.faults, options.seed]
            print(run_isolated(*words, seconds=1200, RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0"))
            return 0
        say = print if options.verbose else lambda text: None
        outcome = make_trouble(Path(place), options.faults, options.seed, say)
    print(outcome)
    return 0 if outcome.is_well(options.faults, TARGET) else 1


if __name__ == "__main__":
    sys.exit(main())
