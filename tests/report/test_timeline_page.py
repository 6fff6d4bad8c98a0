"""The timelines on the page, in a real browser: what is drawn, zooming by mouse, keys and buttons, the tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import orlomo
from browser import Browser, browser, served
from orlomo.records.tables import EVENTS
from orlomo.report.colours import LIGHT
from orlomo.report.drawing.style import new_figure
from orlomo.report.drawing.timelines import draw_timeline
from orlomo.report.streaming.rounds import Timeline
from orlomo.report.streaming.workers import grouped
from orlomo.report.web.page import page_content, page_of, write_report
from orlomo.report.workers.timeline import column_of, strips
from orlomo.report.workers.windows import rounds_between
from small import classification, settings

RANGE = "return span"
TIMELINE = "document.getElementById('timeline')"
PIXELS = """
const canvas = document.querySelectorAll('#timeline .strip')[arguments[0]], view = canvas.view;
const shape = [view.left, view.top + arguments[1] * view.height, view.width, view.height - 2];
const box = shape.map(one => Math.round(one * devicePixelRatio));
const data = canvas.getContext('2d').getImageData(...box).data, found = {};
for (let i = 0; i < data.length; i += 4) {
  const key = [data[i], data[i + 1], data[i + 2]].join();
  found[key] = (found[key] || 0) + 4 / data.length;
}
return found"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(runs: list[orlomo.Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report([run.folder for run in runs], path)
    return path


def painted(window: Browser, times: int) -> None:
    window.settle(lambda: window.run(f"return Number({TIMELINE}.dataset.painted || 0)") >= times)


def paint_count(window: Browser) -> int:
    return int(window.run(f"return Number({TIMELINE}.dataset.painted || 0)"))


def share_of(window: Browser, strip: int, row: int, colour: str) -> float:
    key = ",".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return float(window.run(PIXELS, strip, row).get(key, 0.0))


def test_a_synchronous_run_is_drawn_above_an_asynchronous_one(
    runs: list[orlomo.Run], report: Path, window: Browser
) -> None:
    window.open(report.as_uri())
    painted(window, 1)
    titles = window.run(f"return [...{TIMELINE}.querySelectorAll('h4')].map(one => one.textContent)")
    assert [title.split(":")[0] for title in titles] == ["prsgdm", "orlomo"]
    assert "4 workers, 1 crashed and came back" in titles[1]
    assert window.run(f"return {TIMELINE}.querySelector('.scale').textContent") == "Every round is drawn."
    states = window.run(f"return {TIMELINE}.querySelector('.key').textContent")
    assert all(state in states for state in ("computing", "waiting for other workers", "lost in a crash", "absent"))
    views = {view["name"]: view for view in page_content(runs)["runs"]}
    whole = max(views[name]["charts"]["timeline"]["end"] for name in ("prsgdm", "orlomo"))  # type: ignore[index]
    for strip, name in enumerate(("prsgdm", "orlomo")):
        uses, shown = views[name]["uses"], views[name]["charts"]["timeline"]
        assert isinstance(shown, dict)
        for row, use in enumerate(uses):
            expected = float(use["computing"]) * (shown["last"][row] - shown["first"][row]) / whole  # type: ignore[arg-type]
            assert share_of(window, strip, row, LIGHT["methods"][name]) == pytest.approx(
                expected, abs=0.06
            )  # gaps between rounds
    window.run(f"[...{TIMELINE}.querySelectorAll('.runs button')].at(-1).click()")  # the third run too
    titles = window.run(f"return [...{TIMELINE}.querySelectorAll('h4')].map(one => one.textContent.split(':')[0])")
    assert titles == ["prsgdm", "orlomo", "local-ormo-da"]


