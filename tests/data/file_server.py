"""A real HTTP server on the loopback address that can cut connections, ignore ranges, and change its file."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer:
    """Serves `content` at any address; the fields may be changed at any time."""

    def __init__(self, content: bytes):
        self.content = content
        self.files: dict[str, bytes] = {}
        """Contents of their own by name."""
        self.etag: str | None = '"one"'
        self.cut_after: list[int] = []
        """For each of the coming answers, how many bytes are sent before the connection is closed."""
        self.ranges = True
        self.trust_if_range = True
        """False: answer with the rest even if the file has changed, as a careless server would."""
        self.length = True
        self.status = 200
        self.stall = threading.Event()
        self.stall.set()
        self.requests: list[dict[str, str]] = []
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append(headers)
        content = self.files.get(handler.path.rpartition("/")[2], self.content)
        if self.status != 200:
            handler.send_error(self.status)
            return
        span = re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))
        fresh = headers.get("if-range") == self.etag or not self.trust_if_range
        start = int(span[1]) if span and self.ranges and fresh else 0
        if start >= len(content) > 0:
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.etag:
            handler.send_header("ETag", self.etag)
        if self.length:
            handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        end = start + self.cut_after.pop(0) if self.cut_after else len(content)
        handler.wfile.write(content[start:end])
        handler.wfile.flush()
        self.stall.wait(20)


@contextmanager
def serving(content: bytes) -> Iterator[FileServer]:
    server = FileServer(content)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.stall.set()
        listener.shutdown()
        listener.server_close()
        thread.join()
