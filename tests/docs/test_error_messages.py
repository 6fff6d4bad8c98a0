"""The messages that the documentation explains are those of the source."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from documented import ROOT

import orlomo

PAGE = ROOT / "docs" / "reference" / "error-messages.md"
VARIES = "…"


@cache
def texts_of_the_source() -> list[str]:
    """Every text in the source, with `…` for what is put into it."""
    found = []
    for path in sorted(Path(orlomo.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else VARIES for part in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def documented_messages() -> list[str]:
    return re.findall(r"^- `(.+)`$", PAGE.read_text("utf-8"), re.MULTILINE)


def occurs(message: str) -> bool:
    """Whether the source has this text, or one that has something put in at each `…` of it."""
    parts = message.split(VARIES)
    pattern = f".*{VARIES}.*".join(map(re.escape, parts))
    longest = max(parts, key=len)
    return any(longest in text and re.search(pattern, text, re.DOTALL) for text in texts_of_the_source())


def test_every_documented_message_is_in_the_source() -> None:
    messages = documented_messages()
    assert len(messages) > 50
    assert [message for message in messages if not occurs(message)] == []


def test_no_message_is_documented_twice() -> None:
    messages = documented_messages()
    assert len(set(messages)) == len(messages)


def test_a_message_that_is_not_in_the_source_is_noticed() -> None:
    assert not occurs("the model has no trainable parametres")
    assert not occurs("loss(model, batch) must give a … scalar tensor")
