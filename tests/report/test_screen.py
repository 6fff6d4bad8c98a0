"""What is shown at a terminal, and elsewhere, while runs are at work."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console, Group

import orlomo
from orlomo.config import RunConfig
from orlomo.report.story import story
from orlomo.report.summary import summarise
from orlomo.report.terminal import screen as module
from orlomo.report.terminal.layout import ASCII, Glyphs, wrapped
from orlomo.report.terminal.screen import ProgressDisplay, TerminalProgress
from orlomo.report.terminal.totals import Totals
from orlomo.report.terminal.workers import drawn_delays, drawn_workers
from orlomo.report.workers.timeline import uses
from small import classification, settings
from terminal import frames

STEPS = {"result", "run", "page", "replay", "orlomo", "report"}


def report(worker: int, start: float, finish: float, compute: float, delay: int = 0) -> dict[str, object]:
    times = {"start": start, "finish": finish, "compute": compute}
    return {"kind": "report", "worker": worker, "delay": delay, "samples": 16, **times}


def drawn(totals: Totals, width: int = 80, lines: int = 24) -> list[str]:
    return [line.plain for line in drawn_workers(totals, width, lines, Glyphs())]


def test_totals_know_how_workers_spent_their_time() -> None:
    totals = Totals()
    for row in (report(0, 0.0, 4.0, 3.0), report(0, 8.0, 12.0, 3.0, delay=5), report(1, 0.0, 1.0, 1.0, delay=1)):
        totals.event(row)
    totals.event({"kind": "crash", "worker": 1})
    assert totals.workers[0].shares == (6 / 12, 2 / 12, 4 / 12)
    head, first, second = drawn(totals, 80)
    assert head.split() == ["worker", "state", "rounds", "delay", "█", "computing", "▒", "transfer", "·", "waiting"]
    assert first.split() == ["0", "computing", "2", "5", "█" * 20 + "▒" * 7 + "·" * 14, "50%"]
    assert second.split() == ["1", "lost", "1", "1", "█" * 41, "100%"]
    narrow = drawn(totals, 40)
    assert [line.split() for line in narrow[1:]] == [
        ["0", "computing", "2", "5", "50%"],
        ["1", "lost", "1", "1", "100%"],
    ]
    assert {len(line) for line in narrow} == {39}


def test_a_worker_waits_until_the_others_have_reported_where_there_is_a_barrier() -> None:
    totals = Totals.begin(3, None, synchronous=True)
    for worker, states in (
        (1, ["computing", "waiting", "computing"]),
        (0, ["waiting", "waiting", "computing"]),
        (2, ["computing"] * 3),
        (2, ["computing", "computing", "waiting"]),
    ):
        totals.event(report(worker, 0.0, 1.0, 1.0))
        assert list(totals.states().values()) == states
    totals.event({"kind": "crash", "worker": 0})
    totals.event({"kind": "join", "worker": 3})
    assert totals.states() == {0: "lost", 1: "computing", 2: "waiting", 3: "waiting"}
    totals.event(report(1, 1.0, 2.0, 1.0))
    assert totals.states() == {0: "lost", 1: "computing", 2: "computing", 3: "computing"}


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("count", [1, 64])
def test_nothing_is_wider_than_the_screen(width: int, count: int) -> None:
    totals = Totals.begin(count, None)
    for number in range(10 * count):
        totals.event(report(number % count, number, number + 1.0, 1.0, delay=number * number))
    for shapes in (Glyphs(), ASCII):
        lines = drawn_workers(totals, width, 24, shapes) + drawn_delays(totals.delays, width, shapes)
        console = Console(width=width, file=io.StringIO())
        console.print(Group(*lines))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert len(text.splitlines()) == len(lines)
        assert shapes is not ASCII or text.isascii() or width < 39  # where it is cut off, there is an ellipsis


def test_the_histogram_of_delays_is_not_flattened_by_a_few_large_ones() -> None:
    delays = dict.fromkeys(range(50), 100) | {5000: 30, 9000: 1}
    [line] = drawn_delays(delays, 100, Glyphs())
    assert line.plain == f"delay  0 {'█' * 25} 49  31 above 49, the largest 9,000"
    assert drawn_delays({0: 100}, 80, Glyphs()) == []  # of a synchronous run


def test_screen_and_page_tell_the_same_shares(tmp_path: Path) -> None:
    more = {"workers": 2, "epochs": 10, "engine": "processes", "out": tmp_path / "run"}
    columns = orlomo.train(classification(), settings("orlomo"), **more).event_columns
    for one, use in zip(Totals.begin(2, columns).workers.values(), uses(columns, 2), strict=True):
        total = one.computing + one.waiting + one.transfer
        assert one.computing / total == pytest.approx(use.computing, abs=1e-9)
        assert one.transfer / total == pytest.approx(use.transfer, abs=1e-9)


def test_a_resumed_run_shows_what_it_has_kept(tmp_path: Path) -> None:
    run = orlomo.train("quadratic", "orlomo", workers=3, epochs=1, jobs=1, out=tmp_path / "run")
    totals = Totals.begin(5, run.event_columns)
    rounds = [one.rounds for one in totals.workers.values()]
    assert rounds == [*np.bincount(run.event_columns["worker"]).tolist(), 0, 0]
    assert sum(totals.delays.values()) == len(run.event_columns["delay"])
    assert len(drawn(Totals.begin(4, None, starting=True))) == 5  # a line before there is a report


def test_of_many_workers_worst_median_and_best_are_shown() -> None:
    totals = Totals()
    for worker in range(64):
        rounds, seconds = (2, 5.0) if worker == 9 else (10, 1.0)
        for number in range(rounds):
            totals.event(report(worker, number * seconds, (number + 1) * seconds, seconds, delay=worker))
    totals.event({"kind": "crash", "worker": 7})
    shown = drawn(totals)
    assert shown[0] == "64 workers: 63 computing, 1 lost"
    cells = [line.split() for line in shown[3:6]]
    assert [row[:4] for row in cells] == [
        ["worst", "2", "63", "100%"],
        ["median", "10", "32", "100%"],
        ["best", "10", "0", "100%"],
    ]
    assert shown[6:8] == ["lost: worker 7", "slow: worker 9 (5.0x); in brackets the time of a round against the median"]
    assert shown[-1] == "█" * 7 + "x█▂" + "█" * 54


def test_a_line_every_few_seconds_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    config = RunConfig(method=orlomo.method("orlomo"), cluster=orlomo.cluster("homogeneous"), workers=1)
    handle = orlomo.RunHandle(Path("run"), config, workers=1, total=100)
    row = {**report(0, 0.0, 1.0, 1.0), "loss": 0.5}
    with TerminalProgress() as progress:
        progress.started(handle)
        for done in range(1, 101):
            now[0] += 0.2
            progress.event({**row, "samples": 16 * done, "reports": done})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0] == "orlomo on digits: 26%, 26 of 100 reports, 15 s left, loss 0.5, 1 virtual s, 80 samples/s"
    with TerminalProgress(quiet=True) as progress:
        progress.started(handle)
        now[0] += 100
        progress.event({**row, "reports": 1})
        now[0] += 100
        progress.event({**row, "reports": 2})
    assert capsys.readouterr().err == ""


def test_lines_of_several_runs_at_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    row = {**report(0, 0.0, 1.0, 1.0), "loss": 0.5}
    with ProgressDisplay() as display:
        display.begin(3, 1, 2 * 50)
        fresh, resumed = display.add("fresh", 50), display.add("resumed", 50)
        fresh.begin(2, 100, None)
        resumed.begin(2, 100, {})
        for done in range(1, 51):  # the time for what was done before is not counted
            now[0] += 0.2
            fresh.event({**row, "samples": 16 * done, "reports": done})
            resumed.event({**row, "samples": 800 + 16 * done, "reports": 50 + done})
        resumed.evaluation("test accuracy 97.00%")
        resumed.finish(announce=True)
        fresh.finish(announce=True)
    first, line, second, last = capsys.readouterr().err.splitlines()
    assert first == "3 runs: 1 done, 2 to do"
    assert line == "1 of 3 runs done, 10 s left, 157 samples/s; fresh: 26%, loss 0.5, 1 virtual s"
    assert second == "[2/3] resumed: test accuracy 97.00%, 5 s left"
    assert last == "[3/3] fresh"
    with ProgressDisplay(quiet=True) as display:
        display.begin(1, 0, 50)
        fresh = display.add("fresh", 50)
        fresh.begin(2, 100, None)
        now[0] += 100
        fresh.event({**row, "reports": 1})
        fresh.finish(announce=True)
    assert capsys.readouterr().err == ""


def test_lines_become_rarer_in_a_long_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with ProgressDisplay() as display:
        run = display.add("long")
        run.begin(1, 36_001, None)
        for done in range(1, 36_001):  # ten hours
            now[0] += 1.0
            run.event({**report(0, 0.0, 1.0, 1.0), "loss": 0.5, "reports": done})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("long: 0%, 6 of 36,001 reports, 10 h 0 min left")
    assert 550 < len(lines) < 700


@pytest.mark.parametrize(("engine", "method", "columns"), [("simulated", "orlomo", 80), ("processes", "prsgdm", 40)])
def test_the_screen_of_a_real_terminal(engine: str, method: str, columns: int, tmp_path: Path) -> None:
    # On processes one worker is slow, so that the others wait for it in nearly every picture.
    pace = ("--pace", "1,1,10") if engine == "processes" else ()
    words = ("train", "digits", "--workers", 3, "--local-steps", 8, "--epochs", 20, "--engine", engine, *pace)
    found = frames(*words, "--method", method, "--out", "run", folder=tmp_path, columns=columns, lines=24)
    assert max(len(line) for frame in found for line in frame.splitlines()) <= columns
    *_, folder, page, replay = found[-1].splitlines()
    assert (folder, page, replay) == ("run     run", "page    orlomo report run", "replay  orlomo replay run")
    run = orlomo.load(tmp_path / "run")
    assert "\nresult  test accuracy " in found[-1]
    told = {word for text in (*story([run]), *summarise(run).results) for word in text.split()}
    assert {word.rstrip(",") for word in found[-1].split()} <= {word.rstrip(",") for word in told} | STEPS
    during = [frame for frame in found if "computing" in frame and "loss" in frame]
    assert all(len(frame.splitlines()) < 24 for frame in during)
    text = "\n".join(during)
    assert re.search(r"^[1-9][\d,]* of [\d,]+ reports  .*samples/s\nloss [0-9.e-]+", text, re.MULTILINE)
    assert re.search(r"accuracy [0-9.]+%", text)
    assert re.search(r"[\d,]+ samples/s", text)
    if columns == 80:
        assert re.search(r"^orlomo on digits  ━+─+ +\d+%  \d+ s left$", text, re.MULTILINE)
        assert re.search(r"^ +2  computing +\d+ +\d+  █+ +\d+%$", text, re.MULTILINE)
        assert re.search(r"^delay  0 .*[▁▂▃▄▅▆▇█]", text, re.MULTILINE)
    else:
        assert re.search(r"^prsgdm on digits  \d+%  \d+ s left\n━+─+$", text, re.MULTILINE)
        assert re.search(r"^ +\d waiting +\d+ +0 +\d+%$", text, re.MULTILINE)
        assert "starting" in "\n".join(found)


def test_the_log_of_a_build_is_no_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ProgressDisplay() as display:
        display.begin(2, 0, 2.0)
        run = display.add("one")
        run.begin(1, 10, None)
        for done in range(1, 11):
            run.event({**report(0, 0.0, 1.0, 1.0), "loss": 0.5, "reports": done})
        run.finish(announce=True)
    assert re.sub(r"\x1b\[\d*m", "", capsys.readouterr().err).splitlines()[0] == "2 runs: 0 done, 2 to do"
    assert display._live is None


PRINTS = """
import os, subprocess
from orlomo.report.terminal.screen import ProgressDisplay, warn

