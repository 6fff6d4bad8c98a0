"""The flags of the commands that train, and a parser whose errors are one line."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from orlomo.config import RunConfig
from orlomo.errors import ConfigError, OrlomoError, nearest, require, shown, unknown_name
from orlomo.files import read_text
from orlomo.methods.registry import OTHER_WORDS as HYPERPARAMETERS
from orlomo.reading import parse_json
from orlomo.values import Hint, Table, from_text, helps, hints_of, is_many, path_of

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
"""Where a command adds itself."""

METHOD_FLAGS: dict[str, tuple[type, str]] = {
    "learning_rate": (float, "local learning rate (gamma)"),
    "momentum": (float, "momentum coefficient (beta)"),
    "local_steps": (int, "local steps in a round (S)"),
    "weight_decay": (float, "L2 weight decay"),
    "clip_norm": (float, "largest norm of a local gradient"),
    "schedule": (str, "of the learning rate: constant, step:80,120, cosine:160, or your own: FILE.py:NAME"),
    "warmup_epochs": (float, "linear warm-up"),
    "global_rate": (str, "eta: delay-adaptive or constant"),
}
"""The usual hyperparameters of methods; `--set` takes the others."""

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


MOST_SEEDS = 1000
"""Runs of one method: each has a folder."""

MESSAGE = 400
"""Characters of a message about flags."""


class Parser(argparse.ArgumentParser):
    """Errors are one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
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


def add_settings(command: Parser, skip: Collection[str] = ()) -> None:
    """One flag for each setting of a run, each usual hyperparameter and each option of Ray, and `--set`."""
    # On the command line both are names; the classes would load torch.
    hints = hints_of(RunConfig, {"Method": str, "Cluster": str})
    for name, text, has_flag in helps(RunConfig):
        if has_flag and name not in skip:
            default = getattr(RunConfig, name, None)  # dataclasses leave defaults in the class
            shown = f"{default:g}" if isinstance(default, float) else default
            _add(command, name, hints[name], text if default is None else f"{text} (default: {shown})")
    for name, (kind, text) in METHOD_FLAGS.items():
        _add(command, name, kind, text)
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any hyperparameter of the method by its name; may be given several times",
    )
    add_ray(command)


def add_ray(command: Parser) -> None:
    """Which Ray cluster; not part of a run's config."""
    text = "ray: host:port of a running cluster, or auto (default: RAY_ADDRESS, else a private one)"
    command.add_argument("--address", help=text)
    text = "ray: Ray's runtime_env for the workers, a JSON file or JSON in braces"
    command.add_argument("--runtime-env", type=_json, help=text)


def add_common(command: Parser) -> None:
    """What every command that trains has."""
    command.add_argument("--jobs", type=int, help="processes that compute rounds (default: one per core)")
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    command.add_argument("--json", action="store_true", help="print the result as JSON")


def given(options: argparse.Namespace, names: Iterable[str]) -> Table:
    """The flags among these that were given, by name."""
    # None means that the flag was left out: a TOML file's value then stays.
    return {name: getattr(options, name) for name in names if getattr(options, name, None) is not None}


def name_list(text: str) -> list[str]:
    """`--methods a,b` as names, each of them once."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    require(bool(names), "--methods names no method")
    repeated = sorted({name for name in names if names.count(name) > 1})
    require(not repeated, f"--methods names {', '.join(repeated)} more than once")
    return names


def assignments(words: Sequence[str], flags: Collection[str]) -> dict[str, str]:
    """`--set NAME=VALUE ...` as texts by name. `flags`: the hyperparameters that were given by a flag of their own."""
    texts: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        require(bool(name and equals), f"--set takes NAME=VALUE, as in --set learning_rate=0.05, not {shown(word)}")
        require(name not in texts and name not in flags, f"{name} is given twice: leave one out")
        texts[name] = text.strip()
    return texts


def _add(command: Parser, name: str, hint: Hint, text: str) -> None:
    command.add_argument("--" + name.replace("_", "-"), dest=name, type=_typed(hint), help=text)


def _typed(hint: Hint) -> Callable[[str], object]:
    def read(text: str) -> object:
        try:
            return from_text(text, hint)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from None  # argparse says which flag it was

    read.many = is_many(hint)  # type: ignore[attr-defined]
    return read


def path_argument(text: str) -> Path:
    """A folder or file, `~` expanded: a shell leaves it in `--out=~/x`."""
    try:
        return path_of(text, "it")
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def folder_argument(text: str) -> Path:
    """A folder to write to."""
    if text == "-":
        raise argparse.ArgumentTypeError("- is standard output, but a folder is written: give a folder's name")
    return path_argument(text)


def _json(text: str) -> Table:
    try:
        given = text if text.lstrip().startswith("{") else read_text(path_of(text, "it"), follow=True)
        table = parse_json(given, "the JSON")
    except (OSError, OrlomoError) as error:
        raise argparse.ArgumentTypeError(f"a JSON file, or JSON in braces: {error}") from None
    if not isinstance(table, dict):
        raise argparse.ArgumentTypeError(f"a JSON table in braces, not {shown(text)}")
    return table
