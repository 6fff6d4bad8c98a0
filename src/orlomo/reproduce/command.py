"""The command `orlomo reproduce`: parse, call, print."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from orlomo.errors import Interrupted, require


def add(commands: Any) -> None:
    """Add the command to the command line."""
    command = commands.add_parser("reproduce", help="run an experiment of the paper", allow_abbrev=False)
    command.add_argument("name", nargs="?", help="the experiment, or a TOML file; without it, they are listed")
    command.add_argument(
        "--rows", action="append", default=[], metavar="K=16,S=32", help="only these rows; may be given several times"
    )
    command.add_argument("--methods", help="only these, with commas between")
    command.add_argument("--scale", default="1", help="shrink the epochs, such as 1/16; drops stay at their fractions")
    command.add_argument("--images", type=int, help="use only this many training images")
    command.add_argument("--seeds", type=int, help="repetitions (default: the paper's 3)")
    command.add_argument("--tune", action="store_true", help="choose the learning rates on held-out training images")
    command.add_argument("--device", default="cpu", help="where the models are: cpu, cuda")
    command.add_argument("--jobs", type=int, help="runs at once (default: one a core)")
    command.add_argument("--out", type=Path, help="the folder (default: runs/reproduce/NAME)")
    command.add_argument("--quiet", action="store_true", help="no progress")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(call=call)


def call(options: argparse.Namespace) -> int:
    """Run it."""
    from orlomo.reproduce.experiment import names, table_of

    if options.name is None:
        for name, title in names().items():
            print(f"{name:<22}{title}")
        return 0
    table = table_of(options.name)
    kind = table.get("kind", "grid")
    try:
        if kind != "grid":
            _measured(options, kind, table)
        return _grid(options, table) if kind in ("grid", "delays") else 0
    except Interrupted as stop:
        again = shlex.join(["orlomo", *sys.argv[1:]])
        raise Interrupted(f"{stop}. Go on with: {again}", stop.signal_number) from None


def _grid(options: argparse.Namespace, table: dict[str, Any]) -> int:
    from orlomo import tasks
    from orlomo.reproduce.experiment import experiment
    from orlomo.reproduce.grid import reproduce
    from orlomo.reproduce.plan import Scale, scale_of
    from orlomo.reproduce.progress import CellProgress
    from orlomo.reproduce.tuning import tune
    from orlomo.train import job_count

    chosen = experiment(options.name)
    methods = tuple(name.strip() for name in options.methods.split(",")) if options.methods else None
    require(options.images is None or options.images >= 1, f"--images must be at least 1, not {options.images}")
    jobs = job_count(options.jobs)
    folder = _folder(options)
    shared: dict[str, Any] = {"jobs": jobs, "device": options.device, "warn": _warn}
    with CellProgress(options.quiet) as progress:
        if options.tune:
            task = tasks.task(chosen.tuning.rows[0].task)
            path = tune(chosen, methods or chosen.methods, task, folder, progress=progress, **shared)
            print(path.read_text() + f"\n{path}: used from now on in {folder}; without --tune the experiment runs")
            return 0
        images, rows = options.images or table.get("images"), options.rows or table.get("default_rows", [])
        scale = Scale(scale_of(options.scale), images, options.seeds, methods, tuple(rows))
        result = reproduce(chosen, scale, folder, progress=progress, **shared)
    if options.json:
        print(json.dumps(result.to_json()))
        return 0
    _show(result.text, result.files)
    return 0


def _measured(options: argparse.Namespace, kind: str, table: dict[str, Any]) -> None:
    from dataclasses import asdict

    from orlomo.reproduce.measured import measure

    result = measure(kind, table, _folder(options), options.quiet)
    if options.json:
        print(json.dumps([asdict(row) for row in result.rows]))
    else:
        _show(result.text, result.files)


def _folder(options: argparse.Namespace) -> Path:
    return options.out or Path("runs") / "reproduce" / Path(options.name).stem


def _show(text: str, files: list[Path]) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    if sys.stdout.isatty():
        Console().print(Markdown(text))
    else:
        print(text)
    for path in files:
        print(path)


def _warn(text: str) -> None:
    print(f"orlomo: warning: {text}", file=sys.stderr)
