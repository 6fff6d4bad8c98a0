"""The configuration of a run: frozen dataclasses <-> TOML. Unknown keys are errors that name the nearest key."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from orlomo.engines.registry import Clock, facts_of, refused_settings, why_refused
from orlomo.errors import ConfigError, require, require_at_most, unknown_name
from orlomo.loading import class_digest, function_digest, is_import_path, source_digest
from orlomo.methods.ledger import check_workers
from orlomo.methods.rates import is_own
from orlomo.methods.registry import CUSTOM
from orlomo.reading import read_toml
from orlomo.values import Table, about, build, documented, path_of, plain, setting, settle, shown

if TYPE_CHECKING:
    from orlomo.clusters.cluster import Cluster
    from orlomo.methods.method import Method

COMPILE = ("auto", "on", "off")

FORMAT = 2
"""Version of the run folder's format."""

LOOPS_OWN = ("device", "batch_size", "samples", "held_out", "compile")
METHODS_OWN = ("learning_rate", "weight_decay", "clip_norm", "schedule", "warmup_epochs")
"""Settings of a run, and of its method, that the user's own loop has itself, or that its optimizer has."""

MOST_EPOCHS = 1e12
"""So that samples, of a million an epoch, can be counted in 64 bits."""

MOST_PROCESSES = 10_000
"""Workers that are processes: each takes some hundred megabytes."""

MOST_THREADS = 1024
"""Of one worker: more than any machine has cores to use for one."""

SLOWEST = 1e6
"""The largest pace of a worker: a step of a millisecond then takes a quarter of an hour."""

