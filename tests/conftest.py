"""Shared by all tests: helper modules beside the tests, one thread of arithmetic, a switch for golden files."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

sys.path.append(str(Path(__file__).parent / "methods"))
sys.path.append(str(Path(__file__).parent))
torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores Ctrl-C
hypothesis.settings.register_profile(  # not by the clock: the machine may be busy
    "any-machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any-machine")
collect_ignore = [
    "ray_faults.py",
    "ray_network.py",
    "ray_private.py",
    "ray_scenarios.py",
    "ray_stranger.py",
]  # scripts, which test_ray.py runs elsewhere
collect_ignore += ["integrations/lora_with_a_joiner.py"]  # so does test_huggingface.py


def pytest_configure(config: pytest.Config) -> None:
    folder = tempfile.mkdtemp(prefix="orlomo-tests-")
    os.environ["XDG_CONFIG_HOME"] = folder  # also of child processes: tests do not touch the user's own
    config.add_cleanup(lambda: shutil.rmtree(folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "test_ray" not in item.nodeid)  # the longest first: no process is left with them alone


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate-golden", action="store_true", help="write the golden histories again")


@pytest.fixture(scope="session", autouse=True)
def loaded_once() -> None:
    """Worker processes come from a server that has loaded what loops of users need, too, whichever test is the first.

    Else each of their processes would load it for itself, which takes more than a second.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:  # not for a single test
        from orlomo.engines.loops.opening import PRELOADED
        from orlomo.engines.processes.starter import Starter

        Starter((*PRELOADED, "pytest"))


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A private Ray cluster that this process is connected to, for all tests that only need one."""
    pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
    from orlomo.engines.ray.connection import RayOptions, connection
    from orlomo.engines.ray.fit import Need
    from orlomo.records.log import Log

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  (else workers starve beside other tests)
    with connection(
        RayOptions(), Need(4, {"CPU": 1.0}, {}, 1 << 20, 1 << 20), Log(tmp_path_factory.mktemp("ray"), print)
    ):
        yield
