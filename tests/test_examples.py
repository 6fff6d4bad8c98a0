"""Every example runs as its first lines say, and what it computes is computed again bit for bit."""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import orlomo
from orlomo.commands.main import main

FOLDER = Path(__file__).parents[1] / "examples"
BEFORE, AFTER = FOLDER / "mnist_like_script_before.py", FOLDER / "mnist_like_script.py"
GPT = FOLDER / "character_gpt.py"
LORA = FOLDER / "lora_huggingface.py"  # tests/integrations runs it
EXAMPLES = sorted(set(FOLDER.glob("*.py")) - {BEFORE, AFTER, GPT, LORA})


def python(*arguments: object, cwd: Path) -> str:
    """What Python prints with these arguments."""
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def difference() -> list[str]:
    """The lines of the diff from the script before to the script after, without their first paragraphs."""
    before, after = (path.read_text("utf-8").split('"""\n', maxsplit=1)[-1].splitlines() for path in (BEFORE, AFTER))
    return list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_replays(example: Path, tmp_path: Path) -> None:
    assert "agree, bit for bit (" in python(example, cwd=tmp_path)


def test_a_script_changes_in_five_lines_and_the_guide_shows_them() -> None:
    lines = [line for line in difference() if not line.startswith("@@")]
    assert 3 <= sum(line.startswith("+") for line in lines) <= 5
    guide = (FOLDER.parent / "docs" / "how-to" / "own-loop.md").read_text("utf-8")
    shown = re.findall(
        r"^[-+].*$", re.findall(r"^```diff\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)[0], re.MULTILINE
    )
    assert shown == lines


def test_alone_the_script_gives_the_same_bits_as_before(tmp_path: Path) -> None:
    for script, name in ((BEFORE, "before"), (AFTER, "after")):
        python(script, "--epochs", 2, "--save", name, cwd=tmp_path)
    before, after = (torch.load(tmp_path / name) for name in ("before", "after"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_script_trains_on_workers_and_saves_what_the_run_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--workers", "2", "--local-steps", "8", "--out", "runs/a", "--quiet"]
    assert main(["run", *flags, str(AFTER), "--epochs", "2", "--save", "model.pt"]) == 0
    run, saved = orlomo.load("runs/a"), torch.load("model.pt")
    assert torch.equal(torch.cat([value.flatten() for value in saved.values()]), run.params)
    assert main(["audit", "runs/a"]) == 0


def test_the_character_gpt_is_compared_on_an_uneven_cluster(tmp_path: Path) -> None:
    printed = python(GPT, "--compare", "runs", "--replay", "--lr", "3e-3", cwd=tmp_path)
    assert printed.count("agree, bit for bit (") == 2
    slow, fast = (orlomo.load(tmp_path / "runs" / name).metric_columns for name in ("local-sgd", "local-ormo-da"))
    assert slow["seconds"][-1] > 1.2 * fast["seconds"][-1]
    assert fast["validation_loss"][-1] < fast["validation_loss"][0] - 0.3
    assert (tmp_path / "runs" / "losses.png").is_file()
