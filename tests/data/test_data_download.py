"""Downloads against a real server: cut, resumed, changed, wrong."""

from __future__ import annotations

import hashlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import FileServer, serving

from orlomo.data.download import DownloadFailed, download
from orlomo.data.progress import DataProgress
from orlomo.data.spec import Remote
from orlomo.errors import ConfigError

CONTENT = random.Random(1).randbytes(300_000)
QUIET = DataProgress(quiet=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(CONTENT) as server:
        yield server


def remote(server: FileServer, content: bytes = CONTENT) -> Remote:
    return Remote(f"{server.url}/files/dots.tar.gz", hashlib.md5(content).hexdigest())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupted(server: FileServer, folder: Path) -> None:
    """Leave the first 100,000 bytes in the folder."""
    server.cut_after = [100_000, 0]
    with pytest.raises(DownloadFailed) as caught:
        download(remote(server), folder, QUIET)
    assert str(caught.value) == (
        f"the download of {server.url}/files/dots.tar.gz stopped at 100000 of 300000 bytes: "
        "the connection was closed; the same command continues from there"
    )
    assert names(folder) == ["dots.tar.gz.part", "dots.tar.gz.part.json"]
    server.requests.clear()


def test_a_whole_file_comes_once(server: FileServer, tmp_path: Path) -> None:
    for _ in range(2):
        assert download(remote(server), tmp_path, QUIET).read_bytes() == CONTENT
    assert names(tmp_path) == ["dots.tar.gz"]
    assert len(server.requests) == 1


def test_cuts_are_mended_in_one_call_as_long_as_bytes_come(server: FileServer, tmp_path: Path) -> None:
    server.cut_after = [50_000, 50_000, 1]
    assert download(remote(server), tmp_path, QUIET).read_bytes() == CONTENT
    assert [request.get("range") for request in server.requests] == [
        None,
        "bytes=50000-",
        "bytes=100000-",
        "bytes=100001-",
    ]


def test_a_later_call_goes_on_from_there(server: FileServer, tmp_path: Path) -> None:
    interrupted(server, tmp_path)
    assert download(remote(server), tmp_path, QUIET).read_bytes() == CONTENT
    assert [(request["range"], request["if-range"]) for request in server.requests] == [("bytes=100000-", '"one"')]
    assert names(tmp_path) == ["dots.tar.gz"]


def test_a_server_without_ranges_starts_over(server: FileServer, tmp_path: Path) -> None:
    interrupted(server, tmp_path)
    server.ranges = False
    assert download(remote(server), tmp_path, QUIET).read_bytes() == CONTENT


@pytest.mark.parametrize("careful", [True, False])
def test_a_changed_file_is_not_glued_to_the_old(server: FileServer, tmp_path: Path, careful: bool) -> None:
    interrupted(server, tmp_path)
    server.content = CONTENT[::-1]
    server.etag = '"two"'
    server.trust_if_range = careful
    assert download(remote(server, CONTENT[::-1]), tmp_path, QUIET).read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("etag", ['W/"weak"', None])
def test_without_a_version_to_go_by_it_starts_over(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, etag: str | None
) -> None:
    server.etag = etag
    server.cut_after = [100_000]
    with monkeypatch.context() as patched:
        patched.setattr("orlomo.data.download.MAX_ATTEMPTS", 1)
        with pytest.raises(
            DownloadFailed, match=r"stopped at 100000 of 300000 bytes: .*; the same command starts over"
        ):
            download(remote(server), tmp_path, QUIET)
    assert download(remote(server), tmp_path, QUIET).read_bytes() == CONTENT
    assert "range" not in server.requests[-1]


def test_a_part_longer_than_the_file_starts_over(server: FileServer, tmp_path: Path) -> None:
    interrupted(server, tmp_path)
    server.content = CONTENT[:50_000]
    assert download(remote(server, CONTENT[:50_000]), tmp_path, QUIET).read_bytes() == CONTENT[:50_000]
    assert [request.get("range") for request in server.requests] == ["bytes=100000-", None]


def test_a_whole_part_needs_no_server(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "dots.tar.gz.part").write_bytes(CONTENT)
    assert download(remote(server), tmp_path, QUIET).read_bytes() == CONTENT
    assert server.requests == []


def test_a_wrong_checksum_is_told_and_nothing_stays(server: FileServer, tmp_path: Path) -> None:
    wanted = remote(server)
    server.content = b"<html>Please log in</html>"
    found = hashlib.md5(server.content).hexdigest()
    with pytest.raises(ConfigError) as caught:
        download(wanted, tmp_path, QUIET)
    assert str(caught.value) == (
        f"{wanted.url} is damaged or not the official file: md5 {wanted.md5} expected, {found} found"
    )
    assert names(tmp_path) == []


def test_an_answer_of_unknown_length(server: FileServer, tmp_path: Path) -> None:
    server.length = False
    assert download(remote(server), tmp_path, QUIET).read_bytes() == CONTENT


def test_a_file_without_end_is_refused(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orlomo.data.download.MAX_BYTES", 1000)
    with pytest.raises(ConfigError, match="is refused: it is longer than 1000 bytes"):
        download(remote(server), tmp_path, QUIET)
    assert names(tmp_path) == []


def test_a_silent_server_is_given_up(server: FileServer, tmp_path: Path) -> None:
    server.cut_after = [100, 0]
    server.stall.clear()
    with pytest.raises(
        DownloadFailed, match=r"stopped at 100 of 300000 bytes: (timed out|The read operation timed out)"
    ):
        download(remote(server), tmp_path, QUIET, timeout_seconds=0.3)


def test_refusals_are_one_line(server: FileServer, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DownloadFailed, match=r"dots\.tar\.gz cannot be had: HTTP 404 Not Found$"):
        download(remote(server), tmp_path, QUIET)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = Remote(f"http://127.0.0.1:{free.getsockname()[1]}/dots.tar.gz", "0")
        with pytest.raises(DownloadFailed, match=r"dots\.tar\.gz cannot be reached: Connection refused$"):
            download(closed, tmp_path, QUIET)
    assert names(tmp_path) == []
