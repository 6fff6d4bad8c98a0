"""Tables that are damaged: what can be shown is shown, and what cannot is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st

import orlomo
from orlomo.errors import RunFolderError
from orlomo.report.web.page import page_content
from small import classification, settings


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> orlomo.Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    faults = (orlomo.Fault(time=5.3, worker=1, kind="crash"), orlomo.Fault(time=9.0, worker=1, kind="return"))
    cluster = orlomo.Cluster(faults=faults)
    return orlomo.train(classification(), settings("orlomo"), workers=3, epochs=8, cluster=cluster, jobs=1, out=folder)


@pytest.fixture
def folder(whole: orlomo.Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole.folder, tmp_path / "run"))


def shown(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What is shown, and the notes on it; those on seals, which every change of a file breaks, are tested elsewhere."""
    found = page_content([orlomo.Run(folder)])
    json.dumps(found, allow_nan=False)
    seals = ("is not what the run wrote", "more than the run wrote", "has lost lines that checkpoint")
    return found["runs"][0], [note for note in found["notes"] if not any(text in note for text in seals)]


def change(path: Path, line: int, column: str, value: str) -> None:
    lines = path.read_text().splitlines()
    fields = lines[line].split(",")
    fields[lines[0].split(",").index(column)] = value
    lines[line] = ",".join(fields)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("column", ["delay", "group", "eta", "finish", "worker", "kind"])
@pytest.mark.parametrize("value", ["", "x", "-1e300", "inf", "1e300"])
def test_a_damaged_field_costs_one_line(folder: Path, column: str, value: str) -> None:
    change(folder / "events.csv", 1, "start", "-0.01")  # a real clock may say that at the beginning
    before, notes = shown(folder)
    assert notes == []
    change(folder / "events.csv", 3, column, value)
    after, notes = shown(folder)
    assert after["facts"]["reports"] == before["facts"]["reports"] - 1
    assert notes == ["run: 1 damaged line of events.csv left out."]
    assert len(after["charts"]["groups"]["group"]) == len(before["charts"]["groups"]["group"]) - 1


def test_a_loss_that_is_no_number_costs_nothing_else(folder: Path) -> None:
    before, _ = shown(folder)
    change(folder / "events.csv", 3, "loss", "1.2#4")
    after, notes = shown(folder)
    assert notes == []
    assert after["charts"]["timeline"] == before["charts"]["timeline"]
    assert after["charts"]["groups"] == before["charts"]["groups"]


def test_bytes_that_are_no_text(folder: Path) -> None:
    before, _ = shown(folder)
    with (folder / "events.csv").open("ab") as file:
        file.write(b"\xff")  # in a line that is not finished
    assert shown(folder) == (before, ["run: events.csv ends in the middle of a line, which is left out."])


def test_lost_lines_are_said(folder: Path) -> None:
    events, metrics = folder / "events.csv", folder / "metrics.csv"
    whole = {path: path.read_text().splitlines(keepends=True) for path in (events, metrics)}
    reports = sum(line.startswith("report,") for line in whole[events])
    events.write_text("".join(whole[events][:6]))
    assert shown(folder)[1] == [f"run: events.csv has 5 reports, metrics.csv has {reports}: lines are missing."]
    events.write_text("".join(whole[events]))
    metrics.write_text("".join(whole[metrics][:-1]))
    [note] = shown(folder)[1]
    assert note.startswith("run: metrics.csv ends at report ")
    (folder / "config.toml").write_text("")
    with pytest.raises(RunFolderError, match="is not whole: it has no method and no task"):
        orlomo.load(folder)


def test_lines_cut_short_in_the_middle_are_counted(folder: Path) -> None:
    before, _ = shown(folder)
    lines = (folder / "events.csv").read_text().splitlines(keepends=True)
    (folder / "events.csv").write_text("".join([*lines[:5], lines[5][:9] + "\n", lines[6][:4] + "\n", *lines[7:]]))
    after, notes = shown(folder)
    assert notes == ["run: 2 damaged lines of events.csv left out."]
    assert after["facts"]["reports"] == before["facts"]["reports"] - 2


@trying(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_is_too_much(data: st.DataObject, whole: orlomo.Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    shutil.copy(whole.folder / "config.toml", folder)
    for name in ("events.csv", "metrics.csv"):
        content = bytearray((whole.folder / name).read_bytes())
        for _ in range(data.draw(st.integers(0, 4))):
            position = data.draw(st.integers(0, len(content)))
            length = data.draw(st.integers(0, 40))
            content[position : position + length] = data.draw(
                st.binary(max_size=8) | st.sampled_from([b",", b"\n", b"-", b"9" * 30])
            )
        (folder / name).write_bytes(content)
    found, _ = shown(folder)
    assert found["facts"]["reports"] <= 1000


def test_why_a_run_was_stopped_is_shown(tmp_path: Path) -> None:
    class Stop(orlomo.Callback):
        def started(self, run: orlomo.RunHandle) -> None:
            run.stop("it is late")

    run = orlomo.train("quadratic", "asgd", workers=2, epochs=1, jobs=1, out=tmp_path / "run", callbacks=[Stop()])
    assert page_content([run])["notes"] == ["run was stopped: it is late."]
