"""The command `orlomo reproduce`: parse, call, print."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from orlomo.commands.flags import folder_argument, name_list
from orlomo.commands.output import print_json, print_lines
from orlomo.commands.parser import Commands
from orlomo.commands.trusting import add_trust, confirm
from orlomo.errors import Interrupted, require
from orlomo.printing import printable, quoted, say


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "reproduce",
        help="run an experiment of the paper",
        description="Run an experiment of the paper, whole or smaller. A run that was stopped continues.",
        examples=(
            "orlomo reproduce",
            "orlomo reproduce speed-up",
            "orlomo reproduce fashion-mnist --rows K=16,S=32 --scale 1/16 --seeds 1",
        ),
    )
    command.add_argument(
        "name", nargs="?", metavar="NAME", help="the experiment, or a TOML file (default: list the experiments)"
    )
    command.add_argument(
        "--rows",
        action="append",
        default=[],
        metavar="K=16,S=32",
        help="only these rows; may be given several times (default: the experiment's)",
    )
    command.add_argument("--methods", help="only these, with commas between (default: the experiment's)")
    command.add_argument(
        "--scale", default="1", help="of the epochs, such as 1/16; drops of the rate stay in place (default: 1)"
    )
    command.add_argument("--images", type=int, help="use only this many training images (default: the experiment's)")
    command.add_argument("--seeds", type=int, help="repetitions (default: the experiment's)")
    command.add_argument("--tune", action="store_true", help="choose the learning rates on held-out training images")
    command.add_argument("--device", default="cpu", help="where the models are: cpu, cuda (default: cpu)")
    add_trust(command)
    command.add_argument("--jobs", type=int, help="runs at once (default: one per core)")
    command.add_argument("--out", type=folder_argument, help="the folder (default: runs/reproduce/NAME)")
    command.add_argument("--quiet", action="store_true", help="show no progress")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(call=call)


def call(options: argparse.Namespace) -> int:
    """Run it."""
    from orlomo.reproduce.experiment import names, table_of

    if options.name is None:
        if options.json:
            print_json(names())
        else:
            from orlomo.report.terminal.layout import Answer, listed

            print_lines(listed([(name, [printable(title)]) for name, title in names().items()], Answer().width))
        return 0
    table = table_of(options.name)
    kind = table.get("kind", "grid")
    trains = kind in ("grid", "delays")
    # Before anything runs, which may take hours.
    _refuse_idle_flags(options, trains)
    try:
        # Measured before it is trained: training may take hours.
        measured = None if kind == "grid" or options.tune else _measured(options, kind, table)
        trained = _grid(options, table) if trains else None
    except Interrupted as stop:
        # Finished cells are kept, so the same command continues.
        again = " ".join(map(quoted, ["orlomo", *sys.argv[1:]]))
        raise Interrupted(f"{stop}. Continue with: {again}", stop.signal_number) from None
    if options.json and not options.tune:
        parts = [part for part in (measured, trained) if part is not None]
        print_json(parts[0] if len(parts) == 1 else {"measured": measured, "table": trained})
    return 0


def _refuse_idle_flags(options: argparse.Namespace, trains: bool) -> None:
    """A flag that would do nothing is a mistake."""
    scaling = {"--rows": options.rows, "--scale": options.scale != "1", "--images": options.images is not None}
    scaling["--seeds"] = options.seeds is not None
    training = {"--methods": options.methods, "--tune": options.tune, **scaling}
    training |= {"--jobs": options.jobs is not None, "--device": options.device != "cpu"}
    for flag, given in (training if not trains else scaling if options.tune else {}).items():
        require(not given, f"{flag} does nothing {'with --tune' if trains else f'in {options.name}'}: leave it out")


def _grid(options: argparse.Namespace, table: dict[str, Any]) -> dict[str, Any] | None:
    from orlomo.config import read
    from orlomo.engines.engine import job_count
    from orlomo.report.terminal.layout import tell
    from orlomo.report.terminal.screen import ProgressDisplay, warn
    from orlomo.reproduce.experiment import code_of, experiment, wanted_rows
    from orlomo.reproduce.grid import reproduce
    from orlomo.reproduce.plan import Scale, scale_of
    from orlomo.reproduce.tuning import tune
    from orlomo.tasks.registry import task
    from orlomo.trust import untrusted

    chosen = experiment(options.name)
    methods = None if options.methods is None else tuple(name_list(options.methods))
    require(options.images is None or options.images >= 1, f"--images must be at least 1, not {options.images}")
    jobs = job_count(options.jobs if options.jobs or options.device == "cpu" else 1)  # one run per GPU
    folder = _folder(options)
    confirm(untrusted(code_of(chosen, methods)), Path(options.name), options.trust)
    with ProgressDisplay(options.quiet) as progress:
        if options.tune:
            made = task(chosen.tuning.rows[0].task)
            path = tune(
                chosen,
                methods or chosen.methods,
                made,
                folder,
                progress=progress,
                jobs=jobs,
                device=options.device,
                warn=warn,
            )
            if options.json:
                print_json(read(path))
            else:
                say(path.read_text("utf-8"), lines=True)
                tell(f"{path}: used from now on in {folder}; without --tune the experiment runs", sys.stdout)
            return None
        rows = wanted_rows(chosen.rows, options.rows, table.get("default_rows", []))
        scale = Scale(
            scale_of(options.scale), options.images or table.get("images"), options.seeds, methods, tuple(rows)
        )
        result = reproduce(chosen, scale, folder, progress=progress, jobs=jobs, device=options.device, warn=warn)
    if not options.json:
        _show(result.text, result.files)
    return result.to_json()


def _measured(options: argparse.Namespace, kind: str, table: dict[str, Any]) -> list[dict[str, Any]]:
    from orlomo.report.summary import columns_of
    from orlomo.reproduce.measured import measure

    result = measure(kind, table, _folder(options), options.quiet)
    if not options.json:
        _show(result.text, result.files)
    return [columns_of(row) for row in result.rows]


def _folder(options: argparse.Namespace) -> Path:
    return options.out or Path("runs") / "reproduce" / Path(options.name).stem


def _show(text: str, files: list[Path]) -> None:
    from orlomo.report.terminal.layout import Answer, document, listed

    screen = Answer()
    print_lines(document(screen.text(text, lines=True), screen.width))
    print_lines(["", *listed([("files", [printable(path) for path in files])], screen.width)])
