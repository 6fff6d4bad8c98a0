"""Damaged run folders against every command: the right answer, or one line that says what is wrong.

    python tests/fuzzing.py --cases 2000 --seed 0 --processes 2
    python tests/fuzzing.py --seed 0 --only 1234        # one case again, alone

Of each case are checked: the exit code, no traceback, no hang, no difference to the answer on the undamaged folder
without a line that says so, no control characters, no change outside the folder, and none inside by what only reads.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import fuzz_corpus
from fuzz_commands import COMMANDS, NAMES, Answer, Place
from fuzz_corpus import snapshot
from fuzz_damage import Damage, Damager

MEMORY = 1 << 31
"""Bytes that a command may take beyond what the process has."""


class Hang(BaseException):
    """Raised in a command that does not end."""


@dataclass
class Case:
    """One damage and one command; `wrong`: what should not be, nothing where all is well."""

    seed: int
    number: int
    corpus: str = ""
    command: str = ""
    name: str = ""
    damage: Damage = field(default_factory=lambda: Damage("", ""))
    answer: Answer = field(default_factory=lambda: Answer(0, None))
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        again = f"python tests/fuzzing.py --seed {self.seed} --only {self.number} --command '{self.command}'"
        named = f" (the folder is {self.name!a})" * (self.name != NAMES[0])
        said = "".join(f"\n    | {ascii(line)[1:-1][:400]}" for line in self.answer.notes[-12:])
        return f"{self.command} of {self.corpus}, {self.damage}{named}\n  {'; '.join(self.wrong)}\n  {again}{said}"


class Fuzz:
    """The runs, a place for the damaged ones, and the answers of the undamaged ones."""

    def __init__(self, base: Path):
        made = base / "made"
        made.mkdir(parents=True)
        self.corpus = fuzz_corpus.make(made)
        self.place = Place(base / "place")
        self._clean: dict[tuple[str, str, str], Answer] = {}

    def case(self, seed: int, number: int, only: str | None = None) -> Case:
        """The case of this number; `only`: with this command."""
        source = random.Random(f"{seed}/{number}")
        case = Case(seed, number)
        [case.command] = source.choices(list(COMMANDS), [one.weight for one in COMMANDS.values()])
        case.command = only or case.command
        command = COMMANDS[case.command]
        case.corpus = source.choice(command.runs)
        files = self.corpus[case.corpus]
        case.name = source.choice(NAMES) if source.random() < 0.1 else NAMES[0]
        clean = self.clean(case.corpus, case.command, case.name)
        self.place.set_up(files, case.name)
        others = [self.corpus[name] for name in self.corpus if name != case.corpus]
        case.damage = Damager(self.place.run, self.place.outside, files, others, source).damage()
        case.damage.seals = case.corpus != "old"
        around, inside = self.place.around(), snapshot(self.place.run)
        try:
            with limited(command.seconds):
                case.answer = command.call(self.place)
        except Hang:
            case.wrong.append(f"it hangs: {_where()}")
        except BaseException:
            case.answer.notes += traceback.format_exc().splitlines()
            case.wrong.append("an exception")
        after = self.place.around()
        case.wrong += [f"changed outside: {name}" for name in _changed(around, after)]
        if command.reads_only:
            case.wrong += [f"changed: {name}" for name in _changed(inside, snapshot(self.place.run))]
        if not case.wrong:
            case.wrong += command.judge(case.damage, clean, case.answer)
        return case

    def clean(self, corpus: str, command: str, name: str) -> Answer:
        """The answer on the undamaged folder of this name."""
        key = corpus, command, name
        if key not in self._clean:
            self.place.set_up(self.corpus[corpus], name)
            with limited(COMMANDS[command].seconds):
                self._clean[key] = COMMANDS[command].call(self.place)
        return self._clean[key]


def _changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _where() -> str:
    frames = traceback.extract_tb(sys.exc_info()[2])
    return " < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in reversed(frames[-4:]))


@contextlib.contextmanager
def fast_folder() -> Iterator[Path]:
    """A temporary folder, in memory where that can be: most of the time would go into waiting for the disk."""
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="orlomo-fuzz-", dir=where) as folder,
        patch.dict(os.environ, XDG_CONFIG_HOME=str(Path(folder) / "settings")),  # not the user's own
    ):
        yield Path(folder)


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A command that hangs or takes all memory fails, and no more."""

    def stop(number: int, frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, before)


def _share(seed: int, first: int, stop: int, step: int, command: str | None) -> Counter[str]:
    """The work of one process: the wrong cases by command."""
    import torch

    torch.set_num_threads(1)
    wrong: Counter[str] = Counter()
    with fast_folder() as folder:
        fuzz = Fuzz(folder)
        for number in range(first, stop, step):
            case = fuzz.case(seed, number, command)
            if case.wrong:
                wrong[case.command] += 1
                print(case, flush=True)
    return wrong


def main() -> int:
    """As a script: the exit code says whether every case was well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this case alone")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--command", choices=list(COMMANDS), help="this command alone")
    options = parser.parse_args()
    begin, count = time.monotonic(), options.processes
    if options.only is not None:
        return min(1, _share(options.seed, options.only, options.only + 1, 1, options.command).total())
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        more = options.cases, count, options.command
        shares = [pool.submit(_share, options.seed, first, *more) for first in range(count)]
        wrong = sum((share.result() for share in shares), Counter[str]())
    seconds, by_command = time.monotonic() - begin, f": {dict(wrong)}" if wrong else ""
    print(
        f"{options.cases:,} cases of seed {options.seed} in {seconds:.0f} s, {wrong.total()} of them wrong{by_command}"
    )
    return min(1, wrong.total())


if __name__ == "__main__":
    sys.exit(main())
