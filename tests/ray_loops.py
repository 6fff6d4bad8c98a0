"""A user's own loop on a Ray cluster, and in trouble. Run by test_ray.py in namespaces of its own:

python ray_loops.py FOLDER
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

import orlomo
import own_loop
from orlomo.engines.loops import crew
from orlomo.engines.ray.connection import RayOptions, connection
from orlomo.engines.ray.fit import Need
from orlomo.errors import ConfigError
from orlomo.records.audit import audit
from orlomo.records.log import Log

METHOD = orlomo.OrLoMo(local_steps=2)
COMMAND = [sys.executable, "-m", "orlomo"]
SCRIPT = Path(own_loop.__file__)


def dies(worker: orlomo.Worker, done: int) -> None:
    """The first worker is killed; so is the actor that hosts the second."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    if worker.id < 2 and done == 3:
        os.kill(os.getpid() if worker.id == 0 else parent.pid, signal.SIGKILL)


def check(run: orlomo.Run, folder: Path, workers: int = 2) -> None:
    """Every sample was used once, and every worker has the final parameters."""
    assert run.finished
    found = audit(run)
    assert found.ok, found.text
    vectors = [torch.load(path) for path in folder.glob("*.pt")]
    assert len(vectors) == workers, vectors
    assert all(vector.equal(run.params) for vector in vectors)


class Continues(orlomo.Callback):
    """Workers pause until two others have joined."""

    def __init__(self, folder: Path):
        self.pause, self.joined = folder / "pause", 0
        self.pause.touch()

    def event(self, row: dict[str, Any]) -> None:
        self.joined += row["kind"] == "join"
        if self.joined == 2:
            self.pause.unlink(missing_ok=True)


def losses(folder: Path) -> None:
    """A killed process and a killed actor: others follow, and their samples are used by others."""
    said: list[str] = []
    loop = functools.partial(own_loop.loop, folder=folder, epochs=3, after=dies)
    more = {"callbacks": [Continues(folder)], "warn": said.append}
    run = orlomo.launch(loop, METHOD, workers=2, engine="ray", out=folder / "run", **more)
    print(*said, sep="\n")
    assert sorted(run.events.loc[run.events["kind"] == "crash", "worker"]) == [0, 1]
    assert "worker 0 is lost: killed by SIGKILL" in said
    assert any(text.startswith("worker 1 is lost: its process ended: ") for text in said)
    check(run, folder)


def little_room(folder: Path) -> None:
    """The run begins with the worker that has room, and the other one never takes part."""
    crew.GATHER_SECONDS = 1.0
    said: list[str] = []
    loop = functools.partial(own_loop.loop, folder=folder, epochs=2)
    everything = {"CPU": ray.cluster_resources()["CPU"]}
    run = orlomo.launch(
        loop, METHOD, workers=2, engine="ray", resources=everything, threads=1, out=folder / "run", warn=said.append
    )
    assert said == ["1 worker is not ready yet: continuing without; it joins when it is"]
    assert list(run.events.loc[run.events["kind"] != "report", "kind"]) == ["leave"]
    check(run, folder, workers=1)


def refused(folder: Path) -> None:
    """What the user's code raises before the run begins is said, and there is no run."""
    loop = functools.partial(own_loop.loop, folder=folder, epochs=0)
    with pytest.raises(ConfigError, match="epochs takes a whole number of at least 1, not 0"):
        orlomo.launch(loop, METHOD, workers=2, engine="ray", out=folder / "run")
    assert not (folder / "run").exists()


def script(folder: Path) -> None:
    """`orlomo run`, stopped by Ctrl-C, resumed; where its folder is on no other machine, a copy of it is."""
    out, events = folder / "run", folder / "run" / "events.csv"
    (folder / "pause").touch()
    address = ["--address", ray.get_runtime_context().gcs_address]
    copied = [*address, "--runtime-env", json.dumps({"working_dir": str(SCRIPT.parent), "excludes": ["data"]})]
    words = [*COMMAND, "run", "--engine", "ray", *copied, "--workers", "2", "--local-steps", "2", "--out", str(out)]
    driver = subprocess.Popen(
        [*words, str(SCRIPT), str(folder), "12"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not events.exists() or "\nreport," not in events.read_text():
        assert driver.poll() is None, driver.stderr and driver.stderr.read()
        time.sleep(0.05)
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: to the whole process group
    _, said = driver.communicate()
    assert driver.returncode == 130, said
    assert f"Continue with: orlomo resume {out} --address " in said
    (folder / "pause").unlink()
    done = subprocess.run([*COMMAND, "resume", str(out), *address], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check(orlomo.load(out), folder)


def main(folder: Path) -> None:
    """All of it, on one cluster: starting one takes a while."""
    with connection(RayOptions(), Need(2, {"CPU": 1.0}, {}, None, 0), Log(folder, print)):
        for scenario in (losses, little_room, refused, script):
            begin = time.monotonic()
            (folder / scenario.__name__).mkdir()
            scenario(folder / scenario.__name__)
            print(f"--- {scenario.__name__}: {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)
