"""The trace of a run alone, without a task: who would report when, with what delay and weight."""

from __future__ import annotations

import math

from orlomo.clusters.cluster import Cluster
from orlomo.clusters.cluster import cluster as cluster_by_name
from orlomo.clusters.schedule import Schedule, make_schedule
from orlomo.errors import require
from orlomo.methods.method import Method
from orlomo.methods.registry import method as method_by_name


def trace(
    method: Method | str = "orlomo",
    *,
    workers: int,
    iterations: int,
    cluster: Cluster | str = "homogeneous",
    seed: int = 0,
    parameters: int = 0,
) -> Schedule:
    """The schedule of a run alone: `iterations` reports of `workers` workers.

    Args:
        parameters: the model's size, where the cluster's links have a bandwidth.

    >>> events = trace("orlomo", workers=4, iterations=100)
    >>> int(events["delay"].sum()) < 3 * 100  # (K-1) T, less what is under way at the end
    True
    """
    require(iterations >= 1, f"iterations must be at least 1, not {iterations}")
    require(math.isfinite(parameters) and parameters >= 0, f"parameters must be 0 or more, not {parameters}")
    chosen = method_by_name(method) if isinstance(method, str) else method
    where, size = cluster_by_name(cluster), 4 * parameters
    return make_schedule(chosen, where, workers=workers, reports=iterations, seed=seed, parameter_bytes=size)
