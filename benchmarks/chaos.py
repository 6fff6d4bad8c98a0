"""Everything that may happen to a run, made to happen, part by part: `make chaos`, at most 30 minutes on 2 cores.

    python benchmarks/chaos.py [PART ...] [--minutes 30]

Each part is a command of its own, which can be run alone: it ends with exit code 0 if all was well, and the last line
that it prints says what came of it. A table of all parts is printed at the end; exit code 1 if any of them failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SAY_SECONDS = 30.0
"""How often a part that is running is mentioned."""


class Part(NamedTuple):
    """A command of Python, what it does, and how many minutes it may take; in the command they are `{left}`.

    `least`: so many are left for it by the parts before it.
    """

    name: str
    command: str
    does: str
    minutes: float
    least: float = 0.5


PARTS = [
    Part("kills", "tests/fault_matrix.py --twice 60 --processes 2", "runs killed at every operation on files", 7),
    Part("fuzz", "tests/fuzzing.py --cases 50000 --seed 1 --processes 2", "50,000 damaged run folders", 10),
    Part("real", "tests/fuzzing.py --cases 12 --seed 2 --command resume-real", "12 resumes of damaged real runs", 3),
    Part("histories", "tests/histories.py", "10,000 generated histories of a run's workers", 8),
    Part("processes", "benchmarks/faults.py processes", "200 real faults, on processes", 5),
    Part("ray", "benchmarks/faults.py ray", "200 real faults, on Ray", 8),
    Part("strangers", "benchmarks/strangers.py", "Ray's ports, tried by strangers on its network", 5),
    Part("soak", "benchmarks/soak.py --minutes {left}", "8 workers for a while: nothing grows", 12, 6),
]
"""In this order. The soak is the last: it takes the time that the others have left."""


class Outcome(NamedTuple):
    """What came of a part."""

    part: Part
    good: bool
    seconds: float
    text: str

    @property
    def word(self) -> str:
        """In one word."""
        return "FAILED" if not self.good else "skipped" if self.text.startswith("skipped") else "well"


def carry_out(part: Part, number: str, until: float, end: float) -> Outcome:
    """Run one part, within its own time and before this moment; `end`: when all parts must be done."""
    begin = time.monotonic()
    limit = min(60 * part.minutes, until - begin)
    if limit < 30:
        return Outcome(part, False, 0.0, "no time was left for it")
    words = part.command.format(left=f"{limit / 60 - 1:.1f}").split()
    print(f"[{number}] {part.name}: {part.does} (at most {_minutes(limit)})", flush=True)
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            ended = _wait(process, begin, begin + limit, end)
        finally:
            if process.poll() is None:  # with all that it has started
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        lines = [line.rstrip() for line in output.read().splitlines() if line.strip()]
    seconds, good = time.monotonic() - begin, ended and process.returncode == 0
    text = lines[-1] if lines else f"exit code {process.returncode}, and not a word"
    if not ended:
        text = f"not done after {_minutes(limit)}: {text}"
    if not good:
        print(*(f"    {line}" for line in lines[-60:]), sep="\n")
    outcome = Outcome(part, good, seconds, text)
    print(f"    {outcome.word} after {_minutes(seconds)}: {text}", flush=True)
    return outcome


def _wait(process: subprocess.Popen[bytes], begin: float, until: float, end: float) -> bool:
    """Whether it ends by then; meanwhile it is said that there is something to wait for."""
    while True:
        now = time.monotonic()
        try:
            process.wait(max(0.0, min(SAY_SECONDS, until - now)))
            return True
        except subprocess.TimeoutExpired:
            if time.monotonic() >= until:
                return False
            now = time.monotonic()
            left = f"at most {_minutes(until - now)} left for it, {_minutes(end - now)} for all"
            print(f"    ... {_minutes(now - begin)}, {left}", flush=True)


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d} min"


def table(outcomes: list[Outcome]) -> str:
    """All outcomes, one row each."""
    rows = [("part", "what", "outcome", "took", "in its own words")]
    rows += [(o.part.name, o.part.does, o.word, _minutes(o.seconds), o.text) for o in outcomes]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    )


def main() -> int:
    """All parts, or those that are named; 1 if any fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(part.name for part in PARTS))
    parser.add_argument("--minutes", type=float, default=30.0, help="for all of them together")
    options = parser.parse_args()
    if unknown := set(options.parts) - {part.name for part in PARTS}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}: there are {', '.join(p.name for p in PARTS)}")
    chosen = [part for part in PARTS if not options.parts or part.name in options.parts]
    begin = time.monotonic()
    outcomes = []
    for number, part in enumerate(chosen, start=1):
        reserved = sum(later.least for later in chosen[number:])
        end = begin + 60 * options.minutes
        outcomes.append(carry_out(part, f"{number}/{len(chosen)}", end - 60 * reserved, end))
    failed = sum(not outcome.good for outcome in outcomes)
    print(f"\n{table(outcomes)}\n")
    what = f"{failed} of {len(outcomes)} parts failed" if failed else "all is well"
    print(f"{what}, after {_minutes(time.monotonic() - begin)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
