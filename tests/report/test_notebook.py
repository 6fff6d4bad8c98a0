"""A run in a notebook."""

from __future__ import annotations

import html
import sys
from pathlib import Path
from xml.etree import ElementTree

import orlomo
from orlomo.report.story import story
from small import classification, settings


def test_a_run_shows_itself(tmp_path: Path) -> None:
    run = orlomo.train(classification(), settings("orlomo"), workers=3, epochs=5, jobs=1, out=tmp_path / "a<b")
    shown = run._repr_html_()
    assert ">a&lt;b: orlomo on custom, 3 workers, finished</b>" in shown
    assert all(html.escape(sentence) in shown for sentence in story([run]))
    assert f"test accuracy {run.metric_columns['test_accuracy'][-1]:.2%}" in shown
    drawn = ElementTree.fromstring(shown[shown.index("<svg") : shown.index("</svg>") + 6])
    panels = [element for element in drawn.iter() if element.get("id", "").startswith("axes_")]
    assert len(panels) == 3
    assert shown.count("<svg") == 2  # below them the timeline
    frame = 1 + 4  # the panel's own patches: its background and its edges
    patches = [element for element in panels[2].iter() if element.get("id", "").startswith("patch_")]
    assert len(patches) - frame == run.event_columns["delay"].max() + 1


def test_showing_a_run_leaves_the_users_own_plots_alone(tmp_path: Path) -> None:
    import matplotlib

    run = orlomo.train("quadratic", "orlomo", workers=3, epochs=0.5, jobs=1, out=tmp_path / "run")
    before = {name: matplotlib.rcParams._get(name) for name in matplotlib.rcParams}
    pyplot = "matplotlib.pyplot" in sys.modules
    assert run._repr_html_().count('id="axes_') == 3  # no accuracy here
    assert {name: matplotlib.rcParams._get(name) for name in matplotlib.rcParams} == before
    assert ("matplotlib.pyplot" in sys.modules) == pyplot


def test_a_run_without_a_report_yet_says_what_it_is(tmp_path: Path) -> None:
    run = orlomo.train(classification(), settings("orlomo"), workers=3, epochs=5, jobs=1, out=tmp_path / "run")
    for name in ("events", "metrics"):
        path = tmp_path / f"run/{name}.csv"
        path.write_text(path.read_text().splitlines(keepends=True)[0])
    shown = orlomo.load(run.folder)._repr_html_()
    assert "0 reports" in shown
    assert "<svg" not in shown
