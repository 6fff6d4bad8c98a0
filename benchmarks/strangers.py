"""Strangers on the network of a Ray cluster that has a token, or a token and TLS: they must get nothing.

    python benchmarks/strangers.py [token] [token+tls]

Three machines made of network namespaces; every port of the cluster is tried (see tests/ray_stranger.py).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"


def main() -> int:
    """Both kinds, one after the other; an exception if a stranger gets in."""
    sys.path.append(str(TESTS))
    from namespaces import reason_against, run_isolated

    if reason := reason_against():
        print(f"skipped: {reason}")
        return 0
    outcomes = []
    for kind in sys.argv[1:] or ("token", "token+tls"):
        with tempfile.TemporaryDirectory() as place:
            said = run_isolated(TESTS / "ray_stranger.py", kind, place, seconds=500, RAY_USAGE_STATS_ENABLED="0")
        print(said)
        outcomes.append(said.strip().splitlines()[-1])
    print("; ".join(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
