"""The command `orlomo`: parse, call, print."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orlomo
from orlomo.commands import data, reproduce, show, trace, workers
from orlomo.commands.flags import METHOD_FLAGS, RAY_FLAGS, RUN_FLAGS, Parser, add_common, add_flags
from orlomo.errors import ConfigError, Interrupted, OrlomoError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code: 0 done, 1 a replay that differs, 2 an error, 128+n stopped by signal n."""
    try:
        options = parser().parse_args(arguments)
        code: int = options.call(options)
        return code
    except Interrupted as stop:
        print(f"orlomo: {stop}", file=sys.stderr)
        return 128 + stop.signal_number
    except OrlomoError as error:
        print(f"orlomo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("orlomo: stopped; there was nothing to save", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        print(f"orlomo: {error.strerror or error}: {error.filename or 'a file'}", file=sys.stderr)
        return 2


def parser() -> Parser:
    """All commands and their flags."""
    top = Parser(
        prog="orlomo",
        description="Asynchronous momentum training for machines of unequal speed.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"orlomo {orlomo.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    train = commands.add_parser("train", help="train a task with a method on a cluster", allow_abbrev=False)
    train.add_argument("task", help="a built-in task, FILE.py:NAME, or a TOML file with the whole config")
    train.add_argument("--method", help="see `orlomo methods`")
    train.add_argument("--seed", type=int)
    add_flags(train, RUN_FLAGS | METHOD_FLAGS | RAY_FLAGS)
    train.add_argument("--out", type=Path, help="the run folder")
    train.add_argument("--tensorboard", action="store_true", help="write for TensorBoard too, into the run folder")
    add_common(train)
    train.set_defaults(call=_train)

    comparison = commands.add_parser(
        "compare", help="run several methods and show one table and plot", allow_abbrev=False
    )
    comparison.add_argument("task", help="a built-in task, FILE.py:NAME, or a TOML file")
    comparison.add_argument("--methods", required=True, help="names with commas between")
    comparison.add_argument("--seeds", type=int, default=1, help="seeds 0 .. N-1 for each method")
    add_flags(comparison, RUN_FLAGS | METHOD_FLAGS | RAY_FLAGS)
    comparison.add_argument("--out", type=Path, help="the folder; finished runs in it are used again")
    comparison.add_argument(
        "--tensorboard", action="store_true", help="write for TensorBoard too, into each run folder"
    )
    add_common(comparison)
    comparison.set_defaults(call=_compare)

    for name, call, text in (
        ("resume", _resume, "go on with a run from its newest checkpoint"),
        ("replay", _replay, "compute a run again from its trace and compare, bit for bit"),
    ):
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        command.add_argument("folder", type=Path)
        if name == "resume":
            command.add_argument("--workers", type=int, help="go on with so many (not in the simulator)")
            command.add_argument("--tensorboard", action="store_true", help="write for TensorBoard too")
            add_flags(command, RAY_FLAGS)
        add_common(command)
        command.set_defaults(call=call)
    workers.add(commands)

    reproduce.add(commands)

    trace.add(commands)
    for name, call, text in (
        ("methods", _methods, "list the methods"),
        ("tasks", _tasks, "list the built-in tasks"),
    ):
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        command.add_argument("--json", action="store_true")
        command.set_defaults(call=call)
    data.add(commands)
    show.add(commands)
    return top


def _table(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config's table (without the method) and the method's, from the TOML file and the flags over it."""
    from orlomo import config

    table: dict[str, Any] = {"task": options.task}
    if options.task.endswith(".toml"):
        table = config.read(Path(options.task))
    method = table.pop("method", {})
    method = dict(method) if isinstance(method, dict) else {"name": method}
    given = {name: getattr(options, name) for name in RUN_FLAGS if getattr(options, name) is not None}
    hyper = {name: getattr(options, name) for name in METHOD_FLAGS if getattr(options, name) is not None}
    return table | given, method | hyper


def _train(options: argparse.Namespace) -> int:
    from orlomo import config
    from orlomo.comparing import settings_for
    from orlomo.methods.registry import METHODS
    from orlomo.report.progress import TerminalProgress, warn
    from orlomo.training import start

    table, method = _table(options)
    if options.seed is not None:
        table["seed"] = options.seed
    if options.method is not None and options.method != method.get("name"):
        flags = {name: method[name] for name in METHOD_FLAGS if getattr(options, name) is not None}
        # Another method than the file's: what it does not have goes, unless a flag asked for it.
        kept = settings_for(options.method, method) if options.method in METHODS else {}
        method = {**kept, **flags, "name": options.method}
    settings = config.from_table({**table, "method": method}, options.task)
    with TerminalProgress(options.quiet) as progress:
        more = {"jobs": options.jobs, "ray": _ray(options), "tensorboard": options.tensorboard}
        run = start(settings, options.out, callbacks=[progress], warn=warn, **more)
    return _print_run(run, options.json)


def _compare(options: argparse.Namespace) -> int:
    from rich.console import Console

    from orlomo import config
    from orlomo.comparing import check_methods, compare, runs_to_do, settings_for
    from orlomo.errors import require
    from orlomo.methods.registry import method_class
    from orlomo.report.progress import TerminalProgress, warn
    from orlomo.report.summary import terminal_table

    names = [name.strip() for name in options.methods.split(",") if name.strip()]
    require(bool(names), "--methods names no method")
    require(options.seeds >= 1, f"--seeds must be at least 1, not {options.seeds}")
    check_methods(names)
    for name in names:
        method_class(name)  # an unknown name is an error
    table, method = _table(options)
    method.pop("name", None)
    configs = {}
    for name in names:
        limit = method_class(name).max_workers
        own = {**table, "method": {"name": name, **settings_for(name, method)}}
        left_out = sorted(set(method) - set(settings_for(name, method)))
        if left_out:
            print(f"orlomo: note: {name} has no {', '.join(left_out)}", file=sys.stderr)
        if limit is not None:
            own["workers"] = limit
            if "pace" in own:
                own["pace"] = own["pace"][:limit]
        configs[name] = [config.from_table({**own, "seed": seed}, options.task) for seed in range(options.seeds)]
    task = configs[names[0]][0].task
    folder = options.out or Path("runs") / f"compare-{Path(task.partition(':')[0]).stem}"
    try:
        with TerminalProgress(options.quiet, runs=runs_to_do(configs, folder)) as progress:
            more = {"jobs": options.jobs, "ray": _ray(options), "tensorboard": options.tensorboard}
            result = compare(configs, folder, callbacks=[progress], warn=warn, **more)
    except Interrupted as stop:
        name = signal.Signals(stop.signal_number).name
        raise Interrupted(
            f"stopped by {name}; saved. The same command goes on from there", stop.signal_number
        ) from None
    if options.json:
        print(json.dumps(result.to_json()))
        return 0
    first = configs[names[0]][0]
    where = f"{first.where} cluster" if first.clock == "virtual" else first.where
    title = f"{first.task}: {first.workers} workers, {where}, {first.epochs:g} epochs"
    console = Console()
    console.width = max(80, console.width) if sys.stdout.isatty() else 100  # whole cells, whatever the terminal
    title += f", {options.seeds} seed{'s' * (options.seeds > 1)}"
    console.print(terminal_table(result.rows, title, first.clock))
    for path in result.files:
        print(path)
    return 0


def _resume(options: argparse.Namespace) -> int:
    from orlomo.records.run import Run
    from orlomo.report.progress import TerminalProgress, warn
    from orlomo.training import resume

    found = Run(options.folder, lambda text: None)
    if found.finished and found.stopped is None:
        print(f"{options.folder} is finished already", file=sys.stderr)
    with TerminalProgress(options.quiet) as progress:
        more = {"workers": options.workers, "jobs": options.jobs, "ray": _ray(options)}
        more["tensorboard"] = options.tensorboard
        run = resume(options.folder, callbacks=[progress], warn=warn, **more)
    return _print_run(run, options.json)


def _ray(options: argparse.Namespace) -> orlomo.RayOptions:
    return orlomo.RayOptions(options.address, options.runtime_env)


def _replay(options: argparse.Namespace) -> int:
    import dataclasses

    from orlomo.report.progress import TerminalProgress, warn
    from orlomo.training import replay

    with TerminalProgress(options.quiet) as progress:
        result = replay(options.folder, jobs=options.jobs, callbacks=[progress], warn=warn)
    print(json.dumps(dataclasses.asdict(result)) if options.json else result)
    return 0 if result.agrees else 1


def _methods(options: argparse.Namespace) -> int:
    from orlomo.methods.registry import METHODS

    return _list({name: (kind.summary, kind.paper) for name, kind in METHODS.items()}, options.json, "paper")


def _tasks(options: argparse.Namespace) -> int:
    from orlomo.tasks.registry import TASKS, maker

    facts = {}
    for name in TASKS:
        try:
            task = maker(name)()
            size = f"{task.size} samples, batch {task.batch_size}, {task.initial_params(0).numel()} parameters"
        except ConfigError as error:
            size = str(error)
        facts[name] = ((maker(name).__doc__ or "").strip().splitlines()[0], size)
    return _list(facts, options.json, "size")


def _list(entries: dict[str, tuple[str, str]], as_json: bool, second: str) -> int:
    if as_json:
        print(json.dumps([{"name": n, "summary": one, second: two} for n, (one, two) in entries.items()]))
        return 0
    width = max(map(len, entries))
    for name, (one, two) in entries.items():
        print(f"{name:<{width}}  {one}\n{'':<{width}}  {two}")
    return 0


def _print_run(run: Any, as_json: bool) -> int:
    from orlomo.report.summary import summarise

    summary = summarise(run)
    if as_json:
        print(json.dumps({**summary.to_json(), "stopped": run.stopped}))
        return 0
    print(summary.line())
    if run.stopped is not None:
        print(f"stopped: {run.stopped}")
    print(summary.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
