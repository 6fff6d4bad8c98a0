"""A parser whose errors are one line and whose help is in groups: what, where, how long, output."""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from orlomo.errors import ConfigError, nearest, unknown_name
from orlomo.methods.registry import OTHER_WORDS as HYPERPARAMETERS
from orlomo.report.terminal.layout import wrapped

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
"""Where a command adds itself."""

WHAT, METHOD, WHERE, LENGTH, OUTPUT, OTHER = "what", "the method", "where", "how long", "output", "other"

GROUPS: dict[str, tuple[str, ...]] = {
    WHAT: (
        *("method", "methods", "seed", "seeds", "batch_size", "samples", "held_out", "rows", "scale", "images"),
        *("tune", "parameters", "given", "trust"),
    ),
    METHOD: (
        *("learning_rate", "momentum", "local_steps", "weight_decay", "clip_norm", "schedule", "warmup_epochs"),
        *("global_rate", "set"),
    ),
    WHERE: (
        *("engine", "workers", "cluster", "pace", "device", "devices", "threads", "compile", "jobs", "group"),
        *("resources", "labels", "address", "runtime_env", "port"),
    ),
    LENGTH: ("epochs", "steps", "iterations", "evaluate_every", "checkpoint_seconds"),
    OUTPUT: ("out", "figures", "format", "target", "tensorboard", "quiet", "json"),
}
"""The groups of the help, in order, and the flags of each in order; other flags come last."""

METAVARS = {
    **dict.fromkeys(("method", "engine", "cluster", "device", "schedule", "global_rate", "compile"), "NAME"),
    **dict.fromkeys(("devices", "pace", "methods"), "LIST"),
    **dict.fromkeys(("resources", "labels"), "NAME=VALUE"),
    **{"address": "HOST:PORT", "runtime_env": "JSON", "scale": "FRACTION"},
    **{"out": "FOLDER", "figures": "FOLDER", "held_out": "SHARE", "format": "NAME", "target": "VALUE"},
    **dict.fromkeys(("learning_rate", "momentum", "weight_decay", "clip_norm"), "NUMBER"),
}
"""What stands for a flag's value in the help, where it is not N."""

OTHER_WORDS = {
    **{f"--{word}".replace("_", "-"): f"--{name}".replace("_", "-") for word, name in HYPERPARAMETERS.items()},
    "--batch": "--batch-size",
    "--bs": "--batch-size",
    "--gpu": "--device",
    "--gpus": "--devices",
    "--nproc": "--workers",
    "--num-workers": "--workers",
    "--nproc-per-node": "--workers",
    "--world-size": "--workers",
    "-n": "--workers",
    "-w": "--workers",
    "-j": "--jobs",
    "-e": "--epochs",
    "-b": "--batch-size",
    "-o": "--out",
    "-q": "--quiet",
    "--output": "--out",
    "--output-dir": "--out",
    "--save-dir": "--out",
    "--log-dir": "--out",
    "--logdir": "--out",
    "--optimizer": "--method",
    "--optim": "--method",
    "--opt": "--method",
    "--backend": "--engine",
}
"""Flags of other programs, and symbols of the paper, that are too far from ours for a comparison of letters."""

MESSAGE = 400
"""Characters of a message about flags."""

WIDEST, NARROWEST = 100, 30
"""Columns of the help."""

EXAMPLES = "examples:\n"


class Formatter(argparse.HelpFormatter):
    """Lines are broken between words only, and examples can be copied."""

    def __init__(self, prog: str, **more: Any):
        width = max(NARROWEST, min(shutil.get_terminal_size().columns, WIDEST) - 1)
        more = {"width": width, "max_help_position": 28 if width > 60 else 6, **more}
        super().__init__(prog, **more)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [line.replace("\xa0", " ") for line in wrapped(text.replace("(default: ", "(default:\xa0"), width)]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith(EXAMPLES):
            return "\n".join(indent + line for line in wrapped(text, width - len(indent)))
        return "\n".join([EXAMPLES.strip(), *(self._command(line, width) for line in text.splitlines()[1:])])

    def _command(self, line: str, width: int) -> str:
        """A command on as many lines as it needs, as a shell takes them."""
        whole = re.sub(r"( --?\w\S*) (?=[^-])", "\\1\xa0", line.strip())  # a flag and its value together
        first, *more = wrapped(whole, width - len("      ") - len(" \\"))
        return " \\\n".join([f"  {first}", *(f"      {part}" for part in more)]).replace("\xa0", " ")

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        if isinstance(action.nargs, str) and action.nargs == "+":
            return f"{self._metavar_formatter(action, default_metavar)(1)[0]} ..."
        return super()._format_args(action, default_metavar)


