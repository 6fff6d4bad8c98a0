"""The flags of the commands that train, and a parser whose errors are one line."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, NoReturn

from orlomo.errors import ConfigError, unknown_name


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"numbers with commas between, as in 1,1,2,4, not {text!r}") from None


def _amounts(text: str) -> dict[str, float]:
    try:
        return {name: float(amount) for name, amount in _pairs(text).items()}
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"names and amounts, as in GPU=1,CPU=4, not {text!r}") from None


def _pairs(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in re.split(r",(?![^(]*\))", text)]  # not within (eu,uk)
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise argparse.ArgumentTypeError(f"names and values, as in zone=eu,disk=ssd, not {text!r}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _json(text: str) -> dict[str, Any]:
    try:
        table = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"a JSON file, or JSON in braces: {error}") from None
    if not isinstance(table, dict):
        raise argparse.ArgumentTypeError(f"a JSON table in braces, not {text!r}")
    return table


METHOD_FLAGS = {
    "learning_rate": (float, "local learning rate (gamma)"),
    "momentum": (float, "momentum coefficient (beta)"),
    "local_steps": (int, "local steps in a round (S)"),
    "weight_decay": (float, "L2 weight decay"),
    "clip_norm": (float, "largest norm of a local gradient"),
    "schedule": (str, "of the learning rate: constant, step:80,120, cosine:160"),
    "warmup_epochs": (float, "linear warm-up"),
    "global_rate": (str, "eta: delay-adaptive or constant"),
}
RUN_FLAGS = {
    "workers": (int, "number of workers (K)"),
    "epochs": (float, "passes over the data, all workers together"),
    "cluster": (str, "homogeneous, heterogeneous, heterogeneous:4, slow-worker:10, or a TOML file"),
    "engine": (str, "what runs the workers: simulated (virtual time), processes (for real, here), ray (on a cluster)"),
    "device": (str, "where the models are: cpu, cuda"),
    "devices": (_names, "processes: where each worker's model is, as in cuda:0,cuda:1,cpu; around again"),
    "threads": (int, "processes, ray: threads of arithmetic a worker (default: cores / workers; on Ray its CPUs)"),
    "pace": (_numbers, "processes, ray: how many times slower each worker is to be, as in 1,1,2,4"),
    "resources": (_amounts, "ray: what each worker needs, as in GPU=1,CPU=4 (default: CPU=1)"),
    "labels": (_pairs, "ray: labels of the machines to place workers on, as in zone=eu"),
    "batch_size": (int, "in place of the task's own"),
    "samples": (int, "use only this many training samples"),
    "held_out": (float, "test on this share of the training samples: for choosing settings"),
    "compile": (str, "torch.compile: auto (where it pays for itself), on, off"),
    "evaluate_every": (float, "epochs between evaluations"),
    "checkpoint_seconds": (float, "seconds between checkpoints"),
}

RAY_FLAGS = {
    "address": (str, "ray: host:port of a running cluster, or auto (default: RAY_ADDRESS, else a private one)"),
    "runtime_env": (_json, "ray: Ray's runtime_env for the workers, a JSON file or JSON in braces"),
}


class Parser(argparse.ArgumentParser):
    """Errors are one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see `{self.prog} --help`)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, rest = super().parse_known_args(args, namespace)
        unknown = [word for word in rest if word.startswith("--")]
        if unknown:
            flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
            raise unknown_name(f"flag of `{self.prog}`", unknown[0].partition("=")[0], flags)
        return options, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise unknown_name("command", value, action.choices)


def add_flags(command: Parser, flags: dict[str, tuple[Any, str]]) -> None:
    """One flag for each name."""
    for name, (kind, text) in flags.items():
        command.add_argument("--" + name.replace("_", "-"), dest=name, type=kind, help=text)


def add_common(command: Parser) -> None:
    """What every command that trains has."""
    command.add_argument("--jobs", type=int, help="processes that compute rounds (default: one a core)")
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
