"""What a reader can do on the page, in a real browser: zoom by keys, buttons and fingers, tables, themes, print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import orlomo
from browser import Browser, browser
from orlomo.report.web.page import write_report

SPAN = "const [a, b] = document.getElementById('delay').layout.xaxis.range; return b - a"
MIDDLE = "const [a, b] = document.getElementById('delay').layout.xaxis.range; return (a + b) / 2"
CARD = "document.getElementById('delay').closest('.card')"


@pytest.fixture(scope="module")
def report(runs: list[orlomo.Run], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report([run.folder for run in runs[:2]], path)
    return path.as_uri()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser"), width=390, height=800) as opened:
        opened.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})
        yield opened


def press(window: Browser, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(window.driver).send_keys(*keys).perform()


def test_the_keyboard_zooms_and_moves_the_chart_that_has_the_focus(report: str, window: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    window.open(report)
    window.run("document.getElementById('delay').focus()")
    whole, middle = window.run(SPAN), window.run(MIDDLE)
    press(window, "+")
    window.settle(lambda: window.run(SPAN) == pytest.approx(whole / 2))
    press(window, Keys.ARROW_RIGHT)
    window.settle(lambda: window.run(MIDDLE) == pytest.approx(middle + whole / 8))
    press(window, "-", "0")
    window.settle(lambda: (window.run(SPAN), window.run(MIDDLE)) == pytest.approx((whole, middle)))
    assert window.complaints() == []


def test_buttons_zoom_and_each_can_be_reached_by_the_keyboard(report: str, window: Browser) -> None:
    window.open(report)
    whole = window.run(SPAN)
    window.run(f"{CARD}.querySelector('[aria-label=\"Zoom in\"]').click()")
    window.settle(lambda: window.run(SPAN) == pytest.approx(whole / 2))
    window.run("render()")  # new data leave the range as it is
    assert window.run(SPAN) == pytest.approx(whole / 2)
    window.run(f"{CARD}.querySelector('[aria-label=\"Show all\"]').click()")
    window.settle(lambda: window.run(SPAN) == pytest.approx(whole))
    named = """return [...document.querySelectorAll('button, select, a, [tabindex="0"]')].filter(one =>
        one.tabIndex < 0 || !(one.textContent.trim() || one.ariaLabel || one.getAttribute('aria-labelledby')) &&
        !one.labels?.length && !one.hidden && !one.classList.contains('data')).map(one => one.outerHTML)"""
    assert window.run(named) == []


def test_charts_of_the_runs_time_zoom_together(report: str, window: Browser) -> None:
    window.open(report)
    shown = "return document.getElementById('delay').layout.xaxis.range"
    window.run("document.addEventListener('span', event => { window.told = event.detail })")
    window.run("setSpan([5, 10])")
    window.settle(lambda: window.run(shown) == [5, 10])
    assert window.run("return window.told") == [5, 10]
    window.run("choose('delay', null)")
    window.settle(lambda: window.run(SPAN) > 10)
    assert window.run("return span") is None


def test_each_chart_has_words_and_a_table(report: str, window: Browser) -> None:
    window.open(report)
    shown = "[...document.querySelectorAll('.card:not([hidden]) > .chart')]"
    texts = window.run(
        f"return {shown}.map(one => document.getElementById(one.getAttribute('aria-describedby')).textContent)"
    )
    assert all(len(text) > 20 for text in texts)
    names = window.run(
        f"return {shown}.map(one => document.getElementById(one.getAttribute('aria-labelledby')).textContent)"
    )
    assert len(set(names)) == len(names) > 5
    window.run("document.querySelector('[aria-controls=data-metric-accuracy]').click()")
    rows = window.run(
        "return [...document.querySelectorAll('#data-metric-accuracy tbody tr')].map(row => row.textContent)"
    )
    points = window.run(
        "return document.getElementById('metric-accuracy').data.filter(trace => trace.name !== 'target reached')"
        ".flatMap(trace => [...trace.y]).length"
    )
    assert len(rows) == points
    assert window.run("return document.querySelectorAll('main, header, nav, footer, h1').length") >= 5


def test_the_navigation_names_the_sections_that_are_there(report: str, window: Browser) -> None:
    window.open(report)
    links = window.run("return [...document.querySelectorAll('#nav a')].map(link => link.hash)")
    assert links == window.run("return [...document.querySelectorAll('section:not([hidden])')].map(s => '#' + s.id)")
    window.run("document.querySelector('#nav a[href=\"#section-settings\"]').click()")
    current = "return document.querySelector('#nav [aria-current]')?.hash"
    window.settle(lambda: window.run(current) in ("#section-settings", "#section-differences"))
    top = window.run("return document.querySelector('#section-timelines').getBoundingClientRect().top")
    assert top < 0


def test_the_colours_can_be_chosen(report: str, window: Browser) -> None:
    window.open(report)
    back = "return getComputedStyle(document.body).backgroundColor"
    curve = "return document.getElementById('metric-accuracy').data[0].line.color"
    light = window.run(back), window.run(curve)
    window.run("document.getElementById('theme').click()")
    assert window.run(back) != light[0]
    assert window.run(curve) != light[1]
    window.run("document.getElementById('theme').click()")
    assert (window.run(back), window.run(curve)) == light


def touch(phone: Browser, kind: str, points: list[tuple[float, float]]) -> None:
    found = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
    phone.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": found})


def place(phone: Browser) -> dict[str, Any]:
    box: dict[str, Any] = phone.run(
        "const box = document.getElementById('delay'); box.scrollIntoView({block: 'center'});"
        " return box.getBoundingClientRect().toJSON()"
    )
    return box


def test_a_swipe_scrolls_and_two_fingers_zoom(report: str, phone: Browser) -> None:
    phone.open(report)
    box = place(phone)
    whole, begin = phone.run(SPAN), phone.run("return scrollY")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    touch(phone, "touchStart", [(x, y)])
    for step in range(1, 16):
        touch(phone, "touchMove", [(x, y - 12 * step)])
    touch(phone, "touchEnd", [])
    phone.settle(lambda: phone.run("return scrollY") > begin + 100)
    assert phone.run(SPAN) == whole
    phone.rest()
    y = place(phone)["y"] + box["height"] / 2
    touch(phone, "touchStart", [(x - 40, y), (x + 40, y)])
    for step in range(1, 6):
        touch(phone, "touchMove", [(x - 40 - 8 * step, y), (x + 40 + 8 * step, y)])
    touch(phone, "touchEnd", [])
    phone.settle(lambda: phone.run(SPAN) == pytest.approx(whole / 2, rel=0.05))
    assert phone.run("return visualViewport.scale") == 1
    assert phone.complaints() == []


def test_nothing_is_cut_off_in_print(report: str, window: Browser) -> None:
    window.open(report)
    window.run("document.getElementById('theme').click()")  # dark: it is printed in light colours all the same
    media = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "light"}]}
    size = {"width": 703, "height": 1000, "deviceScaleFactor": 1, "mobile": False}  # A4 within its margins
    try:
        window.run("dispatchEvent(new Event('beforeprint'))")
        window.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        beyond = """return [...document.querySelectorAll('main *')]
            .filter(one => one.getBoundingClientRect().right > 704).map(one => one.outerHTML.slice(0, 80))"""
        assert window.run(beyond) == []
        assert window.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert window.run("return getComputedStyle(document.getElementById('bar')).position") == "static"
        hidden = "return getComputedStyle(document.querySelector('.tools')).display"
        assert window.run(hidden) == "none"
        wide = "return [...document.querySelectorAll('.card:not([hidden]) .main-svg')].map(svg => svg.clientWidth)"
        assert min(window.run(wide)) > 600
    finally:
        window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {**media, "media": "screen"})
        window.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "width": 1280, "height": 900})
        window.run("dispatchEvent(new Event('afterprint'))")
    assert window.run("return document.documentElement.dataset.theme") == "dark"
    window.settle(lambda: window.run("return document.querySelector('#delay .main-svg').clientWidth") > 1000)


def test_the_page_says_what_it_weighs(report: str, window: Browser) -> None:
    window.open(report)
    assert "MB of plotly.js" in window.run("return document.querySelector('footer').textContent")


def test_the_target_moves_by_keys_and_by_the_pointer_and_the_times_follow(report: str, window: Browser) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    window.open(report)
    heading = (
        "return [...document.querySelectorAll('#methods th')].map(th => th.textContent).find(t => /^time to/.test(t))"
    )
    line = window.driver.find_element("css selector", ".target")
    window.run("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", line)
    first, value = window.run(heading), float(line.get_attribute("aria-valuenow"))
    press(window, Keys.ARROW_DOWN)
    window.settle(lambda: window.run(heading) != first)
    assert float(line.get_attribute("aria-valuenow")) == value - 1
    handle = window.driver.find_element("css selector", ".target .handle")
    ActionChains(window.driver).click_and_hold(handle).move_by_offset(0, 40).release().perform()
    window.settle(lambda: float(line.get_attribute("aria-valuenow")) < value - 1)
    assert window.complaints() == []
