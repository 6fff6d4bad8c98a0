"""The flags of the commands that train."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from orlomo.commands.parser import Parser
from orlomo.config import RunConfig
from orlomo.errors import ConfigError, OrlomoError, require, shown
from orlomo.files import read_text
from orlomo.reading import parse_json
from orlomo.values import Hint, Table, from_text, helps, hints_of, is_many, path_of

METHOD_FLAGS: dict[str, tuple[type, str]] = {
    "learning_rate": (float, "learning rate of the local steps, gamma (default: 0.1)"),
    "momentum": (float, "momentum coefficient, beta (default: 0.9)"),
    "local_steps": (int, "local steps in a round, S (default: 16; 1 in asgd, ormo-da)"),
    "weight_decay": (float, "L2 weight decay (default: 0)"),
    "clip_norm": (float, "largest norm of a local gradient (default: not clipped)"),
    "schedule": (
        str,
        "of the learning rate: constant, step:80,120, cosine:160, or your own: FILE.py:NAME (default: constant)",
    ),
    "warmup_epochs": (float, "epochs of linear warm-up (default: 0)"),
    "global_rate": (str, "the server's rate, eta: delay-adaptive or constant (default: delay-adaptive)"),
}
"""The usual hyperparameters of methods; `--set` takes the others."""

DEFAULTS = {
    "cluster": "homogeneous",
    "devices": "--device for all",
    "pace": "1 for all",
    "labels": "none",
    "batch_size": "the task's",
    "samples": "all",
}
"""What holds where a flag is left out, of those whose text does not say so."""

MOST_SEEDS = 1000
"""Runs of one method: each has a folder."""


def add_settings(command: Parser, skip: Collection[str] = ()) -> None:
    """One flag for each setting of a run, each usual hyperparameter and each option of Ray, and `--set`."""
    # On the command line both are names; the classes would load torch.
    hints = hints_of(RunConfig, {"Method": str, "Cluster": str})
    for name, text, has_flag in helps(RunConfig):
        if has_flag and name not in skip:
            default = command.get_default(name) or getattr(RunConfig, name, None)  # dataclasses leave them in the class
            shown = f"{default:g}" if isinstance(default, float) else DEFAULTS.get(name, default)
            _add(command, name, hints[name], text if shown is None else f"{text} (default: {shown})")
    for name, (kind, text) in METHOD_FLAGS.items():
        _add(command, name, kind, text)
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other hyperparameter by its name, as in --set every=3; may be given several times",
    )
    add_ray(command)


def add_ray(command: Parser) -> None:
    """Which Ray cluster; not part of a run's config."""
    text = "with ray, a running cluster, or auto (default: RAY_ADDRESS, else a private one)"
    command.add_argument("--address", help=text)
    text = "with ray, its runtime_env for the workers: a JSON file, or JSON in braces (default: none)"
    command.add_argument("--runtime-env", type=_json, help=text)


def add_common(command: Parser) -> None:
    """What every command that trains has."""
    command.add_argument("--jobs", type=int, help="processes that compute rounds (default: one per core)")
    command.add_argument("--quiet", action="store_true", help="show no progress")
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
