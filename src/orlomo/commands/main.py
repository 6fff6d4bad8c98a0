"""The command `orlomo`: parse, call, print errors."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orlomo.commands.parser import Parser


COMMANDS = {
    "training": ("train", "run", "compare", "resume", "replay", "workers"),
    "looking at runs": ("report", "watch", "export", "verify", "audit"),
    "methods, tasks, data": ("methods", "tasks", "data", "trace", "reproduce"),
    "setting up": ("new", "completion"),
}
"""The groups of `orlomo --help`."""

EXAMPLES = (
    "orlomo train digits",
    "orlomo compare digits --methods prsgdm,orlomo --cluster heterogeneous",
    "orlomo run --workers 4 train.py",
    "orlomo report runs/digits-orlomo-seed0",
)

NOTHING = "orlomo: stopped; there was nothing to save"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code: 0 done, 1 a replay that differs, an audit that finds samples missing or used
    twice, or a run that `verify` does not find whole, 2 an error, 128+n stopped by signal n."""
    as_program, code = arguments is None, 0
    stopped = _stoppable() if as_program else []
    try:
        code = _main(arguments, stopped)
    except KeyboardInterrupt:
        print(NOTHING, file=sys.stderr)
        code = 128 + signal.SIGINT
    finally:
        if as_program:
            _end_quietly(code)
    return code


def _main(arguments: Sequence[str] | None, stopped: list[int]) -> int:
    # Loaded here and not above: Ctrl-C may come while Python still loads modules.
    from orlomo.commands.output import never_fail, only_json, say_error

    try:
        if arguments is None:
            never_fail()
        if not (sys.argv[1:] if arguments is None else arguments):
            parser().print_help()
            return 0
        options = parser().parse_args(arguments)
        with only_json(getattr(options, "json", False), for_good=arguments is None):
            code: int = options.call(options)
        return code
    except BrokenPipeError:  # the reader of our output went away
        # Python flushes stdout once more at exit, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        if stopped:  # a module that is cut off while it loads may make another error of it
            raise KeyboardInterrupt from None
        return say_error(error)


def _stoppable() -> list[int]:
    """Note Ctrl-C in this list beside raising KeyboardInterrupt."""
    stopped: list[int] = []

    def stop(number: int, frame: object) -> None:
        torch = sys.modules.get("torch")
        if getattr(getattr(torch, "__spec__", None), "_initializing", False):
            # C++ code that loads modules ends the process with a long trace where an exception comes up in it.
            os.write(2, f"{NOTHING}\n".encode())
            os._exit(128 + signal.SIGINT)
        stopped.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)
    return stopped


def _end_quietly(code: int) -> None:
    """The command is done and Python ends: Ctrl-C from here on ends it at once, without a traceback."""

    def stop(number: int, frame: object) -> None:
        os.write(2, b"" if code == 128 + signal.SIGINT else b"orlomo: stopped at its exit; the command was done\n")
        os._exit(128 + signal.SIGINT)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a shell sets it for what runs in the background
        signal.signal(signal.SIGINT, stop)


def parser() -> Parser:
    """All commands and their flags."""
    import orlomo
    from orlomo.commands import completion, data, lists, new, reproduce, run, show, train, workers
    from orlomo.commands.parser import Parser, TopParser

    top = TopParser(
        prog="orlomo",
        description="Asynchronous momentum training in PyTorch, for machines of unequal speed.",
        examples=EXAMPLES,
        command_groups=COMMANDS,
    )
    top.add_argument("--version", action="version", version=f"orlomo {orlomo.__version__}", help="show the version")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for group in (train, run, workers, show, lists, data, reproduce, new, completion):
        group.add(commands)
    for command in commands.choices.values():
        command.arrange()
    return top
