"""Names and texts that others chose, wherever they are printed: nothing in them acts, hides text or is markup."""

from __future__ import annotations

import functools
import html
import json
import math
import os
import shutil
import subprocess
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest

import orlomo
from orlomo.commands.output import print_json, say_error
from orlomo.errors import OrlomoWarning, RunFolderError, warn
from orlomo.printing import printable, quoted, say
from orlomo.records.folders import MEASURED, resume_command
from orlomo.records.log import Log
from orlomo.records.run import Run
from orlomo.records.tables import MetricColumn
from orlomo.report.comparison.rows import MethodTable, Row
from orlomo.report.comparison.texts import markdown_table
from orlomo.report.figures import write_figures
from orlomo.report.speed import Speed, Speeds
from orlomo.report.summary import write_rows
from orlomo.report.terminal.ending import comparison_lines
from orlomo.report.terminal.layout import Answer
from orlomo.report.web.page import page_content
from orlomo.report.web.watch import Follower
from small import call_cli, run_cli
from terminal import shown_at_a_terminal

HOSTILE = "r\x1b]0;owned\x07\r\x9b2J\u202egnp.\u2066[red][link=x] :smile:$\\frac{$<b>\n\ufeff`*|"
ESCAPED = r"r\x1b]0;owned\x07\r\u009b2J\u202egnp.\u2066[red][link=x] :smile:$\frac{$<b>\n\ufeff`*|"
NO_TEXT = os.fsdecode(b"run\xff")
SHORT = ("quadratic", "--workers", 2, "--epochs", 1, "--jobs", 1)


ONLY = functools.partial(pytest.mark.parametrize, "trained", indirect=True)
"""For tests that need one such name."""


def clean(text: str) -> bool:
    """Whether there is nothing in it that a terminal would obey."""
    return all(line.isprintable() for line in text.split("\n"))


