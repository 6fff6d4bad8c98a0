"""The command for the user's own loop: `orlomo run ... script.py ARGUMENTS`."""

from __future__ import annotations

import argparse
from pathlib import Path

from orlomo import config
from orlomo.commands.flags import (
    METHOD_FLAGS,
    add_common,
    add_settings,
    assignments,
    folder_argument,
    given,
)
from orlomo.commands.parser import Commands
from orlomo.commands.train import check_known, print_run, ray_options, typed
from orlomo.config import LOOPS_OWN, METHODS_OWN, RunConfig
from orlomo.errors import require
from orlomo.values import helps

NOT_FOR_LOOPS = (*LOOPS_OWN, "epochs")
"""Settings that a script has itself."""

USAGE = "orlomo run [flags] SCRIPT [ARGUMENTS]"


def add(commands: Commands) -> None:
    """Its flags."""
    run = commands.add_parser(
        "run",
        help="run your own training script on many workers",
        description="Run your own training script on many workers: processes of this machine, a Ray cluster, or "
        "simulated. The script attaches its model and optimizer with `orlomo.worker`.",
        usage=USAGE,
        examples=(
            "orlomo run --workers 4 train.py",
            "orlomo run --workers 4 --pace 1,1,1,4 --local-steps 32 --steps 4000 train.py --lr 0.05",
            "orlomo run --engine ray --workers 8 --resources GPU=1 train.py",
        ),
    )
    run.add_argument(
        "--method", default="orlomo", help="see `orlomo methods`, or your own: FILE.py:NAME (default: orlomo)"
    )
    run.set_defaults(engine="processes", workers=4)
    add_settings(run, skip=NOT_FOR_LOOPS)
    run.add_argument("--steps", type=int, help="optimizer steps of all workers together (default: the loop's epochs)")
    run.add_argument("--group", type=int, help="processes that are one worker together, with DDP or FSDP (default: 1)")
    run.add_argument("--out", type=folder_argument, help="the run folder (default: runs/SCRIPT-METHOD-seedN)")
    run.add_argument("--tensorboard", action="store_true", help="write for TensorBoard too, into the run folder")
    add_common(run)
    run.add_argument("script", metavar="SCRIPT", help="a Python script; what follows it are its own arguments")
    own = run.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    own.required = False  # or it would be named where the script is missing
    run.set_defaults(call=_run)


def _run(options: argparse.Namespace) -> int:
    from orlomo.launching import start_loop
    from orlomo.loop.program import Program
    from orlomo.report.terminal.screen import TerminalProgress, warn

    flags = given(options, METHOD_FLAGS)
    texts = assignments(options.set, flags)
    check_known(texts, [options.method])
    for name in METHODS_OWN:
        flag = f"--{name.replace('_', '-')}"
        require(name not in flags and name not in texts, f"{flag} is for tasks: here the script's optimizer has it")
    script = Path(options.script).expanduser()
    require(script.suffix == ".py", f"{options.script} is no Python script: {USAGE}")
    program = Program(str(script.absolute()), tuple(options.arguments), str(Path().absolute()))
    table = given(options, [name for name, _, has_flag in helps(RunConfig) if has_flag and name not in NOT_FOR_LOOPS])
    table |= given(options, ("steps", "group"))
    made = config.from_table(
        {
            **table,
            "task": program.name,
            "arguments": list(program.arguments),
            "directory": program.directory,
            "method": {**flags, **typed(options.method, texts), "name": options.method},
        },
        options.script,
    )
    with TerminalProgress(options.quiet) as progress:
        more = {"jobs": options.jobs, "ray": ray_options(options), "tensorboard": options.tensorboard}
        run = start_loop(made, program, options.out, callbacks=[progress], warn=warn, **more)
    return print_run(run, options.json)
