"""Runs to be shown."""

from __future__ import annotations

import pytest

import orlomo
from small import classification, settings

METHODS = ("orlomo", "prsgdm", "local-ormo-da")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[orlomo.Run]:
    """Three runs: one with faults, one with a barrier, one without either."""
    folder = tmp_path_factory.mktemp("runs")
    faults = (orlomo.Fault(time=5.3, worker=1, kind="crash"), orlomo.Fault(time=15.0, worker=1, kind="return"))
    clusters = (orlomo.Cluster(faults=faults), orlomo.Cluster(speeds=(orlomo.Speed(law="exponential"),)), "homogeneous")
    return [
        orlomo.train(classification(), settings(name), workers=4, epochs=15, cluster=cluster, jobs=1, out=folder / name)
        for name, cluster in zip(METHODS, clusters, strict=True)
    ]