RECORD_KEYS = ("format", "code")
"""Keys of a run's config.toml that are not settings."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides the result of a run.

    Args:
        {settings}
    """

    task: str = setting(
        "digits", "name of a built-in task, `FILE.py:NAME`, or `custom` for a Task that only Python has", flag=False
    )
    method: Method = field(metadata=about("the method and its hyperparameters", flag=False))
    cluster: Cluster = field(
        metadata=about(
            "in the simulator, how fast the workers are: homogeneous, heterogeneous, heterogeneous:4, slow-worker:10, "
            "or a TOML file"
        )
    )
    workers: int = setting(16, "number of workers (K)")
    epochs: float = setting(10.0, "passes over the training data, all workers together")
    seed: int = setting(0, "random seed: the same seed gives the same bits")
    engine: str = setting(
        "simulated",
        "what runs the workers: simulated (virtual time), processes (real, on this machine), ray (real, on a cluster)",
    )
    device: str = setting("cpu", "device of the models: cpu, cuda")
    devices: tuple[str, ...] | None = setting(
        None,
        "with processes, one device per worker, as in cuda:0,cuda:1,cpu; the list repeats for more workers",
    )
    threads: int | None = setting(
        None, "with processes or ray, compute threads per worker (default: cores / workers; on Ray its CPUs)"
    )
    pace: tuple[float, ...] | None = setting(
        None,
        "with processes or ray, slow each worker down this many times, as in 1,1,2,4, to rehearse uneven machines",
    )
    resources: dict[str, float] | None = setting(
        None, "with ray, what to reserve for each worker, as in GPU=1,CPU=4; memory is in bytes (default: CPU=1)"
    )
    labels: dict[str, str] | None = setting(
        None, "with ray, labels that a machine must have for workers to be placed on it, as in zone=eu"
    )
    batch_size: int | None = setting(None, "replaces the task's batch size")
    samples: int | None = setting(None, "use only this many of the training samples, always the same ones")
    held_out: float = setting(
        0.0, "test on this share of the training samples and train on the rest: for choosing settings"
    )
    compile: str = setting("auto", "torch.compile: auto (in runs long enough), on, off")
    evaluate_every: float = setting(1.0, "epochs between evaluations")
    checkpoint_seconds: float = setting(30.0, "real seconds between checkpoints")
    directory: str | None = setting(None, "of the user's own loop: the folder in which it runs", flag=False)
    arguments: tuple[str, ...] | None = setting(None, "of a script with the user's own loop", flag=False)
    steps: int | None = setting(
        None, "with the user's own loop, optimizer steps of all workers together after which it ends", flag=False
    )
    group: int | None = setting(
        None, "with the user's own loop, processes that are one worker together, with DDP or FSDP", flag=False
    )

    def __post_init__(self) -> None:
        settle(self, _names())
        if ".py:" in self.task:  # so that the run can be resumed from any folder
            object.__setattr__(self, "task", str(Path(self.task).absolute()))
        check_workers(self.workers)
        require(0 < self.epochs < math.inf, f"epochs must be above 0 and finite, not {self.epochs}")
        require_at_most(self.epochs, MOST_EPOCHS, "epochs")
        require(self.seed >= 0, f"seed must be 0 or more, not {self.seed}")
        if self.batch_size is not None:
            require(self.batch_size >= 1, f"batch_size must be at least 1, not {self.batch_size}")
        require(self.samples is None or self.samples >= 1, f"samples must be at least 1, not {self.samples}")
        require(0 <= self.held_out < 1, f"held_out must be from 0 to below 1, not {self.held_out}")
        if self.compile not in COMPILE:
            raise unknown_name("choice of compile", self.compile, COMPILE)
        often = 1e-6 <= self.evaluate_every < math.inf
        require(often, f"evaluate_every must be at least a millionth of an epoch, not {self.evaluate_every}")
        require(self.checkpoint_seconds >= 0, f"checkpoint_seconds must be 0 or more, not {self.checkpoint_seconds}")
        require(self.steps is None or self.steps >= 1, f"steps must be at least 1, not {self.steps}")
        require(self.group is None or self.group >= 1, f"group must be at least 1, not {self.group}")
        for name in ("arguments", "steps", "group") if not self.is_loop else ():
            require(getattr(self, name) is None, f"{name} is for your own loop, with `orlomo run`: leave it out")
        self._check_engine()
        if not self.is_loop:
            self.method.check_schedule(self.epochs)
        limit = self.method.max_workers
        if limit is not None and self.workers > limit:
            raise ConfigError(f"{self.method.name} runs on {limit} worker: set workers to {limit}, not {self.workers}")

    def _check_engine(self) -> None:
        from orlomo.clusters.cluster import cluster

        left_out = {"cluster": cluster("homogeneous")}
        for name in refused_settings(self.engine):
            require(getattr(self, name) == left_out.get(name), why_refused(self.engine, name))
        if self.clock == "real":
            most = f"{self.engine} starts a process for each worker: at most {MOST_PROCESSES:,}, not {self.workers}"
            require(self.workers <= MOST_PROCESSES, most)
        require(self.threads is None or self.threads >= 1, f"threads must be at least 1, not {self.threads}")
        require_at_most(self.threads or 1, MOST_THREADS, "threads")
        require(self.devices is None or len(self.devices) > 0, "devices names no device")
        if self.pace is not None:
            count = len(self.pace)
            require(count == self.workers, f"pace has {count} numbers for {self.workers} workers: one each")
            good = all(1 <= pace < math.inf for pace in self.pace)
            require(good, f"pace must be 1 (as fast as it can) or more, not {min(self.pace):g}")
            require_at_most(max(self.pace), SLOWEST, "pace")
        for name, amount in (self.resources or {}).items():
            require(0 <= amount < math.inf, f"resources: {shown(name)} must be 0 or more, not {amount:g}")
            require_at_most(amount, 1e18, f"resources: {shown(name)}")
        if (self.resources or {}).get("GPU") and self.device == "cpu":
            object.__setattr__(self, "device", "cuda")  # a worker that reserves a GPU computes on it

    @property
    def is_loop(self) -> bool:
        """Whether it trains the user's own loop."""
        return self.directory is not None

    @property
    def where(self) -> str:
        """The cluster or engine it runs on, for display."""
        return self.cluster.name if "cluster" in facts_of(self.engine).settings else self.engine

    @property
    def clock(self) -> Clock:
        """Whether its seconds are `virtual` or `real`."""
        return facts_of(self.engine).clock

    @property
    def compute_device(self) -> str:
        """Where a replay computes: where all workers did, if they all had the same device."""
        return self.devices[0] if self.devices and len(set(self.devices)) == 1 else self.device

    @property
    def server_device(self) -> str:
        """Where the server's vectors are: with the workers' where it runs in their process, else in main memory."""
        return self.device if self.clock == "virtual" else "cpu"


documented(RunConfig)(RunConfig)


def to_table(config: RunConfig) -> Table:
    """Plain nested values, as in a TOML file; None is left out."""
    from orlomo.methods import tables as methods

    # Settings that the engine does not take are at their defaults: `__post_init__` refuses others.
    left_out = {"method", *refused_settings(config.engine), *(LOOPS_OWN if config.is_loop else ())}
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in left_out}
    table = {name: plain(value) for name, value in values.items() if value is not None}
    method = methods.to_table(config.method)
    if config.is_loop:  # the optimizer has these
        method = {name: value for name, value in method.items() if name not in METHODS_OWN}
    return {**table, "method": method}


def from_table(table: Table, where: str = "config", *, method: Method | None = None, code: bool = True) -> RunConfig:
    """The config of such a table. `method` and `cluster` in it may be names instead of tables.

    `method`: in place of one that only Python has. Without `code`, a method of the user's own is not loaded.
    """
    from orlomo.methods import tables as methods

    table = {key: value for key, value in table.items() if key not in RECORD_KEYS}
    named = table.pop("method", "orlomo")
    chosen = methods.from_table(dict(named) if isinstance(named, dict) else {"name": named}, where, method, code)
    where_it_runs = make_cluster(table.pop("cluster", "homogeneous"), where)
    return build(RunConfig, {**table, "method": chosen, "cluster": where_it_runs}, where, _names())


