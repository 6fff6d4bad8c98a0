"""The server of `orlomo watch`: loopback, its own name only, two addresses, reads and never writes."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import orlomo
from orlomo.report.watch import Watch
from small import classification, settings


@pytest.fixture
def run(tmp_path: Path) -> orlomo.Run:
    return orlomo.train(classification(), settings("orlomo"), workers=3, epochs=5, jobs=1, out=tmp_path / "run")


@pytest.fixture
def watch(run: orlomo.Run) -> Iterator[Watch]:
    with Watch(run.folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(watch: Watch, path: str, host: str | None = None, verb: str = "GET") -> tuple[int, dict[str, str], bytes]:
    link = http.client.HTTPConnection("127.0.0.1", watch.server_port, timeout=10)
    link.request(verb, path, headers={} if host is None else {"Host": host})
    answer = link.getresponse()
    result = answer.status, dict(answer.getheaders()), answer.read()
    link.close()
    return result


def test_it_serves_the_page_and_the_data_on_loopback_only(watch: Watch) -> None:
    assert watch.server_address[0] == "127.0.0.1"
    status, headers, page = ask(watch, "/")
    assert status == 200
    assert b"plotly.js" in page
    assert len(page) < 2_000_000
    assert headers["X-Frame-Options"] == "DENY"
    assert b"connect-src 'self'" in page
    status, _, data = ask(watch, "/data", f"localhost:{watch.server_port}")
    assert status == 200
    [told] = json.loads(data)["runs"]
    assert told["facts"]["reports"] == len(told["delay"]["delay"])
    assert told["state"] == "finished"


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


def test_the_command_tells_its_address_and_ends_by_ctrl_c(run: orlomo.Run) -> None:
    command = [sys.executable, "-m", "orlomo.cli", "watch", str(run.folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("http://127.0.0.1:")
    port = int(line.split(":")[2].split("/")[0])
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    link.request("GET", "/data")
    assert link.getresponse().status == 200
    link.close()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors == ""
