"""Flags, the config and `train` say the same."""

from __future__ import annotations

import inspect
import typing

import orlomo
from orlomo.commands.flags import METHOD_FLAGS, OTHER_WORDS
from orlomo.config import RunConfig
from orlomo.methods.method import Method
from orlomo.values import helps, hints_of
from small import command_parsers

ELSEWHERE = {"jobs", "out", "ray", "tensorboard", "callbacks", "warn"}
"""What `train` takes beside the config: it does not decide a run's result."""


def test_train_has_every_setting_with_its_default() -> None:
    parameters = inspect.signature(orlomo.train).parameters
    names = {name for name, _, _ in helps(RunConfig)} - {"directory", "arguments", "steps", "group"}  # of loops
    assert set(parameters) - ELSEWHERE == names
    for name in names - {"task", "method", "cluster"}:
        assert parameters[name].default == getattr(RunConfig, name), name
    assert (parameters["method"].default, parameters["cluster"].default) == ("orlomo", "homogeneous")


def test_every_setting_is_in_the_docs_of_the_config_of_train_and_of_the_command() -> None:
    command = command_parsers()["train"].format_help()
    for name, text, has_flag in helps(RunConfig):
        assert f"{name}: {text}." in str(RunConfig.__doc__)
        assert not has_flag or f"{name}: {text}." in str(orlomo.train.__doc__)
        assert not has_flag or f"--{name.replace('_', '-')} " in command


def test_flags_of_hyperparameters_have_the_types_of_the_methods() -> None:
    hints = hints_of(Method) | hints_of(orlomo.OrLoMo)
    for name, (kind, _) in METHOD_FLAGS.items():
        assert hints[name] is kind or kind in typing.get_args(hints[name]), name


def test_other_words_name_flags_that_there_are() -> None:
    flags = set(command_parsers()["train"]._option_string_actions)
    assert set(OTHER_WORDS.values()) <= flags
    assert not set(OTHER_WORDS) & flags
