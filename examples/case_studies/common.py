"""Shared by the case studies: searches with a budget, and the page that each writes."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np

from cosmic import evaluate, search
from cosmic.design import DesignPoint, Infeasible, Metrics
from cosmic.pages import Code, Page, Part, Text, to_markdown
from cosmic.study import Found, pareto_front

Done = TypeVar("Done")
QUICK = 0.2
"""Below this effort a page has fewer cases and fewer agents."""
PAGES = Path(__file__).resolve().parents[2] / "docs" / "case-studies"


@dataclass(frozen=True)
class Effort:
    """The share of the full budget: 1 for the published pages, less for tests."""

    share: float = 1.0

    def trials(self, whole: int) -> int:
        """Return the budget of one search."""
        return max(40, round(whole * self.share))

    def seeds(self, whole: int) -> int:
        """Return the number of seeds."""
        return max(1, round(whole * min(1.0, self.share * 4)))

    @property
    def quick(self) -> bool:
        """Whether only the cases that the text mentions are evaluated."""
        return self.share < QUICK


def find(space: Any, trials: int, **options: Any) -> Found:
    """Return the result of a search, by default with the best agent for large spaces and cheap evaluation."""
    chosen: dict[str, Any] = {"agent": "genetic", "trials": trials, "seed": 1, **options}
    return search(space, **chosen)


def every(space: Any, **options: Any) -> Found:
    """Return an exhaustive search of a small space."""
    return find(space, space.valid, agent="exhaustive", **options)


def best_value(found: Found, metric: str) -> float:
    """Return the metric of the best design that was found."""
    if found.best is None:
        raise SystemExit(f"{found.problem.space.name}: no trial is feasible")
    return float(found.best["metrics"][metric])


def best_design(found: Found) -> DesignPoint:
    """Return the best design that was found."""
    place = found.trials.best(found.problem)
    if place is None:
        raise SystemExit(f"{found.problem.space.name}: no trial is feasible")
    return found.problem.space.point(found.trials.rows[place])


def metrics_of(design: DesignPoint) -> Metrics:
    """Return the metrics of a design that is known to be feasible."""
    outcome = evaluate(design)
    if isinstance(outcome, Infeasible):
        raise SystemExit(f"infeasible: {'; '.join(outcome.reasons)}")
    return outcome


def span(values: Iterable[float], form: str = ".2f") -> str:
    """Return the range of some numbers as text, or one number if both ends print the same.

    >>> span([2, 1.5, 3]), span([2.1, 2], ".0f")
    ('1.50 to 3.00', '2')
    """
    texts = [f"{value:{form}}" for value in sorted(values)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def listing(names: Iterable[str], last: str = "and") -> str:
    """Return names joined for a sentence.

    >>> listing(["a", "b", "c"]), listing(["a", "b"], "or"), listing(["a"])
    ('a, b and c', 'a or b', 'a')
    """
    *others, final = names
    return f"{', '.join(others)} {last} {final}" if others else final


def front_of(dots: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the Pareto front of points, less being better in both, from left to right."""
    distinct = sorted(set(dots))
    return [dot for dot, best in zip(distinct, pareto_front(np.array(distinct)), strict=True) if best]


def percent(share: float, digits: int = 1) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.{digits}f} %"


@dataclass(frozen=True)
class Section:
    """A question, its answer in a sentence, and the evidence."""

    title: str
    question: str
    answer: str
    parts: Sequence[Part]


def write_page(
    title: str,
    name: str,
    make: Callable[[Effort], list[Part]],
    timed: Sequence[str] = (),
    kept: Callable[[], list[Part]] | None = None,
) -> None:
    """Write the page of a case study: the main function of each of these scripts.

    *kept* makes a page that takes minutes from what was kept of its searches, some of which it runs again.
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--out", type=Path, default=PAGES, help="where to write the page (docs/case-studies)")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if the page is not what this gives"
    )
    if kept is not None:
        parser.add_argument(
            "--all", action="store_true", help="with --check: run every search again, which takes minutes"
        )
    parser.add_argument("--effort", type=float, default=1.0, help="share of the budget, such as 0.05 for a quick look")
    arguments = parser.parse_args()
    began = time.perf_counter()
    quick = kept is not None and arguments.check and not arguments.all
    parts = kept() if kept is not None and quick else make(Effort(arguments.effort))
    how: list[Part] = [
        Text("This page is generated; every number on it is computed by"),
        Code(f"python examples/case_studies/{name.replace('-', '_')}.py", "text"),
    ]
    page = Page(title, [*parts, *how], name)
    if arguments.check:
        wrong = stale(page, arguments.out, timed)
        took = f"{time.perf_counter() - began:.0f} s"
        print(
            *wrong, f"{name}.md: {f'{len(wrong)} differences' if wrong else 'is what the code gives'}, {took}", sep="\n"
        )
        raise SystemExit(bool(wrong))
    path = to_markdown(page, arguments.out)
    print(f"{path} written in {time.perf_counter() - began:.0f} s")


def untimed(text: str, timed: Sequence[str]) -> list[str]:
    """Return the lines of a page without what a clock says: columns *timed*, and times in its sentences."""
    found: list[str] = []
    hidden = False
    for line in text.splitlines():
        hidden = line.startswith("|") and (hidden or any(line.endswith(f"{name} |") for name in timed))
        cells = line.rstrip("| ").rpartition("|")[0] if hidden else line
        found.append(re.sub(r"takes [\d.,]+ [µm]?s ", "takes … ", cells) if timed else cells)
    return found


def stale(page: Page, folder: Path, timed: Sequence[str] = ()) -> list[str]:
    """Return in which lines and figures the page in *folder* differs from *page*, a sentence each.

    What a clock says (the columns *timed*) differs from run to run, and is not compared.
    """
    with TemporaryDirectory() as made:
        to_markdown(page, Path(made))
        new = {path.name: path.read_text(encoding="utf-8") for path in Path(made).iterdir()}
    figures = [path.name for path in folder.glob(f"{page.name}-*.svg")]
    found = [f"{name}: is no figure of the page any more" for name in figures if name not in new]
    for name, text in new.items():
        path = folder / name
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if name.endswith(".svg"):
            found += [f"{name}: is another figure"] if old != text else []
            continue
        for number, (ours, theirs) in enumerate(zip_longest(untimed(text, timed), untimed(old, timed)), start=1):
            found += [f"{name}:{number}: the page says {theirs!r}, the code {ours!r}"] if ours != theirs else []
    return found
