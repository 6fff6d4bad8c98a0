"""Flags, the config and `train` say the same."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import shlex
import subprocess
import typing
from pathlib import Path

import pytest

import orlomo
from orlomo.commands import main
from orlomo.commands.completion import SHELLS
from orlomo.commands.flags import METHOD_FLAGS
from orlomo.commands.parser import OTHER_WORDS
from orlomo.config import RunConfig
from orlomo.methods.method import Method
from orlomo.methods.registry import METHODS
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


def test_flags_of_hyperparameters_say_the_methods_defaults() -> None:
    for name, (_, text) in METHOD_FLAGS.items():
        default = getattr(orlomo.OrLoMo(), name)
        shown = "not clipped" if default is None else default if isinstance(default, str) else f"{default:g}"
        assert f"(default: {shown}" in text, name
    others = {name for name in METHODS if orlomo.method(name).local_steps != orlomo.OrLoMo().local_steps}
    assert METHOD_FLAGS["local_steps"][1].endswith(f"16; 1 in {', '.join(sorted(others))})")


@pytest.mark.parametrize("name", command_parsers())
def test_every_flag_has_a_help_that_says_its_default_and_every_example_is_a_command(name: str) -> None:
    command = command_parsers()[name]
    for action in command._actions:
        assert action.help, action.dest
        optional = action.nargs == "?" or bool(action.option_strings and not action.required and action.nargs != 0)
        if optional and not isinstance(action, argparse._AppendAction) and action.dest != "number":
            assert "(default: " in action.help, f"{name} {action.dest}"
    assert command.description
    examples = str(command.epilog).splitlines()[1:]
    assert examples
    for line in examples:
        program, *words = shlex.split(line.partition(" > ")[0])
        assert program == "orlomo"
        assert main.parser().parse_args(words).command == name


@pytest.mark.parametrize("width", [40, 80, 200])
def test_help_is_not_broken_inside_words(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    words = {word for command in command_parsers().values() for word in command.format_help().split()}
    monkeypatch.setenv("COLUMNS", str(width))
    for command in (main.parser(), *command_parsers().values()):
        text = command.format_help()
        assert max(map(len, text.splitlines())) <= width or width == 40
        assert command.prog == "orlomo" or set(text.split()) <= words | {"\\"}


def test_help_alone_lists_every_command_in_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 0
    text = capsys.readouterr().out
    assert sorted(name for group in main.COMMANDS.values() for name in group) == sorted(command_parsers())
    assert all(f"  {name} " in text for name in command_parsers())


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["tra"], {"trace", "train"}),
        (["train", "--check"], {"--checkpoint-seconds"}),
        (["train", "--method", "al"], {"al-sgd"}),
        (["train", "dig"], {"digits"}),
        (["report", "ru"], {"runs"}),
    ],
)
def test_bash_completes(typed: list[str], completed: set[str], tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    script = tmp_path / "orlomo.bash"
    (tmp_path / "runs").mkdir()
    with script.open("w") as file, contextlib.redirect_stdout(file):
        assert main.main(["completion", "bash"]) == 0
    words = " ".join(map(shlex.quote, ["orlomo", *typed]))
    tab = f"COMP_WORDS=({words}); COMP_CWORD={len(typed)}; _shtab_orlomo"
    line = f"source {script}; {tab}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert set(done.stdout.split()) == completed, done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "checkpoint-seconds" in text
    assert "local-ormo-da" in text
