"""The commands that need no run: `orlomo methods`, `tasks` and `trace`."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orlomo.commands.flags import path_argument
from orlomo.commands.output import print_file, print_json, print_lines
from orlomo.commands.parser import Commands
from orlomo.errors import ConfigError, require
from orlomo.printing import say

if TYPE_CHECKING:
    from orlomo.clusters.schedule import Schedule

STDOUT = Path("-")


def add(commands: Commands) -> None:
    """Their flags."""
    for name, call, text, detail in (
        ("methods", _methods, "list the methods", "List the methods: what each does, and who published it."),
        ("tasks", _tasks, "list the built-in tasks", "List the built-in tasks: data, model and size."),
    ):
        command = commands.add_parser(name, help=text, description=detail, examples=(f"orlomo {name}",))
        command.add_argument("--json", action="store_true", help="print the list as JSON")
        command.set_defaults(call=call)
    _add_trace(commands)


def _add_trace(commands: Commands) -> None:
    command = commands.add_parser(
        "trace",
        help="simulate the order of reports alone, without training",
        description="Simulate only when each worker reports, without a task: the delays of a method on a cluster.",
        examples=(
            "orlomo trace --workers 64 --cluster heterogeneous",
            "orlomo trace --workers 16 --iterations 5000 --out trace.csv",
        ),
    )
    command.add_argument("--method", default="orlomo", help="see `orlomo methods` (default: orlomo)")
    command.add_argument("--workers", type=int, default=16, help="number of workers (default: 16)")
    command.add_argument("--iterations", type=int, default=1000, help="reports to simulate (default: 1000)")
    command.add_argument("--local-steps", type=int, help="local steps in a round (default: the method's)")
    command.add_argument(
        "--cluster", default="homogeneous", help="how fast the workers are, as for train (default: homogeneous)"
    )
    command.add_argument("--seed", type=int, default=0, help="of the speeds (default: 0)")
    command.add_argument(
        "--parameters", type=int, default=0, help="the model's size, for clusters in which bytes cost time (default: 0)"
    )
    command.add_argument(
        "--out",
        type=path_argument,
        metavar="FILE",
        help="the events as a CSV file, or - for standard output (default: only a summary)",
    )
    command.add_argument("--json", action="store_true", help="print the summary as JSON")
    command.set_defaults(call=_trace)


def _trace(options: argparse.Namespace) -> int:
    import numpy as np

    from orlomo import config
    from orlomo.clusters.schedule import trace
    from orlomo.files import check_target, write_atomically, writing_to
    from orlomo.methods.registry import method

    settings = {} if options.local_steps is None else {"local_steps": options.local_steps}
    events = trace(
        method(options.method, **settings),
        workers=options.workers,
        iterations=options.iterations,
        cluster=config.make_cluster(options.cluster, "--cluster"),
        seed=options.seed,
        parameters=options.parameters,
    )
    to_stdout = options.out == STDOUT
    require(not (to_stdout and options.json), "--out - and --json both write to standard output: leave one out")
    if to_stdout:
        with tempfile.TemporaryDirectory() as folder:
            _write_trace(events, Path(folder) / "trace.csv")
            print_file(Path(folder) / "trace.csv")
    elif options.out is not None:
        check_target(options.out)
        with writing_to(options.out.parent):
            write_atomically(options.out, lambda temporary: _write_trace(events, temporary))
    delays = events["delay"][events.reports]
    facts = {
        "events": len(events),
        "virtual_seconds": float(events["finish"][-1]),
        "mean_delay": float(np.mean(delays)),
        "max_delay": int(np.max(delays)),
    }
    if options.json:
        print_json(facts)
    else:
        line = "  ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in facts.items())
        say(line, sys.stderr if to_stdout else sys.stdout)
    return 0


def _write_trace(events: Schedule, path: Path) -> None:
    from orlomo.clusters.schedule import COLUMNS, KINDS
    from orlomo.records.tables import TableWriter

    writer, names = TableWriter(path, COLUMNS), list(COLUMNS)
    try:
        for number, values in enumerate(zip(*(events[name].tolist() for name in names), strict=True)):
            writer.append({**dict(zip(names, values, strict=True)), "kind": KINDS[values[0]]})
            # A trace may have millions of rows: not all of them are kept in memory.
            if number % 10_000 == 0:
                writer.flush()
    finally:
        writer.close()


def _methods(options: argparse.Namespace) -> int:
    from orlomo.methods.registry import METHODS
    from orlomo.report.terminal.layout import Answer, listed

    if options.json:
        print_json([{"name": n, "summary": kind.summary, "paper": kind.paper} for n, kind in METHODS.items()])
        return 0
    groups: dict[str, list[tuple[str, list[str]]]] = {}
    for name, kind in METHODS.items():
        group, _, summary = kind.summary.partition(", ")
        groups.setdefault(group, []).append((f"  {name}", [summary, kind.paper]))
    size, width = max(len(name) for name in METHODS) + 2, Answer().width
    for number, (group, entries) in enumerate(groups.items()):
        named = [(name.ljust(size), texts) for name, texts in entries]  # alike in all groups
        print_lines([*[""] * bool(number), f"{group}:", *listed(named, width)])
    return 0


def _tasks(options: argparse.Namespace) -> int:
    from orlomo.report.terminal.layout import Answer, listed
    from orlomo.tasks.registry import TASKS, maker

    rows, texts = [], []
    for name in TASKS:
        summary = (maker(name).__doc__ or "").strip().splitlines()[0]
        try:
            task = maker(name)()
            parameters = task.initial_params(0).numel()
            size = shown = f"{task.size:,} samples, batch {task.batch_size}, {parameters:,} parameters"
        except ConfigError as error:
            # A data set that is not stored yet: the error says how to get it.
            size = str(error)
            command = re.search(r"`orlomo data [\w-]+`", size)
            shown = f"its data is not here yet: {command[0]} gets it" if command else size
        rows.append({"name": name, "summary": summary, "size": size})
        texts.append((name, [summary, shown]))
    if options.json:
        print_json(rows)
    else:
        print_lines(listed(texts, Answer().width))
    return 0