class Parser(argparse.ArgumentParser):
    """Errors are one line and exit code 2; flags are in the groups of the help. `examples`: whole commands."""

    def __init__(self, *, examples: Sequence[str] = (), **more: Any):
        # Before the first flag, --help, is added.
        self._named: dict[str, argparse._ArgumentGroup] = {}
        self.examples = examples
        epilog = EXAMPLES + "\n".join(f"  {line}" for line in examples) if examples else None
        more = {"formatter_class": Formatter, "epilog": epilog, "allow_abbrev": False, "add_help": False, **more}
        super().__init__(**more)
        for title in GROUPS:
            self._named[title] = self.add_argument_group(title)
        self._optionals.title = OTHER
        self._action_groups.sort(key=lambda group: group is self._optionals)
        self.add_argument("-h", "--help", action="help", help="show this help")

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add a flag, or another argument, to its group."""
        flag = next((name for name in names if name.startswith("--")), names[0] if names else "")
        name = options.get("dest", flag.lstrip("-").replace("-", "_"))
        takes_value = options.get("action", "append") == "append" and options.get("nargs") != 0
        if flag.startswith("-") and takes_value:
            options.setdefault("metavar", METAVARS.get(name, "N"))
        title = next((title for title, own in GROUPS.items() if name in own), None)
        if not flag.startswith("-"):
            title = WHAT
        if title is None or title not in self._named:
            return super().add_argument(*names, **options)
        return self._named[title].add_argument(*names, **options)

    def arrange(self) -> None:
        """Bring the flags of each group into the order of `GROUPS`."""
        for title, group in self._named.items():
            names = {name: place for place, name in enumerate(GROUPS[title])}
            group._group_actions.sort(key=lambda action: names.get(action.dest, -1))

    def format_usage(self) -> str:
        """The command, its arguments, the flags that it needs."""
        formatter, words = self._get_formatter(), [self.prog]
        if self.usage is not None:
            return _usage(self.usage, formatter._width)
        for action in self._actions:
            if action.help == argparse.SUPPRESS or (action.option_strings and not action.required):
                continue
            flag = [action.option_strings[-1]] if action.option_strings else []
            words += [*flag, formatter._format_args(action, action.dest.upper())]
        return _usage(f"{' '.join(words)} [flags]", formatter._width)

    def format_help(self) -> str:
        """The whole help."""
        self.arrange()
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return f"{self.format_usage()}\n{formatter.format_help()}"

    def print_help(self, file: Any = None) -> None:
        """Print it; at a terminal with bold headings."""
        text, target = self.format_help(), sys.stdout if file is None else file
        if target.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb":
            text = re.sub(r"^[a-z][a-z, ]*:(?=$| )", "\x1b[1m\\g<0>\x1b[0m", text, flags=re.MULTILINE)
        target.write(text)

    def error(self, message: str) -> NoReturn:
        # argparse names what is missing, but shows nothing that would do.
        missing = re.fullmatch("the following arguments are required: (.*)", message)
        if missing and self.examples:
            message = f"{missing[1]} is missing, as in `{self.examples[0]}`"
        # argparse repeats what it was given, however long that is.
        short = message if len(message) <= MESSAGE else f"{message[:MESSAGE]}..."
        raise ConfigError(f"{short} (see `{self.prog} --help`)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # argparse only says "unrecognized arguments"; here is the list of flags to compare with.
        words = list(sys.argv[1:] if args is None else args)
        options, rest = super().parse_known_args(args, namespace)
        for word in (word.partition("=")[0] for word in rest if re.match("-(-|[a-zA-Z])", word)):
            flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
            meant = OTHER_WORDS.get(word.lower().replace("_", "-"))
            if meant not in flags:  # the dashes would make every two flags alike
                found = nearest(word.lstrip("-"), [flag.lstrip("-") for flag in flags])
                meant = f"--{found}" if found else None
            self.error(f"unknown flag {word!r}" + (f": did you mean {meant!r}?" if meant else ""))
        if rest:
            self._refuse_more(rest[0], words)
        return options, rest

    def _refuse_more(self, extra: str, words: list[str]) -> None:
        """Say what to do with a word too many where it is the second value of a flag, as of a list."""
        for position, flag in reversed(list(enumerate(words))):
            action = self._option_string_actions.get(flag)
            given = list(itertools.takewhile(lambda word: not word.startswith("--"), words[position + 1 :]))
            if action is None or action.nargs == 0 or extra not in given[1:]:
                continue
            if isinstance(action, argparse._AppendAction):
                self.error(f"{flag} takes one value: give {' '.join(f'{flag} {word}' for word in given)}")
            if flag == "--methods" or getattr(action.type, "many", False):
                joined = ",".join(word.strip(",") for word in given)
                self.error(f"{flag} takes its values with commas between: {flag} {joined}")
            self.error(f"{flag} takes one value, not {' '.join(given)}")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        # The only choices that argparse checks for us are the commands.
        if action.choices is not None and value not in action.choices:
            raise unknown_name("command", value, action.choices)


def _usage(text: str, width: int) -> str:
    first, *more = wrapped(text, width - len("usage: "))
    return "".join([f"usage: {first}\n", *(f"       {line}\n" for line in more)])


class TopParser(Parser):
    """`orlomo` itself: its commands are listed in groups."""

    def __init__(self, *, command_groups: Mapping[str, Collection[str]], **more: Any):
        super().__init__(formatter_class=functools.partial(Formatter, max_help_position=14), **more)
        self.command_groups = command_groups

    def format_usage(self) -> str:
        """How all commands begin."""
        return _usage(f"{self.prog} COMMAND [flags]", WIDEST)

    def format_help(self) -> str:
        """The commands by what they are for."""
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        [commands] = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        texts = {action.dest: action for action in commands._choices_actions}
        for title, names in self.command_groups.items():
            formatter.start_section(title)
            formatter.add_arguments([texts[name] for name in names])
            formatter.end_section()
        formatter.start_section(OTHER)
        formatter.add_arguments(self._optionals._group_actions)
        formatter.end_section()
        formatter.add_text(self.epilog)
        formatter.add_text(f"`{self.prog} COMMAND --help` shows the flags of a command and more examples.")
        return f"{self.format_usage()}\n{formatter.format_help()}"
