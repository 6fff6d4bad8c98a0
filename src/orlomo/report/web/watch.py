"""A page that follows a run folder, for a browser on this machine. It reads files and never writes one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections import defaultdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from orlomo.errors import OrlomoError
from orlomo.locks import is_being_written
from orlomo.records.digests import Comparison
from orlomo.records.run import Run
from orlomo.report.streaming.events import EventReader
from orlomo.report.web.page import page_content, page_of
from orlomo.report.workers.windows import rounds_between

LOOPBACK = "127.0.0.1"
HTTP_PORT = 80
PORTS = range(20_000, 32_000)
"""Among them is the usual port of each run: below those that systems give to outgoing connections."""

READING_SHARE = 0.1
"""Largest share of one processor's time that reading a growing run may take from the machine that trains it."""


class Follower:
    """The view of a run as it is now: what was added is read when its folder has changed, of a large one less often."""

    def __init__(self, folder: Path):
        self.folder = folder
        Run(folder)  # an error here is better than one in the browser
        self._events = EventReader(folder / "events.csv")
        self._compared: defaultdict[Path, Comparison] = defaultdict(Comparison)
        self._seen: object = None
        self._text = b""
        self._next = 0.0
        self._lock = threading.Lock()

    def read(self) -> bytes:
        """The run as the page draws it, as JSON."""
        with self._lock:  # each request has a thread: of several tabs, one reads and all get the text
            begin, worked = time.monotonic(), time.process_time()
            # Looked at before reading: what is written meanwhile is a change for the next request.
            now = is_being_written(self.folder), self._files()
            if now != self._seen and (begin >= self._next or not now[0]):
                run = Run(self.folder)
                run.seals.compare = lambda path, marks: self._compared[path].first_difference(path, marks)
                content = {**page_content([run], events=[self._events]), "follow": "data"}
                self._text, self._seen = json.dumps(content, allow_nan=False).encode(), now
                # Not the time it took: on a machine that trains, most of that was waiting for a processor.
                self._next = time.monotonic() + (time.process_time() - worked) / READING_SHARE
            return self._text

    def _files(self) -> object:
        """Sizes and times of the files: they change with every write."""
        names = ("config.toml", "events.csv", "metrics.csv", "model.safetensors", "checkpoints")
        found = [path.stat() for name in names if (path := self.folder / name).exists()]
        return [(stat.st_size, stat.st_mtime_ns) for stat in found]


class Watch(ThreadingHTTPServer):
    """Serves the page and the run's data on the loopback interface, and refuses requests for another host name.

    `port`: 0 is the run's usual one, so that an open page continues after a restart; a free one if that is taken.
    """

    daemon_threads = True

    def __init__(self, follower: Follower, port: int = 0):
        self.follower = follower
        self.page = page_of({"follow": "data"}, connect="'self'").encode()
        try:
            super().__init__((LOOPBACK, port or usual_port(follower.folder)), Handler)
        except OSError:
            if port:
                raise
            super().__init__((LOOPBACK, 0), Handler)
        self.names = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}
        if self.server_port == HTTP_PORT:  # browsers leave this port out
            self.names |= {LOOPBACK, "localhost"}

    @property
    def address(self) -> str:
        """The page's address."""
        return f"http://{LOOPBACK}:{self.server_port}/"


def usual_port(folder: Path) -> int:
    """The same for a folder every time."""
    return PORTS[int.from_bytes(hashlib.sha256(bytes(folder.resolve())).digest()[:4]) % len(PORTS)]


class Handler(BaseHTTPRequestHandler):
    """GET /, GET /data and GET /rounds?from=...&to=...&workers=..., and nothing else."""

    server: Watch
    server_version = "orlomo"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """The page, or the data."""
        if (
            self.headers.get("Host") not in self.server.names
        ):  # a site whose name was made to point here (DNS rebinding)
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"ask for 127.0.0.1 or localhost\n")
        elif self.path == "/":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)
        elif self.path == "/data":
            tag = ""
            try:
                status, kind, content = HTTPStatus.OK, "application/json", self.server.follower.read()
                tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
                if self.headers.get("If-None-Match") == tag:
                    status, content = HTTPStatus.NOT_MODIFIED, b""
            except (OSError, OrlomoError) as error:  # the folder is gone
                status, kind, content = HTTPStatus.NOT_FOUND, "text/plain", f"{error}\n".encode()
            except Exception as error:  # the page shows the message above what it has
                text = f"the run cannot be shown: {type(error).__name__}: {error}\n"
                status, kind, content = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", text.encode()
            self._send(status, kind, content, tag)
        elif self.path.startswith("/rounds?"):
            self._send_rounds()
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is only /, /data and /rounds\n")

    def _send_rounds(self) -> None:
        """The rounds of a stretch of time, or null where they are too many."""
        asked = parse_qs(urlsplit(self.path).query)
        status, kind = HTTPStatus.BAD_REQUEST, "text/plain"
        try:
            begin, end = (float(asked[name][0]) for name in ("from", "to"))
            workers = sorted({int(worker) for worker in asked["workers"][0].split(",")})
            if not begin < end or not 0 <= workers[0] <= workers[-1] < 2**63:
                raise ValueError("a stretch of no length, or no such worker")
            found = rounds_between(self.server.follower.folder / "events.csv", begin, end, workers)
            status, kind, content = HTTPStatus.OK, "application/json", json.dumps(found).encode()
        except (KeyError, ValueError) as error:
            content = f"ask for /rounds?from=SECONDS&to=SECONDS&workers=0,1,2 ({error})\n".encode()
        except OrlomoError as error:
            status, content = HTTPStatus.NOT_FOUND, f"{error}\n".encode()
        self._send(status, kind, content)

    def _send(self, status: HTTPStatus, kind: str, content: bytes, tag: str = "") -> None:
        self.send_response(status)
        if tag:
            self.send_header("ETag", tag)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        with contextlib.suppress(ConnectionError, TimeoutError):  # the tab was closed
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *details: object) -> None:
        """Log nothing: the terminal is the user's."""
