"""How fast methods are: one definition, and the same numbers wherever they are shown."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import orlomo
from browser import Browser, browser
from orlomo.errors import ConfigError
from orlomo.records.tables import MetricColumn
from orlomo.report.comparison.groups import by_method
from orlomo.report.comparison.rows import method_table
from orlomo.report.speed import (
    Curve,
    Target,
    default_target,
    given_target,
    ratio_text,
    round_target,
    speeds,
    time_for,
    time_text,
    time_to,
)
from orlomo.report.story import story
from orlomo.report.view import view_of
from orlomo.report.web.page import page_content, write_report
from small import call_cli

ACCURACY = MetricColumn("test_accuracy", "test accuracy", "accuracy", "accuracy", scale=100.0)
LOSS = MetricColumn("train_loss", "training loss", "loss", "loss", better="lower", log=True)


def curve(values: list[float], seconds: float = 1.0, done: bool = True) -> Curve:
    places = np.arange(len(values), dtype=float)
    return Curve(seconds * places, 64 * places, np.array(values), done)


VALUES = st.lists(st.floats(0, 100) | st.just(math.nan), min_size=1, max_size=12)


@given(VALUES, st.floats(0, 100), st.sampled_from([ACCURACY, LOSS]))
def test_a_time_to_a_target_is_that_of_an_evaluation(values: list[float], goal: float, one: MetricColumn) -> None:
    target, found = Target(one, goal), curve(values, 3.5)
    good = [place for place, value in enumerate(values) if (value >= goal if one is ACCURACY else value <= goal)]
    near = any(abs(value - goal) <= 1e-6 * abs(goal) and value != goal for value in values)
    assume(not near)
    assert time_to(found, target) == (3.5 * good[0] if good else math.inf)
    assert time_to(found.records(one), target) == time_to(found, target)  # what the page measures by


@given(st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=4), st.sampled_from([ACCURACY, LOSS]))
def test_the_default_target_is_the_strictest_that_two_methods_reach(
    methods: list[list[list[float]]], one: MetricColumn
) -> None:
    curves = {str(place): [curve(values) for values in seeds] for place, seeds in enumerate(methods)}
    value = default_target(curves, one)
    assume(value is not None)
    assert value is not None

    def reaching(goal: float) -> int:
        target = Target(one, goal)
        return sum(all(math.isfinite(time_to(seed, target)) for seed in seeds) for seeds in curves.values())

    able = sum(all(np.isfinite(seed.values).any() for seed in seeds) for seeds in curves.values())
    assert reaching(value) >= min(2, able)
    step = 1.0 if one is ACCURACY else 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0 else 0.0
    stricter = value + step if one is ACCURACY else value - step
    if step > 0 and (one is ACCURACY or stricter >= 10 * step):  # below it is another decade
        assert reaching(stricter) < min(2, able)


def test_round_targets() -> None:
    assert [round_target(value, ACCURACY) for value in (97.999, 97.0, 29 * 0.99999999999, 0.4)] == [97, 97, 29, 0]
    assert [round_target(value, LOSS) for value in (0.03412, 0.034, 1.21, 0.0)] == [0.035, 0.034, 1.3, 0]
    assert default_target({"a": [curve([50, 60])]}, ACCURACY) == 60
    assert default_target({"a": [curve([60, 50])]}, ACCURACY) is None  # no training was needed for it
    assert default_target({"a": [None]}, ACCURACY) is None


def test_seeds_that_miss_the_target_have_no_ratio() -> None:
    curves = {
        "prsgdm": [curve([0, 90, 97], 10), curve([0, 97], 10), curve([0, 1, 2, 97], 10)],
        "orlomo": [curve([0, 90, 98]), curve([0, 97]), curve([0, 97])],
        "some": [curve([0, 97]), curve([0, 96]), curve([0, 97])],
        "none": [curve([0, 90]), None, curve([0, math.nan])],
    }
    found = speeds(curves, ACCURACY, None, "prsgdm")
    assert found.target == Target(ACCURACY, 97.0)
    assert found.work == 64  # the fewest that a run did
    orlomo_, some, none = (found.methods[name] for name in ("orlomo", "some", "none"))
    assert (orlomo_.to_target, orlomo_.to_target_speed_up) == (1.0, 20.0)
    assert (some.reached, some.seeds, some.to_target) == (2, 3, 1.0)
    assert math.isnan(some.to_target_speed_up)
    assert (none.reached, none.to_target) == (0, math.inf)
    assert math.isnan(none.to_target_speed_up)
    assert orlomo_.for_work_speed_up == 10.0
    unreached = speeds({"prsgdm": [curve([0, 5])], "orlomo": [curve([0, 97])]}, ACCURACY, 97.0, "prsgdm")
    assert math.isnan(unreached.methods["orlomo"].to_target_speed_up)


def test_equal_work_leaves_out_runs_that_did_not_come_to_their_end() -> None:
    assert speeds({"a": [curve([0, 1, 2])], "b": [curve([0], done=False)]}, ACCURACY).work == 128
    assert time_for(curve([0, 1, 2], 10), 96) == 15  # samples pass evenly between two evaluations


@given(st.floats(1e-3, 1e7), st.floats(1e-3, 1e7))
def test_a_ratio_is_of_the_times_that_are_shown(reference: float, seconds: float) -> None:
    curves = {"prsgdm": [curve([0, 97], reference)], "orlomo": [curve([0, 97], seconds)]}
    speed = speeds(curves, ACCURACY, 97.0, "prsgdm").methods["orlomo"]
    first, second = (float(time_text(value).replace(",", "")) for value in (reference, seconds))
    assert ratio_text(speed.to_target_speed_up) == ratio_text(first / second)


@pytest.mark.parametrize(
    ("text", "one", "expected"),
    [("97", ACCURACY, 97.0), ("97.5%", ACCURACY, 97.5), ("0.5%", ACCURACY, 0.5), ("0.1", LOSS, 0.1)],
)
def test_a_given_target(text: str, one: MetricColumn, expected: float) -> None:
    assert given_target(text, one) == expected


@pytest.mark.parametrize(
    ("text", "one", "error"),
    [
        ("0.97", ACCURACY, "test accuracy is shown in percent: write 97 or 0.97%"),
        ("5%", LOSS, "training loss is not in percent"),
        ("high", LOSS, "--target must be a number such as 0.1, not 'high'"),
        ("nan", ACCURACY, "--target must be a number, not nan"),
    ],
)
def test_a_target_that_cannot_be_meant(text: str, one: MetricColumn, error: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(error)):
        given_target(text, one)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a comparison, and what was printed."""
    folder = tmp_path_factory.mktemp("compared")
    words = ("--seeds", 2, "--workers", 4, "--local-steps", 8, "--cluster", "heterogeneous", "--epochs", 4)
    done = call_cli("compare", "digits", "--methods", "prsgdm,orlomo,al-sgd", *words, "--out", "cmp", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / "cmp", done.stdout


def test_all_that_is_shown_of_a_comparison_has_the_same_numbers(compared: tuple[Path, str], tmp_path: Path) -> None:
    folder, printed = compared
    table = json.loads((folder / "comparison.json").read_text())
    rows = {row["method"]: row for row in table["methods"]}
    runs = {name: [orlomo.Run(folder / f"{name}-seed{seed}") for seed in range(2)] for name in rows}
    for name, row in rows.items():  # from the files themselves
        times = []
        for run in runs[name]:
            reached = 100 * run.metric_columns["test_accuracy"] >= table["target"]["value"] - 1e-6
            times.append(float(run.metric_columns["seconds"][reached.argmax()]) if reached.any() else math.inf)
        assert row["reached_target"] == sum(map(math.isfinite, times))
        assert row["seconds_to_target"] == (statistics.median(times) if math.isfinite(max(times)) else None)
    assert rows["prsgdm"]["speed_up_to_target"] == rows["prsgdm"]["speed_up_for_equal_work"] == 1.0
    texts = [time_text(rows["orlomo"]["seconds_to_target"]), ratio_text(rows["orlomo"]["speed_up_to_target"])]
    texts += [time_text(rows["orlomo"]["seconds_for_equal_work"])]
    texts += [ratio_text(rows["orlomo"]["speed_up_for_equal_work"])]
    page = write_report([run.folder for group in runs.values() for run in group], tmp_path / "page.html")
    cells = next(row for row in page["methods"] if row["method"] == "orlomo")
    assert [cells["to_target"], cells["equal_work"]] == [f"{texts[0]} ({texts[1]})", f"{texts[2]} ({texts[3]})"]
    told = " ".join(page["story"])
    assert page["story"] == table["story"]
    for shown in (printed, (folder / "comparison.md").read_text(), told):
        assert all(text in shown for text in texts)
    assert "virtual seconds" in told
    reported = call_cli("report", folder, "--target", "50", "-o", tmp_path / "r.html", folder=tmp_path)  # a folder
    assert "reached 50% test accuracy" in reported.stdout


def test_runs_that_ended_badly_are_said_to(tmp_path: Path) -> None:
    words = ("train", "digits", "--workers", 2, "--epochs", 1, "--jobs", 1)
    done = call_cli(*words, "--learning-rate", 1000, "--out", "bad", folder=tmp_path)
    assert done.returncode == 0
    assert "Warning: in bad the training loss grew from" in " ".join(done.stdout.split())
    assert "its learning rate was 1000" in " ".join(done.stdout.split())
    page = page_content([orlomo.Run(tmp_path / "bad")])
    assert page["story"][-1].startswith("Warning: in bad the training loss grew")


def test_the_story_says_what_the_trace_says(runs: list[orlomo.Run], tmp_path: Path) -> None:
    slow = orlomo.Cluster(speeds=(orlomo.Speed(share=0.75), orlomo.Speed(share=0.25, factor=6.0)))
    run = orlomo.train("digits", "orlomo", workers=4, epochs=6, cluster=slow, jobs=1, out=tmp_path / "slow")
    events = run.event_columns
    means = [float(events["compute"][events["worker"] == worker].mean()) for worker in range(4)]
    [late] = [worker for worker in range(4) if means[worker] > 2 * min(means)]
    times = means[late] / statistics.median(means[:late] + means[late + 1 :])
    cut = events["eta"] < 0.25 * (1 - 1e-9)
    sentences = story([run])
    assert sentences[-1].startswith(f"1 of 4 workers took {times:.2g} times as long for a round as the others")
    own = int((cut & (events["worker"] == late)).sum())
    assert cut.any()
    share = f"all {own}" if own == cut.sum() and own > 1 else f"{own} of the {cut.sum()}"
    assert f"; {share} reports with a weight cut for delay were theirs." in sentences[-1]
    assert "Faults: 1 crash, 1 returned." in " ".join(story(runs[:1]))
    assert not any("took" in sentence for sentence in story(runs[2:]))
    assert "their times are not compared" in story([runs[0], run])[0]


def test_seeds_are_grouped_and_other_settings_are_named(runs: list[orlomo.Run], tmp_path: Path) -> None:
    for seed, rate in ((0, 0.1), (1, 0.1), (0, 0.2)):
        orlomo.train(
            "quadratic",
            orlomo.ASGD(learning_rate=rate),
            workers=2,
            epochs=0.2,
            seed=seed,
            jobs=1,
            out=tmp_path / f"{rate}-{seed}",
        )
    views = [view_of(orlomo.Run(folder), folder.name, []) for folder in sorted(tmp_path.iterdir())]
    groups = by_method(views)
    assert {name: len(group) for name, group in groups.items()} == {
        "asgd (learning rate 0.1)": 2,
        "asgd (learning rate 0.2)": 1,
    }
    table = method_table(groups)
    assert [row.runs for row in table.rows] == [2, 1]
    assert table.speeds.reference is None
    faulty = method_table(by_method([view_of(runs[0], "run", [])])).rows[0]
    assert faulty.faults == {"crash": 1, "return": 1}
    delays = runs[0].event_columns["delay"][runs[0].event_columns["kind"] == "report"]
    assert faulty.delay_median == np.quantile(delays, 0.5, method="inverted_cdf")
    assert faulty.delay_95 == np.quantile(delays, 0.95, method="inverted_cdf")
    assert faulty.max_delay == delays.max()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


CELLS = "return [...document.querySelectorAll('#methods tbody tr')].map(row => row.children[2].textContent)"
SLIDER = "document.getElementById('target-metric-accuracy')"


def by_name(rows: list[str], cells: list[Any]) -> dict[str, Any]:
    return dict(zip(rows, cells, strict=True))


def test_the_target_can_be_moved(compared: tuple[Path, str], window: Browser, tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    folder, path = compared[0], tmp_path / "page.html"
    page = write_report([one for one in sorted(folder.iterdir()) if one.is_dir()], path)
    assert page["target"] is not None
    goal = page["target"]["value"]
    assert goal is not None
    names = [row["method"] for row in page["methods"]]
    window.open(path.as_uri())
    assert window.run(CELLS) == [row["to_target"] for row in page["methods"]]

    def cells_at(value: float) -> dict[str, str]:
        runs = [orlomo.Run(one) for one in sorted(folder.iterdir()) if one.is_dir()]
        return {row["method"]: row["to_target"] for row in page_content(runs, target=f"{value}%")["methods"]}

    window.run(f"{SLIDER}.focus()")
    ActionChains(window.driver).send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN).perform()
    window.settle(lambda: by_name(names, window.run(CELLS)) == cells_at(goal - 3))
    assert window.run(f"return {SLIDER}.getAttribute('aria-valuenow')") == f"{goal - 3:g}"
    assert cells_at(goal - 3)["orlomo"] in window.run(f"return {SLIDER}.getAttribute('aria-valuetext')")
    ActionChains(window.driver).send_keys(Keys.ESCAPE).perform()
    window.settle(lambda: window.run(CELLS) == [row["to_target"] for row in page["methods"]])
    handle = window.driver.find_element("css selector", ".target .handle")
    ActionChains(window.driver).click_and_hold(handle).move_by_offset(0, 60).release().perform()
    window.settle(lambda: float(window.run(f"return {SLIDER}.getAttribute('aria-valuenow')")) < goal)
    moved = float(window.run(f"return {SLIDER}.getAttribute('aria-valuenow')"))
    window.settle(lambda: by_name(names, window.run(CELLS)) == cells_at(moved))
    line = window.run(f"const box = {SLIDER}.getBoundingClientRect(); return box.top + box.height / 2")
    plot = (
        "const plot = document.getElementById('metric-accuracy'), axis = plot._fullLayout.yaxis; "
        f"return plot.getBoundingClientRect().top + axis._offset + axis.d2p(plotted(plot.id)({moved}))"
    )
    assert line == pytest.approx(window.run(plot), abs=2)
    assert window.complaints() == []


def test_curves_are_means_with_bands_and_say_where_their_axis_begins(
    compared: tuple[Path, str], window: Browser, tmp_path: Path
) -> None:
    folder, path = compared[0], tmp_path / "page.html"
    write_report([one for one in sorted(folder.iterdir()) if one.is_dir()], path)
    window.open(path.as_uri())
    card = "document.querySelector('#title-metric-accuracy').closest('.card')"
    values = "return document.getElementById('metric-accuracy').data.find(one => one.mode.includes('lines')).y[0]"
    pressed = f"return {card}.querySelector('.error').getAttribute('aria-pressed')"
    as_error, value = (window.run(pressed) == "true"), window.run(values)
    window.run(f"{card}.querySelector('.error').click()")
    assert (window.run(pressed) == "true") is not as_error
    assert window.run(values) == pytest.approx(100 - value)
    if not as_error:
        window.run(f"{card}.querySelector('.error').click()")
    traces = window.run(
        "return document.getElementById('metric-accuracy').data.filter(one => one.name === 'orlomo')"
        ".map(one => [one.fill || '', [...one.x], [...one.y]])"
    )
    (_, _, low), (fill, _, high), (_, x, mean) = traces
    seeds = [orlomo.Run(folder / f"orlomo-seed{seed}").metric_columns for seed in range(2)]
    curves = np.stack([np.interp(x, seed["seconds"], 100 * seed["test_accuracy"]) for seed in seeds])
    assert fill == "tonexty"
    assert mean == pytest.approx(curves.mean(axis=0), rel=1e-4)
    assert low == pytest.approx(curves.min(axis=0), rel=1e-4)
    assert high == pytest.approx(curves.max(axis=0), rel=1e-4)
    texts = "return [...document.querySelectorAll('#metric-accuracy .annotation-text')].map(one => one.textContent)"
    shown = window.run(texts)
    assert {"orlomo", "prsgdm", "al-sgd"} <= set(shown)
    bottom = "return document.getElementById('metric-accuracy').layout.yaxis.range[0]"
    begin = window.run(bottom)
    assert f"the axis begins at {begin:g}%" in shown
    window.run(f"{card}.querySelector('.cut').click()")
    lowest = min(float(curves.min()), begin)
    window.settle(lambda: window.run(bottom) < lowest or window.run(bottom) <= 100 * seeds[0]["test_accuracy"][0])
    assert not any("begins" in text for text in window.run(texts))
