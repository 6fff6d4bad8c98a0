"""`orlomo report` and its figures, where no browser is needed: what is left out, said and named."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import orlomo
from orlomo.report import figures
from orlomo.report.drawing.style import HATCHES, new_figure
from orlomo.report.streaming.rounds import STATES
from orlomo.report.web.page import page_content, write_report
from small import call_cli

LATE = ("worker_delays", "delays", "delay", "weights", "audit")
"""The charts of runs with delays."""


def test_runs_that_are_not_whole(runs: list[orlomo.Run], tmp_path: Path) -> None:
    wrong = call_cli("report", tmp_path, folder=tmp_path)
    assert (wrong.returncode, wrong.stderr) == (2, f"orlomo: {tmp_path} is not a run: there is no config.toml in it\n")
    folder = tmp_path / "cut"
    subprocess.run(["cp", "-r", runs[0].folder, folder], check=True)
    (folder / "events.csv").write_text((folder / "events.csv").read_text()[:-20])
    (folder / "metrics.csv").write_text("")
    done = call_cli("report", folder, "-o", "cut.html", "--figures", "figures", folder=tmp_path)
    assert done.returncode == 0
    assert "metrics.csv is empty" in done.stderr
    assert (tmp_path / "cut.html").is_file()
    assert {path.name for path in (tmp_path / "figures/cut").glob("*.png")} == {
        f"{name}.png" for name in ("timeline", "report_loss", *LATE, "groups")
    }


def test_what_is_no_run_is_left_out(runs: list[orlomo.Run], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    folders = [tmp_path / "other", *(run.folder for run in runs)]
    done = call_cli("report", *folders, "-o", "new/report.html", "--figures", "figures", folder=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ("orlomo: note: other is not a run: there is no config.toml in it; it is left out.\n")
    assert (tmp_path / "new/report.html").is_file()
    curves = {f"{name}-{by}" for name in ("accuracy", "loss") for by in ("seconds", "samples")}
    each = {f"{run.folder.name}/timeline" for run in runs}  # the synchronous one has no delays
    late = {f"{method}/{chart}" for method in ("orlomo", "local-ormo-da") for chart in (*LATE, "groups")}
    for ending in ("png", "svg"):
        found = (path.relative_to(tmp_path / "figures") for path in (tmp_path / "figures").rglob(f"*.{ending}"))
        assert {str(path.with_suffix("")) for path in found} == curves | each | late | {"timelines"}
    wrong = call_cli("report", tmp_path / "other", tmp_path, folder=tmp_path)
    assert wrong.returncode == 2
    assert "there is no run among these 2 folders" in wrong.stderr
    wrong = call_cli("report", runs[0].folder, "-o", "other", folder=tmp_path)
    assert (wrong.returncode, wrong.stderr) == (2, "orlomo: other is a folder: give a file's name with --out\n")


def test_names_that_are_not_names_elsewhere(runs: list[orlomo.Run], tmp_path: Path) -> None:
    """A legend's own rule, mathematics, letters that the font lacks, bytes that are no text, another chart's file."""
    folders = []
    for name in ("_lr$^$ 名前".encode(), b"no\xfftext", b"no\xfetext", b"loss-seconds"):
        folders.append(Path(os.fsdecode(bytes(tmp_path / "runs") + b"/" + name)))
        shutil.copytree(runs[0].folder, folders[-1])
    page = write_report(folders, tmp_path / "report.html")
    paths = figures.write_figures(page["charts"], page["runs"], tmp_path / "figures")
    assert len(set(paths)) == len(paths) == 2 * (4 + 4 * 7)
    assert all(path.is_file() for path in paths)
    [axes] = new_figure(1, 1, (4, 3))[1]
    [loss] = [chart for chart in page["charts"] if chart["name"] == "metric-loss"]
    figures.draw_lines(axes, loss, page["runs"] * 2, "seconds")
    assert len(axes.get_legend().get_texts()) == 2 * 8  # on training and on test data


def test_states_and_methods_differ_without_colour() -> None:
    """What is not work is a pattern, and each pattern is another one."""
    assert set(HATCHES) == set(STATES) - {"computing", "transfer"}
    assert len(set(HATCHES.values())) == len(HATCHES)


def test_late_reports_are_among_the_newest_groups(tmp_path: Path) -> None:
    cluster = orlomo.Cluster(speeds=(orlomo.Speed(), orlomo.Speed(factor=40.0)))
    run = orlomo.train("quadratic", "orlomo", workers=16, epochs=8, cluster=cluster, jobs=1, out=tmp_path / "run")
    [shown] = page_content([run])["runs"]
    assert max(shown["charts"]["groups"]["behind"]) > 12
