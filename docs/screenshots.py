"""Take the README's pictures of screen and page again: python docs/screenshots.py (needs chromium and its driver)."""

from __future__ import annotations

import base64
import sys
import tempfile
import time
from pathlib import Path

import orlomo
from orlomo.report.web.page import write_report

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "tests"))
import terminals  # noqa: E402

from browser import browser  # noqa: E402


def main() -> None:
    """Two runs of digits on eight workers, two of them slow and one that crashes; the page, wide and on a phone."""
    terminals.main()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        slow = orlomo.cluster("heterogeneous")
        faults = (orlomo.Fault(time=150.0, worker=2, kind="crash"), orlomo.Fault(time=250.0, worker=2, kind="return"))
        cluster = orlomo.Cluster(speeds=slow.speeds, faults=faults)
        for name in ("orlomo", "prsgdm"):
            method = orlomo.method(name, learning_rate=0.1, local_steps=32)
            orlomo.train("digits", method, workers=8, epochs=40, cluster=cluster, out=folder / name)
        write_report([folder / "orlomo", folder / "prsgdm"], folder / "report.html")
        for name, width, last, dark in (("report", 1280, "groups", False), ("report-phone", 390, "timeline", True)):
            with browser(folder / name, width, 3000, dark) as window:
                window.open((folder / "report.html").as_uri())
                time.sleep(1.0)  # fonts
                bottom = f"return document.getElementById('{last}').closest('section').getBoundingClientRect().bottom"
                clip = {"x": 0, "y": 0, "width": width, "height": window.run(bottom) + 12, "scale": 1}
                shot = window.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})
                (DOCS / f"images/{name}.png").write_bytes(base64.b64decode(shot["data"]))
                print(DOCS / f"images/{name}.png")


if __name__ == "__main__":
    main()
