"""A real browser for the tests of pages: Debian's chromium, driven through its chromedriver."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orlomo.report.web.watch import Follower, Watch

PLACES = {"chromium": ("chromium", "google-chrome", "chromium-browser"), "chromedriver": ("chromedriver",)}


class Browser:
    """One window. `run` evaluates JavaScript; `settle` waits until the page has drawn."""

    def __init__(self, driver: Any):
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get("about:blank")  # what was open before has no more to say
        self.complaints()
        self.requests()
        self.driver.execute_cdp_cmd("Performance.disable", {})
        self.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        self.driver.get(address)
        self.settle(lambda: self.run("return Number(document.documentElement.dataset.drawn || 0) > 0"))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def settle(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"it did not happen in time; the console says {self.complaints()}"
            time.sleep(0.05)

    def rest(self) -> None:
        """Wait until the page has stopped scrolling."""
        seen = [-1.0]

        def still() -> bool:
            seen.append(self.run("return scrollY"))
            return seen[-1] == seen[-2]

        self.settle(still)

    def busy_seconds(self) -> float:
        """Processor time that the page's main thread has taken since it was opened."""
        found = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return next(float(metric["value"]) for metric in found if metric["name"] == "TaskDuration")

    def complaints(self) -> list[str]:
        """Errors and warnings on the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that were asked for since last time."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]


@contextmanager
def served(folder: Path) -> Iterator[Watch]:
    """The server of `orlomo watch`, in a thread."""
    with Watch(Follower(folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def browser(folder: Path, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Browser]:
    """A new browser with an empty profile; the test is skipped where there is none."""
    found = {what: next(filter(None, map(shutil.which, names)), None) for what, names in PLACES.items()}
    if missing := [what for what, path in found.items() if path is None]:
        pytest.skip(f"no {' and no '.join(missing)} here (Debian: apt-get install chromium chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = found["chromium"]
    words = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    words += " disable-component-update disable-sync disable-dev-shm-usage hide-scrollbars"
    for word in words.split():
        options.add_argument(f"--{word}")
    options.add_argument(f"--user-data-dir={folder / 'profile'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(found["chromedriver"]))
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield Browser(driver)
    finally:
        driver.quit()
