"""Flags, the config and `train` say the same."""

from __future__ import annotations

import inspect
import typing

import pytest

import orlomo
from orlomo.commands.flags import METHOD_FLAGS, OTHER_WORDS
from orlomo.config import RunConfig
from orlomo.errors import ConfigError
from orlomo.methods.method import Method
from orlomo.settings import Hint, convert, from_text, helps, hints_of
from small import command_parsers

ELSEWHERE = {"jobs", "out", "ray", "tensorboard", "progress", "warn"}
"""What `train` takes beside the config: it does not decide a run's result."""


def test_train_has_every_setting_with_its_default() -> None:
    parameters = inspect.signature(orlomo.train).parameters
    names = {name for name, _, _ in helps(RunConfig)}
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
        assert hints[name] in (kind, kind | None), name


def test_other_words_name_flags_that_there_are() -> None:
    flags = set(command_parsers()["train"]._option_string_actions)
    assert set(OTHER_WORDS.values()) <= flags
    assert not set(OTHER_WORDS) & flags


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("3", int, 3),
        ("3", float, 3.0),
        ("1e-3", float | None, 1e-3),
        ("None", float | None, None),
        ("off", bool, False),
        ("cuda:0, cpu", tuple[str, ...] | None, ("cuda:0", "cpu")),
        ("1,2", list[int], [1, 2]),
        ("zone=in(eu,uk),disk=ssd", dict[str, str], {"zone": "in(eu,uk)", "disk": "ssd"}),
        ("b", typing.Literal["a", "b"], "b"),
        ("fast", float | str, "fast"),
        ("2", float | str, 2.0),
    ],
)
def test_text_to_a_value_and_a_value_as_it_is(text: str, hint: Hint, value: object) -> None:
    assert from_text(text, hint) == value
    assert type(from_text(text, hint)) is type(value)
    assert convert(value, hint, "here") == value


@pytest.mark.parametrize(
    ("text", "hint", "message"),
    [
        ("3.5", int, "must be a whole number, not '3.5'"),
        ("much", float | None, "must be a number, not 'much'"),
        ("maybe", bool, "must be true or false, not 'maybe'"),
        ("1,x", tuple[float, ...], "must be numbers with commas between, not '1,x'"),
        ("GPU", dict[str, float], "must be names and amounts, as in GPU=1,CPU=4, not 'GPU'"),
        ("c", typing.Literal["a", "b"], "must be one of a, b, not 'c'"),
        ("x", object, "no form on the command line"),
    ],
)
def test_a_wrong_text_says_what_is_wanted(text: str, hint: Hint, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_text(text, hint)


def test_whole_numbers_are_no_booleans_in_a_file() -> None:
    assert convert(True, bool, "here") is True
    for value, hint in ((True, int), (1, bool), (True, float)):
        with pytest.raises(ConfigError, match="here must be"):
            convert(value, hint, "here")
