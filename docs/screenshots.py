"""Take all screenshots in docs/images again: python docs/screenshots.py (needs chromium and its driver).

The terminal's are made by terminals.py, which this calls; the page's and the README's by a real browser.
"""

from __future__ import annotations

import base64
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orlomo
from orlomo.report.web.page import write_report

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
sys.path.append(str(DOCS.parent / "tests"))
import terminals  # noqa: E402

from browser import Browser, browser  # noqa: E402

WIDE, PHONE = 1280, 390
PAPER = 703
"""Width of A4 within the page's margins, in CSS pixels."""

README_STYLE = """
body { margin: 32px auto; max-width: 896px; padding: 0 32px; font: 16px/1.5 system-ui, sans-serif; color: #1f2328; }
h1, h2 { border-bottom: 1px solid #d1d9e0; padding-bottom: 0.3em; }
pre { background: #f6f8fa; padding: 16px; border-radius: 6px; overflow: auto; }
code { background: #eff1f3; padding: 0.2em 0.4em; border-radius: 6px; font: 85% ui-monospace, monospace; }
pre code { background: none; padding: 0; }
table { border-collapse: collapse; display: block; overflow: auto; }
th, td { border: 1px solid #d1d9e0; padding: 6px 13px; }
img { max-width: 100%; }
a { color: #0969da; }
"""
"""About as a code host shows a README."""


def main() -> None:
    """All of them."""
    terminals.main()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        page = folder / "report.html"
        write_report(demonstration(folder), page)
        with opened(page, folder / "light", WIDE) as window:
            take(window, "report", ("story", "methods", "curves"))
            take(window, "report-timelines", ("timelines", "workers"))
            take(window, "report-delays", ("delays", "weights"))
        with opened(page, folder / "dark", WIDE, dark=True) as window:
            take(window, "report-dark", ("story", "methods", "curves", "timelines"))
        with opened(page, folder / "phone", PHONE) as window:
            take(window, "report-phone", ("story", "methods", "curves", "timelines"))
        with opened(page, folder / "print", WIDE) as window:
            window.run("dispatchEvent(new Event('beforeprint'))")
            window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
            resize(window, PAPER)
            take(window, "report-print", ("story", "methods", "curves", "timelines"))
        readme(folder)


def demonstration(folder: Path) -> list[Path]:
    """Two methods, three seeds each, on eight workers: two are four times slower, and one crashes and comes back."""
    slow = orlomo.cluster("heterogeneous:4")
    faults = (orlomo.Fault(time=150.0, worker=2, kind="crash"), orlomo.Fault(time=250.0, worker=2, kind="return"))
    cluster = orlomo.Cluster(speeds=slow.speeds, faults=faults)
    folders = []
    for seed in range(3):
        for name in ("orlomo", "prsgdm"):
            method = orlomo.method(name, learning_rate=0.1, local_steps=32)
            folders.append(folder / f"{name}-{seed}")
            orlomo.train("digits", method, workers=8, epochs=40, cluster=cluster, seed=seed, out=folders[-1])
    return folders


@contextmanager
def opened(path: Path, profile: Path, width: int, dark: bool = False) -> Iterator[Browser]:
    """A page in a browser of this width, drawn."""
    with browser(profile, width, 900, dark) as window:
        window.open(path.as_uri())
        time.sleep(1.0)  # fonts and canvases
        yield window


def resize(window: Browser, width: int) -> None:
    """Another width of the window."""
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    window.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    time.sleep(1.0)


def take(window: Browser, name: str, sections: Sequence[str]) -> None:
    """A picture from the first to the last of these sections of the page; of the first one on, with the header."""
    box = "return document.getElementById('section-' + arguments[0]).getBoundingClientRect().toJSON()"
    boxes = [box for box in (window.run(box, section) for section in sections) if box["height"]]
    top = 0 if sections[0] == "story" else boxes[0]["top"] - 16
    save(window, name, top, boxes[-1]["bottom"] + 20)


def save(window: Browser, name: str, top: float, bottom: float) -> None:
    """The picture of this part of what is open."""
    width = window.run("return innerWidth")
    clip = {"x": 0, "y": top, "width": width, "height": bottom - top, "scale": 1}
    found = window.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    (IMAGES / f"{name}.png").write_bytes(base64.b64decode(found["data"]))
    print(IMAGES / f"{name}.png")


def readme(folder: Path) -> None:
    """The first screens of the README, rendered."""
    from markdown_it import MarkdownIt

    root = DOCS.parent
    text = MarkdownIt("commonmark").enable("table").render((root / "README.md").read_text("utf-8"))
    page = folder / "readme.html"
    page.write_text(
        f'<!doctype html><html data-drawn="1"><meta charset="utf-8"><base href="{root.as_uri()}/">'
        f"<style>{README_STYLE}</style><body>{text}</body></html>",
        "utf-8",
    )
    with opened(page, folder / "readme", 1024) as window:
        save(window, "readme", 0, min(2600, window.run("return document.documentElement.scrollHeight")))


if __name__ == "__main__":
    main()
