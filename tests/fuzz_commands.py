"""Every command that reads a run folder, called in this process, and how its answer is judged."""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import io
import json
import os
import re
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orlomo
from fuzz_corpus import Files, remove, snapshot, write
from fuzz_damage import Damage
from orlomo.commands import main as cli
from orlomo.errors import OrlomoError
from small import command_parsers
from small_loops import model as loops_model

SIMULATED = ("finished", "unfinished", "shares", "old")
STRANGE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that no output has: those that control a terminal, and bytes that are no text."""

LAST_LINE = re.compile("orlomo: |(saved; )?more in .*log.txt")
"""How an error ends: with its line, or with where there is more."""

RUNS = (*SIMULATED, "loop", "processes")


NAMES = [
    "run",
    "my run's",
    "\x1b[31mred",
    "[red]a[/red]",
    "a\nb",
    "-o",
    os.fsdecode(b"\xff\xfe"),
    "<b>&amp;",
    "{a} %s $HOME",
]
"""Names of run folders."""

PARSER = functools.cache(cli.parser)
"""Made once: most of the time of a short command."""


@dataclass
class Answer:
    """What a command said: its exit code, what it shows as a value that can be compared, its lines on stderr, and all
    that it printed."""

    code: int
    shown: object
    notes: list[str] = field(default_factory=list)
    printed: str = ""


class Place:
    """Where a damaged run lies: beside bystanders, with a folder for what commands write."""

    def __init__(self, base: Path):
        self.base, self.run, self.outside, self.out = base, base / NAMES[0], base / "outside", base / "out"
        self.here, self.temporary = base / "here", base / "temporary"

    def set_up(self, files: Files, name: str) -> None:
        """An undamaged run in a folder of this name, with nothing else but the bystanders."""
        if name != self.run.name:
            remove(self.run)
        self.run = self.base / name
        write(self.run, files)
        bystander = {"file": b"kind,worker\n1,2\n", "folder/000000001.json": b"{}", "folder/1-a.json": b"{}"}
        write(self.outside, {**bystander, "folder/events.csv": b"x\n", "folder/.a.1.tmp": b"x", "folder/notes": b"x"})
        for folder in (self.out, self.here, self.temporary):
            remove(folder)
            folder.mkdir()

    def around(self) -> dict[str, object]:
        """All that a command must leave as it is."""
        folders = (self.outside, self.here, self.temporary)
        return {f"{one.name}/{name}": value for one in folders for name, value in snapshot(one).items()}


@contextlib.contextmanager
def _printing() -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """stdout and stderr as they are in a terminal: text that is no Unicode cannot be printed."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", write_through=True)
    errors = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        yield out, errors
    for one in caught:
        errors.write(f"orlomo: warning: {one.message}\n")


