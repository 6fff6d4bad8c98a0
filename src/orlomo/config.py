"""The configuration of a run: frozen dataclasses <-> TOML. Unknown keys are errors that name the nearest key."""

from __future__ import annotations

import dataclasses
import math
import tomllib
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from orlomo.clusters.cluster import Cluster, cluster
from orlomo.errors import ConfigError, require, unknown_name
from orlomo.loading import class_digest, is_place, source_digest
from orlomo.methods import tables as methods
from orlomo.methods.method import Method
from orlomo.methods.registry import CUSTOM
from orlomo.values import build, plain

ENGINES = ("simulated", "processes", "ray")
COMPILE = ("auto", "on", "off")

FORMAT = 2
"""Of run folders."""

RECORD_KEYS = ("format", "code")
"""In a run's config.toml, what is about the folder and is no setting."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides the result of a run.

    Args:
        task: name of a built-in task, `FILE.py:NAME`, or `custom` for a Task that only Python has.
        method: the method and its hyperparameters.
        cluster: how fast the workers are.
        workers: K.
        epochs: passes over the training data, all workers together.
        seed: of everything random.
        engine: what runs the workers: `simulated` on virtual time; for real, `processes` on one machine, `ray` on many.
        device: where the models are.
        devices: where each worker's model is, worker by worker and around again (processes).
        threads: threads of arithmetic a worker; None: cores / workers. A run's folder records it: it decides the bits.
        pace: how many times slower than it could each worker is to be, for rehearsals (processes, ray).
        resources: what Ray is to reserve for each worker: CPU, GPU, memory (bytes), or the user's own names; CPU is 1.
        labels: labels that a machine must have for Ray to place workers on it.
        batch_size: in place of the task's own.
        samples: use only this many of the training samples, always the same.
        held_out: test on this share of the training samples, which are then not trained on: for choosing settings.
        compile: `on`, `off`, or `auto`: where it pays for itself. A run's folder records which it was.
        evaluate_every: epochs between evaluations.
        checkpoint_seconds: real seconds between checkpoints.
    """

    task: str = "digits"
    method: Method
    cluster: Cluster
    workers: int = 16
    epochs: float = 10.0
    seed: int = 0
    engine: str = "simulated"
    device: str = "cpu"
    devices: tuple[str, ...] | None = None
    threads: int | None = None
    pace: tuple[float, ...] | None = None
    resources: dict[str, float] | None = None
    labels: dict[str, str] | None = None
    batch_size: int | None = None
    samples: int | None = None
    held_out: float = 0.0
    compile: str = "auto"
    evaluate_every: float = 1.0
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("workers", "seed"):
            value = getattr(self, name)
            require(type(value) is int, f"{name} must be a whole number, not {value!r}")
        if ".py:" in self.task:  # so that the run can be resumed from any folder
            object.__setattr__(self, "task", str(Path(self.task).absolute()))
        require(self.workers >= 1, f"workers must be at least 1, not {self.workers}")
        require(0 < self.epochs < math.inf, f"epochs must be above 0, not {self.epochs}")
        require(self.seed >= 0, f"seed must be 0 or more, not {self.seed}")
        require(
            self.batch_size is None or self.batch_size >= 1, f"batch_size must be at least 1, not {self.batch_size}"
        )
        require(self.samples is None or self.samples >= 1, f"samples must be at least 1, not {self.samples}")
        require(0 <= self.held_out < 1, f"held_out must be from 0 to below 1, not {self.held_out}")
        if self.compile not in COMPILE:
            raise unknown_name("choice of compile", self.compile, COMPILE)
        often = 1e-6 <= self.evaluate_every < math.inf
        require(often, f"evaluate_every must be at least a millionth of an epoch, not {self.evaluate_every}")
        require(self.checkpoint_seconds >= 0, f"checkpoint_seconds must be 0 or more, not {self.checkpoint_seconds}")
        if self.engine not in ENGINES:
            raise unknown_name("engine", self.engine, ENGINES)
        self._check_engine()
        limit = self.method.max_workers
        if limit is not None and self.workers > limit:
            raise ConfigError(f"{self.method.name} runs on {limit} worker: set workers to {limit}, not {self.workers}")

    def _check_engine(self) -> None:
        require(self.threads is None or self.threads >= 1, f"threads must be at least 1, not {self.threads}")
        self._check_ray()
        if self.engine == "simulated":
            for name in ("devices", "pace"):
                require(getattr(self, name) is None, f"{name} is for --engine processes; the simulator has --cluster")
            require(
                self.threads in (None, 1), "the simulated engine computes rounds on 1 thread each: leave threads out"
            )
            return
        require(
            self.cluster == cluster("homogeneous"),
            f"the engine {self.engine} runs on real time: --cluster is for the simulator, see --pace",
        )
        require(self.devices is None or len(self.devices) > 0, "devices names no device")
        if self.pace is not None:
            count = len(self.pace)
            require(count == self.workers, f"pace has {count} numbers for {self.workers} workers: one each")
            good = all(1 <= pace < math.inf for pace in self.pace)
            require(good, f"pace must be 1 (as fast as it can) or more, not {min(self.pace):g}")

    def _check_ray(self) -> None:
        if self.engine != "ray":
            for name in ("resources", "labels"):
                require(getattr(self, name) is None, f"{name} is for --engine ray, not {self.engine}")
            return
        require(self.devices is None, "on Ray each worker has its own GPU: --resources GPU=1 in place of --devices")
        for name, amount in (self.resources or {}).items():
            require(0 <= amount < math.inf, f"resources: {name} must be 0 or more, not {amount:g}")
        if (self.resources or {}).get("GPU") and self.device == "cpu":
            object.__setattr__(self, "device", "cuda")  # who asks for a GPU means to use it

    @property
    def where(self) -> str:
        """What it runs on, in a word or two."""
        return self.cluster.name if self.engine == "simulated" else self.engine

    @property
    def compute_device(self) -> str:
        """Where a replay computes: where all workers did, if they did in one place."""
        return self.devices[0] if self.devices and len(set(self.devices)) == 1 else self.device

    @property
    def server_device(self) -> str:
        """Where the server's vectors are: with the workers' where it runs in their process, else in main memory."""
        return self.device if self.engine == "simulated" else "cpu"


