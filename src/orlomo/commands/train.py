"""The commands that train: `orlomo train`, `compare`, `resume` and `replay`."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from orlomo import config
from orlomo.commands.flags import (
    METHOD_FLAGS,
    MOST_SEEDS,
    add_common,
    add_ray,
    add_settings,
    assignments,
    folder_argument,
    given,
    name_list,
    path_argument,
)
from orlomo.commands.output import print_json, print_lines
from orlomo.commands.parser import Commands
from orlomo.commands.trusting import add_trust, confirm
from orlomo.config import RunConfig
from orlomo.errors import ConfigError, Interrupted, require, require_at_most
from orlomo.report.terminal.layout import tell
from orlomo.values import Table, from_text, helps, hints_of, path_of

if TYPE_CHECKING:
    import orlomo
    from orlomo.comparing import Comparison
    from orlomo.records.run import Run

OWN = "FILE.py:NAME"


def add(commands: Commands) -> None:
    """Their flags."""
    train = commands.add_parser(
        "train",
        help="train a task with a method, simulated or for real",
        description="Train a task with a method. Unless --engine says otherwise, the workers are simulated: the "
        "training is real, their speeds and the clock are not.",
        examples=(
            "orlomo train digits",
            "orlomo train digits --workers 8 --cluster heterogeneous --epochs 40 --out runs/a",
            "orlomo train digits --engine processes --workers 4 --pace 1,1,1,4",
            "orlomo train my_task.py:task --learning-rate 0.05 --local-steps 32",
        ),
    )
    train.add_argument("task", metavar="TASK", help=f"see `orlomo tasks`; or {OWN}, or a TOML file with a whole config")
    train.add_argument("--method", help=f"see `orlomo methods`, or your own: {OWN} (default: orlomo)")
    add_settings(train)
    train.add_argument("--out", type=folder_argument, help="the run folder (default: runs/TASK-METHOD-seedN)")
    train.set_defaults(call=_train)
    compare = commands.add_parser(
        "compare",
        help="train with several methods and compare them",
        description="Train a task with several methods, and compare them in one table and plot. Finished runs in the "
        "folder are used again, so the same command continues after a stop.",
        examples=(
            "orlomo compare digits --methods prsgdm,orlomo --cluster heterogeneous",
            "orlomo compare digits --methods prsgdm,orlomo --seeds 3 --engine processes --workers 4 --pace 1,1,1,4",
        ),
    )
    compare.add_argument("task", metavar="TASK", help=f"see `orlomo tasks`; or {OWN}, or a TOML file")
    compare.add_argument("--methods", required=True, help=f"names, or {OWN}, with commas between")
    compare.add_argument("--seeds", type=int, default=1, help="runs of each method, with seeds 0 to N-1 (default: 1)")
    add_settings(compare, skip=("seed",))
    compare.add_argument(
        "--target",
        help="measure times to this value of the first metric, as in 97%% (default: the strictest round value that "
        "all seeds of two methods reached)",
    )
    compare.add_argument("--out", type=folder_argument, help="the folder (default: runs/compare-TASK)")
    compare.set_defaults(call=_compare)
    resume = commands.add_parser(
        "resume",
        help="continue a run from its newest checkpoint",
        description="Continue a run from its newest checkpoint, or a finished one for more epochs.",
        examples=("orlomo resume runs/a", "orlomo resume runs/a --epochs 80 --learning-rate 0.01"),
    )
    resume.add_argument("folder", type=path_argument, metavar="RUN", help="the run folder")
    resume.add_argument(
        "--epochs", type=float, help="train until so many, counted from the beginning (default: as before)"
    )
    resume.add_argument("--learning-rate", type=float, help="from here on; it is recorded (default: as before)")
    resume.add_argument("--workers", type=int, help="with processes or ray, continue with so many (default: as before)")
    add_ray(resume)
    resume.set_defaults(call=_resume)
    replay = commands.add_parser(
        "replay",
        help="compute a run again from its trace and compare, bit for bit",
        description="Compute a run again from its trace, on this machine, and compare the models bit for bit.",
        examples=("orlomo replay runs/a",),
    )
    replay.add_argument("folder", type=path_argument, metavar="RUN", help="the run folder")
    replay.set_defaults(call=_replay)
    for command in (train, compare, resume):
        command.add_argument(
            "--tensorboard", action="store_true", help="write for TensorBoard too, into the run folder"
        )
    for command in (train, compare, resume, replay):
        add_trust(command)
        add_common(command)


def _tables(options: argparse.Namespace, typed: Collection[str]) -> tuple[Table, Table]:
    """The config's table (without the method) with the flags over it, and the method's as the TOML file has it.

    `typed`: of `method` and `schedule`, those that flags give: other code that the TOML file names must be trusted.
    """
    from orlomo.loading import hold_no_code
    from orlomo.trust import code_in, untrusted

    table: Table = {"task": options.task}
    if options.task.endswith(".toml"):
        path = path_of(options.task, "the TOML file")
        table = config.read(path)
        if "format" in table:  # the config.toml of a run
            hold_no_code(path.parent)
        confirm(untrusted(code_in(table, typed), path.absolute()), path, options.trust)
    method = table.pop("method", {})
    # `method = "orlomo"` is short for a table with only a name.
    method = dict(method) if isinstance(method, dict) else {"name": method}
    return table | given(options, (name for name, _, has_flag in helps(RunConfig) if has_flag)), method


def typed(name: str, texts: dict[str, str]) -> Table:
    """What `--set` gives, as the types of this method's hyperparameters; those that it does not have are left out."""
    from orlomo.methods.registry import method_class

    # A text has no type until the method is known: `--set every=3` may be an int, a float or a str.
    hints = hints_of(method_class(name))
    values = {}
    for key in texts.keys() & hints.keys():
        try:
            values[key] = from_text(texts[key], hints[key])
        except ConfigError as error:
            raise ConfigError(f"--set {key} {error}") from None
    return values


