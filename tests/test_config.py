"""Configs: TOML and back, and errors that name the nearest key."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import orlomo
from orlomo import config


def test_every_method_and_cluster_survives_the_way_to_toml_and_back(tmp_path: Path) -> None:
    faults = (orlomo.Fault(time=1.5, worker=2, kind="crash"), orlomo.Fault(time=3, worker=2, kind="return"))
    clusters = [orlomo.cluster("slow-worker:5"), orlomo.Cluster(per="step", latency_seconds=0.1, faults=faults)]
    for name in ("orlomo", "al-sgd", "prsgdm", "asgd", "msgd"):
        for cluster in clusters:
            made = config.RunConfig(method=orlomo.method(name), cluster=cluster, workers=1, batch_size=8)
            path = tmp_path / "config.toml"
            path.write_text(config.write(made))
            assert config.from_table(config.read(path)) == made


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"worker": 3}, "did you mean 'workers'"),
        ({"workers": "many"}, "workers must be a whole number"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"epochs": -1}, "epochs must be above 0"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"engine": "simulate"}, "did you mean 'simulated'"),
        ({"method": {"name": "orlomo", "learning_rate": "fast"}}, "learning_rate must be a number"),
        ({"method": "prsgd"}, "did you mean 'prsgdm'"),
        ({"method": "msgd", "workers": 2}, "set workers to 1"),
        ({"cluster": "heterogenous"}, "did you mean 'heterogeneous'"),
        ({"cluster": {"preset": "heterogeneous", "latency": 3}}, "did you mean 'latency_seconds'"),
        ({"cluster": {"speeds": [{"factor": 0}]}}, "factor must be above 0"),
        ({"cluster": {"speeds": [{"law": "gama:1"}]}}, "did you mean 'gamma:CV'"),
        ({"cluster": {"faults": [{"time": 1.0, "worker": 0, "kind": "crush"}]}}, "did you mean 'crash'"),
        ({"cluster": 3}, "preset's name or a table"),
        ({"cluster": {"preset": 3}}, "preset must be a name"),
        ({"cluster": {"speeds": [{"law": "stall:0.1", "factor": 0.5}]}}, "factor 1 or more"),
        ({"method": {"name": "orlomo", "synchronous": True}}, "unknown setting of orlomo 'synchronous'"),
        ({"seed": False}, "seed must be a whole number"),
        ({"evaluate_every": 1e-320}, "evaluate_every"),
    ],
)
def test_mistakes_are_named(table: dict[str, object], text: str) -> None:
    with pytest.raises(orlomo.OrlomoError, match=text):
        config.from_table(table)


def test_a_preset_with_changes() -> None:
    made = config.from_table({"cluster": {"preset": "heterogeneous:4", "latency_seconds": 2}})
    assert made.cluster.factors(4) == [1, 1, 1, 4]
    assert made.cluster.latency_seconds == 2.0


def test_paths_are_taken_from_the_files_folder_and_kept_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "times.csv").write_text("worker,seconds\na,1.0\n")
    path = tmp_path / "config.toml"
    path.write_text('task = "mine.py:task"\n[cluster]\nspeeds = [{ law = "file:times.csv" }]\n')
    made = config.from_table(config.read(path))
    assert made.task == f"{tmp_path}/mine.py:task"
    assert made.cluster.speeds[0].law == f"file:{tmp_path}/times.csv"
    assert config.make_cluster(str(path), "--cluster") == made.cluster
    monkeypatch.chdir(tmp_path)
    assert orlomo.Speed(law="file:times.csv").law == f"file:{tmp_path}/times.csv"


def test_a_cut_off_file_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "half.toml"
    path.write_text('task = "digits"\n[method\n')
    with pytest.raises(orlomo.OrlomoError, match=r"half.toml is not a whole TOML file"):
        config.read(path)
    with pytest.raises(orlomo.OrlomoError, match="cannot read"):
        config.read(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "process"}, "did you mean 'processes'"),
        ({"pace": (1.0,)}, "pace is for --engine processes"),
        ({"devices": ("cpu",)}, "devices is for --engine processes"),
        ({"threads": 2}, "threads is for --engine processes or ray, not simulated: see --jobs"),
        ({"resources": {"GPU": 1.0}}, "resources is for --engine ray, not simulated: leave it out"),
        ({"engine": "ray", "devices": ("cpu",)}, "devices is for --engine processes, not ray: see --resources GPU=1"),
        ({"engine": "processes", "threads": 0}, "threads must be at least 1, not 0"),
        ({"engine": "processes", "pace": (1.0, 2.0)}, "pace has 2 numbers for 4 workers"),
        ({"engine": "processes", "pace": (1.0, 1.0, 0.5, 1.0)}, "pace must be 1 .* or more, not 0.5"),
        ({"engine": "processes", "devices": ()}, "devices names no device"),
        (
            {"engine": "processes", "cluster": orlomo.cluster("heterogeneous")},
            "cluster is for --engine simulated, not processes: see --pace",
        ),
    ],
)
def test_settings_of_the_wrong_engine(given: dict[str, Any], message: str) -> None:
    values = {"workers": 4, "cluster": orlomo.cluster("homogeneous"), "method": orlomo.method("orlomo"), **given}
    with pytest.raises(orlomo.OrlomoError, match=message):
        config.RunConfig(**values)


def test_a_processes_config_goes_to_toml_and_back() -> None:
    made = config.RunConfig(
        method=orlomo.method("orlomo"),
        cluster=orlomo.cluster("homogeneous"),
        engine="processes",
        workers=2,
        pace=(1.0, 2.5),
        devices=("cpu", "cuda:1"),
        threads=3,
    )
    assert config.from_table(tomllib.loads(config.write(made))) == made