def to_table(config: RunConfig) -> dict[str, Any]:
    """Plain nested values, as in a TOML file; None is left out."""
    left_out = ("method",) if config.engine == "simulated" else ("method", "cluster")
    table = plain({f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in left_out})
    return {**table, "method": methods.to_table(config.method)}


def from_table(
    table: dict[str, Any], where: str = "config", *, method: Method | None = None, code: bool = True
) -> RunConfig:
    """The config of such a table. `method` and `cluster` in it may be names instead of tables.

    `method`: in place of one that only Python has. Without `code`, a method of the user's own is not loaded.
    """
    table = {key: value for key, value in table.items() if key not in RECORD_KEYS}
    named = table.pop("method", "orlomo")
    chosen = methods.from_table(dict(named) if isinstance(named, dict) else {"name": named}, where, method, code)
    where_it_runs = make_cluster(table.pop("cluster", "homogeneous"), where)
    made = build(RunConfig, {**table, "method": chosen, "cluster": where_it_runs}, where)
    return typing.cast(RunConfig, made)


def check_reads_back(config: RunConfig) -> None:
    """An error unless what a run's folder would hold is this config again, to the last setting."""
    for name, value in methods.to_table(config.method).items():
        try:
            tomli_w.dumps({name: value})
        except (TypeError, ValueError):
            raise ConfigError(
                f"{config.method.name}: {name} = {value!r} cannot be written to config.toml: use numbers, texts, "
                "or lists and tables of them"
            ) from None
    given = config.method if methods.to_table(config.method)["name"] == CUSTOM else None
    again = from_table(tomllib.loads(write(config)), method=given)
    if again.method != config.method or to_table(again) != to_table(config):
        raise ConfigError(f"the config does not read back equal: {config.method} becomes {again.method}")


def code_digests(config: RunConfig) -> dict[str, str]:
    """The sha256 of the user's files that decide the result: of `task` and `method`, where they are in a file."""
    found = {"task": source_digest(config.task) if is_place(config.task) else ""}
    name = methods.to_table(config.method)["name"]
    found["method"] = source_digest(name) if is_place(name) else class_digest(type(config.method)) * (name == CUSTOM)
    return {what: digest for what, digest in found.items() if digest}


def same_run(stored: RunConfig, wanted: RunConfig) -> bool:
    """Whether a stored run is the wanted one; it may have decided what was left to it."""
    if wanted.compile == "auto":
        stored = dataclasses.replace(stored, compile="auto")
    if wanted.threads is None:
        stored = dataclasses.replace(stored, threads=None)
    return to_table(stored) == to_table(wanted)


def read(path: Path) -> dict[str, Any]:
    """The table in a TOML file; relative paths in it are taken from the file's own folder."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a whole TOML file: {error}") from None
    if isinstance(task := table.get("task"), str) and ".py:" in task:
        table["task"] = str(path.parent.absolute() / task)
    if isinstance(own := table.get("method"), dict) and ".py:" in str(own.get("name", "")):
        own["name"] = str(path.parent.absolute() / own["name"])
    if isinstance(chosen := table.get("cluster"), dict):
        for speed in chosen.get("speeds", []):
            if isinstance(speed, dict) and str(speed.get("law", "")).startswith("file:"):
                speed["law"] = f"file:{path.parent.absolute() / speed['law'].removeprefix('file:')}"
    return table


def write(config: RunConfig, **more: Any) -> str:
    """The config as TOML text, `more` tables with it."""
    return tomli_w.dumps({**to_table(config), **more})


def make_cluster(value: Any, where: str) -> Cluster:
    """A cluster from a preset's name, a TOML file with a [cluster] table, or such a table."""
    if isinstance(value, str) and value.endswith(".toml"):
        table = read(Path(value))
        require("cluster" in table, f"{value} has no [cluster] table")
        return make_cluster(table["cluster"], value)
    if isinstance(value, str):
        return cluster(value)
    require(isinstance(value, dict), f"{where}: cluster must be a preset's name or a table, not {value!r}")
    table = dict(value)
    preset = table.pop("preset", None)
    require(preset is None or isinstance(preset, str), f"{where}: the cluster's preset must be a name, not {preset!r}")
    if preset is None:
        return typing.cast(Cluster, build(Cluster, table, f"{where}, cluster"))
    base = {f.name: getattr(cluster(preset), f.name) for f in dataclasses.fields(Cluster)}
    return typing.cast(Cluster, build(Cluster, base | table, f"{where}, cluster"))
