"""The private cluster of a run that names none. Run by test_ray.py in namespaces of its own:

python ray_private.py FOLDER
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray

import orlomo
import sleepy
from orlomo.engines.ray.connection import RayOptions, connection
from orlomo.engines.ray.fit import Need
from orlomo.records.log import Log

OUTSIDE = "10.77.0.9"


def listens_inside_only() -> None:
    """No other machine can connect to any of its ports; it asks for a token that no other user has."""
    listening = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=True).stdout.split("\n")
    addresses = [line.split()[3] for line in listening if line]
    assert len(addresses) >= 4, addresses
    for address in addresses:
        assert "127.0.0.1" in address, addresses
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((OUTSIDE, int(address.rpartition(":")[2])), timeout=1)
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def alive(*names: str) -> list[str]:
    """Processes of these names that are not dead and merely unburied."""
    listed = subprocess.run(["ps", "-eo", "stat=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line[0] != "Z" and any(name in line for name in names)]


def trouble(folder: Path) -> None:
    """The whole command, stopped by Ctrl-C at a terminal; resumed with one worker more; then killed."""
    command = [sys.executable, "-m", "orlomo"]
    task = f"{Path(__file__).parent / 'sleepy.py'}:task"
    settings = ["--engine", "ray", "--workers", "1", "--local-steps", "2", "--epochs", "2000", "--out", str(folder)]
    settings += ["--pace", "25"]  # a round takes a second: the signal comes while the server waits
    events = folder / "events.csv"
    for number, words in ((signal.SIGINT, ["train", task, *settings]), (signal.SIGKILL, ["resume", str(folder)])):
        more = ["--workers", "2"] if words[0] == "resume" else []
        driver = subprocess.Popen([*command, *words, *more], stderr=subprocess.PIPE, text=True, start_new_session=True)
        wanted = "\nreport," if words[0] == "train" else "\njoin,"
        while not events.exists() or wanted not in events.read_text():
            assert driver.poll() is None, driver.stderr and driver.stderr.read()
            time.sleep(0.1)
        if number == signal.SIGINT:
            os.killpg(driver.pid, number)  # as a terminal does: to the whole process group
        else:
            driver.kill()
        _, said = driver.communicate()
        print(said)
        assert driver.returncode == (130 if number == signal.SIGINT else -number)
        if number == signal.SIGINT:
            assert said.endswith(f"stopped by SIGINT; saved. Continue with: orlomo resume {folder}\n")
            assert not alive("raylet", "gcs_server", "ray::")
    until = time.monotonic() + 10  # of a killed driver's cluster, what could do anything ends with it
    while left := alive("raylet/raylet", "gcs_server", "ray::RayWorker"):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def main(folder: Path) -> None:
    """All of it."""
    subprocess.run(["ip", "address", "add", f"{OUTSIDE}/32", "dev", "lo"], check=True)
    before = dict(os.environ)
    for _ in range(2):  # each has its own token
        with connection(RayOptions(), Need(1, {"CPU": 1.0}, {}, 1 << 20, 1 << 20), Log(folder, print)):
            listens_inside_only()
            node = ray.nodes()[0]
            temporary = Path(node["ObjectStoreSocketName"]).parents[2]
            assert temporary.is_dir()
        assert dict(os.environ) == {**before, "PYTHONBREAKPOINT": os.environ.get("PYTHONBREAKPOINT", "")}
        assert not temporary.exists()
    trouble(folder / "run")
    assert orlomo.replay(folder / "run", task=sleepy.task(), jobs=1).agrees


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)
