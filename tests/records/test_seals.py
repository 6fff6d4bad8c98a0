"""Sealed records: every file of a run with one byte changed is noticed, and nothing is shown from it without a word."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import orlomo
from orlomo.errors import OrlomoWarning, RunFolderError
from orlomo.records import checkpoint as checkpoints
from orlomo.records.digests import MARKS, Mark, Seal, first_difference
from orlomo.records.run import Run
from orlomo.records.tables import TableWriter
from small import call_cli

FILES = (
    "config.toml",
    "changes.json",
    "events.csv",
    "metrics.csv",
    "metrics.json",
    "model.safetensors",
    "best.safetensors",
    "best.json",
    "checkpoints/000000205.json",
    "checkpoints/000000205.safetensors",
)
"""The files of the run below, except .lock."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two parts."""
    folder, more = tmp_path_factory.mktemp("runs") / "run", {"jobs": 1, "callbacks": [orlomo.KeepBest("train_loss")]}
    orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, evaluate_every=0.05, out=folder, **more)
    orlomo.resume(folder, epochs=0.2, **more)
    for path in (folder / "checkpoints").glob("000000103.*"):
        path.unlink()  # one is enough
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def change(path: Path, at: int = -3) -> None:
    """One byte, a digit into another where it is one."""
    content = bytearray(path.read_bytes())
    content[at] = content[at] ^ 1 if content[at : at + 1].isdigit() else content[at] ^ 4
    path.write_bytes(content)


def test_a_run_is_whole(folder: Path) -> None:
    found = orlomo.verify(folder)
    assert found.whole
    assert found.notes == ()
    assert str(found).endswith("is whole: 205 events, 5 evaluations, checkpoint 205")
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there - {"signature.json"} == {*FILES, ".lock"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("at", [0, 17, -3, -1])
def test_one_byte_of_any_file_is_noticed(name: str, at: int, folder: Path) -> None:
    change(folder / name, at)
    found = orlomo.verify(folder)
    assert not found.whole
    assert {finding.file for finding in found.findings} & {name, name.rpartition(".")[0]}
    done = call_cli("verify", folder, folder=folder.parent)
    assert done.returncode == 1
    assert name.partition(".")[0] in done.stdout


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_is_noticed(name: str, folder: Path) -> None:
    (folder / name).unlink()
    if name.startswith(("config", "checkpoints/000000205.json")):
        return  # then it is no run, and a run of which nothing is sealed
    found = orlomo.verify(folder)
    assert not found.whole
    assert {finding.file for finding in found.findings} & {name, name.rpartition(".")[0]}


def test_a_digit_of_the_metrics_is_never_shown_without_a_word(folder: Path) -> None:
    lines = (folder / "metrics.csv").read_text().splitlines(keepends=True)
    lines[4] = lines[4].replace(",", ",1", 7)
    (folder / "metrics.csv").write_text("".join(lines))
    word = "metrics.csv is not what the run wrote, first in line 5 (sealed by checkpoint 205)"
    for arguments in (("report", folder), ("export", folder, "--format", "csv"), ("replay", folder, "--jobs", 1)):
        done = call_cli(*arguments, folder=folder.parent)
        assert word in done.stderr, arguments
    assert word in (folder.parent / "report.html").read_text()
    done = call_cli("resume", folder, folder=folder.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert word in done.stderr
    run = orlomo.load(folder)
    with pytest.warns(OrlomoWarning, match="is not what the run wrote") as said:
        assert len(run.metrics) == len(run.metrics) == 5
    assert len(said) == 1


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("events.csv", lambda run: run.events),
        ("metrics.json", lambda run: run.measured),
        ("model.safetensors", lambda run: run.model(orlomo.task("quadratic"))),
        ("best.safetensors", lambda run: run.best),
        ("checkpoints/000000205.json", lambda run: run.metrics),
        ("changes.json", lambda run: run.metrics),
    ],
)
def test_what_python_reads_is_never_shown_without_a_word(
    name: str, look: Callable[[orlomo.Run], object], folder: Path
) -> None:
    content = (folder / name).read_bytes()
    change(folder / name, content.find({"metrics.json": b"loss", "changes.json": b"0.2"}.get(name, content[-3:])))
    with pytest.warns(OrlomoWarning, match=name):
        look(orlomo.load(folder))
    said: list[str] = []
    look(Run(folder, said.append))
    assert len(said) == 1


