"""Commands in namespaces of their own: nothing they start is reachable from outside, or outlives them."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

UNSHARE = [
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--pid",
    "--mount",
    "--fork",
    "--kill-child",
    "--mount-proc",
]


@functools.cache
def reason_against() -> str:
    """Why there can be none here, or nothing."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "unshare (util-linux) and ip (iproute2) are not installed"
    tried = subprocess.run([*UNSHARE, "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


def run_isolated(*arguments: object, seconds: float = 880, **environment: str) -> str:
    """Run Python with these arguments in network, process and mount namespaces of its own; what it prints.

    The test is skipped where the machine does not allow that.
    """
    if reason := reason_against():
        pytest.skip(reason)
    words = " ".join(map(str, [sys.executable, *arguments]))
    folder = tempfile.mkdtemp(prefix="r-")  # the paths of Ray's sockets must be short
    (Path(folder) / "ray").mkdir()
    outside = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    settings: dict[str, Any] = {
        **outside,
        "RAY_SCENARIO_TEMP": folder,
        "RAY_TMPDIR": folder,
        "TMPDIR": folder,
        "RAY_worker_niceness": "0",  # else workers starve beside other tests
        **environment,
    }
    try:
        done = subprocess.run(
            [*UNSHARE, "sh", "-c", f"ip link set lo up && exec {words}"],
            capture_output=True,
            text=True,
            env=settings,
            timeout=seconds,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[-6000:]
    return done.stdout