@pytest.fixture(scope="module", params=[HOSTILE, NO_TEXT], ids=["control characters", "no UTF-8"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a folder of such a name."""
    folder = tmp_path_factory.mktemp("printed") / request.param
    done = call_cli("train", *SHORT, "--out", folder.name, folder=folder.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"\nrun     {printable(folder.name)}\n" in done.stdout
    assert done.stdout.endswith(f"\nreplay  orlomo replay {quoted(folder.name)}\n")
    assert clean(done.stdout)
    return folder


def test_what_acts_is_escaped_and_what_does_not_is_left() -> None:
    assert printable(HOSTILE) == ESCAPED == printable(ESCAPED)
    assert clean(ESCAPED)
    kept = "été \u00a0 naïve 日本 ± 🙂 \\x1b"
    assert printable(kept) == kept
    assert printable("a\nb\tc\x1b", lines=True) == "a\nb\tc\\x1b"
    assert printable(os.fsdecode(b"\xff\x80") + "\ud800\uffff\u2028") == r"\xff\x80\ud800\uffff\u2028"
    assert printable("é".encode().decode("ascii", "surrogateescape")) == "é"  # as a name is read where LANG is C


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("resume", "{}"), 0),
        (("replay", "{}"), 0),
        (("verify", "{}"), 0),
        (("export", "{}", "--format", "csv", "-o", "{}-csv"), 0),
        (("export", "{}", "--format", "parquet", "-o", "{}-parquet"), 0),
        (("report", "{}", "-o", "{}.html"), 0),
        (("report", "{}", "{}", "-o", "{}.html"), 2),
        (("workers", "{}"), 2),
        (("audit", "{}"), 2),
        (("train", "quadratic", "--out", "{}"), 2),
        (("train", "{}.py:task"), 2),
        (("train", "{}.toml"), 2),
        (("train", "{}"), 2),
        (("train", "quadratic", "--cluster", "{}"), 2),
        (("train", "quadratic", "--set", "{}=3"), 2),
        (("resume", "{}-missing"), 2),
        (("data", "cifar10", "--from", "{}"), 2),
        (("{}",), 2),
    ],
    ids=lambda value: " ".join(value).replace("{}", "NAME") if isinstance(value, tuple) else "",
)
def test_every_command_takes_such_names_and_shows_them_escaped(
    words: tuple[str, ...], code: int, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORLOMO_DATA", str(trained.parent / "data"))  # nothing is stored there
    done = call_cli(*(word.replace("{}", trained.name) for word in words), folder=trained.parent)
    assert done.returncode == code, done.stderr
    assert clean(done.stdout)
    assert clean(done.stderr)
    if code:
        assert len(done.stderr.splitlines()) == 1
        assert done.stdout == ""
    elif words[0] in ("resume", "replay"):
        assert "damaged" not in done.stderr


def test_pages_show_such_names_escaped(trained: Path, tmp_path: Path) -> None:
    done = call_cli("report", trained, "-o", "page.html", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text("utf-8")
    title = page.partition("<title>")[2].partition("</title>")[0]
    assert html.unescape(title) == f"{printable(trained.name)}: orlomo on quadratic"
    data = page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["runs"][0]["name"] == printable(trained.name)
    assert json.loads(Follower(trained).read())["runs"][0]["name"] == printable(trained.name)
    assert clean(orlomo.load(trained)._repr_html_())


@ONLY([HOSTILE])
def test_figures_show_such_names_escaped(trained: Path, tmp_path: Path) -> None:
    view = page_content([Run(trained)])
    charts = [spec for spec in view["charts"] if spec["name"] in ("metric-loss", "delays")]
    written = write_figures(charts, view["runs"], tmp_path)
    assert {path.parent for path in written} == {tmp_path, tmp_path / printable(HOSTILE)}
    for path in written:
        if path.suffix == ".svg":
            ElementTree.parse(path)


@ONLY([HOSTILE])
def test_two_names_that_are_escaped_alike_are_told_apart(trained: Path, tmp_path: Path) -> None:
    for name in (NO_TEXT, printable(NO_TEXT)):
        (tmp_path / name).mkdir()
        for file in trained.glob("*.*"):
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    shown = page_content([Run(tmp_path / NO_TEXT), Run(tmp_path / printable(NO_TEXT))])
    assert [run["name"] for run in shown["runs"]] == [r"run\xff", r"run\xff (2)"]


def test_json_is_ascii_and_gives_the_name_itself(trained: Path) -> None:
    done = call_cli("resume", trained.name, "--json", folder=trained.parent)
    assert done.stdout.isascii()
    assert clean(done.stdout)
    assert json.loads(done.stdout)["folder"].endswith(trained.name)


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    from orlomo.commands import output

    print_json({"a": [math.nan, {"b": math.inf}], "c": (1.5, NO_TEXT)})
    output._print_answers()
    assert capsys.readouterr().out == '{"a": [null, {"b": null}], "c": [1.5, "run\\udcff"]}\n'


def test_an_error_is_one_line_and_its_notes_are_clean(capsys: pytest.CaptureFixture[str]) -> None:
    error = RunFolderError(f"{HOSTILE} is damaged")
    assert str(error) == f"{ESCAPED} is damaged"
    error.add_note("first line\nsecond \x1b[31m")
    assert say_error(error) == 2
    assert capsys.readouterr().err == f"orlomo: {ESCAPED} is damaged\nfirst line\nsecond \\x1b[31m\n"
    assert say_error(FileNotFoundError(2, "No such file", HOSTILE)) == 2
    assert say_error(FileNotFoundError(2, "No such file", os.fsencode(NO_TEXT))) == 2
    assert capsys.readouterr().err == f"orlomo: No such file: {ESCAPED}\norlomo: No such file: run\\xff\n"
    assert say_error(OSError(28, "No space left on device")) == 2
    assert say_error(ValueError(f"of the user's: {HOSTILE}")) == 2
    assert clean(capsys.readouterr().err)


def test_warnings_and_the_log_are_clean(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OrlomoWarning)
        warn(HOSTILE)
    assert str(caught[0].message) == ESCAPED
    said: list[str] = []
    log = Log(tmp_path, said.append)
    log.warn(HOSTILE, f"a line\nanother {NO_TEXT}\x1b")
    written = (tmp_path / "log.txt").read_text("utf-8")
    assert clean(written)
    assert len(written.splitlines()) == 3
    assert ESCAPED in written
    assert written.endswith("    another run\\xff\\x1b\n")


def test_no_table_takes_markup(tmp_path: Path) -> None:
    one = MetricColumn("m", HOSTILE, "m", "m")
    name, speed = f"[/red]{HOSTILE}", Speed(1, 1, 1.0, 1.0, 1.0, 1.0)
    row = Row(name, name, (), 1, 0, (one,), {"m": 1.0}, {"m": math.nan}, 1.0, speed, 0.5, 1.0, 1.0, 1.0, 1, {})
    table = MethodTable([row], Speeds(None, 1.0, None, {name: speed}), one, "seconds", 1.0)
    files = [tmp_path / HOSTILE.replace("/", "")]
    shown = comparison_lines(table, [HOSTILE], HOSTILE, Path(HOSTILE), files, Answer())
    assert all(map(clean, shown))
    assert "\n".join(shown).count(ESCAPED) == 5  # the title, the method, the story, the folder and the file
    drawn = markdown_table(table)
    assert clean(drawn)
    assert len(drawn.splitlines()) == 5
    cells = drawn.splitlines()[2].replace(r"\|", "")
    assert cells.count("|") == drawn.splitlines()[1].count("|")
    write_rows(tmp_path / "rows.csv", [row.values()])
    assert clean((tmp_path / "rows.csv").read_text("utf-8"))


@ONLY([HOSTILE])
def test_a_metric_of_a_received_run_names_no_file_elsewhere(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for file in trained.glob("*.*"):
        (folder / file.name).write_bytes(file.read_bytes())
    described = json.loads((folder / MEASURED).read_text("utf-8"))
    described[0] |= {"metric": "../../elsewhere", "label": "$\\frac{$[/red]\x1b"}
    (folder / MEASURED).write_text(json.dumps(described))
    view = page_content([Run(folder)])
    charts = [spec for spec in view["charts"] if spec["kind"] == "lines"]
    written = write_figures(charts, view["runs"], tmp_path / "a" / "b")
    assert {path.parent for path in written} == {tmp_path / "a" / "b"}
    assert next(path.name for path in written if "elsewhere" in path.name) == "______elsewhere-seconds.png"


OWN = """
import time, torch, orlomo
from torch import nn
label = "[/red]\\x1b]0;\\x07[b]x"
task = orlomo.Task(
    model=lambda: nn.Linear(4, 1), loss=lambda model, batch: time.sleep(0.1) or model(batch).square().mean(),
    train_data=torch.ones(16, 4), test_data=torch.ones(4, 4), batch_size=4,
    metrics=[orlomo.Metric.mean("own", lambda model, batch: model(batch).mean(), label=label)],
)
"""


def test_a_label_is_shown_as_it_is_at_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    words = ("train", "own.py:task", "--workers", 2, "--epochs", 4, "--local-steps", 1, "--jobs", 1, "--out", "run")
    shown = shown_at_a_terminal(*words, folder=tmp_path)
    assert r"[/red]\x1b]0;\x07[b]x" in shown
    assert clean(shown.replace("\r", ""))


def test_any_encoding_of_the_terminal_will_do(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    words = ("compare", *SHORT, "--methods", "orlomo,asgd", "--seeds", 2, "--out", "vergleich-ä")
    done = run_cli(*words, folder=tmp_path, environment=ascii_only)
    assert done.returncode == 0, done.stderr
    assert "files  vergleich-\\xe4: " in done.stdout
    assert " +- " in done.stdout
    assert "±" in (tmp_path / "vergleich-ä" / "comparison.md").read_text("utf-8")


@ONLY([NO_TEXT])
def test_a_page_on_stdout_is_in_utf_8(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "größe"
    folder.symlink_to(trained, target_is_directory=True)
    done = call_cli("report", folder, "-o", "-", folder=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("<!DOCTYPE html>") or done.stdout.startswith("<!doctype html>")


@pytest.mark.parametrize("name", [HOSTILE.replace("/", ""), NO_TEXT, "it's", "a b", "back\\slash\r'"])
def test_the_command_to_continue_can_be_typed(name: str) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    typed = resume_command(Path(name))
    assert clean(typed)
    line = f'orlomo() {{ printf %s "$2"; }}; {typed}'
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert os.fsdecode(done.stdout) == name


def test_say_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(Path(HOSTILE))
    assert capsys.readouterr().out == f"{ESCAPED}\n"