def check_known(texts: dict[str, str], names: list[str]) -> None:
    """Every name that `--set` gives must be a hyperparameter of one of these methods."""
    from orlomo.methods.registry import method_class, settings_of, unknown_setting

    # dict.fromkeys and not set: the order of the names is shown in the error.
    known = list(dict.fromkeys(key for name in names for key in settings_of(method_class(name))))
    for key in texts:
        if key not in known:
            raise unknown_setting(f"hyperparameter of {' and '.join(names)}", key, known)


def _train(options: argparse.Namespace) -> int:
    from orlomo.comparing import settings_for
    from orlomo.report.terminal.screen import TerminalProgress, warn
    from orlomo.training import start

    flags = given(options, METHOD_FLAGS)
    texts = assignments(options.set, flags)
    table, method = _tables(options, {*flags, *texts, *(["method"] if options.method else [])})
    name = str(options.method or method.get("name", "orlomo"))
    check_known(texts, [name])
    # Another method than the file's: settings that it does not have are left out, unless a flag gives them.
    kept = method if name == method.get("name") else settings_for(name, method)
    made = config.from_table({**table, "method": {**kept, **flags, **typed(name, texts), "name": name}}, options.task)
    with TerminalProgress(options.quiet) as progress:
        more = {"jobs": options.jobs, "ray": ray_options(options), "tensorboard": options.tensorboard}
        run = start(made, options.out, callbacks=[progress], warn=warn, **more)
    return print_run(run, options.json)


def _compare(options: argparse.Namespace) -> int:
    from orlomo.comparing import compare, runs_to_do
    from orlomo.report.comparison.groups import label
    from orlomo.report.terminal.screen import TerminalProgress, warn

    names = name_list(options.methods)
    require(options.seeds >= 1, f"--seeds must be at least 1, not {options.seeds}")
    require_at_most(options.seeds, MOST_SEEDS, "--seeds")
    configs = {label(name): made for name, made in _configs(options, names).items()}
    require(len(configs) == len(names), "--methods names two methods that would share a folder: rename one's file")
    task = next(iter(configs.values()))[0].task
    folder = options.out or Path("runs") / f"compare-{Path(task.partition(':')[0]).stem}"
    try:
        with TerminalProgress(options.quiet, runs=runs_to_do(configs, folder)) as progress:
            more = {"jobs": options.jobs, "ray": ray_options(options), "tensorboard": options.tensorboard}
            result = compare(configs, folder, target=options.target, callbacks=[progress], warn=warn, **more)
    except Interrupted as stop:
        name = signal.Signals(stop.signal_number).name
        raise Interrupted(
            f"stopped by {name}; saved. The same command continues from there", stop.signal_number
        ) from None
    if options.json:
        print_json(result.to_json())
    else:
        _print_comparison(result, next(iter(configs.values()))[0])
    return 0