def _text(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode("utf-8", "surrogateescape")  # type: ignore[attr-defined, no-any-return]


def called(place: Place, *words: object) -> Answer:
    """`orlomo ...`, as if it was typed; `shown` is what it printed on stdout."""
    before, tempfile.tempdir = tempfile.tempdir, str(place.temporary)
    try:
        with contextlib.chdir(place.here), _printing() as (out, errors), patch.object(cli, "parser", PARSER):
            code = cli.main([*map(str, words)])
    finally:
        tempfile.tempdir = before
    return Answer(code, _text(out), _lines(errors), _text(out) + _text(errors))


def _lines(stream: io.TextIOWrapper) -> list[str]:
    return [line for line in _text(stream).split("\n") if line]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _report(place: Place) -> Answer:
    page = place.out / "page.html"
    answer = called(place, "report", place.run, "-o", page)
    return replace(answer, shown=(answer.shown, _without_notes(page) if page.exists() else ""))


def _without_notes(page: Path) -> str:
    """A page's text except for its notes, which are lines on stderr too."""
    before, begin, rest = page.read_text("utf-8").partition('"notes": ')
    _, length = json.JSONDecoder().raw_decode(rest) if begin else ([], 0)
    return _digest((before + rest[length:]).encode())


def _watch(place: Place) -> Answer:
    from orlomo.report.web.watch import Follower

    with _printing() as (_, errors):
        try:
            content = json.loads(Follower(place.run).read())
        except (OSError, OrlomoError) as error:
            return Answer(2, "", [f"orlomo: {error}"])
    return Answer(0, content, [*content.pop("notes"), *_lines(errors)])


def _export(kind: str, inside: bool = False) -> Callable[[Place], Answer]:
    def call(place: Place) -> Answer:
        out = place.run / kind if inside else place.out / "tables"
        more = () if inside else ("-o", out)
        answer = called(place, "export", place.run, "--format", kind, *more)
        read = _scalars if kind == "tensorboard" else Path.read_bytes
        files = {path.name: read(path) for path in sorted(out.rglob("*")) if path.is_file()} if answer.code == 0 else {}
        shown_files = list(files.values()) if kind == "tensorboard" else files
        return replace(answer, shown=(answer.shown, shown_files))

    return call


def _scalars(path: Path) -> list[object]:
    """What a file of TensorBoard's holds, except for the times at which it was written."""
    from tensorboard.compat.proto.event_pb2 import Event

    content, found = path.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        event = Event.FromString(content[12 : 12 + length])
        found.append((event.step, event.summary.SerializeToString()))
        content = content[16 + length :]
    return found


def _plain(*words: str) -> Callable[[Place], Answer]:
    def call(place: Place) -> Answer:
        return called(place, words[0], place.run, *words[1:])

    return call


def _resume(*more: str) -> Callable[[Place], Answer]:
    def call(place: Place) -> Answer:
        answer = called(place, "resume", place.run, "--jobs", "1", "--quiet", "--json", *more)
        shown = (_stable(str(answer.shown)), _results(place.run)) if answer.code == 0 else ""
        return replace(answer, shown=shown)

    return call


def _stable(text: str) -> object:
    """JSON without what differs each time."""
    found = json.loads(text)
    found.pop("real_seconds", None)
    for change in found["changes"]:
        change.pop("time")
    return found


def _results(folder: Path) -> dict[str, object]:
    """What a run came to, except for the real time it took."""
    rows = list(csv.DictReader(io.StringIO((folder / "metrics.csv").read_text("utf-8", "replace"))))
    metrics = [{key: value for key, value in row.items() if key != "real_seconds"} for row in rows]
    exact = ("events.csv", "model.safetensors", "best.safetensors")
    return {"metrics": metrics, **{name: _bytes(folder / name) for name in exact}}


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _train(place: Place) -> Answer:
    config, out = place.run / "config.toml", place.out / "run"
    return called(place, "train", config, "--out", out, "--jobs", "1", "--quiet", "--json")


def _compare(place: Place) -> Answer:
    words = ["--workers=2", "--epochs=0.02", "--methods=asgd", "--jobs=1", "--quiet"]
    answer = called(place, "compare", "quadratic", *words, "--out", place.run)
    return replace(answer, shown=(answer.shown, _results(place.run / "asgd-seed0")) if answer.code == 0 else "")


def _load(place: Place) -> Answer:
    """What Python shows: each part, or in its place an error that says so."""
    shown: dict[str, object] = {}
    notes: list[str] = []
    with _printing() as (_, errors):
        try:
            run = orlomo.load(place.run)
        except OrlomoError as error:
            return Answer(2, "", [f"orlomo: {error}"])
        for name, part in PARTS.items():
            try:
                shown[name] = part(run)
            except OrlomoError as error:
                notes.append(f"orlomo: {error}")
    return Answer(0, shown, [*notes, *_lines(errors)])


def _state(model: Any) -> object:
    return {name: value.tolist() for name, value in model.state_dict().items()}


PARTS: dict[str, Callable[[orlomo.Run], object]] = {
    "metrics": lambda run: run.metrics.to_csv(),
    "events": lambda run: run.events.to_csv(),
    "rounds": lambda run: run.rounds.to_csv(),
    "params": lambda run: run.params.tolist(),
    "state": lambda run: (run.state, run.finished, run.stopped, repr(run)),
    "changes": lambda run: repr(run.changes),
    "data": lambda run: run.worker_data,
    "model": lambda run: _state(run.model(loops_model() if run.config.is_loop else None)),
    "best": lambda run: None if run.best is None else (run.best.metrics, _state(run.best.model())),
}


@dataclass(frozen=True)
class Command:
    """How to call it, on which runs, how often, and what it may do."""

    call: Callable[[Place], Answer]
    runs: tuple[str, ...] = RUNS
    weight: float = 10.0
    reads_only: bool = True
    seconds: float = 20.0  # after which it hangs
    codes: tuple[int, ...] = (0, 2)
    compared: bool = True  # its answer is that of the undamaged run, or a line says why not
    tail: bool = False  # it does not show rows after the newest checkpoint
    finds: str = "(?!)"  # files of which every change is found, as a regular expression

    def judge(self, damage: Damage, clean: Answer, answer: Answer) -> list[str]:
        """What is wrong with an answer."""
        wrong = []
        new = [line for line in answer.notes if line not in clean.notes]
        if any("Traceback (most recent call last)" in line for line in answer.notes):
            wrong.append("a traceback")
        if answer.code not in self.codes:
            wrong.append(f"exit code {answer.code}")
        if answer.code == 2 and not LAST_LINE.match((answer.notes or [""])[-1]):
            wrong.append("an error that is not one line")
        known = damage.forged or not damage.seals or ((damage.after or damage.rolled_back) and not self.tail)
        if self.compared and answer.code == 0 and answer.shown != clean.shown and not new and not known:
            wrong.append("another answer, without a word")
        if answer.code == 0 and damage.sealed and re.search(self.finds, damage.path) and not new:
            wrong.append("the damage was not found")
        if strange := set(STRANGE.findall(answer.printed)):
            wrong.append(f"control characters in its output: {strange}")
        return wrong


COMMANDS = {
    "report": Command(_report),
    "watch": Command(_watch),
    "export csv": Command(_export("csv")),
    "export parquet": Command(_export("parquet")),
    "export tensorboard": Command(_export("tensorboard")),
    "export inside": Command(_export("csv", inside=True), weight=4, reads_only=False),
    "audit": Command(_plain("audit"), runs=("loop",), codes=(0, 1, 2)),
    "verify": Command(_plain("verify"), codes=(0, 1, 2), weight=20, finds=""),
    "workers": Command(_plain("workers"), weight=3),
    "load": Command(_load, weight=20),
    "resume": Command(_resume(), runs=SIMULATED, weight=20, reads_only=False, tail=True),
    "resume longer": Command(
        _resume("--epochs", "0.04"), runs=("finished", "old"), weight=4, reads_only=False, tail=True
    ),
    "replay": Command(
        _plain("replay", "--jobs", "1", "--quiet"),
        runs=(*SIMULATED, "processes"),
        codes=(0, 1, 2),
        finds="events|metrics.csv|config",
    ),
    "resume-real": Command(
        _resume(), runs=("processes",), weight=0, reads_only=False, compared=False, seconds=200.0
    ),  # it starts processes: only where it is asked for
    "train": Command(_train, runs=("finished",), weight=3, compared=False),
    "compare": Command(_compare, runs=("compared",), weight=0.3, reads_only=False),
    "report runs": Command(_report, runs=("compared",), weight=4),
}
COMMANDS = {name: one for name, one in COMMANDS.items() if name != "verify" or "verify" in command_parsers()}
