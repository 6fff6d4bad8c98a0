"""Runs killed at everything that they do to a file, continued, replayed and compared with one that was never killed.

    python tests/fault_matrix.py [SCENARIO ...] [--sample 40] [--twice 100] [--seed 0] [--processes 2]

At each point (see killing.py) a process is killed with SIGKILL, and another does what its user would: it resumes the
run, or begins it again where it is told that nothing was begun. The run must then be what it would have been: of the
simulated engine bit for bit, of processes as far as a replay can tell; and there must be nothing in its folder but the
files of a run. Processes are forked from one that has loaded torch, so that a point takes a fraction of a second.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

import orlomo
import small_loops
from killing import Killer, Point
from orlomo.engines.loops.opening import PRELOADED
from orlomo.engines.processes.starter import Starter
from orlomo.errors import RunFolderError
from orlomo.files import write_text_atomically
from orlomo.records import recorder
from orlomo.records.folders import CONTROL
from orlomo.temporary import remove_abandoned

for _name in (
    "engines.processes.engine",
    "engines.simulated.engine",
    "methods.papers.orlomo",
    "resuming",
    "tasks.theory",
):
    importlib.import_module(f"orlomo.{_name}")  # before anything is forked

FILES = re.compile(
    r"config\.toml|events\.csv|metrics\.csv|rounds\.csv|metrics\.json|changes\.json|signature\.json|log\.txt|\.lock|"
    r"model\.safetensors|best\.safetensors|best\.json|checkpoints/\d{9}\.(json|safetensors)|"
    rf"{CONTROL}/\d{{20}}-[0-9a-f]{{8}}\.answer"
)
"""What may be in the folder of a run that is finished."""

UNBEGUN = "nothing was started"

_warnings: list[str] = []


class Clock:
    """In place of `time` in the recorder: advances with every look at it, so that a run does the same every time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.25
        return self.now


class Asks(orlomo.Callback):
    """Asks the run for its workers, as `orlomo workers` does, and does not wait for the answer."""

    def started(self, run: orlomo.RunHandle) -> None:
        self._folder = run.folder / CONTROL

    def event(self, row: dict[str, Any]) -> None:
        if row["reports"] == 4:
            self._folder.mkdir(exist_ok=True)
            path = self._folder / f"{time.time_ns():020d}-01234567.json"
            write_text_atomically(path, '{"action": "list"}')


class Refuses(orlomo.Callback):
    """Ends a run before its first report."""

    def started(self, run: orlomo.RunHandle) -> None:
        raise ValueError("not this one")


class Scenario:
    """What a user does with a run. Each command is given again until it has come to its end."""

    engine = "simulated"
    same_bits = keeps_best = True
    epochs = 0.7, 1.0
    most: int | None = None  # points that are tried: all, if that can be

    def callbacks(self) -> list[orlomo.Callback]:
        return [orlomo.KeepBest("train_loss")]

    def train(self, folder: Path) -> None:
        method = orlomo.method("orlomo", learning_rate=0.02, local_steps=4)
        more: dict[str, Any] = {
            "workers": 3,
            "epochs": self.epochs[0],
            "batch_size": 8,
            "evaluate_every": 0.15,
            "checkpoint_seconds": 0.0,
        }
        orlomo.train(
            "quadratic",
            method,
            engine=self.engine,
            jobs=1,
            out=folder,
            callbacks=self.callbacks(),
            warn=_listen,
            **more,
        )

    def more(self, folder: Path) -> None:
        """The second command: the run is continued with other settings."""
        changes = {"epochs": self.epochs[1], "learning_rate": 0.01}
        orlomo.resume(folder, jobs=1, callbacks=self.callbacks(), warn=_listen, **changes)

    def carry_out(self, folder: Path) -> None:
        self.train(folder)
        self.more(folder)

    def continue_(self, folder: Path) -> bool:
        """After a kill: to the end. Whether anything had been begun."""
        begun = self.resumed(folder, jobs=1, callbacks=self.callbacks())
        if not orlomo.load(folder).changes:
            self.more(folder)
        return begun

    def resumed(self, folder: Path, **more: Any) -> bool:
        """The first command to its end."""
        try:
            if folder.exists():
                orlomo.resume(folder, warn=_listen, **more)
                return True
        except RunFolderError as error:
            if UNBEGUN not in str(error):
                raise
            assert not folder.exists(), f"{sorted(os.listdir(folder))} stay"
        self.train(folder)
        return False

    def replay(self, folder: Path) -> bool:
        return orlomo.replay(folder, jobs=1, warn=_listen).agrees


class Processes(Scenario):
    """The same on worker processes, each time in another order; with a request that the run answers."""

    engine = "processes"
    same_bits = False
    epochs = 0.4, 0.6

    def callbacks(self) -> list[orlomo.Callback]:
        return [*super().callbacks(), Asks()]


class Forgotten(Scenario):
    """A run that ends before its first report, and is removed; once it was killed in that, it is continued."""

    def carry_out(self, folder: Path) -> None:
        callbacks, self.callbacks = self.callbacks, lambda: [Refuses()]  # type: ignore[method-assign]
        try:
            self.train(folder)
        except ValueError:
            assert not folder.exists()
        self.callbacks = callbacks  # type: ignore[method-assign]


