"""The Ray engine on real clusters, and in trouble. What it has in common with the others is in test_conformance.py.

Everything here runs in namespaces of its own, so that nothing is reachable from outside and nothing is left behind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from namespaces import run_isolated

pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
pytestmark = pytest.mark.timeout(900)
TESTS = Path(__file__).parents[1]


def test_it_does_what_every_engine_must(tmp_path: Path) -> None:
    conformance = TESTS / "engines/test_conformance.py"
    run_isolated("-m", "pytest", "-m", "ray", "-p", "no:cacheprovider", conformance, f"--basetemp={tmp_path / 'tests'}")


def test_a_private_cluster_keeps_to_itself_and_goes_with_its_run(tmp_path: Path) -> None:
    run_isolated(TESTS / "ray_private.py", tmp_path)


def test_whatever_happens_to_the_cluster_the_run_continues_and_its_record_is_whole(tmp_path: Path) -> None:
    run_isolated(TESTS / "ray_scenarios.py", tmp_path, RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")


def test_a_loop_of_the_users_own(tmp_path: Path) -> None:
    run_isolated(TESTS / "ray_loops.py", tmp_path)


@pytest.mark.parametrize("security", ["token", "tls"])
def test_two_machines_and_the_cable_between_them(security: str, tmp_path: Path) -> None:
    run_isolated(TESTS / "ray_network.py", security, tmp_path, RAY_USAGE_STATS_ENABLED="0")
