"""The page of `orlomo watch` in a real browser while the run, the command and the laptop come and go."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import orlomo
from browser import Browser, browser, served
from orlomo.report.web.watch import Follower, Watch, usual_port
from small import classification, settings, started

REPORTS = "return page.runs[0].facts.reports"
PILL = "return document.getElementById('live').textContent"
NOTES = "return document.getElementById('state').textContent"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def folder(runs: list[orlomo.Run], tmp_path: Path) -> Path:
    """A run with faults that has got as far as its 20th event."""
    shutil.copytree(runs[0].folder, tmp_path / "run")
    cut(runs[0], tmp_path / "run", 20)
    return tmp_path / "run"


def cut(run: orlomo.Run, folder: Path, events: int) -> None:
    lines = (run.folder / "events.csv").read_text().splitlines(keepends=True)
    (folder / "events.csv").write_text("".join(lines[: 1 + events]))


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`orlomo watch` as a user starts it, and its address."""
    with started("watch", folder) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[0]
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def test_a_change_is_shown_within_a_second(runs: list[orlomo.Run], folder: Path, window: Browser) -> None:
    took = [60.0]
    with served(folder) as server:
        window.open(server.address)
        while took[-1] > 1.0 and len(took) < 15:  # the machine may have other work
            events = 20 + 2 * len(took)
            wanted = runs[0].event_columns["kind"].tolist()[:events].count("report")
            cut(runs[0], folder, events)
            begin = time.monotonic()
            window.settle(lambda: window.run(REPORTS) == wanted)  # noqa: B023
            took.append(time.monotonic() - begin)
    assert took[-1] <= 1.0, took


def test_workers_come_and_go(runs: list[orlomo.Run], folder: Path, window: Browser) -> None:
    said = "return ['timeline', 'section-events'].map(id => document.getElementById(id).textContent).join()"
    kinds = runs[0].event_columns["kind"].tolist()
    cut(runs[0], folder, kinds.index("crash"))
    with served(folder) as server:
        window.open(server.address)
        assert "crashed" not in window.run(said)
        cut(runs[0], folder, len(kinds))
        window.settle(lambda: "1 crashed and came back" in window.run(said) and "worker 1 crashed" in window.run(said))
        assert window.complaints() == []


def test_a_restart_of_the_command_is_found_again(runs: list[orlomo.Run], folder: Path, window: Browser) -> None:
    with served(folder) as server:
        window.open(server.address)
        window.run("window.untouched = true")
    window.settle(lambda: "does not answer" in window.run(NOTES) and window.run(PILL) == "no connection")
    cut(runs[0], folder, 30)
    with served(folder) as again:
        assert again.address == server.address
        before = window.run(REPORTS)
        window.settle(lambda: window.run(REPORTS) > before)
        assert "does not answer" not in window.run(NOTES)
        assert window.run("return window.untouched")


def test_a_run_that_begins_again_in_its_folder_is_shown_from_its_beginning(folder: Path, window: Browser) -> None:
    with served(folder) as server:
        window.open(server.address)
        shutil.rmtree(folder)
        window.settle(lambda: "is not a run" in window.run(NOTES))
        orlomo.train(classification(), settings("prsgdm"), workers=3, epochs=2, jobs=1, out=folder)
        window.settle(lambda: window.run("return page.runs[0].method") == "prsgdm")
        window.settle(lambda: "is not a run" not in window.run(NOTES))
        assert window.run(PILL) == "finished"


def test_a_laptop_that_slept_goes_on(runs: list[orlomo.Run], folder: Path, window: Browser) -> None:
    with watching(folder) as (process, address):
        window.open(address)
        process.send_signal(signal.SIGSTOP)  # a request is under way that nobody answers
        window.settle(lambda: bool(window.run("return following.asking")))
        window.driver.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "frozen"})
        cut(runs[0], folder, 30)
        process.send_signal(signal.SIGCONT)
        window.driver.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "active"})
        window.settle(lambda: window.run(REPORTS) > 20)
        window.run("following.patience = 300")
        process.send_signal(signal.SIGSTOP)  # one that is never answered is given up
        window.settle(lambda: window.run(PILL) == "no connection")
        process.send_signal(signal.SIGCONT)
        window.settle(lambda: window.run(PILL) == "finished")


def test_the_usual_port_is_used_unless_it_is_taken(folder: Path) -> None:
    with Watch(Follower(folder)) as first, Watch(Follower(folder)) as second:
        assert first.server_port == usual_port(folder)
        assert second.server_port != first.server_port
        with pytest.raises(OSError, match="in use"):
            Watch(Follower(folder), first.server_port)