def test_zooming_by_mouse_keys_and_buttons(report: Path, window: Browser) -> None:
    from selenium.webdriver import ActionChains, Keys

    window.open(report.as_uri())
    painted(window, 1)
    strip = window.driver.find_element("css selector", "#timeline .strip")
    window.run("arguments[0].scrollIntoView({block: 'center'})", strip)
    wide, whole = window.run("return arguments[0].view.width", strip), window.run("return wholeRange()")
    drag = ActionChains(window.driver).move_to_element_with_offset(strip, 0, 0)
    drag.click_and_hold().move_by_offset(int(wide / 4), 0).release().perform()
    window.settle(lambda: window.run(RANGE) is not None)
    begin, end = window.run(RANGE)
    assert end - begin == pytest.approx((whole[1] - whole[0]) / 4, rel=0.02)
    linked = "return [...linked].map(id => document.getElementById(id).layout.xaxis.range.map(Number))"
    assert all(one == pytest.approx([begin, end]) for one in window.run(linked))
    place = window.driver.find_element("css selector", "#timeline .timelines")
    for key, times in ((Keys.ARROW_LEFT, 1.0), ("-", 1.6), ("+", 1.0)):
        before = window.run(RANGE)
        place.send_keys(key)
        window.settle(lambda before=before: window.run(RANGE) != before)  # type: ignore[misc]
        left, right = window.run(RANGE)
        assert right - left == pytest.approx((end - begin) * times, rel=0.05)
    place.send_keys("0")
    window.settle(lambda: window.run(RANGE) is None)
    window.run("cardOf('timeline').querySelector('[aria-label=\"Zoom in\"]').click()")
    window.settle(lambda: window.run(RANGE) is not None)
    ActionChains(window.driver).double_click(strip).perform()
    window.settle(lambda: window.run(RANGE) is None)
    ActionChains(window.driver).move_to_element_with_offset(strip, 3, 10).perform()
    window.settle(lambda: not window.run(f"return {TIMELINE}.querySelector('.tip').hidden"))
    assert window.run(f"return {TIMELINE}.querySelector('.tip').textContent").startswith("worker ")
    assert window.complaints() == []


def test_cells_keep_the_shares_and_zooming_in_shows_rounds(runs: list[orlomo.Run], tmp_path: Path) -> None:
    """At phone width, of a worker with far more rounds than pixels, each state has the share of the row it should."""
    count = 3000
    start = np.arange(count, dtype=float)
    seen = Timeline()
    seen.add(
        grouped(np.zeros(count, dtype=np.int64)), np.zeros(count, dtype=np.int64), start, start + 1.0, 0 * start + 0.7
    )
    page = page_content(runs[2:])
    page["runs"][0] |= {"events": [], "uses": page["runs"][0]["uses"][:1]}
    path = tmp_path / "page.html"
    with browser(tmp_path, width=390, height=800) as phone:
        for limit, after in ((5000, "1 of 1"), (100, "0 of 1")):
            page["runs"][0]["charts"]["timeline"] = strips(seen, 0.0, 512, limit)
            path.write_text(page_of(page), "utf-8")
            phone.open(path.as_uri())
            painted(phone, 1)
            assert phone.run(f"return {TIMELINE}.dataset.every") == "0 of 1"
            assert "about 8 rounds" in phone.run(
                "return scaleText(timelineRuns(), {from: 0, to: 3000, width: 500}, 0, 1)"
            )
            assert share_of(phone, 0, 0, LIGHT["methods"]["local-ormo-da"]) == pytest.approx(0.7, abs=0.04)
            assert share_of(phone, 0, 0, LIGHT["states"]["transfer"]) == pytest.approx(0.3, abs=0.06)
            before = paint_count(phone)
            phone.run("setSpan([1000, 1020])")
            painted(phone, before + 1)
            assert phone.run(f"return {TIMELINE}.dataset.every") == after
            scale = phone.run(f"return {TIMELINE}.querySelector('.scale').textContent")
            assert scale == "Every round is drawn." if limit == 5000 else "orlomo watch shows them" in scale
        swipe_and_pinch(phone)


def swipe_and_pinch(phone: Browser) -> None:
    """One finger scrolls the page, two zoom the timelines."""
    phone.run("setSpan(null); document.querySelector('#timeline .strip').scrollIntoView({block: 'center'})")
    box = phone.run("const b = document.querySelector('#timeline .strip').getBoundingClientRect(); return [b.x, b.y]")
    x, y, before = box[0] + 150, box[1] + 12, phone.run("return scrollY")

    def touch(kind: str, *points: tuple[float, float]) -> None:
        touched = [{"x": x + dx, "y": y + dy, "id": number} for number, (dx, dy) in enumerate(points)]
        phone.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touched})

    touch("touchStart", (0, 0))
    for step in range(1, 6):
        touch("touchMove", (0, -30 * step))
    touch("touchEnd")
    phone.settle(lambda: bool(phone.run("return scrollY") != before))
    phone.rest()
    assert phone.run(RANGE) is None
    phone.run("document.querySelector('#timeline .strip').scrollIntoView({block: 'center'})")
    y = phone.run("return document.querySelector('#timeline .strip').getBoundingClientRect().y") + 12
    touch("touchStart", (-20, 0), (20, 0))
    for step in range(1, 5):
        touch("touchMove", (-20 - 15 * step, 0), (20 + 15 * step, 0))
    touch("touchEnd")
    phone.settle(lambda: phone.run(RANGE) is not None)
    begin, end = phone.run(RANGE)
    assert end - begin == pytest.approx(3000 * 40 / 160, rel=0.2)


