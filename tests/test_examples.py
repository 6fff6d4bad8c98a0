"""Every example runs as its first lines say, and what it computes is computed again bit for bit."""

from __future__ import annotations

import difflib
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import orlomo
from orlomo.commands.main import main

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
BEFORE, AFTER = FOLDER / "mnist_like_script_before.py", FOLDER / "mnist_like_script.py"
REPLAYED = ("bf16", "metrics_and_stopping", "own_method", "per_worker_data", "text_collate")
"""They run as they are, and end with a replay; the others have a test of their own, lora_huggingface in
tests/integrations."""


def python(*arguments: object, cwd: Path) -> str:
    """What Python prints with these arguments."""
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names_of(example: str) -> dict[str, Any]:
    """What an example defines; its last lines, which run it, are left out."""
    return runpy.run_path(str(FOLDER / f"{example}.py"))


def difference() -> list[str]:
    """The lines of the diff from the script before to the script after, without their first paragraphs."""
    before, after = (path.read_text("utf-8").split('"""\n', maxsplit=1)[-1].splitlines() for path in (BEFORE, AFTER))
    return list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_is_short_and_both_overviews_have_it_with_its_picture(script: Path) -> None:
    assert len(script.read_text("utf-8").splitlines()) <= 100
    assert f"({script.name})" in (FOLDER / "README.md").read_text("utf-8")
    page = (ROOT / "docs" / "examples.md").read_text("utf-8")
    assert script.name in page
    if script != BEFORE:
        assert f"(images/examples/{script.stem}.png)" in page
        assert (ROOT / "docs" / "images" / "examples" / f"{script.stem}.png").is_file()


@pytest.mark.parametrize("example", REPLAYED)
def test_it_runs_and_replays(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / f"{example}.py"), run_name="__main__")
    assert "agree, bit for bit (" in capsys.readouterr().out


def test_worker_processes_do_not_wait_for_a_slow_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names_of("uneven_processes")["main"](epochs=3)
    seconds = {name: orlomo.load(f"runs/uneven/{name}").metric_rows[-1]["seconds"] for name in ("prsgdm", "orlomo")}
    assert seconds["orlomo"] < seconds["prsgdm"]


def test_a_rehearsal_shows_what_waiting_for_old_machines_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = names_of("rehearse_cluster")
    hours = example["main"](example["OFFERS"][1:2], seeds=1)
    assert hours["8 new, 8 old", "orlomo"] < 0.9 * hours["8 new, 8 old", "prsgdm"]


def test_a_run_survives_the_storm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = names_of("spot_storm")
    run = example["train"]("storm", 15, [example["Storm"](seconds=0.2)])
    assert run.finished
    assert (run.event_columns["kind"] == "crash").sum() >= 1
    assert "killed by SIGKILL" in capsys.readouterr().out
    assert orlomo.replay(run.folder, task=example["slow_digits"](0)).agrees


def test_three_methods_are_compared_on_ones_own_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = names_of("compare_methods")
    example["SETTINGS"]["epochs"] = 4
    example["main"](rates=(0.1, 1e6), seeds=1)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[:2] for row in rows] == [["prsgdm", "0.1"], ["orlomo", "0.1"], ["al-sgd", "0.1"]]
    assert float(rows[0][-1]) > 2 * float(rows[1][-1])


def test_a_script_changes_in_five_lines_and_the_guide_shows_them() -> None:
    lines = [line for line in difference() if not line.startswith("@@")]
    assert 3 <= sum(line.startswith("+") for line in lines) <= 5
    guide = (ROOT / "docs" / "how-to" / "own-loop.md").read_text("utf-8")
    shown = re.findall(
        r"^[-+].*$", re.findall(r"^```diff\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)[0], re.MULTILINE
    )
    assert shown == lines


def test_alone_the_script_gives_the_same_bits_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for script, name in ((BEFORE, "before"), (AFTER, "after")):
        monkeypatch.setattr(sys, "argv", [str(script), "--epochs", "2", "--save", str(tmp_path / name)])
        runpy.run_path(str(script), run_name="__main__")
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
    text = tmp_path / "text"
    text.write_text("the quick brown fox jumps over the lazy dog; " * 250)
    printed = python(FOLDER / "character_gpt.py", "--compare", "runs", "--text", text, "--epochs", 6, cwd=tmp_path)
    assert "local-sgd: loss" in printed
    slow, fast = (orlomo.load(tmp_path / "runs" / name).metric_columns for name in ("local-sgd", "local-ormo-da"))
    assert slow["epoch"][-1] == 2
    assert fast["epoch"][-1] == 6
    assert fast["validation_loss"][-1] < fast["validation_loss"][0] - 0.3
