"""A page that follows a run folder, for a browser on this machine. It reads files and never writes one."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from orlomo.records.run import Run
from orlomo.report.page import page_of, told_of

LOOPBACK = "127.0.0.1"


class Follower:
    """What there is to see of a run now; read anew only when its files have changed."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._run = Run(folder)
        self._seen: object = None
        self._text = b""
        self._lock = threading.Lock()

    def read(self) -> bytes:
        """The run as the page draws it, as JSON."""
        with self._lock:
            now = self._state()
            if now != self._seen:
                self._run = Run(self.folder)
                told = {**told_of([self._run]), "follow": "data"}
                self._text, self._seen = json.dumps(told, allow_nan=False).encode(), now
            return self._text

    def _state(self) -> object:
        names = ("config.toml", "events.csv", "metrics.csv", "model.safetensors")
        found = [path.stat() for name in names if (path := self.folder / name).exists()]
        return [(stat.st_size, stat.st_mtime_ns) for stat in found]


class Watch(ThreadingHTTPServer):
    """Serves the page and the run's data on the loopback interface, to nobody who came by another name."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0):
        self.follower = Follower(folder)
        self.page = page_of({"follow": "data"}, connect="'self'").encode()
        super().__init__((LOOPBACK, port), Handler)
        self.names = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}

    @property
    def address(self) -> str:
        """For the browser."""
        return f"http://{LOOPBACK}:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    """GET / and GET /data, and nothing else."""

    server: Watch
    server_version = "orlomo"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """The page, or the data."""
        if self.headers.get("Host") not in self.server.names:  # another site's name that points here
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"ask for 127.0.0.1 or localhost\n")
        elif self.path == "/":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)
        elif self.path == "/data":
            try:
                self._send(HTTPStatus.OK, "application/json", self.server.follower.read())
            except OSError as error:  # the folder is gone
                self._send(HTTPStatus.NOT_FOUND, "text/plain", f"{error}\n".encode())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is only / and /data\n")

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *details: Any) -> None:
        """Calm."""