row = {"kind": "report", "worker": 0, "delay": 1, "start": 0.0, "finish": 1.0, "compute": 1.0, "loss": 0.5}
for name in ("first", "second"):  # one pipe serves both
    with ProgressDisplay() as display:
        run = display.add(name)
        run.begin(1, 100, None)
        for done in range(1, 51):
            run.event({**row, "reports": done, "samples": done})
        display._live.refresh()
        print(f"{name}: printed by Python")
        os.write(1, f"{name}: written to the descriptor\\n".encode())
        child = f"echo {name}: by a child; echo {name}: to its errors >&2; printf '{name}: 1%%\\\\r{name}: a bar\\n'"
        subprocess.run(["sh", "-c", child], check=True)
        warn(f"{name}: " + 12 * "words ")
        print(f"{name}: no end", end="", flush=True)
    print(f"{name}: after")
"""


def test_what_is_printed_appears_above_the_screen(tmp_path: Path) -> None:
    found = frames(folder=tmp_path, columns=60, lines=24, program=PRINTS)
    said = ("printed by Python", "written to the descriptor", "by a child", "to its errors", "a bar")
    expected = [
        line
        for name in ("first", "second")
        for line in (
            *(f"{name}: {text}" for text in said),
            *wrapped(f"orlomo: warning: {name}: {12 * 'words '}", 60),
            f"{name}: no end",
            f"{name}: after",
        )
    ]
    assert found[-1].splitlines() == expected  # and nothing of the screen is left
    assert any("first: a bar" in frame and "50 of 100 reports" in frame for frame in found)