def _configs(options: argparse.Namespace, names: list[str]) -> dict[str, list[RunConfig]]:
    """The configs of each method, one per seed."""
    from orlomo.comparing import settings_for
    from orlomo.methods.registry import method_class
    from orlomo.methods.tables import FACTS

    for name in names:
        method_class(name)  # an unknown name is an error
    flags = given(options, METHOD_FLAGS)
    texts = assignments(options.set, flags)
    table, method = _tables(options, {*flags, *texts, "method"})
    method = {key: value for key, value in method.items() if key not in FACTS} | flags
    check_known(texts, names)
    configs = {}
    for name in names:
        settings = {**settings_for(name, method), **typed(name, texts)}
        own = {**table, "method": {"name": name, **settings}}
        # Not an error: one command line serves methods with different hyperparameters.
        left_out = sorted((method.keys() | texts.keys()) - settings.keys())
        if left_out:
            tell(f"orlomo: note: {name} has no {', '.join(left_out)}", sys.stderr)
        # msgd runs on one worker beside methods that run on sixteen.
        limit = method_class(name).max_workers
        if limit is not None:
            own["workers"] = limit
            if isinstance(pace := own.get("pace"), (list, tuple)):
                own["pace"] = pace[:limit]
        configs[name] = [config.from_table({**own, "seed": seed}, options.task) for seed in range(options.seeds)]
    return configs


def _print_comparison(result: Comparison, first: RunConfig) -> None:
    from orlomo.report.terminal.ending import comparison_lines
    from orlomo.report.terminal.layout import Answer

    where = f"{first.where} cluster" if first.clock == "virtual" else first.where
    title = f"{first.task.rpartition('/')[2]}: {first.workers} workers, {where}, {first.epochs:g} epochs"
    seeds = max(row.runs for row in result.rows)
    title += f", {seeds} seed{'s' * (seeds > 1)}"
    print_lines(comparison_lines(result.table, result.story, title, result.folder, result.files, Answer()))


def _resume(options: argparse.Namespace) -> int:
    from orlomo.files import short
    from orlomo.records.leftovers import check_begun
    from orlomo.records.run import Run
    from orlomo.report.terminal.screen import TerminalProgress, warn
    from orlomo.resuming import resume, untrusted_code

    check_begun(options.folder.absolute())
    # Its warnings would be repeated by `resume`.
    found = Run(options.folder, lambda text: None)
    _ = found.resumable  # an error where the record is damaged
    changes = {"epochs": options.epochs, "learning_rate": options.learning_rate}
    trusted = False
    if not found.finished or changes != {"epochs": None, "learning_rate": None}:
        trusted = confirm(untrusted_code(found), found.folder, options.trust)
    elif found.stopped is None:
        tell(f"{short(found.folder)} is finished already", sys.stderr)
    with TerminalProgress(options.quiet) as progress:
        more = {"workers": options.workers, "jobs": options.jobs, "ray": ray_options(options)}
        more["tensorboard"] = options.tensorboard
        run = resume(options.folder, trust=trusted, callbacks=[progress], warn=warn, **changes, **more)
    return print_run(run, options.json)


def ray_options(options: argparse.Namespace) -> orlomo.RayOptions:
    from orlomo.engines.ray.connection import RayOptions

    return RayOptions(options.address, options.runtime_env)


def _replay(options: argparse.Namespace) -> int:
    from orlomo.records.run import Run
    from orlomo.report.terminal.screen import TerminalProgress, warn
    from orlomo.resuming import replay, untrusted_code

    trusted = confirm(untrusted_code(found := Run(options.folder)), found.folder, options.trust)
    with TerminalProgress(options.quiet) as progress:
        result = replay(options.folder, trust=trusted, jobs=options.jobs, callbacks=[progress], warn=warn)
    if options.json:
        print_json(dataclasses.asdict(result))
    else:
        tell(result, sys.stdout)
    # 1 and not 2: the command worked, and the answer is no.
    return 0 if result.agrees else 1


def print_run(run: Run, as_json: bool) -> int:
    from orlomo.report.summary import summarise
    from orlomo.report.terminal.ending import run_lines
    from orlomo.report.terminal.layout import Answer

    if as_json:
        changes = [dataclasses.asdict(change) for change in run.changes]
        print_json({**summarise(run).to_json(), "stopped": run.stopped, "changes": changes})
    else:
        print_lines(run_lines(run, Answer()))
    return 0
