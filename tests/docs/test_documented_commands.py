"""Every `orlomo` command on the pages is one: those without a mark run, on less data, and all others are parsed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from documented import PAGES, ROOT, SHELL, blocks, commands, mentioned, name_of, python_of

from small import call_cli, command_parsers

ELSEWHERE = {"watch": "tests/report/test_watch.py", "workers": "tests/engines/test_command.py"}
"""Commands that need a run at work, or do not end by themselves, and the tests that run them."""

USUAL = {"--out", "-o", "--seed", "--learning-rate", "--workers", "--epochs", "--local-steps", "--pace"}
"""Flags that other tests have in every combination."""

SMALL = {"--epochs": 1.0, "--workers": 4, "--seeds": 1, "--iterations": 1000}
"""Numbers that only make a command longer are at most these here."""

LOOP = """
import argparse
import os
import torch
import orlomo

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--save")
args = parser.parse_args()
if int(os.environ.get("WORLD_SIZE", 1)) > 1:
    torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
if torch.distributed.is_initialized():
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
loader = torch.utils.data.DataLoader(torch.ones(64, 4), batch_size=2)
worker = orlomo.worker().attach(model, optimizer)
for epoch in worker.epochs(1):
    for x in worker.batches(loader):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""


def shape(words: list[str]) -> tuple[str, ...]:
    """What tells apart the commands that are worth a run of their own: what they are about, and their flags."""
    flags = {word for word in words if word.startswith("-")} - USUAL
    first = next((word for word in words[1:] if not word.startswith("-")), "")
    engine = words[words.index("--engine") + 1] if "--engine" in words else ""
    return words[0], "run" if first.startswith("runs/") else first, engine, *sorted(flags)


ALL = [(block, words) for page in PAGES for block in blocks(page) for words in commands(block)]
RUN = {shape(words): words for block, words in ALL if block.runs and words[0] not in ELSEWHERE}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and runs that pages speak of."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "train.py").write_text(LOOP)
    shutil.copytree(ROOT / "examples", folder / "examples")
    for place in (folder, folder / "examples"):
        (place / "mnist_like_script.py").write_text(LOOP)  # test_examples.py runs the real one
    (folder / "my_schedule.py").write_text("def decay(epoch):\n    return 0.95 ** epoch\n")
    (folder / "my_method.py").write_text(python_of(ROOT / "docs/how-to/own-method.md").partition("run = ")[0])
    assert call_cli("new", "task", "my_task", folder=folder).returncode == 0
    flags = ["--workers", 2, "--local-steps", 4, "--quiet", "--out"]
    done = call_cli("train", "digits", "--epochs", 0.5, "--jobs", 1, *flags, "runs/task", folder=folder)
    assert done.returncode == 0, done.stderr
    done = call_cli("run", *flags, "runs/loop", "train.py", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def reduced(words: list[str], folder: Path) -> list[str]:
    """The same command on less data, with what it reads made ready."""
    command, *rest = words
    small = [command]
    for flag, word in zip(words, rest, strict=False):
        small.append(str(min(SMALL[flag], type(SMALL[flag])(word))) if flag in SMALL else word)
    if command in ("train", "compare"):
        small += [*(["--epochs", "1"] if "--epochs" not in small else []), "--quiet"]
        small += ["--jobs", "1"] if "--engine" not in small else []
    if command in ("run", "resume"):
        small.insert(1, "--quiet")
    for flag, word in zip(words, rest, strict=False):
        if found := re.match(r"runs/[\w.-]+", word):
            made = folder / found[0]
            if flag in ("--out", "-o"):
                shutil.rmtree(made, ignore_errors=True)
            elif not made.exists():
                shutil.copytree(folder / "runs" / ("loop" if command == "audit" else "task"), made)
    runs = sorted(f"runs/{path.name}" for path in folder.glob("runs/*"))
    return [one for word in small for one in (runs if word == "runs/*" else [word])]


@pytest.mark.timeout(100)
@pytest.mark.parametrize("words", RUN.values(), ids=lambda words: " ".join(words)[:100])
def test_a_command_runs(words: list[str], prepared: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(prepared, tmp_path / "folder")
    if words[0] == "new":
        folder = tmp_path  # where there is no such file yet
    done = call_cli(*reduced(words, folder), folder=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_is_parsed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orlomo.commands.main import parser

    monkeypatch.chdir(ROOT)
    for block in blocks(page):
        for words in commands(block):
            parser().parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_within_sentences_have_flags_that_exist(page: Path) -> None:
    parsers = command_parsers()
    for text in mentioned(page):
        command = text.split()[1]
        if command == "needs":  # the beginning of a message
            continue
        assert command in parsers, f"`{text}`"
        known = parsers[command]._option_string_actions
        for flag in re.findall(r"(?<= )--?[a-z][\w-]*", text.partition(".py")[0]):
            assert flag in known, f"`{text}`: {flag}"


def test_other_commands_name_what_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for block in (block for page in PAGES for block in blocks(page) if block.language in SHELL):
        for script in re.findall(r"^python ((?:examples|docs|benchmarks|tests)/\S+)", block.code, re.MULTILINE):
            assert (ROOT / script).is_file(), f"{block.page}: python {script}"
        for target in re.findall(r"^make (\w+)", block.code, re.MULTILINE):
            assert f"\n{target}:" in makefile, f"{block.page}: make {target}"


def test_what_is_run_elsewhere_is() -> None:
    for command, test in ELSEWHERE.items():
        assert f'"{command}"' in (ROOT / test).read_text("utf-8")
