"""Values of settings: from texts of the command line and from plain values of TOML files."""

from __future__ import annotations

import typing

import pytest

from orlomo.errors import ConfigError
from orlomo.values import Hint, convert, from_text


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
