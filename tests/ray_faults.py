"""Random faults over the workers of a run on a real Ray cluster of several nodes. Run in namespaces of its own by
benchmarks/faults.py:

python ray_faults.py FOLDER FAULTS SEED
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ray.cluster_utils

import orlomo
from orlomo.engines.ray.connection import HEALTH_CHECKS
from troublemaker import KINDS, Troublemaker, make_trouble

ADDRESS = "10.77.0.9"
NODES = 3
ON_A_NODE = 2
STEP_SECONDS = 0.05
TARGET = 0.95


class OnRay(Troublemaker):
    """Kills nodes, too, but not two at a time: a new one takes the place of the lost one."""

    kinds = (*KINDS, *KINDS, "node")
    workers, least = NODES * ON_A_NODE, 3
    cluster: Any

    def make(self, kind: str, pid: int) -> None:
        if kind != "node":
            super().make(kind, pid)
            return
        gone = self.source.choice(self.cluster.worker_nodes_that_live())
        os.kill(gone.all_processes["raylet"][0].process.pid, signal.SIGKILL)
        self.cluster.add()


class Cluster(ray.cluster_utils.Cluster):  # type: ignore[misc]
    """A head without room for workers, and nodes with room for two each."""

    def __init__(self) -> None:
        self.common = {"node_ip_address": ADDRESS, "object_store_memory": 80_000_000}
        place = os.environ["RAY_SCENARIO_TEMP"]
        head = {"num_cpus": 0, "temp_dir": place, "_system_config": HEALTH_CHECKS, **self.common}
        super().__init__(initialize_head=True, head_node_args=head)
        for _ in range(NODES):
            self.add()

    def add(self) -> None:
        self.add_node(num_cpus=ON_A_NODE, **self.common)

    def worker_nodes_that_live(self) -> list[Any]:
        return [node for node in self.worker_nodes if node.all_processes["raylet"][0].process.poll() is None]


def main(folder: Path, faults: int, seed: int) -> int:
    """All of it."""
    subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)  # what is left behind there is ours
    OnRay.cluster = Cluster()
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin:5.0f} s: {text}", flush=True)

    options = orlomo.RayOptions(OnRay.cluster.address)
    outcome = make_trouble(folder, faults, seed, say, OnRay, STEP_SECONDS, engine="ray", ray=options)
    print(outcome, flush=True)
    return 0 if outcome.is_well(faults, TARGET) else 1


if __name__ == "__main__":
    os._exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))  # the cluster ends with the namespace