class Loop(Scenario):
    """The user's own loop, whose processes take seconds to start."""

    engine = "processes"
    same_bits = keeps_best = False
    most = 12

    def train(self, folder: Path) -> None:
        orlomo.launch(small_loops.loop, workers=2, out=folder, checkpoint_seconds=0.0, warn=_listen)

    def more(self, folder: Path) -> None:
        pass

    def continue_(self, folder: Path) -> bool:
        return self.resumed(folder, task=small_loops.loop)

    def replay(self, folder: Path) -> bool:
        return orlomo.replay(folder, task=small_loops.loop, jobs=1, warn=_listen).agrees


SCENARIOS: dict[str, type[Scenario]] = {
    "simulated": Scenario,
    "forgotten": Forgotten,
    "processes": Processes,
    "loop": Loop,
}


class Matrix:
    """The points of one scenario, in a folder of its own."""

    def __init__(self, name: str, place: Path):
        self.name, self.scenario, self.place = name, SCENARIOS[name](), place / name
        self.place.mkdir()
        self.whole = self.place / "whole"
        answer = Child(self._whole).result()
        assert answer is not None
        done, said = json.loads(answer)
        self.done: list[tuple[str, str]] = [(kind, target) for kind, target in done]
        self.said = set(said)

    def _whole(self) -> str:
        """A run that is not killed: what it does to files."""
        killer = _prepared(self.whole)
        self.scenario.carry_out(self.whole)
        done = list(killer.done)
        if not self.whole.exists():
            self.scenario.continue_(self.whole)
        return json.dumps([done, _said(self.whole)])

    def points(self) -> list[Point]:
        """All there are. After an operation is before the next one; only what is written can be half done."""
        kinds = [kind for kind, _ in self.done]
        halves = [Point(number, "half") for number, kind in enumerate(kinds) if kind == "write"]
        return [*(Point(number, "before") for number in range(len(kinds))), *halves, Point(len(kinds) - 1, "after")]

    def try_out(self, points: tuple[Point, ...]) -> str:
        """Kill a run at these points, one after another, continue it, look at it: what came of it."""
        folder = self.place / "-".join(f"{number}{when}" for number, when in points)

        def begin(point: Point) -> Callable[[], str]:
            def run() -> str:
                _prepared(folder, point)
                (self.scenario.continue_ if folder.exists() else self.scenario.carry_out)(folder)
                return ""

            return run

        def end() -> str:
            _prepared(folder)
            if (folder / "config.toml").exists():
                found = [str(finding) for finding in orlomo.verify(folder).findings]
                assert not found, f"killed is not damaged: {found}"
            begun = self.scenario.continue_(folder)
            unexpected = set(_said(folder)) - self.said
            assert not unexpected, unexpected
            self._check(folder)
            return "resumed" if begun else UNBEGUN

        killed = [Child(begin(point)).result() is None for point in points]
        if not any(killed) and not folder.exists():
            return "not reached"
        answer = Child(end).result()
        assert answer is not None, "the process that continues the run was killed"
        shutil.rmtree(folder, ignore_errors=True)
        return answer if any(killed) else "not reached"

    def _check(self, folder: Path) -> None:
        """It is a whole run, and if that can be, the same."""
        run, whole = orlomo.load(folder), orlomo.load(self.whole)
        assert run.finished
        assert orlomo.verify(folder).whole, orlomo.verify(folder)
        assert self.scenario.replay(folder), "the replay does not agree"
        found = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
        assert not (strange := {name for name in found if not FILES.fullmatch(name)}), f"{strange} stay"
        saves = [name for name in found if name.startswith("checkpoints/")]
        stems = Counter(name.partition(".")[0] for name in saves)
        assert len(stems) <= 3, saves
        assert set(stems.values()) == {2}, saves
        if self.scenario.keeps_best:
            self._check_best(run)
        if self.scenario.same_bits:
            self._compare(run, whole)

    def _check_best(self, run: orlomo.Run) -> None:
        assert run.best is not None
        assert run.best.metrics["train_loss"] == min(run.metric_columns["train_loss"])
        rows = [row for row in run.metric_rows if row["reports"] == run.best.metrics["reports"]]
        assert rows == [run.best.metrics], "the best model is not of a row of metrics.csv"
        assert json.loads((run.folder / "best.json").read_text()) == run.best.metrics

    def _compare(self, run: orlomo.Run, whole: orlomo.Run) -> None:
        assert torch.equal(run.params, whole.params)
        for name in ("events.csv", "config.toml", "metrics.json", "model.safetensors"):
            assert (run.folder / name).read_bytes() == (whole.folder / name).read_bytes(), f"{name} differs"
        for name, column in whole.metric_columns.items():
            if name != "real_seconds":
                np.testing.assert_array_equal(run.metric_columns[name], column)
        best, other = load_file(run.folder / "best.safetensors"), load_file(whole.folder / "best.safetensors")
        assert all(torch.equal(best[name], other[name]) for name in other.keys() | best.keys())
        assert [str(change) for change in run.changes] == [str(change) for change in whole.changes]


