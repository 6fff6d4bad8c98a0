"""The command `orlomo data`."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from orlomo.commands.flags import path_argument
from orlomo.commands.output import print_json, print_lines
from orlomo.commands.parser import Commands
from orlomo.errors import ConfigError, Interrupted, unknown_name
from orlomo.printing import printable, say


def add(commands: Commands) -> None:
    """Add the command to the parser's."""
    command = commands.add_parser(
        "data",
        help="list the data sets, or download and verify one",
        description="List the data sets of the built-in tasks, or download, verify and store one.",
        examples=("orlomo data", "orlomo data cifar10", "orlomo data cifar10 --from cifar-10-python.tar.gz"),
    )
    command.add_argument("name", nargs="?", metavar="NAME", help="the data set, as in cifar10 (default: list them)")
    command.add_argument(
        "--from",
        dest="given",
        metavar="PATH",
        type=path_argument,
        help="a folder or an archive that you have (default: download it)",
    )
    command.add_argument("--quiet", action="store_true", help="show no progress and no notes")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(call=run)


def run(options: argparse.Namespace) -> int:
    """List the data sets, or get one."""
    from orlomo.data import store
    from orlomo.data.catalog import DATASETS
    from orlomo.data.obtain import obtain
    from orlomo.data.progress import DataProgress

    if options.name is None:
        if options.given is not None:
            raise ConfigError(f"--from needs a data set: `orlomo data NAME --from {options.given}`")
        return _list(options.json)
    if options.name not in DATASETS:
        raise unknown_name("data set", options.name, DATASETS)
    dataset = DATASETS[options.name]

    def tell(text: str) -> None:
        if not options.quiet or text.startswith("warning:"):
            say(f"orlomo: {text}", sys.stderr)

    with _stoppable(f"nothing half-written is stored; `orlomo data {dataset.name}` begins again or continues"):
        stored = obtain(dataset, store.data_root(), options.given, DataProgress(options.quiet), tell)
    if options.json:
        print_json(stored.to_json())
    else:
        say(stored)
        say(f"verified; it came from {stored.source}" if stored.source else "verified")
    return 0


@contextmanager
def _stoppable(consequence: str) -> Iterator[None]:
    """Make SIGTERM clean up as Ctrl-C does, and both end with a line that says what happened to the data."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    # Python can set signal handlers only in the main thread.
    main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if main_thread else None
    try:
        yield
    except KeyboardInterrupt as interrupt:
        number = int(interrupt.args[0]) if interrupt.args else signal.SIGINT
        raise Interrupted(f"stopped by {signal.Signals(number).name}: {consequence}", number) from None
    finally:
        if main_thread:
            signal.signal(signal.SIGTERM, before)


def _list(as_json: bool) -> int:
    from orlomo.data import store
    from orlomo.data.catalog import DATASETS
    from orlomo.report.terminal.layout import Answer, listed

    rows: list[dict[str, object]] = []
    texts: list[tuple[str, list[str]]] = []
    for name, dataset in DATASETS.items():
        row: dict[str, object] = {"name": name, "title": dataset.title, "stored": None}
        try:
            stored = store.find(dataset)
            row["stored"] = stored and stored.to_json()
            text = str(stored) if stored else f"{dataset.title}: not stored; `orlomo data {name}` gets it"
        except ConfigError as error:
            row["problem"] = text = str(error)
        rows.append(row)
        texts.append((name, [printable(text)]))
    if as_json:
        print_json(rows)
    else:
        print_lines(listed(texts, Answer().width))
    return 0
