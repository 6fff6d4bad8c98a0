"""Downloads that continue where they were cut off.

What has come so far is `NAME.part`; beside it, `NAME.part.json` says which version of the file it is the beginning of
(ETag or Last-Modified). The rest is asked for on the condition that it is still that version (If-Range).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orlomo.data.progress import DataProgress
from orlomo.data.spec import Remote, wrong_checksum
from orlomo.errors import ConfigError, RunFolderError
from orlomo.files import write_text_atomically
from orlomo.reading import read_json

TIMEOUT_SECONDS = 30.0
"""The longest time to wait for a server's next bytes."""
MAX_ATTEMPTS = 10
MAX_BYTES = 2**30
BLOCK_BYTES = 2**16


class DownloadFailed(ConfigError):
    """The server or the network failed; what was received is kept."""


class _Cut(Exception):
    """The connection failed or ended early."""


def download(remote: Remote, folder: Path, progress: DataProgress, timeout_seconds: float = TIMEOUT_SECONDS) -> Path:
    """Fetch a file into a folder, continue what an earlier call left there, and check it."""
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / remote.name
    if final.exists() and _md5(final) == remote.md5:
        return final
    transfer = _Transfer(remote, folder, progress, timeout_seconds)
    # A process may have been killed between the last byte and the renaming.
    if not (transfer.part.exists() and _md5(transfer.part) == remote.md5):
        transfer.run()
        found = _md5(transfer.part)
        if found != remote.md5:
            # Kept, it would be continued, and be wrong again.
            transfer.discard()
            raise wrong_checksum(remote.url, "md5", remote.md5, found)
    transfer.part.replace(final)
    transfer.note.unlink(missing_ok=True)
    return final


class _Transfer:
    def __init__(self, remote: Remote, folder: Path, progress: DataProgress, timeout_seconds: float):
        self.remote = remote
        self.part = folder / f"{remote.name}.part"
        self.note = folder / f"{remote.name}.part.json"
        self._progress = progress
        self._timeout = timeout_seconds
        self._total: int | None = None

    def run(self) -> None:
        """Ask until all has come; give up when an attempt brings nothing new."""
        furthest = self._length()
        for attempt in range(MAX_ATTEMPTS):
            try:
                if self._attempt():
                    return
            except _Cut as cut:
                length = self._length()
                if length <= furthest or attempt == MAX_ATTEMPTS - 1:
                    raise self._failed(str(cut), length) from None
                furthest = length
                # Something new came, so another attempt is worthwhile.
                time.sleep(min(2.0, 0.1 * 2**attempt))
        raise self._failed("the file on the server keeps changing", self._length())

    def discard(self) -> None:
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def _attempt(self) -> bool:
        """One request; False if it must be made again from the start."""
        have, version = self._length(), self._version()
        # Without a version the rest might be of another file.
        if have and version is None:
            self.discard()
            have = 0
        # identity: compressed on the way, a byte range would mean something else.
        headers = {"User-Agent": "orlomo", "Accept-Encoding": "identity"}
        if have and version is not None:
            headers |= {"Range": f"bytes={have}-", "If-Range": version}
        with _network():
            try:
                response = urllib.request.urlopen(
                    urllib.request.Request(self.remote.url, headers=headers), timeout=self._timeout
                )
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 416 and have:  # it is shorter now than what we have
                    self.discard()
                    return False
                raise DownloadFailed(f"{self.remote.url} cannot be had: HTTP {error.code} {error.reason}") from None
        with response:
            # 206: the rest. 200: the server ignores ranges or has another version now, and sends all of it.
            if response.status == 206:
                if not _continues(response.headers, have, version):
                    self.discard()
                    return False
            else:
                have = 0
                self.discard()
                self._keep_version(response.headers)
            self._receive(response, have)
        return True

    def _receive(self, response: http.client.HTTPResponse, have: int) -> None:
        rest = response.headers.get("Content-Length", "")
        self._total = have + int(rest) if rest.isdecimal() else None
        with (
            self.part.open("ab") as file,
            self._progress.bytes(f"downloading {self.remote.name}", self._total, have) as advance,
        ):
            while True:
                with _network():
                    # read1 returns what has come; read would wait for a full block and lose it at a cut.
                    block = response.read1(BLOCK_BYTES)
                if not block:
                    break
                file.write(block)
                have += len(block)
                advance(len(block))
                if have > MAX_BYTES:
                    self.discard()
                    raise ConfigError(f"{self.remote.url} is refused: it is longer than {MAX_BYTES} bytes")
        if self._total is not None and have < self._total:
            raise _Cut("the connection was closed")

    def _length(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _version(self) -> str | None:
        """What If-Range takes for the file that we have the beginning of."""
        try:
            note = read_json(self.note)
            return str(note["version"]) if note["url"] == self.remote.url and note["version"] else None
        except (RunFolderError, KeyError, TypeError):
            return None

    def _keep_version(self, headers: http.client.HTTPMessage) -> None:
        etag = headers.get("ETag", "")
        strong = etag if etag.startswith('"') else None  # a weak one may not be used with If-Range
        text = json.dumps({"url": self.remote.url, "version": strong or headers.get("Last-Modified")})
        write_text_atomically(self.note, text)

    def _failed(self, reason: str, length: int) -> DownloadFailed:
        if not length:
            return DownloadFailed(f"{self.remote.url} cannot be reached: {reason}")
        total = f" of {self._total}" if self._total else ""
        then = "continues from there" if self._version() else "starts over"
        return DownloadFailed(
            f"the download of {self.remote.url} stopped at {length}{total} bytes: {reason}; the same command {then}"
        )


def _continues(headers: http.client.HTTPMessage, have: int, version: str | None) -> bool:
    """Whether a partial answer is the rest of what we have."""
    span = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", headers.get("Content-Range", ""))
    etag = headers.get("ETag", "")
    changed = bool(version and version.startswith('"') and etag and etag != version)
    return bool(have) and span is not None and int(span[1]) == have and not changed


@contextmanager
def _network() -> Iterator[None]:
    """Errors of the network, apart from those of the disk."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise _Cut(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__) from None


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
