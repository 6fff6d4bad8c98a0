"""The configuration of a run: frozen dataclasses <-> TOML. Unknown keys are errors that name the nearest key."""

from __future__ import annotations

import dataclasses
import math
import tomllib
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from orlomo.clusters.cluster import Cluster, cluster
from orlomo.engines.registry import Clock, facts_of, refused_settings, why_refused
from orlomo.errors import ConfigError, require, unknown_name
from orlomo.methods.method import Method
from orlomo.methods.registry import method, method_class

COMPILE = ("auto", "on", "off")


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
        self._check_engine()
        limit = self.method.max_workers
        if limit is not None and self.workers > limit:
            raise ConfigError(f"{self.method.name} runs on {limit} worker: set workers to {limit}, not {self.workers}")

    def _check_engine(self) -> None:
        left_out = {"cluster": cluster("homogeneous")}
        for name in refused_settings(self.engine):
            require(getattr(self, name) == left_out.get(name), why_refused(self.engine, name))
        require(self.threads is None or self.threads >= 1, f"threads must be at least 1, not {self.threads}")
        require(self.devices is None or len(self.devices) > 0, "devices names no device")
        if self.pace is not None:
            count = len(self.pace)
            require(count == self.workers, f"pace has {count} numbers for {self.workers} workers: one each")
            good = all(1 <= pace < math.inf for pace in self.pace)
            require(good, f"pace must be 1 (as fast as it can) or more, not {min(self.pace):g}")
        for name, amount in (self.resources or {}).items():
            require(0 <= amount < math.inf, f"resources: {name} must be 0 or more, not {amount:g}")
        if (self.resources or {}).get("GPU") and self.device == "cpu":
            object.__setattr__(self, "device", "cuda")  # who asks for a GPU means to use it

    @property
    def where(self) -> str:
        """What it runs on, in a word or two."""
        return self.cluster.name if "cluster" in facts_of(self.engine).settings else self.engine

    @property
    def clock(self) -> Clock:
        """Whether its seconds are `virtual` or `real`."""
        return facts_of(self.engine).clock

    @property
    def compute_device(self) -> str:
        """Where a replay computes: where all workers did, if they did in one place."""
        return self.devices[0] if self.devices and len(set(self.devices)) == 1 else self.device

    @property
    def server_device(self) -> str:
        """Where the server's vectors are: with the workers' where it runs in their process, else in main memory."""
        return self.device if self.clock == "virtual" else "cpu"


def to_table(config: RunConfig) -> dict[str, Any]:
    """Plain nested values, as in a TOML file; None is left out."""
    left_out = {"method", *refused_settings(config.engine)}
    table = _plain({f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in left_out})
    return {**table, "method": config.method.to_table()}


def from_table(table: dict[str, Any], where: str = "config") -> RunConfig:
    """The config of such a table. `method` and `cluster` may be names instead of tables."""
    table = dict(table)
    named = table.pop("method", "orlomo")
    settings = dict(named) if isinstance(named, dict) else {"name": named}
    name = settings.pop("name", "orlomo")
    kind = method_class(name)
    every = typing.get_type_hints(kind)
    hints = {f.name: every[f.name] for f in dataclasses.fields(kind)}
    settings = {
        key: _convert(value, hints[key], f"{where}, method {key}") if key in hints else value
        for key, value in settings.items()
    }
    chosen = make_cluster(table.pop("cluster", "homogeneous"), where)
    return typing.cast(
        RunConfig, _build(RunConfig, {**table, "method": method(name, **settings), "cluster": chosen}, where)
    )


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
    if isinstance(chosen := table.get("cluster"), dict):
        for speed in chosen.get("speeds", []):
            if isinstance(speed, dict) and str(speed.get("law", "")).startswith("file:"):
                speed["law"] = f"file:{path.parent.absolute() / speed['law'].removeprefix('file:')}"
    return table


def write(config: RunConfig) -> str:
    """The config as TOML text."""
    return tomli_w.dumps(to_table(config))


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
        return typing.cast(Cluster, _build(Cluster, table, f"{where}, cluster"))
    base = {f.name: getattr(cluster(preset), f.name) for f in dataclasses.fields(Cluster)}
    return typing.cast(Cluster, _build(Cluster, base | table, f"{where}, cluster"))


def _build(kind: Any, table: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]
    values = {}
    for key, value in table.items():
        if key not in known:
            raise unknown_name(f"key in {where}", key, known)
        values[key] = _convert(value, hints[key], f"{where}, {key}")
    return kind(**values)


def _convert(value: Any, hint: Any, where: str) -> Any:
    if typing.get_origin(hint) is types.UnionType:
        if value is None:
            return None
        hint = next(choice for choice in typing.get_args(hint) if choice is not type(None))
    if typing.get_origin(hint) is dict:
        inner = typing.get_args(hint)[1]
        require(isinstance(value, dict), f"{where} must be a table, not {value!r}")
        return {str(key): _convert(part, inner, f"{where} {key}") for key, part in value.items()}
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        require(isinstance(value, (list, tuple)), f"{where} must be a list, not {value!r}")
        return tuple(_convert(part, inner, where) for part in value)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _build(hint, value, where)
    if hint is float and type(value) is int:
        return float(value)
    wanted = {int: "a whole number", float: "a number", str: "a text"}.get(hint, getattr(hint, "__name__", str(hint)))
    require(isinstance(value, hint) and not isinstance(value, bool), f"{where} must be {wanted}, not {value!r}")
    return value


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if part is not None}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return value
