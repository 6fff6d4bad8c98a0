"""What can happen to a Ray cluster, on a real one of several nodes. Run by test_ray.py in namespaces of its own:

python ray_scenarios.py FOLDER
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray.cluster_utils
import torch

import orlomo
import sleepy
from orlomo.engines.ray import crew as ray_crew
from orlomo.engines.ray.connection import HEALTH_CHECKS
from orlomo.errors import ConfigError
from orlomo.tasks.theory import Point

STORE_BYTES = 80_000_000
ADDRESS = "10.77.0.9"  # not a loopback address: as if others could reach it
subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
CLUSTER = ray.cluster_utils.Cluster(
    initialize_head=True,
    head_node_args={
        "num_cpus": 1,
        "node_ip_address": ADDRESS,
        "object_store_memory": STORE_BYTES,
        "temp_dir": os.environ["RAY_SCENARIO_TEMP"],
        "_system_config": HEALTH_CHECKS,
    },
)
OPTIONS = orlomo.RayOptions(CLUSTER.address)


def add_node(**labels: str) -> Any:
    """A node that can take one worker."""
    return CLUSTER.add_node(num_cpus=1, node_ip_address=ADDRESS, object_store_memory=STORE_BYTES, labels=labels)


def raylet_of(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def found(*words: str) -> list[int]:
    """Process ids that pgrep finds, the oldest first."""
    return sorted(map(int, subprocess.run(["pgrep", *words], capture_output=True, text=True).stdout.split()))


class Trial(orlomo.Callback):
    """A run to which things happen, one after another, each when its pattern is in the log. Then it is stopped."""

    def __init__(self, folder: Path, workers: int, acts: list[tuple[str, Callable[[], Any]]], **more: Any):
        self.folder, self.acts = folder, list(acts)
        self.warnings: list[str] = []
        self.moments: list[float] = []  # of the warnings
        with pytest.raises(orlomo.Interrupted):
            orlomo.train(
                sleepy.task(),
                orlomo.OrLoMo(learning_rate=0.02, local_steps=2),
                workers=workers,
                epochs=10_000,
                engine="ray",
                ray=OPTIONS,
                out=folder,
                callbacks=[self],
                warn=self.warn,
                **more,
            )
        self.run = orlomo.load(folder)
        print(*self.warnings, sep="\n")
        assert self.warnings.pop(0).startswith("anyone who can reach this Ray cluster can run code on it")
        self.moments.pop(0)
        self.changes = sleepy.check(self.run)
        print(self.changes)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.moments.append(time.monotonic())

    def event(self, row: dict[str, Any]) -> None:
        done = row["reports"]
        if not self.acts or row["kind"] != "report" or done % 10:
            return
        log = self.folder / "log.txt"
        happened = f"report {done}\n{log.read_text() if log.exists() else ''}"
        when, act = self.acts[0]
        if re.search(when, happened, re.MULTILINE):
            self.acts.pop(0)
            act()
            if not self.acts:
                os.kill(os.getpid(), signal.SIGINT)


def too_little_room(folder: Path) -> None:
    """A run whose vectors do not fit in the object store is refused before it begins."""
    wide = orlomo.Task(
        model=lambda: Point(torch.ones(10_000_000)),
        loss=lambda model, batch: (model()[:16] ** 2).sum() + 0 * batch.sum(),
        train_data=torch.zeros(64, 1),
        batch_size=1,
    )
    with pytest.raises(
        ConfigError, match="has 80 MB, the server with 2 workers needs 350 MB: start Ray there with --obj"
    ):
        orlomo.train(wide, workers=2, engine="ray", ray=OPTIONS, out=folder)
    assert not folder.exists()


def losses(folder: Path) -> None:
    """A worker waits for a place of its label; a worker's process is killed; a raylet is killed; a node is added."""
    first, *_ = add_node(zone="eu"), add_node(zone="eu"), add_node(zone="us")
    acts = [
        ("report 50$", lambda: add_node(zone="eu")),
        ("joins", lambda: os.kill(found("-f", "ray::RayWorker")[0], signal.SIGKILL)),
        ("worker 3 joins", lambda: os.kill(raylet_of(first), signal.SIGKILL)),
        ("its node died|out of reach", lambda: add_node(zone="eu")),
        (r"(?s)(its node died|out of reach).*joins", lambda: None),
    ]
    trial = Trial(folder, 3, acts, labels={"zone": "in(eu,uk)"})
    left, joined, crashed = (
        [w for kind, w in trial.changes if kind == wanted] for wanted in ("leave", "join", "crash")
    )
    assert left
    assert set(left) <= set(joined)
    assert len(set(crashed)) == len(crashed) == 2
    assert len([worker for worker in joined if worker >= 3]) == 2  # a new one for each of the two
    assert "not ready yet: continuing without" in "".join(trial.warnings)
    assert f"worker {crashed[0]} is lost: its process ended" in "".join(trial.warnings)
    assert f"worker {crashed[1]} is lost: it" in "".join(trial.warnings)


def killed_driver(folder: Path) -> None:
    """The run continues from its checkpoint on the same cluster."""
    task = f"{Path(__file__).parent / 'sleepy.py'}:task"
    command = [sys.executable, "-m", "orlomo"]
    settings = ["--engine", "ray", "--address", CLUSTER.address, "--workers", "2", "--local-steps", "2"]
    settings += ["--learning-rate", "0.02", "--epochs", "75", "--checkpoint-seconds", "0.5", "--out", str(folder)]
    server = subprocess.Popen([*command, "train", task, *settings], text=True, stderr=subprocess.PIPE)
    events = folder / "events.csv"
    while not events.exists() or events.read_text().count("\n") < 100:
        assert server.poll() is None, server.stderr and server.stderr.read()
        time.sleep(0.05)
    server.kill()
    server.wait()
    again = [*command, "resume", str(folder), "--address", CLUSTER.address]
    done = subprocess.run(again, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert orlomo.load(folder).finished
    assert sleepy.check(orlomo.load(folder)) == []


def frozen_node(folder: Path) -> None:
    """A node stops answering, as if its machine hangs. The run does not wait for it, and notices it within 10 s."""
    ray_crew.GATHER_SECONDS = 60.0  # both begin, however busy this machine is
    nodes = [node for node in CLUSTER.worker_nodes if node.all_processes["raylet"][0].process.poll() is None]
    moments: list[float] = []

    def freeze() -> None:
        for raylet in map(raylet_of, nodes):
            for process in [raylet, *found("-P", str(raylet))]:
                os.kill(process, signal.SIGSTOP)
        moments.append(time.monotonic())

    trial = Trial(folder, 2, [("report 100$", freeze), ("is lost", lambda: None)])
    noticed = trial.moments[0] - moments[0]
    print(f"noticed after {noticed:.1f} s")
    assert [kind for kind, _ in trial.changes] == ["crash"]
    assert "is lost: it" in trial.warnings[0]
    assert noticed < 10
    assert np.diff(trial.run.event_columns["finish"]).max() < 3  # the other worker was not kept waiting


def main(folder: Path) -> None:
    """All of it, on one cluster: starting one takes a while."""
    for scenario in (too_little_room, losses, killed_driver, frozen_node):
        begin = time.monotonic()
        print(f"--- {scenario.__name__}", flush=True)
        scenario(folder / scenario.__name__)
        print(f"--- {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # the namespace ends with this process, and the cluster with the namespace
