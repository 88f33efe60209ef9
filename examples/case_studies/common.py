"""What the case studies share: searches with a budget, and the page that each writes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic.exploration.searching import Found, search
from cosmic.reporting.page import Code, Page, Part, Text, to_markdown

PAGES = Path(__file__).resolve().parents[2] / "docs" / "case-studies"


@dataclass(frozen=True)
class Effort:
    """How hard to look: the published pages are made with the whole, tests with a small part of it."""

    share: float = 1.0

    def trials(self, whole: int) -> int:
        """Return the budget of one search."""
        return max(40, round(whole * self.share))

    def seeds(self, whole: int) -> int:
        """Return how many seeds to take."""
        return max(1, round(whole * min(1.0, self.share * 4)))


def find(space: Any, trials: int, **options: Any) -> Found:
    """Return what a search finds, with the best agent for a wide space and a cheap simulator."""
    chosen: dict[str, Any] = {"agent": "genetic", "trials": trials, "seed": 1, **options}
    return search(space, **chosen)


def best_value(found: Found, metric: str) -> float:
    """Return the metric of the best design that was found."""
    if found.best is None:
        raise SystemExit(f"{found.problem.space.name}: nothing that was tried can run")
    return float(found.best["metrics"][metric])


def write_page(title: str, name: str, make: Callable[[Effort], list[Part]]) -> None:
    """Make the page of a case study and write it: the body of each of these programs."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--out", type=Path, default=PAGES, help="where to write the page (docs/case-studies)")
    parser.add_argument("--effort", type=float, default=1.0, help="share of the budget, such as 0.05 for a quick look")
    arguments = parser.parse_args()
    began = time.perf_counter()
    parts = make(Effort(arguments.effort))
    how: list[Part] = [
        Text("This page is generated; every number on it is computed by"),
        Code(f"python examples/case_studies/{name.replace('-', '_')}.py", "text"),
    ]
    path = to_markdown(Page(title, [*parts, *how], name), arguments.out)
    print(f"{path} written in {time.perf_counter() - began:.0f} s")
