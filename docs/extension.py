"""What this site adds to Sphinx: links in docstrings, the page of the command line, formulas without a script."""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import re
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

NAME = re.compile(r"orlomo(\.\w+)+|[A-Z]\w+(\.\w+)*")
"""What in single backquotes is looked up as a public name; all else there is code, as `worker` or `--engine`."""

FRAMEWORKS = {"accelerate": "accelerate", "lightning": "lightning", "transformers": "huggingface"}
"""And our modules for them."""

COMMANDS = "<!-- the commands, from the parser -->"
"""The line of reference/command-line.md that is replaced."""


class CodeRole(SphinxRole):
    """`Task` in a docstring: a link where there is such a public name, else code."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        if NAME.fullmatch(self.text):
            role: Any = self.env.get_domain("py").role("obj")
            return role(self.name, self.rawtext, self.text, self.lineno, self.inliner, self.options, self.content)
        return [nodes.literal(self.rawtext, self.text.replace("\x00", "\\"))], []


def tidy(app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
    """A docstring as a reader of the site wants it: links to pages, and folders as users name them."""
    text = "\n".join(lines)
    text = re.sub(r'getfixture\("tmp_path"\) / "(\w+)"', r'"runs/\1"', text).replace("runs/run", "runs/a")
    text = re.sub(r"docs/([\w/-]+)\.md", r":doc:`/\1`", text)
    text = text.replace("SECURITY.md", ":doc:`/reference/security`")
    lines[:] = text.split("\n")
    if what in ("attribute", "data", "property"):  # napoleon takes what is before a colon there for a type
        lines[:1] = [lines[0].replace(": ", " – ")]  # noqa: RUF001


def shorten(
    app: Sphinx, what: str, name: str, found: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """A signature with defaults that can be read: an object's repr is no Python."""
    if signature is not None:
        signature = re.sub(r"\bMetric\(name='(\w+)', make=<class '[^']*'>[^)]*\)", r"\1", signature)
        signature = signature.replace("<factory>", "...")
    return signature, returned


def insert_commands(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the reference of the command line into its page."""
    if COMMANDS in source[0]:
        source[0] = source[0].replace(COMMANDS, command_reference())


def command_reference() -> str:
    """Every command as Markdown, from the parser itself."""
    from orlomo.commands.main import parser

    return "\n\n".join(_command(command) for command in _below(parser()))


def _below(command: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found: list[argparse.ArgumentParser] = []
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found += [below, *_below(below)]
    return found


def _command(command: argparse.ArgumentParser) -> str:
    words = [action.metavar or action.dest for action in command._actions if not action.option_strings]
    usage = " ".join([command.prog, *map(str, words), "[flags]"])
    parts = [f"## {command.prog}", _sentence(command.description or ""), f"```text\n{usage}\n```"]
    for group in command._action_groups:
        actions = [action for action in group._group_actions if _is_shown(action)]
        if actions:
            rows = "\n".join(f"| {_names(action)} | {_help(command, action)} |" for action in actions)
            parts.append(f"{{.flags}}\n| {_title(group)} | |\n|:--|:--|\n{rows}")
    if command.epilog:
        examples = [line.strip() for line in command.epilog.splitlines() if line.strip().startswith("orlomo ")]
        parts.append("Examples:\n\n```bash\n" + "\n".join(examples) + "\n```")
    return "\n\n".join(part for part in parts if part)


def _is_shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
    return not hidden and action.help is not argparse.SUPPRESS


def _title(group: argparse._ArgumentGroup) -> str:
    return {"positional arguments": "argument", "options": "flag"}.get(group.title or "", group.title or "flag")


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(f"`{flag}{value}`" for flag in action.option_strings)


def _help(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = command._get_formatter()._expand_help(action) if action.help else ""
    return _flags(text.replace("|", "\\|").replace("\n", " ").replace("*", "\\*").replace("<", "\\<"))


def _sentence(text: str) -> str:
    text = _flags(" ".join(text.split()))
    return f"{text[:1].upper()}{text[1:]}"


def _flags(text: str) -> str:
    """With flags as code: two hyphens elsewhere become a dash."""
    return re.sub(r"(?<![`\w-])--[a-z][\w-]*", r"`\g<0>`", text)


class StandIn(ModuleType):
    """A module that has every class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__module__": "builtins"})  # autodoc reads the modules that a class's bases are in


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Empty classes in place of frameworks that take seconds to load, or are not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in FRAMEWORKS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


def load_integrations() -> None:
    """Import the modules that work with frameworks, without these."""
    finder = StandIns()
    sys.meta_path.insert(0, finder)
    try:
        for framework in FRAMEWORKS:
            importlib.import_module(f"orlomo.integrations.{FRAMEWORKS[framework]}")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] in FRAMEWORKS]:
            del sys.modules[name]


def mathml(block: bool) -> Any:
    """Write a formula as MathML, which browsers draw themselves: nothing is fetched from elsewhere."""

    def visit(translator: Any, node: nodes.Element) -> None:
        made = tex2mathml(node.astext(), as_block=block)
        translator.body.append(f'<div class="math">{made}</div>' if block else made)
        raise nodes.SkipNode

    return visit, None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of it."""
    load_integrations()
    app.setup_extension("sphinx.ext.autodoc")
    app.add_role("orlomo-code", CodeRole())
    app.connect("autodoc-process-docstring", tidy, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", shorten)
    app.connect("source-read", insert_commands)
    app.add_html_math_renderer("mathml", mathml(False), mathml(True))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