def check_reads_back(config: RunConfig) -> None:
    """Raise a `ConfigError` unless the config.toml written from this config reads back equal."""
    from orlomo.methods import tables as methods

    for name, value in methods.to_table(config.method).items():
        try:
            # One by one, so that the error can name the hyperparameter.
            tomli_w.dumps({name: value})
        except (TypeError, ValueError):
            raise ConfigError(
                f"{config.method.name}: {name} = {value!r} cannot be written to config.toml: use numbers, texts, "
                "or lists and tables of them"
            ) from None
    for text in (config.task, config.directory or "", *(config.arguments or ())):
        if text != text.encode("utf-8", "ignore").decode():
            raise ConfigError(f"config.toml is in UTF-8, and {text} is not: rename that file or folder")
    table = methods.to_table(config.method)
    given = config.method if CUSTOM in (table["name"], table.get("schedule")) else None
    again = from_table(tomllib.loads(write(config)), method=given)
    # Compared by the tables, too: a user's class may define an equality of its own.
    if again.method != config.method or to_table(again) != to_table(config):
        raise ConfigError(f"the config does not read back equal: {config.method} becomes {again.method}")


def code_digests(config: RunConfig) -> dict[str, str]:
    """The sha256 of the user's files that decide the result: of `task`, `method`, `schedule`, where each is in one."""
    from orlomo.methods import tables as methods

    own = is_import_path(config.task) or config.is_loop
    found = {"task": source_digest(config.task if is_import_path(config.task) else f"{config.task}:") if own else ""}
    name = str(methods.to_table(config.method)["name"])
    found["method"] = class_digest(type(config.method)) if name == CUSTOM or is_import_path(name) else ""
    schedule = getattr(config.method, "schedule", "")
    if callable(schedule):
        found["schedule"] = function_digest(schedule)
    elif is_own(schedule):
        found["schedule"] = source_digest(schedule)
    return {what: digest for what, digest in found.items() if digest}


def same_run(stored: RunConfig, wanted: RunConfig) -> bool:
    """Whether a stored run is the wanted one. Settings left to the run (`auto`, None) may have been decided in it."""
    if wanted.compile == "auto":
        stored = dataclasses.replace(stored, compile="auto")
    if wanted.threads is None:
        stored = dataclasses.replace(stored, threads=None)
    return to_table(stored) == to_table(wanted)


def read(path: Path, follow: bool = True) -> dict[str, Any]:
    """The table in a TOML file; relative paths in it are taken from the file's own folder.

    `follow`: also through a link, for a file that the user has named.
    """
    table = read_toml(path, follow, ConfigError)
    folder = path.parent.absolute()
    _in_folder(table, "task", folder)
    if isinstance(method := table.get("method"), dict):
        _in_folder(method, "name", folder)
        _in_folder(method, "schedule", folder)
    speeds = chosen.get("speeds") if isinstance(chosen := table.get("cluster"), dict) else None
    for speed in speeds if isinstance(speeds, list) else ():
        law = speed.get("law") if isinstance(speed, dict) else None
        if isinstance(law, str) and law.startswith("file:"):
            speed["law"] = f"file:{folder / law.removeprefix('file:')}"
    return table


def _in_folder(table: Table, key: str, folder: Path) -> None:
    """Where a setting is `FILE.py:NAME`, take the file from this folder."""
    if isinstance(value := table.get(key), str) and ".py:" in value:
        table[key] = str(folder / value)


def write(config: RunConfig, **more: object) -> str:
    """The config as TOML text, `more` tables with it."""
    return tomli_w.dumps({**to_table(config), **more})


def make_cluster(value: object, where: str) -> Cluster:
    """A cluster from a preset's name, a TOML file with a [cluster] table, or such a table; a cluster is itself."""
    from orlomo.clusters.cluster import Cluster, cluster

    if isinstance(value, Cluster):
        return value
    if isinstance(value, Path) or (isinstance(value, str) and value.endswith(".toml")):
        table = read(path_of(value, "cluster"))
        require("cluster" in table, f"{value} has no [cluster] table")
        named = table["cluster"]
        further = isinstance(named, str) and named.endswith(".toml")
        require(not further, f"{value}: cluster must be a table or a preset's name, not another file")
        return make_cluster(named, str(value))
    if isinstance(value, str):
        return cluster(value)
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: cluster must be an orlomo.Cluster, a preset's name or a table, not {shown(value)}")
    table = dict(value)
    preset = table.pop("preset", None)
    require(
        preset is None or isinstance(preset, str), f"{where}: the cluster's preset must be a name, not {shown(preset)}"
    )
    if preset is not None:
        # The preset's values, with the table's own over them.
        table = {f.name: getattr(cluster(preset), f.name) for f in dataclasses.fields(Cluster)} | table
    return build(Cluster, table, f"{where}, cluster")


def _names() -> dict[str, type]:
    """The types of RunConfig's fields that this module does not import, so that `orlomo --help` need not wait."""
    from orlomo.clusters.cluster import Cluster
    from orlomo.methods.method import Method

    return {"Cluster": Cluster, "Method": Method}