def _prepared(folder: Path, point: Point | None = None) -> Killer:
    """This process is to do the same every time, and to die where it is told to."""
    recorder.time, recorder.CHECKPOINT_SHARE = Clock(), 0.08  # type: ignore[assignment]
    killer = Killer(folder, point)
    killer.install()
    return killer


class Child:
    """A forked process that calls a function."""

    def __init__(self, call: Callable[[], str]):
        self._reading, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            text, code = "", 1
            try:
                from multiprocessing import forkserver

                forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]  # the parent's runs
                text, code = call(), 0
            except BaseException:
                text = traceback.format_exc()
            finally:
                with os.fdopen(writing, "w") as pipe:
                    pipe.write(text)
                os._exit(code)
        os.close(writing)

    def result(self) -> str | None:
        """What the function returned; None if the process was killed. What it raised is raised here."""
        with os.fdopen(self._reading) as pipe:
            text = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        assert status in (0, -signal.SIGKILL), text or f"ended with exit code {status}"
        return text if status == 0 else None


def _listen(text: str) -> None:
    _warnings.append(text)


def _said(folder: Path) -> list[str]:
    """What this process was warned of, except for the work that is lost."""
    return [text.replace(str(folder), "RUN") for text in _warnings if not text.startswith("lost: ")]


def lane(matrices: dict[str, Matrix], trials: list[tuple[str, tuple[Point, ...]]]) -> Counter[str]:
    """Some of the trials, one after another; what fails is printed."""
    outcomes: Counter[str] = Counter()
    for number, (name, points) in enumerate(trials, start=1):
        if number % 50 == 0:
            print(f"{number} of {len(trials)}", flush=True)
        try:
            outcomes[f"{name} {matrices[name].try_out(points)}"] += 1
        except Exception as error:
            done = matrices[name].done
            where = ", then ".join(f"{when} {number}: {done[number]}" for number, when in points)
            print(f"FAILED: {name}, killed {where}:\n{error}", flush=True)
            outcomes["FAILED"] += 1
    return outcomes


def main() -> int:
    """All points, or some; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--sample", type=int, help="so many points, by chance; without it all")
    parser.add_argument("--twice", type=int, default=0, help="so many runs that are killed a second time")
    parser.add_argument("--list", action="store_true", help="print what a run does, and kill none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="so many points at a time")
    options = parser.parse_args()
    begin = time.monotonic()
    names = options.scenarios or list(SCENARIOS)
    torch.set_num_threads(1)
    place = Path(tempfile.mkdtemp(prefix="matrix-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    os.environ["XDG_CONFIG_HOME"] = str(place / "configuration")
    os.environ["TMPDIR"] = tempfile.tempdir = str(place / "temporary")
    (place / "temporary").mkdir()
    try:
        if {"processes", "loop"} & set(names):
            Starter(PRELOADED if "loop" in names else ())
        matrices = {name: Matrix(name, place) for name in names}
        source = random.Random(options.seed)
        points = {name: matrix.points() for name, matrix in matrices.items()}
        total = sum(map(len, points.values()))
        for name, scenario in SCENARIOS.items():
            if name in points and scenario.most is not None:
                points[name] = source.sample(points[name], scenario.most)
        singles = [(name, point) for name in names for point in points[name]]
        if options.sample is not None:
            singles = source.sample(singles, min(options.sample, len(singles)))
        trials: list[tuple[str, tuple[Point, ...]]] = [(name, (point,)) for name, point in singles]
        for _ in range(options.twice):
            name, first = source.choice(singles)
            trials.append((name, (first, source.choice(matrices[name].points()))))
        source.shuffle(trials)
        if options.list:
            for name in names:
                print(
                    f"{name}:",
                    *(f"{n} {kind} {target}" for n, (kind, target) in enumerate(matrices[name].done)),
                    sep="\n  ",
                )
            return 0
        outcomes = _lanes(matrices, trials, options.processes)
        remove_abandoned()  # as the next run does
        # The cache of torch.compile is torch's own.
        left = [name for name in os.listdir(place / "temporary") if not name.startswith("torchinductor_")]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for name, matrix in matrices.items():
        print(f"{name}: {len(matrix.done)} operations, {len(matrix.points())} points")
    print(f"left in the temporary folder: {', '.join(left) or 'nothing'}")
    shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{len(trials)} kills at {total} points in {time.monotonic() - begin:.0f} s: {shown}")
    good = not outcomes["FAILED"] and outcomes.total() == len(trials) and not left
    return 0 if good else 1


def _lanes(matrices: dict[str, Matrix], trials: list[Any], count: int) -> Counter[str]:
    """Several at a time, each a part of the trials."""

    def part(number: int) -> Callable[[], str]:
        return lambda: json.dumps(lane(matrices, trials[number::count]))

    children = [Child(part(number)) for number in range(count)]
    return sum((Counter(json.loads(child.result() or "{}")) for child in children), Counter())


if __name__ == "__main__":
    sys.exit(main())
