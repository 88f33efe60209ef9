"""Measure the size of reports and their time in a browser, for studies of random designs; print JSON.

python benchmarks/report.py --trials 10000 100000 --json

Bytes are those of the HTML file; the shell is a report of a single trial, with the script and the style of the page.
If there is a Chromium (or CHROMIUM names one), it opens each page from disk. Medians: `ready_ms` from the start of the
navigation until the first screens are usable, `drawn_ms` until all is drawn, `brush_ms` of one repaint of all views
while a brush moves.
Budgets: 120 KB + 25 bytes a trial; ready in 600 ms at 10,000 and 1,500 ms at 100,000 trials; a brush in 50 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from command import SPACE

from cosmic.report.study_report import report
from cosmic.search.search_loop import Found, search

LOADS = 5
PATIENCE = 600
"""Most polls of a page until it is ready, 50 ms apart."""
PAGE_BYTES, TRIAL_BYTES = 120_000, 25
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1360, 900
Reading = TypeVar("Reading")


def measure(found: Found, page: Path, shell_bytes: int) -> dict[str, Any]:
    """Return size and times of the report of a search."""
    start = time.perf_counter()
    made = report(found)
    built = time.perf_counter() - start
    made.write(page)
    written = time.perf_counter() - start - built
    size, trials = page.stat().st_size, len(found.trials)
    return {
        "trials": trials,
        "evaluated": found.trials.evaluated,
        "bytes": size,
        "bytes_per_trial": (size - shell_bytes) / trials,
        "budget_bytes": PAGE_BYTES + TRIAL_BYTES * trials,
        "within_budget": size <= PAGE_BYTES + TRIAL_BYTES * trials,
        "build_s": built,
        "write_s": written,
        **opened(page),
    }


def browser() -> str | None:
    """Return the path of a Chromium; None if there is none."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, BROWSERS)), None)


def read_in_browser(page: Path, read: Callable[[Any], Reading]) -> tuple[str | None, list[Reading]]:
    """Return the version of the browser and what *read* reads of each load; none without a browser or Playwright."""
    path = browser()
    if path is None:
        return None, []
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415  optional
    except ImportError:
        return None, []
    readings = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for _ in range(LOADS):
            tab = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            tab.goto(page.resolve().as_uri())
            for _ in range(PATIENCE):  # the page's policy forbids Playwright's own wait, which evaluates text
                if tab.evaluate("document.documentElement.dataset.drawn !== undefined"):
                    break
                tab.wait_for_timeout(50)
            readings.append(read(tab))
            tab.close()
        version = chromium.version
        chromium.close()
    return version, readings


def opened(page: Path) -> dict[str, Any]:
    """Return the times of the page in a browser."""
    version, loads = read_in_browser(
        page,
        lambda tab: [tab.evaluate(f"window.cosmic.{what}") for what in ("ready_ms", "drawn_ms", "measureBrush()")],
    )
    if not loads:
        return {"browser": None}
    ready, drawn, brushes = zip(*loads, strict=True)
    brush = sorted(chain.from_iterable(brushes))
    slow = brush[int(0.95 * (len(brush) - 1))]
    times = {"ready_ms": median(ready), "drawn_ms": median(drawn), "brush_ms": median(brush), "brush_p95_ms": slow}
    return {"browser": version, **times}


def main() -> None:
    """Print size and times of reports of studies of each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default=SPACE)
    parser.add_argument("--agent", default="random")
    parser.add_argument("--trials", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--json", action="store_true", help="no effect: output is always JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        shell_bytes = len(report(search(options.space, trials=1, seed=1)).html.encode())
        rows = [
            measure(search(options.space, agent=options.agent, trials=trials), page, shell_bytes)
            for trials in options.trials
        ]
    print(
        json.dumps(
            {"space": options.space, "agent": options.agent, "shell_bytes": shell_bytes, "reports": rows}, indent=2
        )
    )


if __name__ == "__main__":
    main()
