"""The command `orlomo`: parse, call, print errors."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

import orlomo
from orlomo.commands import data, new, reproduce, show, train, workers
from orlomo.commands.flags import Commands, Parser
from orlomo.errors import Interrupted, OrlomoError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code: 0 done, 1 a replay that differs, 2 an error, 128+n stopped by signal n."""
    try:
        options = parser().parse_args(arguments)
        code: int = options.call(options)
        return code
    except Interrupted as stop:
        print(f"orlomo: {stop}", file=sys.stderr)
        return 128 + stop.signal_number
    except OrlomoError as error:
        print("\n".join([f"orlomo: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("orlomo: stopped; there was nothing to save", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output went away
        # Python flushes stdout once more at exit, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        print(f"orlomo: {error.strerror or error}: {error.filename or 'a file'}", file=sys.stderr)
        return 2


def parser() -> Parser:
    """All commands and their flags."""
    top = Parser(
        prog="orlomo",
        description="Asynchronous momentum training for machines of unequal speed.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"orlomo {orlomo.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    # The order of `orlomo --help`.
    groups: list[Callable[[Commands], None]] = [train.add, workers.add, show.add, data.add, reproduce.add, new.add]
    for add in groups:
        add(commands)
    return top
