"""The commands that show runs: `orlomo report`, `orlomo watch` and `orlomo export`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from orlomo.errors import ConfigError


def add(commands: Any) -> None:
    """Their flags."""
    report = commands.add_parser("report", help="write one HTML page about runs, to be opened offline")
    report.add_argument("folders", type=Path, nargs="+", metavar="RUN")
    report.add_argument("-o", "--out", type=Path, default=Path("report.html"), help="the page (default: report.html)")
    report.add_argument("--figures", type=Path, help="write the charts here too, as PNG and SVG")
    report.set_defaults(call=_report)
    export = commands.add_parser("export", help="a run's tables in another format")
    export.add_argument("folder", type=Path, metavar="RUN")
    export.add_argument("--format", required=True, help="csv, parquet or tensorboard")
    export.add_argument("-o", "--out", type=Path, help="the folder (default: RUN/FORMAT)")
    export.set_defaults(call=_export)
    watch = commands.add_parser("watch", help="follow a run in a browser on this machine")
    watch.add_argument("folder", type=Path, metavar="RUN")
    watch.add_argument("--port", type=int, default=0, help="default: a free one")
    watch.set_defaults(call=_watch)


def _report(options: argparse.Namespace) -> int:
    from orlomo.report.page import write_report

    page = write_report(options.folders, options.out)
    for note in page["notes"]:
        print(f"orlomo: note: {note}", file=sys.stderr)
    print(options.out)
    if options.figures is not None:
        from orlomo.report.figures import write_figures

        for path in write_figures(page["charts"], page["runs"], options.figures):
            print(path)
    return 0


def _export(options: argparse.Namespace) -> int:
    from orlomo.records.run import Run
    from orlomo.report.export import export
    from orlomo.report.progress import warn

    place = options.out or options.folder / options.format
    for path in export(Run(options.folder), options.format, place, warn):
        print(path)
    return 0


def _watch(options: argparse.Namespace) -> int:
    from orlomo.report.watch import Follower, Watch

    follower = Follower(options.folder)
    try:
        server = Watch(follower, options.port)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on port {options.port}: {error}; choose another --port") from None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with server:
        print(f"{server.address} shows {options.folder}; Ctrl-C ends it", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
    return 0
