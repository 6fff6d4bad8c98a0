"""What is shown at a terminal, and elsewhere, while runs are at work."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import orlomo
from orlomo.config import RunConfig
from orlomo.report.terminal import screen as module
from orlomo.report.terminal.screen import ProgressDisplay, TerminalProgress
from orlomo.report.terminal.totals import Totals
from orlomo.report.timeline import bars, uses
from small import classification, settings
from terminal import shown_at_a_terminal


def report(worker: int, start: float, finish: float, compute: float, delay: int = 0) -> dict[str, object]:
    times = {"start": start, "finish": finish, "compute": compute}
    return {"kind": "report", "worker": worker, "delay": delay, "samples": 16, **times}


def text_of(drawn: object, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(drawn)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_totals_know_how_workers_spent_their_time() -> None:
    totals = Totals()
    for row in (report(0, 0.0, 4.0, 3.0), report(0, 8.0, 12.0, 3.0, delay=5), report(1, 0.0, 1.0, 1.0, delay=1)):
        totals.event(row)
    totals.event({"kind": "crash", "worker": 1})
    lines = [line.split() for line in text_of(totals.table(20)).splitlines()]
    assert lines[1:] == [
        ["0", "at", "work", "2", "5", "50%", "33%", "17%"],
        ["1", "lost", "1", "1", "100%", "0%", "0%"],
    ]
    assert text_of(totals.histogram()).split() == ["delays", "0", "██", "█", "5"]


def test_screen_and_page_tell_the_same_shares(tmp_path: Path) -> None:
    more = {"workers": 2, "epochs": 10, "engine": "processes", "out": tmp_path / "run"}
    columns = orlomo.train(classification(), settings("orlomo"), **more).event_columns
    for one, use in zip(Totals.begin(2, columns).workers.values(), uses(columns, bars(columns), 2), strict=True):
        total = one.computing + one.waiting + one.transfer
        assert one.computing / total == pytest.approx(use.computing, abs=1e-3)
        assert one.transfer / total == pytest.approx(use.transfer, abs=1e-3)


def test_a_resumed_run_shows_what_it_has_kept(tmp_path: Path) -> None:
    run = orlomo.train("quadratic", "orlomo", workers=3, epochs=1, jobs=1, out=tmp_path / "run")
    totals = Totals.begin(5, run.event_columns)
    rounds = [one.rounds for one in totals.workers.values()]
    assert rounds == [*np.bincount(run.event_columns["worker"]).tolist(), 0, 0]
    assert sum(totals.delays.values()) == len(run.event_columns["delay"])
    assert len(text_of(Totals.begin(4, None).table(20)).splitlines()) == 5  # a line before there is a report


def test_of_many_workers_those_that_matter_are_shown() -> None:
    totals = Totals()
    for worker in range(1000):
        totals.event(report(worker, 0.0, 1.0, 1.0, delay=worker))
    totals.event({"kind": "crash", "worker": 7})
    shown = text_of(totals.table(6)).splitlines()
    assert len(shown) == 7
    assert shown[1].split()[:2] == ["7", "lost"]
    assert shown[-1].split() == ["...", "and", "995", "more"]


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
    assert lines[0] == "training: 26%, 26 of 100 reports, 15 s left, loss 0.5, 80 samples/s"
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
    assert line == "1 of 3 done, 10 s left, 157 samples/s; fresh: 26%, 26 of 100 reports, loss 0.5"
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


@pytest.mark.parametrize("engine", ["simulated", "processes"])
def test_the_screen_of_a_real_terminal(engine: str, tmp_path: Path) -> None:
    words = ("train", "digits", "--workers", 3, "--local-steps", 8, "--epochs", 40, "--engine", engine, "--out", "run")
    text = shown_at_a_terminal(*words, folder=tmp_path)
    assert re.search(r"training .*%.*left.*loss [0-9.e-]+.*accuracy [0-9.]+%.*samples/s", text)
    assert re.search(r"worker +rounds +last delay +computing +waiting +transfer", text)
    assert re.search(r"\b2 +at work +\d+ +\d+ +\d+%", text)
    assert re.search(r"delays +0 .*[▁▂▃▄▅▆▇█]", text)
