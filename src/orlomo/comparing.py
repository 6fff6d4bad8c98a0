"""Several methods, several seeds, one table and one plot."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from orlomo.config import RunConfig, same_run
from orlomo.engines.callbacks import Callback
from orlomo.engines.ray.connection import RayOptions
from orlomo.errors import Diverged, RunFolderError
from orlomo.files import write_atomically, write_text_atomically, writing_to
from orlomo.methods.registry import method_class, settings_of
from orlomo.printing import say
from orlomo.records.run import Run
from orlomo.report.comparison.rows import MethodTable, Row, method_table
from orlomo.report.comparison.texts import markdown_table
from orlomo.report.figures import comparison_figure
from orlomo.report.story import story_of
from orlomo.report.summary import without_nan, write_rows
from orlomo.report.view import View, view_of
from orlomo.resuming import resume
from orlomo.training import start

V = TypeVar("V")


class _Options(TypedDict):
    """What `start` and `resume` both take."""

    jobs: int | None
    ray: RayOptions | None
    tensorboard: bool
    callbacks: Sequence[Callback]


@dataclass(frozen=True)
class Comparison:
    """What `compare` found: one row per method, two or three sentences on them, and the files it wrote."""

    table: MethodTable
    story: list[str]
    runs: dict[str, list[Run]]
    folder: Path
    files: list[Path]

    @property
    def rows(self) -> list[Row]:
        """One per method."""
        return self.table.rows

    @property
    def reference(self) -> str | None:
        """The synchronous method that speed-ups are over."""
        return self.table.speeds.reference

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        target = self.table.target
        return {
            "folder": str(self.folder),
            "reference": self.reference,
            "target": None if target is None else {"metric": target.metric.column, "value": target.value},
            "equal_work_samples": self.table.speeds.work,
            "clock": self.table.clock,
            "story": self.story,
            "methods": [without_nan(row.values()) for row in self.rows],
        }


def compare(
    configs: dict[str, list[RunConfig]],
    folder: Path,
    *,
    jobs: int | None = None,
    ray: RayOptions | None = None,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
    target: str | None = None,
    warn: Callable[[str], None] = say,
) -> Comparison:
    """Run every config (by method, one per seed) into `folder`; runs that are there already are used or resumed.

    `target`: the value of the first metric that `time to target` is measured by, as in `97%`; default: see
    `speed.default_target`.
    """
    more: _Options = {"jobs": jobs, "ray": ray, "tensorboard": tensorboard, "callbacks": callbacks}
    found: dict[str, list[Run | None]] = {name: [] for name in configs}
    for name, seeds in configs.items():
        for config in seeds:
            found[name].append(_run(config, _folder(folder, name, config), warn, **more))
    return _write(found, configs, folder, target)


def runs_to_do(configs: dict[str, list[RunConfig]], folder: Path) -> int:
    """How many of them are not finished in `folder`."""
    folders = [_folder(folder, name, config) for name, seeds in configs.items() for config in seeds]
    return sum(not (one / "config.toml").is_file() or Run(one).state != "finished" for one in folders)


def _folder(folder: Path, name: str, config: RunConfig) -> Path:
    return folder / f"{name}-seed{config.seed}"


def settings_for(name: str, settings: dict[str, V]) -> dict[str, V]:
    """Those of the given hyperparameters that this method has."""
    known = settings_of(method_class(name))
    return {key: value for key, value in settings.items() if key in known}


def _run(config: RunConfig, folder: Path, warn: Callable[[str], None], **more: Unpack[_Options]) -> Run | None:
    try:
        if not (folder / "config.toml").exists():
            return start(config, folder, warn=warn, **more)
        if not same_run(Run(folder).config, config):
            raise RunFolderError(f"{folder} holds a run with other settings: choose another --out")
        if changed := Run(folder).changed_code(config):
            raise RunFolderError(
                f"{folder} was made before the file of the {' and the '.join(changed)} changed: choose another --out"
            )
        return resume(folder, trust=True, warn=warn, **more)  # its config is the one that was asked for
    except Diverged as error:  # a method that diverges is a result of the comparison: the others still run
        warn(f"{config.method.name}, seed {config.seed}: {error}")
        return None


def _write(
    found: dict[str, list[Run | None]], configs: dict[str, list[RunConfig]], folder: Path, target: str | None
) -> Comparison:
    groups: dict[str, list[View | None]] = {
        name: [None if run is None else view_of(run, run.folder.name, []) for run in runs]
        for name, runs in found.items()
    }
    table = method_table(groups, target)
    first = next(iter(configs.values()))[0]
    title = f"{first.task.rpartition('/')[2]}: {first.workers} workers, {first.where}, {first.epochs:g} epochs"
    runs = {name: [run for run in group if run is not None] for name, group in found.items()}
    times = {row.method: row.speed.to_target for row in table.rows if row.speed.reached == row.speed.seeds}
    files = comparison_figure(runs, title, folder, table.target, times)
    result = Comparison(table, story_of(table), runs, folder, files)
    text = json.dumps(result.to_json(), indent=1)
    with writing_to(folder):
        for name, content in (("comparison.json", text), ("comparison.md", markdown_table(table))):
            path = folder / name
            write_text_atomically(path, content)
            result.files.append(path)
        path = folder / "comparison.csv"
        write_atomically(path, lambda temporary: write_rows(temporary, [row.values() for row in table.rows]))
        result.files.append(path)
    return result
