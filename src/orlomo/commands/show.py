"""The commands that show: `orlomo report`, `watch`, `export`, `audit`, `verify`, `trace`, `methods` and `tasks`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orlomo.commands.flags import Commands, folder_argument, path_argument
from orlomo.commands.output import print_file, print_json
from orlomo.errors import ConfigError, require
from orlomo.printing import say

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from orlomo.clusters.schedule import Schedule

STDOUT = Path("-")
MOST_ROWS = 16
"""Rows at the beginning and at the end of a longer table that are shown."""


def add(commands: Commands) -> None:
    """Their flags."""
    report = commands.add_parser(
        "report", help="write one HTML page about runs, to be opened offline", allow_abbrev=False
    )
    report.add_argument(
        "folders", type=path_argument, nargs="+", metavar="RUN", help="runs, or a folder of runs, as compare writes it"
    )
    report.add_argument(
        "-o",
        "--out",
        type=path_argument,
        default=Path("report.html"),
        help="the page (default: report.html); -: standard output",
    )
    report.add_argument(
        "--target",
        help="measure times to this value of the first metric, as in 97%% (default: the strictest round value that "
        "all seeds of two methods reached)",
    )
    report.add_argument("--figures", type=folder_argument, help="write the charts here too, as PNG and SVG")
    report.set_defaults(call=_report)
    export = commands.add_parser("export", help="a run's tables in another format", allow_abbrev=False)
    export.add_argument("folder", type=path_argument, metavar="RUN", help="a run, or a folder of runs")
    export.add_argument("--format", required=True, help="csv, parquet or tensorboard")
    export.add_argument("-o", "--out", type=folder_argument, help="the folder (default: RUN/FORMAT)")
    export.set_defaults(call=_export)
    watch = commands.add_parser("watch", help="follow a run in a browser on this machine", allow_abbrev=False)
    watch.add_argument("folder", type=path_argument, metavar="RUN")
    watch.add_argument("--port", type=int, default=0, help="default: a free one")
    watch.set_defaults(call=_watch)
    audit = commands.add_parser(
        "audit", help="check that a user's own loop used every sample exactly once", allow_abbrev=False
    )
    audit.add_argument("folder", type=path_argument, metavar="RUN")
    audit.add_argument("--json", action="store_true", help="print all counts as JSON")
    audit.set_defaults(call=_audit)
    verify = commands.add_parser(
        "verify", help="check that a run's files are what it wrote, without computing", allow_abbrev=False
    )
    verify.add_argument("folders", type=path_argument, nargs="+", metavar="RUN", help="runs, or folders of runs")
    verify.add_argument("--json", action="store_true", help="print what was found as JSON")
    verify.set_defaults(call=_verify)
    _add_trace(commands)
    for name, call, text in (("methods", _methods, "list the methods"), ("tasks", _tasks, "list the built-in tasks")):
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        command.add_argument("--json", action="store_true", help="print the list as JSON")
        command.set_defaults(call=call)


def _add_trace(commands: Commands) -> None:
    command = commands.add_parser("trace", help="make a schedule alone, without a task, as CSV", allow_abbrev=False)
    command.add_argument("--method", default="orlomo")
    command.add_argument("--workers", type=int, default=16)
    command.add_argument("--iterations", type=int, default=1000)
    command.add_argument("--local-steps", type=int)
    command.add_argument("--cluster", default="homogeneous")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--parameters", type=int, default=0, help="the model's size, where bytes cost time")
    command.add_argument(
        "--out", type=path_argument, help="the CSV file (default: only the summary); -: standard output"
    )
    command.add_argument("--json", action="store_true")
    command.set_defaults(call=_trace)


def _report(options: argparse.Namespace) -> int:
    from orlomo.report.page import write_report

    folders = [run for folder in options.folders for run in _runs(folder)]
    to_stdout = options.out == STDOUT
    with tempfile.TemporaryDirectory() if to_stdout else contextlib.nullcontext(".") as folder:
        path = Path(folder) / "report.html" if to_stdout else options.out
        page = write_report(folders, path, options.target)
        for note in page["notes"]:
            say(f"orlomo: note: {note}", sys.stderr)
        if to_stdout:
            print_file(path)
        else:
            for sentence in page["story"]:
                say(sentence)
            say(path)
    if options.figures is not None:
        from orlomo.report.figures import write_figures

        for path in write_figures(page["charts"], page["runs"], options.figures):
            say(path, sys.stderr if to_stdout else sys.stdout)
    return 0


def _export(options: argparse.Namespace) -> int:
    from orlomo.files import subfolder
    from orlomo.records.run import Run
    from orlomo.report.export import export
    from orlomo.report.terminal.screen import warn

    for run in _runs(options.folder):
        folder = options.out
        if run != options.folder:  # several: each its own folder
            inside = run.relative_to(options.folder)
            for length in range(len(inside.parts)):  # files are written here: into no folder that was not named
                subfolder(options.folder.joinpath(*inside.parts[:length]), inside.parts[length])
            folder = options.out and options.out / inside
        for path in export(Run(run), options.format, folder, warn):
            say(path)
    return 0


def _runs(folder: Path) -> list[Path]:
    """The run in this folder, or those that it is a folder of."""
    from orlomo.records.folders import runs_in

    return [folder] if (folder / "config.toml").exists() else runs_in(folder) or [folder]


def _watch(options: argparse.Namespace) -> int:
    from orlomo.report.watch import Follower, Watch

    follower = Follower(options.folder)
    try:
        server = Watch(follower, options.port)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on port {options.port}: {error}; choose another --port") from None
    # sys.exit leaves through `with server`, which closes it; the default handler would not.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with server:
        say(f"{server.address} shows {options.folder}; Ctrl-C ends it")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
    return 0


def _audit(options: argparse.Namespace) -> int:
    from orlomo.records.audit import audit

    found = audit(options.folder)
    if options.json:
        print_json(found.to_json())
        return 0 if found.ok else 1
    _print_counts("epoch", found.epochs)
    _print_counts("worker", found.workers)
    say(found.text)
    return 0 if found.ok else 1


def _verify(options: argparse.Namespace) -> int:
    from orlomo.errors import OrlomoError
    from orlomo.verifying import verify

    results, code = [], 0
    for run in [run for folder in options.folders for run in _runs(folder)]:
        try:
            found = verify(run)
        except OrlomoError as error:
            say(f"orlomo: {error}", sys.stderr)
            code = 2
            continue
        results.append(found.to_json())
        code = max(code, 0 if found.whole else 1)
        if not options.json:
            say(found, lines=True)
    if options.json:
        print_json(results)
    return code


def _print_counts(title: str, rows: Sequence[DataclassInstance]) -> None:
    """A table of these rows of numbers, with a row of sums; of many rows the first and the last ones."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    if not rows:
        return
    numbers = [dataclasses.asdict(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_footer=len(rows) > 1)
    for name in numbers[0]:
        summed = "all" if name == title else "" if name == "workers" else f"{sum(row[name] for row in numbers):,}"
        table.add_column(name, summed, justify="right", no_wrap=True)
    shown = numbers if len(numbers) <= 2 * MOST_ROWS else [*numbers[:MOST_ROWS], {}, *numbers[-MOST_ROWS:]]
    for row in shown:
        table.add_row(*(f"{value:,}" for value in row.values()) if row else ["..."])
    Console(width=100).print(table)


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

    return _list({name: (kind.summary, kind.paper) for name, kind in METHODS.items()}, options.json, "paper")


def _tasks(options: argparse.Namespace) -> int:
    from orlomo.tasks.registry import TASKS, maker

    facts = {}
    for name in TASKS:
        try:
            task = maker(name)()
            size = f"{task.size} samples, batch {task.batch_size}, {task.initial_params(0).numel()} parameters"
        except ConfigError as error:
            # A data set that is not stored yet: the error says how to get it.
            size = str(error)
        facts[name] = ((maker(name).__doc__ or "").strip().splitlines()[0], size)
    return _list(facts, options.json, "size")


def _list(entries: dict[str, tuple[str, str]], as_json: bool, second: str) -> int:
    if as_json:
        print_json([{"name": n, "summary": one, second: two} for n, (one, two) in entries.items()])
        return 0
    width = max(map(len, entries))
    for name, (one, two) in entries.items():
        say(f"{name:<{width}}  {one}")
        say(f"{'':<{width}}  {two}")
    return 0
