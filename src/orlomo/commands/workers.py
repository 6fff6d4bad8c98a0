"""`orlomo workers`: see, add and remove the workers of a running run."""

from __future__ import annotations

import argparse

from orlomo.commands.flags import path_argument
from orlomo.commands.output import print_json, print_lines
from orlomo.commands.parser import Commands
from orlomo.errors import ConfigError, require, unknown_name
from orlomo.printing import say

ACTIONS = ("list", "add", "remove")


def add(commands: Commands) -> None:
    """Add the command to the parser's."""
    command = commands.add_parser(
        "workers",
        help="list, add or remove the workers of a running run",
        description="List the workers of a run that is under way on processes or Ray, add some, or remove one.",
        examples=("orlomo workers runs/a", "orlomo workers runs/a add 2", "orlomo workers runs/a remove 3"),
    )
    command.add_argument("folder", type=path_argument, metavar="RUN", help="the folder of the run")
    command.add_argument(
        "action", nargs="?", default="list", metavar="ACTION", help="list, add or remove (default: list)"
    )
    command.add_argument("number", nargs="?", type=int, metavar="N", help="how many to add, or which to remove")
    command.add_argument("--json", action="store_true", help="print the answer as JSON")
    command.set_defaults(call=call)


def call(options: argparse.Namespace) -> int:
    """Send the request to the run and print its answer."""
    from orlomo.engines.live.control import ask
    from orlomo.records.run import Run

    if options.action not in ACTIONS:
        raise unknown_name("action", options.action, ACTIONS)
    if options.action != "list" and options.number is None:
        what = "how many" if options.action == "add" else "which"
        raise ConfigError(f"say {what}, as in `orlomo workers {options.folder} {options.action} 2`")
    if options.action == "add":
        require(options.number >= 1, f"add at least 1 worker, not {options.number}")
    config = Run(options.folder).config
    require(
        config.clock == "real", f"{options.folder} is simulated: its workers come and go by the faults of its cluster"
    )
    # Both names: the run reads `count` to add and `worker` to remove.
    request = {"action": options.action, "count": options.number, "worker": options.number}
    answer = ask(options.folder, request)
    if options.json:
        print_json(answer)
    elif options.action == "list":
        _print_workers(answer)
    elif options.action == "add":
        say(f"added: worker {', '.join(map(str, answer))}")
    else:
        say(f"worker {answer} leaves after its report")
    return 0


def _print_workers(workers: list[dict[str, object]]) -> None:
    from orlomo.report.terminal.layout import Answer, table

    screen, headings = Answer(), ["worker", "state", "rounds", "process"]
    names = ["worker", "state", "rounds", "pid"]
    if any("node" in worker for worker in workers):
        headings, names = [*headings, "machine"], [*names, "node"]
    rows = [[screen.text(worker.get(name, "-")) for name in names] for worker in workers]
    print_lines(table(headings, rows, screen.width, words=2))