def test_lines_after_the_checkpoint_are_counted_and_are_no_damage(folder: Path) -> None:
    events = folder / "events.csv"
    whole = events.read_text()
    events.write_text(whole + whole.splitlines(keepends=True)[-1])
    [finding] = orlomo.verify(folder).findings
    assert str(finding) == "events.csv has 1 line more than the run wrote (sealed by checkpoint 205)"
    rows = json.loads((folder / "changes.json").read_text())
    (folder / "changes.json").write_text(json.dumps([*rows, {**rows[-1], "epochs": 0.3}]))  # it is to be continued
    found = orlomo.verify(folder)
    assert found.whole
    assert "events.csv: 1 line after checkpoint 205 not sealed" in found.notes


def test_runs_of_before_have_sizes_only(folder: Path) -> None:
    checkpoint = folder / "checkpoints" / "000000205.json"
    content = json.loads(checkpoint.read_text())
    del content["values"]["sealed"], content["sha256"]
    checkpoint.write_text(json.dumps({"sha256": checkpoints._seal(content), **content}, indent=1))
    found = orlomo.verify(folder)
    assert found.whole
    assert "only sizes are compared" in str(found)
    assert orlomo.resume(folder, epochs=0.3, jobs=1).finished
    assert orlomo.verify(folder).notes == ()
    change(folder / "metrics.csv")
    assert not orlomo.verify(folder).whole


def test_folders_that_are_no_runs(folder: Path) -> None:
    (folder.parent / "other").mkdir()
    done = call_cli("verify", folder, "other", folder=folder.parent)
    assert done.returncode == 2
    assert "run is whole" in done.stdout
    assert done.stderr == "orlomo: other is not a run: there is no config.toml in it\n"
    done = call_cli("verify", ".", "--json", folder=folder.parent)
    assert done.returncode == 0
    [found] = json.loads(done.stdout)
    assert (found["whole"], found["findings"], found["checkpoint"]) == (True, [], 205)


@pytest.fixture
def table(tmp_path: Path) -> tuple[Path, list[Mark]]:
    writer = TableWriter(tmp_path / "table.csv", ["n"])
    for n in range(100):
        writer.append({"n": n})
    writer.close()
    return tmp_path / "table.csv", writer.seal.history()


def test_marks_narrow_damage_down(table: tuple[Path, list[Mark]]) -> None:
    path, marks = table
    assert MARKS // 2 <= len(marks) <= MARKS
    assert marks[-1].rows == 100
    assert first_difference(path, marks) is None
    size = path.stat().st_size
    for at in range(0, size, 5):
        whole = path.read_bytes()
        change(path, at)
        where = str(first_difference(path, marks))
        first, last = (int(word) for word in where.removeprefix("lines ").split(" to "))
        assert first <= whole[:at].count(b"\n") + 1 <= last
        assert last - first < 100 // (MARKS // 2) + 2
        path.write_bytes(whole)


def test_a_table_that_is_continued_has_the_marks_of_one_that_was_not_cut_off(table: tuple[Path, list[Mark]]) -> None:
    path, marks = table
    with path.open("rb") as file:
        half = next(mark for mark in marks if mark.rows > 40)
        before = [mark for mark in marks if mark.rows <= half.rows]
        assert Seal.of(file, half.bytes, before).history() == before
    writer = TableWriter(path, ["n"], half.bytes, before)
    for n in range(half.rows, 100):
        writer.append({"n": n})
    writer.close()
    assert writer.seal.history() == marks
    change(path, 9)
    whole = path.read_bytes()
    with pytest.raises(orlomo.OrlomoError, match="cannot be continued: it is not what the run wrote"):
        TableWriter(path, ["n"], half.bytes, before)
    assert path.read_bytes() == whole


def test_a_run_of_a_task_measures_something(tmp_path: Path) -> None:
    run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.05, jobs=1, out=tmp_path / "run")
    (run.folder / "metrics.json").write_text("[]")
    with (
        pytest.warns(OrlomoWarning, match="sealed"),
        pytest.raises(RunFolderError, match=r"metrics\.json is damaged: it describes no metric"),
    ):
        _ = orlomo.load(run.folder).measured


def test_a_table_that_the_run_did_not_write_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "rounds.csv").write_text("kind,worker\n1,2\n")
    text = "rounds.csv is not one that the run wrote: checkpoint 205 does not know it"
    assert text in [str(finding) for finding in orlomo.verify(folder).findings]
    exported = call_cli("export", folder, "--format", "csv", "-o", "csv", folder=tmp_path)
    assert text in exported.stderr


def test_a_replay_says_that_its_device_is_not_there(folder: Path) -> None:
    config = folder / "config.toml"
    config.write_text(config.read_text().replace('device = "cpu"', 'device = "nowhere"'))
    done = call_cli("replay", folder, "--jobs", 1, folder=folder.parent)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("orlomo: device 'nowhere' cannot be used here: ")
