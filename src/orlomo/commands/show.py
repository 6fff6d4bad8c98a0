"""The commands about runs: `orlomo report`, `watch`, `export`, `verify` and `audit`."""

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

from orlomo.commands.flags import folder_argument, path_argument
from orlomo.commands.output import print_file, print_json, print_lines
from orlomo.commands.parser import Commands
from orlomo.errors import ConfigError
from orlomo.printing import say
from orlomo.report.terminal.layout import tell

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

STDOUT = Path("-")
MOST_ROWS = 16
"""Rows at the beginning and at the end of a longer table that are shown."""


def add(commands: Commands) -> None:
    """Their flags."""
    report = commands.add_parser(
        "report",
        help="write an HTML page about one or more runs",
        description="Write one HTML page about runs. It opens offline and can be sent as a file.",
        examples=(
            "orlomo report runs/a",
            "orlomo report runs/compare-digits -o comparison.html",
            "orlomo report runs/a runs/b --figures figures",
        ),
    )
    report.add_argument("folders", type=path_argument, nargs="+", metavar="RUN", help="runs, or folders of runs")
    report.add_argument(
        "-o",
        "--out",
        type=path_argument,
        default=Path("report.html"),
        metavar="FILE",
        help="the page, or - for standard output (default: report.html)",
    )
    report.add_argument(
        "--figures", type=folder_argument, help="write the charts here too, as PNG and SVG (default: not)"
    )
    report.add_argument(
        "--target",
        help="measure times to this value of the first metric, as in 97%% (default: the strictest round value that "
        "all seeds of two methods reached)",
    )
    report.set_defaults(call=_report)
    watch = commands.add_parser(
        "watch",
        help="follow a run in a browser",
        description="Serve the page of a run on this machine, and keep it up to date while the run is under way.",
        examples=("orlomo watch runs/a",),
    )
    watch.add_argument("folder", type=path_argument, metavar="RUN", help="the run folder")
    watch.add_argument("--port", type=int, default=0, help="the port on this machine (default: a free one)")
    watch.set_defaults(call=_watch)
    export = commands.add_parser(
        "export",
        help="write a run's tables in another format",
        description="Write the tables of a run for other programs: CSV, Parquet, or TensorBoard's files.",
        examples=("orlomo export runs/a --format parquet", "orlomo export runs/a --format tensorboard -o logs/a"),
    )
    export.add_argument("folder", type=path_argument, metavar="RUN", help="a run, or a folder of runs")
    export.add_argument("--format", required=True, help="csv, parquet or tensorboard")
    export.add_argument("-o", "--out", type=folder_argument, help="the folder (default: RUN/FORMAT)")
    export.set_defaults(call=_export)
    verify = commands.add_parser(
        "verify",
        help="check that the files of a run are as it wrote them",
        description="Check that the files of a run are whole and as the run wrote them. Nothing is computed again.",
        examples=("orlomo verify runs/a",),
    )
    verify.add_argument("folders", type=path_argument, nargs="+", metavar="RUN", help="runs, or folders of runs")
    verify.add_argument("--json", action="store_true", help="print what was found as JSON")
    verify.set_defaults(call=_verify)
    audit = commands.add_parser(
        "audit",
        help="check that your own loop used every sample exactly once",
        description="Check that a training script under `orlomo run` used every sample of an epoch exactly once.",
        examples=("orlomo audit runs/a",),
    )
    audit.add_argument("folder", type=path_argument, metavar="RUN", help="the run folder")
    audit.add_argument("--json", action="store_true", help="print all counts as JSON")
    audit.set_defaults(call=_audit)


def _report(options: argparse.Namespace) -> int:
    from orlomo.report.terminal.ending import report_lines
    from orlomo.report.terminal.layout import Answer
    from orlomo.report.web.page import write_report

    folders = [run for folder in options.folders for run in _runs(folder)]
    to_stdout = options.out == STDOUT
    with tempfile.TemporaryDirectory() if to_stdout else contextlib.nullcontext(".") as folder:
        path = Path(folder) / "report.html" if to_stdout else options.out
        page = write_report(folders, path, options.target)
        for note in page["notes"]:
            tell(f"orlomo: note: {note}", sys.stderr)
        if to_stdout:
            print_file(path)
    figures: list[Path] = []
    if options.figures is not None:
        from orlomo.report.figures import write_figures

        figures = write_figures(page["charts"], page["runs"], options.figures, page["methods"])
    if not to_stdout:
        print_lines(report_lines(page["story"], [path, *figures], Answer()))
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
    from orlomo.report.web.watch import Follower, Watch

    follower = Follower(options.folder)
    try:
        server = Watch(follower, options.port)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot listen on port {options.port}: {str(error).rstrip('.')}; choose another --port"
        ) from None
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
    for line in found.text.splitlines():
        tell(line, sys.stdout)
    return 0 if found.ok else 1


def _verify(options: argparse.Namespace) -> int:
    from orlomo.errors import OrlomoError
    from orlomo.verifying import verify

    results, code = [], 0
    for run in [run for folder in options.folders for run in _runs(folder)]:
        try:
            found = verify(run)
        except OrlomoError as error:
            tell(f"orlomo: {error}", sys.stderr)
            code = 2
            continue
        results.append(found.to_json())
        code = max(code, 0 if found.whole else 1)
        if not options.json:
            for line in str(found).splitlines():
                tell(line, sys.stdout)
    if options.json:
        print_json(results)
    return code


def _print_counts(title: str, rows: Sequence[DataclassInstance]) -> None:
    """A table of these rows of numbers, with a row of sums; of many rows the first and the last ones."""
    from orlomo.report.terminal.layout import Answer, table

    if not rows:
        return
    numbers = [dataclasses.asdict(row) for row in rows]
    names = list(numbers[0])
    lines = [[f"{row[name]:,}" for name in names] for row in numbers]
    if len(lines) > 2 * MOST_ROWS:
        lines = [*lines[:MOST_ROWS], ["...", *[""] * (len(names) - 1)], *lines[-MOST_ROWS:]]
    if len(rows) > 1:
        sums = {name: f"{sum(row[name] for row in numbers):,}" for name in names}
        lines.append([(sums | {title: "all", "workers": ""})[name] for name in names])
    print_lines([*table(names, lines, Answer().width, words=0), ""])
