"""Screenshots of a report for the front page: `python docs/screenshots.py` (extra `dev`, and chromium) takes them.

They show the study of the quickstart. Browsers and fonts differ, so that no test compares them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import FloatRect, Page, sync_playwright

import cosmic

FOLDER = Path(__file__).parent
SPACE = FOLDER.parent / "examples" / "quickstart" / "space.yaml"
WIDTH = 960
SHOTS = {
    "report-verdict.png": ("verdict", 576),
    "report-explore.png": ("explore", 760),
    "report-timeline.png": ("timeline", 540),
}
"""The sections to show, and their heights in pixels from the top."""


def main() -> None:
    """Search, write the report, and take screenshots of it."""
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = cosmic.report(cosmic.search(SPACE, trials=300, seed=0)).write(Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.goto(report.as_uri())
        page.wait_for_timeout(2000)  # until all is drawn
        for name, (section, height) in SHOTS.items():
            take(page, section, height, FOLDER / name)
        browser.close()


def take(page: Page, section: str, height: float, path: Path) -> None:
    """Save the upper part of a section as a picture."""
    box = page.locator(f"#{section}").bounding_box()
    if box is None:
        raise SystemExit(f"#{section}: the report has no such section, or it is not shown")
    top = box["y"] + float(page.evaluate("scrollY"))
    clip = FloatRect(x=box["x"], y=top, width=box["width"], height=min(box["height"], height))
    page.screenshot(path=str(path), full_page=True, clip=clip)


if __name__ == "__main__":
    main()