def test_workers_are_listed_slowest_first_and_what_happened_to_them(window: Browser, tmp_path: Path) -> None:
    faults = (
        orlomo.Fault(time=5.0, worker=99, kind="join"),
        orlomo.Fault(time=10.0, worker=0, kind="crash"),
        orlomo.Fault(time=15.0, worker=1, kind="leave"),
    )
    speeds = (orlomo.Speed(), orlomo.Speed(count=1, factor=4.0))
    run = orlomo.train(
        *(classification(), settings("orlomo")),
        **{"workers": 20, "epochs": 60, "jobs": 1, "out": tmp_path / "run"},
        cluster=orlomo.Cluster(speeds=speeds, faults=faults),
    )
    path = tmp_path / "report.html"
    [view] = write_report([run.folder], path)["runs"]
    assert view["membership"] == "20 workers, 1 joined, 1 lost, 1 left"
    shown = view["charts"]["timeline"]
    assert isinstance(shown, dict)
    assert shown["workers"] == [*range(20), 99]
    slowest = max((use for use in view["uses"] if use["rounds"]), key=lambda use: float(use["round_seconds"]))  # type: ignore[arg-type]
    window.open(path.as_uri())
    rows = window.run("return [...document.querySelectorAll('#uses tbody tr')].map(row => row.textContent)")
    assert len(rows) == 10
    assert rows[0].startswith(str(slowest["worker"]))
    assert rows[8].startswith("median of 21")
    window.run("document.querySelector('#uses button').click()")
    assert window.run("return document.querySelectorAll('#uses tbody tr').length") == 21
    happened = window.run("return [...document.querySelectorAll('#events tbody tr')].map(row => row.textContent)")
    assert [text.lstrip("0123456789.") for text in happened] == [
        "worker 99 joined",
        "worker 0 was lost",
        "worker 1 left",
    ]
    assert window.complaints() == []
    [axes] = new_figure(1, 1, (4, 3))[1]
    draw_timeline(axes, shown, "orlomo", "seconds")
    assert [label.get_text() for label in axes.get_yticklabels()] == [*map(str, range(20)), "99"]


def test_watch_answers_with_the_rounds_of_a_stretch(window: Browser, tmp_path: Path) -> None:
    """Of a run with more rounds than a page holds, zooming in asks for those that are seen."""
    folder, workers = tmp_path / "run", 3
    run = orlomo.train(
        *(classification(), settings("orlomo")), workers=workers, epochs=1, jobs=1, cluster="homogeneous", out=folder
    )
    source = np.random.default_rng(0)
    took = source.exponential(size=(20_000, workers)) + 0.1
    finish = took.cumsum(axis=0)
    order = np.argsort(finish, axis=None)
    with (run.folder / "events.csv").open("w") as file:
        file.write(",".join(EVENTS) + "\n")
        for t, place in enumerate(order.tolist()):
            end, length, worker = finish.flat[place], took.flat[place], place % workers
            file.write(f"report,{t},{worker},0,0,0,0,0.1,0.1,{end - length},{end},{0.8 * length},0,0.1,8,1.5\n")
    begin, end = 9000.0, 9040.0
    expected = [((finish[:, k] >= begin) & (finish[:, k] <= 2 * end - begin)).sum() for k in range(workers)]
    found = rounds_between(run.folder / "events.csv", begin, end, range(workers))
    assert found is not None
    rows, ends = column_of(found["row"], "<u2"), column_of(found["finish"], "<f4")
    assert [int((rows == k).sum()) for k in range(workers)] == expected
    assert ends[rows == 1].tolist() == pytest.approx(
        finish[(finish[:, 1] >= begin) & (finish[:, 1] <= 2 * end - begin), 1].tolist(), rel=1e-6
    )
    assert rounds_between(run.folder / "events.csv", 0.0, 1e9, range(workers)) is None  # too many
    with served(run.folder) as server:
        window.open(server.address)
        painted(window, 1)
        assert window.run(f"return {TIMELINE}.dataset.every") == "0 of 3"
        window.run("setSpan([9000, 9040])")
        window.settle(lambda: window.run(f"return {TIMELINE}.dataset.every") == "3 of 3")
        assert share_of(window, 0, 0, LIGHT["methods"]["orlomo"]) == pytest.approx(0.8, abs=0.06)
        assert window.run("return fetch('rounds?from=1&to=0&workers=x').then(answer => answer.status)") == 400
