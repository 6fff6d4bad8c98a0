"""A command at a real terminal, for the tests of what it shows there."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path


def shown_at_a_terminal(*words: object, folder: Path, seconds: float = 240.0) -> str:
    """All that `orlomo ...` writes to its standard error there, without colours and movements; it must succeed."""
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "orlomo", *map(str, words)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "110", "LINES": "30"}
    process = subprocess.Popen(command, cwd=folder, stderr=secondary, stdout=subprocess.DEVNULL, env=environment)
    os.close(secondary)
    seen, until = b"", time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            if select.select([primary], [], [], 0.2)[0]:
                try:
                    seen += os.read(primary, 65536)
                except OSError:  # the other end is closed
                    break
        assert process.wait(10) == 0, seen.decode()
    finally:
        process.kill()
        os.close(primary)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())


@contextlib.contextmanager
def at_a_terminal(typed: str) -> Iterator[list[str]]:
    """Within, standard input and error of this process are a terminal at which this was typed; what is shown there
    is in the list afterwards."""
    primary, secondary = pty.openpty()
    os.write(primary, typed.encode())
    content: list[bytes] = []
    shown: list[str] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while True:
                content.append(os.read(primary, 65536))

    reader = threading.Thread(target=read)
    reader.start()
    before = sys.stdin, sys.stderr
    with open(secondary) as sys.stdin, open(os.dup(secondary), "w") as sys.stderr:
        try:
            yield shown
        finally:
            sys.stdin, sys.stderr = before
    reader.join()
    os.close(primary)
    shown.append(b"".join(content).decode())
