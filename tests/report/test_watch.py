"""The server of `orlomo watch`: loopback, its own name only, two addresses, reads and never writes."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import orlomo
from browser import served
from orlomo.report.web.watch import Follower, Watch
from small import classification, settings, started, wait_for


@pytest.fixture
def run(tmp_path: Path) -> orlomo.Run:
    return orlomo.train(classification(), settings("orlomo"), workers=3, epochs=5, jobs=1, out=tmp_path / "run")


@pytest.fixture
def watch(run: orlomo.Run) -> Iterator[Watch]:
    with served(run.folder) as server:
        yield server


def ask(watch: Watch, path: str, host: str | None = None, verb: str = "GET") -> tuple[int, dict[str, str], bytes]:
    link = http.client.HTTPConnection("127.0.0.1", watch.server_port, timeout=60)
    link.request(verb, path, headers={} if host is None else {"Host": host})
    answer = link.getresponse()
    result = answer.status, dict(answer.getheaders()), answer.read()
    link.close()
    return result


def test_it_serves_the_page_and_the_data_on_loopback_only(watch: Watch, run: orlomo.Run) -> None:
    assert watch.server_address[0] == "127.0.0.1"
    status, headers, page = ask(watch, "/")
    assert status == 200
    assert b"plotly.js" in page
    assert len(page) < 2_100_000
    assert headers["X-Frame-Options"] == "DENY"
    assert b"connect-src 'self'" in page
    status, _, data = ask(watch, "/data", f"localhost:{watch.server_port}")
    assert status == 200
    [view] = json.loads(data)["runs"]
    assert view["facts"]["reports"] == (run.event_columns["kind"] == "report").sum()
    assert view["state"] == "finished"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
def test_other_names_are_refused(watch: Watch, host: str) -> None:
    status, _, content = ask(watch, "/data", host.format(port=watch.server_port))
    assert status == 403
    assert b"runs" not in content


@pytest.mark.parametrize("path", ["/config.toml", "/../run/config.toml", "/data/", "/data?x=1", "/%2e%2e/etc/passwd"])
def test_nothing_else_is_served(watch: Watch, path: str) -> None:
    assert ask(watch, path)[0] == 404


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(watch: Watch, verb: str) -> None:
    assert ask(watch, "/data", verb=verb)[0] == 501


def test_it_writes_nothing_and_follows(watch: Watch, run: orlomo.Run) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")}
    first = json.loads(ask(watch, "/data")[2])
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")} == before
    events = run.folder / "events.csv"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(lines[:-5]) + lines[-5][:7])  # as a reader sees it in the middle of a write
    second = json.loads(ask(watch, "/data")[2])
    assert second["runs"][0]["facts"]["reports"] == first["runs"][0]["facts"]["reports"] - 5


HOLD = """
import sys, time
from pathlib import Path
from orlomo.locks import lock
held = lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_whether_a_run_is_running_changes_without_its_files(watch: Watch, run: orlomo.Run) -> None:
    (run.folder / "model.safetensors").unlink()  # so that it is not finished

    def state() -> str:
        found: str = json.loads(ask(watch, "/data")[2])["runs"][0]["state"]
        return found

    assert state() == "stopped"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run.folder)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            wait_for(lambda: state() == "running", process)  # the page is not made again for every request
        finally:
            process.kill()
    assert state() == "stopped"


def test_a_folder_that_is_gone_is_said_and_a_closed_tab_is_not(
    watch: Watch, run: orlomo.Run, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", watch.server_port)) as link:
            name = f"127.0.0.1:{watch.server_port}"
            link.send(f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # away, with a reset
    shutil.rmtree(run.folder)
    status, _, content = ask(watch, "/data")
    assert status == 404
    assert content == f"{run.folder} is not a run: there is no such folder\n".encode()
    assert capfd.readouterr() == ("", "")


def test_a_large_run_is_not_read_all_the_time(run: orlomo.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    for clock in ("monotonic", "process_time"):
        monkeypatch.setattr(f"orlomo.report.web.watch.time.{clock}", lambda: now[0])
    monkeypatch.setattr("orlomo.report.web.watch.is_being_written", lambda folder: True)

    def slowly(runs: list[orlomo.Run], events: object) -> dict[str, object]:
        now[0] += 2.0
        return {"read": now[0]}

    monkeypatch.setattr("orlomo.report.web.watch.page_content", slowly)
    follower, read = Follower(run.folder), set()
    while now[0] < 220:
        (run.folder / "events.csv").touch()
        read.add(follower.read())
        now[0] += 1.0
    assert len(read) == 10


def test_the_command_tells_its_address_and_ends_by_ctrl_c(run: orlomo.Run) -> None:
    with started("watch", run.folder) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:")
        port = int(line.split(":")[2].split("/")[0])
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        link.request("GET", "/data")
        assert link.getresponse().status == 200
        link.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert errors == ""
