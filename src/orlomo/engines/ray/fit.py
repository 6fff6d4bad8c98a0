"""Whether a run fits on a Ray cluster, and what of the cluster is not safe or slow to notice: before the run begins.

This module can be imported without Ray.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from orlomo.errors import ConfigError

SPARE_BYTES = 100 << 20
"""In the object store, beyond a run's own vectors."""

GUIDE = "docs/how-to/ray.md"


@dataclass(frozen=True)
class Need:
    """What a run needs of a cluster."""

    workers: int
    resources: dict[str, float]  # of each
    labels: dict[str, str]  # of the machines
    vector_bytes: int | None  # None: not known before a worker says it
    task_bytes: int
    sent: int = 1  # vectors in an assignment
    reported: int = 2  # in a report

    def store_bytes(self, workers: int) -> int:
        """In the object store of a machine with so many of the workers, or with the server of so many.

        For each worker the vectors it works on and those it reports, and one more assignment that is on its way; Ray
        begins to spill at 80%.
        """
        if workers == 0:
            return 0
        vectors = (self.sent + self.reported) * workers + self.sent
        return int((vectors * (self.vector_bytes or 0) + self.task_bytes) / 0.8)


def check(ray: ModuleType, need: Need, warn: Callable[[str], None]) -> None:
    """Refuse a run that does not fit; say what is not safe."""
    check_store(ray, need)
    check_safety(ray, warn)


def check_store(ray: ModuleType, need: Need) -> None:
    """Refuse a run whose vectors do not fit in the object stores."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    own = ray.get_runtime_context().get_node_id()
    for node in nodes:
        has = node["Resources"].get("object_store_memory", 0.0)
        if node["NodeID"] == own:
            needed, whose = need.store_bytes(need.workers), f"the server with {need.workers} workers needs"
        else:
            here = _fitting(node["Resources"], need)
            needed = need.store_bytes(here)
            whose = f"{here} workers there need"
        if has < needed:
            address = node["NodeManagerAddress"]
            how = f"start Ray there with --object-store-memory {needed + SPARE_BYTES}, or use fewer workers"
            if _is_loopback(address):  # a private cluster, which has all that the machine has to give
                how = "use fewer workers, or --engine processes"
            raise ConfigError(f"the object store of {address} has {size(has)}, {whose} {size(needed)}: {how}")


def check_safety(ray: ModuleType, warn: Callable[[str], None]) -> None:
    """Say what of the cluster is not safe, or slow to notice."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    addresses = [node["NodeManagerAddress"] for node in nodes]
    if os.environ.get("RAY_AUTH_MODE") != "token" and not all(map(_is_loopback, addresses)):
        lacks = "no token, and TLS alone does not guard all of Ray" if uses_tls() else "neither a token nor TLS"
        warn(
            f"anyone who can reach this Ray cluster can run code on it: it has {lacks}. Start it with "
            f"RAY_AUTH_MODE=token (see {GUIDE})"
        )
    if len(nodes) > 1 and (seconds := _notices_within()) > 10:
        warn(f"this Ray cluster notices a lost machine only after {seconds:.0f} s; {GUIDE} says how to make it 10 s")


def _fitting(resources: dict[str, float], need: Need) -> int:
    """How many workers Ray could place on a machine of these resources."""
    fitting = [int(resources.get(name, 0.0) // amount) for name, amount in need.resources.items() if amount]
    return min([need.workers, *fitting])


def check_private(ray: ModuleType, need: Need) -> None:
    """Refuse what no machine will ever join for."""
    [node] = ray.nodes()
    if need.labels or _fitting(node["Resources"], need) == 0:
        each = ", ".join(f"{name}={amount:g}" for name, amount in need.resources.items())
        labels = " and labels" if need.labels else ""
        raise ConfigError(
            f"this machine alone has no room for a worker with {each}{labels}: name a cluster (--address)"
        )


def _notices_within() -> float:
    """Seconds after which the cluster knows of a machine that is gone without a message."""
    try:
        from ray._raylet import Config  # type: ignore[attr-defined]
    except ImportError:
        return 0.0
    each = Config.health_check_period_ms() + Config.health_check_timeout_ms()
    return float(each * Config.health_check_failure_threshold()) / 1000


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def uses_tls() -> bool:
    """Whether this process speaks TLS with Ray."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


def size(count: float) -> str:
    """A number of bytes for display."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
