"""A schedule as a function of the epoch: of a file, which a run records, or one that only Python has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import orlomo
from orlomo.commands.main import main
from orlomo.methods import rates
from small import classification

FILE = """
def decay(epoch):
    return 0.5 ** int(epoch)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_schedule.py"
    path.write_text(FILE)
    return path


def train(schedule: Any, folder: Path, **more: Any) -> orlomo.Run:
    method = orlomo.OrLoMo(learning_rate=0.05, local_steps=2, schedule=schedule)
    return orlomo.train(classification(), method, workers=2, epochs=3, jobs=1, out=folder, **more)


def used(run: orlomo.Run) -> set[float]:
    return set(run.event_columns["learning_rate"].tolist())


@pytest.mark.parametrize("engine", ["simulated", "processes"])
def test_of_a_file_it_is_recorded_and_followed(
    engine: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = train("my_schedule.py:decay", tmp_path / "run", engine=engine)
    monkeypatch.chdir("/")
    assert used(run) == {0.05, 0.025, 0.0125}
    assert orlomo.load(run.folder).config.method.schedule == f"{file}:decay"
    task = classification()
    assert orlomo.replay(run.folder, task=task, jobs=1).agrees
    run = orlomo.resume(run.folder, task=task, epochs=4, learning_rate=0.2, jobs=1)
    assert 0.2 / 8 in used(run)  # the factor of the fourth epoch applies to the new rate
    assert orlomo.replay(run.folder, task=task, jobs=1).agrees


def test_a_file_that_has_changed_is_noticed_and_one_that_is_gone_does_not_hide_the_run(
    file: Path, tmp_path: Path
) -> None:
    run = train(f"{file}:decay", tmp_path / "run")
    file.write_text(FILE + "# changed\n")
    said: list[str] = []
    assert orlomo.replay(run.folder, task=classification(), jobs=1, warn=said.append).agrees
    assert "the file of the schedule has changed" in said[0]
    file.write_text(FILE.replace("0.5", "0.25"))
    with pytest.raises(orlomo.OrlomoError, match=r"learning_rate is 0.025 in the trace and 0.0125 by the method"):
        orlomo.replay(run.folder, task=classification(), jobs=1, warn=said.append)
    again = train(f"{file}:decay", tmp_path / "again")  # the file as it is now, not as it was when first loaded
    assert 0.0125 in used(again)
    assert 0.025 not in used(again)
    file.unlink()
    assert orlomo.load(run.folder).config.method.name == "orlomo"
    with pytest.raises(orlomo.OrlomoError, match="cannot read the schedule file"):
        orlomo.replay(run.folder, task=classification(), jobs=1)


def test_one_that_only_python_has_must_be_given_again(tmp_path: Path) -> None:
    def decay(epoch: float) -> float:
        return 1 / (1 + epoch)

    run = train(decay, tmp_path / "run")
    assert len(used(run)) > 10
    method = orlomo.OrLoMo(learning_rate=0.05, local_steps=2, schedule=decay)
    with pytest.raises(orlomo.OrlomoError, match="whose schedule is a function that only Python has: give it, as in"):
        orlomo.replay(run.folder, task=classification())
    assert orlomo.replay(run.folder, task=classification(), method=method, jobs=1).agrees
    run = orlomo.resume(run.folder, task=classification(), method=method, epochs=4, jobs=1)
    assert orlomo.replay(run.folder, task=classification(), method=method, jobs=1).agrees


def test_from_the_command_line_and_a_toml_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = ["--workers", "2", "--epochs", "2", "--samples", "200", "--quiet"]
    for name, more in (("flag", ["--schedule"]), ("set", ["--set"])):
        text = "my_schedule.py:decay" if name == "flag" else "schedule=my_schedule.py:decay"
        assert main(["train", "digits", *usual, *more, text, "--out", name]) == 0
    config = tmp_path / "folder" / "config.toml"
    config.parent.mkdir()
    config.write_text(f'task = "digits"\n[method]\nname = "orlomo"\nschedule = "../{file.name}:decay"\n')
    assert main(["train", str(config), *usual, "--out", "toml"]) == 0
    traces = [(tmp_path / name / "events.csv").read_bytes() for name in ("flag", "set", "toml")]
    assert traces[0] == traces[1] == traces[2]
    assert main(["replay", "toml", "--quiet"]) == 0
    capsys.readouterr()


def test_texts_that_are_built_in_are_not_taken_for_files() -> None:
    assert [rates.is_own(text) for text in ("constant", "step:80,120", "cosine:160", "cosin:160")] == [False] * 4
    assert [rates.is_own(text) for text in ("a/b.py:decay", "package.module:decay")] == [True] * 2
    with pytest.raises(orlomo.OrlomoError, match="did you mean 'cosine'"):
        orlomo.OrLoMo(schedule="cosin:160")
