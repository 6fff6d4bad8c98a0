"""Take the README's pictures of the report page anew: python docs/screenshots.py (needs chromium and chromedriver)."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import orlomo
from orlomo.report.page import write_report

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "tests"))
from browser import browser  # noqa: E402


def main() -> None:
    """Two runs of digits on eight workers, two of them slow and one that crashes; the page, wide and on a phone."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        slow = orlomo.cluster("heterogeneous")
        faults = (orlomo.Fault(time=150.0, worker=2, kind="crash"), orlomo.Fault(time=250.0, worker=2, kind="return"))
        cluster = orlomo.Cluster(speeds=slow.speeds, faults=faults)
        for name in ("orlomo", "prsgdm"):
            method = orlomo.method(name, learning_rate=0.1, local_steps=32)
            orlomo.train("digits", method, workers=8, epochs=40, cluster=cluster, out=folder / name)
        write_report([folder / "orlomo", folder / "prsgdm"], folder / "report.html")
        for name, width, height, dark in (("report", 1280, 1900, False), ("report-phone", 390, 1900, True)):
            with browser(folder / name, width, height, dark) as window:
                window.open((folder / "report.html").as_uri())
                time.sleep(1.0)  # fonts
                window.driver.save_screenshot(str(DOCS / f"images/{name}.png"))
                print(DOCS / f"images/{name}.png")


if __name__ == "__main__":
    main()
