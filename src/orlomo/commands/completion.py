"""`orlomo completion`: commands, flags and names completed by the shell, with the package shtab."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping

from orlomo.commands.flags import folder_argument, path_argument
from orlomo.commands.new import KINDS
from orlomo.commands.parser import Commands, Parser
from orlomo.commands.workers import ACTIONS
from orlomo.errors import ConfigError, unknown_name

SHELLS = ("bash", "zsh", "fish", "tcsh")


def add(commands: Commands) -> None:
    """Add the command to the parser's."""
    command = commands.add_parser(
        "completion",
        help="print a script that completes commands in your shell",
        description="Print a script with which the Tab key completes commands, flags, methods, tasks and folders.",
        examples=(
            "orlomo completion bash > ~/.local/share/bash-completion/completions/orlomo",
            "orlomo completion zsh > ~/.zfunc/_orlomo",
            "orlomo completion fish > ~/.config/fish/completions/orlomo.fish",
        ),
    )
    command.add_argument("shell", metavar="SHELL", help=", ".join(SHELLS[:-1]) + f" or {SHELLS[-1]}")
    command.set_defaults(call=call)


def call(options: argparse.Namespace) -> int:
    """Print the script."""
    if options.shell not in SHELLS:
        raise unknown_name("shell", options.shell, SHELLS)
    try:
        import shtab
    except ImportError:
        raise ConfigError("completion needs the package shtab: pip install 'orlomo[completion]'") from None
    from orlomo.commands.main import parser

    top = parser()
    for action in top._actions:
        for name, command in action.choices.items() if isinstance(action, argparse._SubParsersAction) else ():
            _complete(name, command, shtab.FILE, shtab.DIRECTORY)
    sys.stdout.write(shtab.complete(top, options.shell))
    return 0


def _complete(name: str, command: Parser, file: Mapping[str, object], folder: Mapping[str, object]) -> None:
    """Give the arguments of a command what they are completed with."""
    names = _names(name)
    for action in command._actions:
        if action.dest in names:
            action.choices = list(names[action.dest])
        elif action.dest == "script" or (action.dest == "out" and action.type is path_argument):
            action.complete = file  # type: ignore[attr-defined]
        elif action.type in (path_argument, folder_argument):
            action.complete = folder  # type: ignore[attr-defined]


def _names(command: str) -> dict[str, Iterable[str]]:
    """What is known by name, by the arguments of a command that take it."""
    from orlomo.data.catalog import DATASETS
    from orlomo.engines.registry import ENGINES
    from orlomo.methods.registry import METHODS
    from orlomo.report.export import FORMATS
    from orlomo.reproduce.experiment import names
    from orlomo.tasks.registry import TASKS

    every: dict[str, Iterable[str]] = {
        "method": METHODS,
        "methods": METHODS,
        "engine": ENGINES,
        "task": TASKS,
        "cluster": ("homogeneous", "heterogeneous", "slow-worker:10"),
        "global_rate": ("delay-adaptive", "constant"),
        "compile": ("auto", "on", "off"),
        "device": ("cpu", "cuda"),
        "format": FORMATS,
        "shell": SHELLS,
        "kind": KINDS,
        "action": ACTIONS,
    }
    if command in ("data", "reproduce"):
        every["name"] = DATASETS if command == "data" else names()
    return every
