"""Studies and designs as containers for the page: the same that a report holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from cosmic.report.container import Binary, pack_container
from cosmic.report.design_view import NamedDesign, design_of
from cosmic.report.live.study_library import Library
from cosmic.report.study_report import report as make_report
from cosmic.report.trial_block import block_of
from cosmic.search.design_wording import metric_label, metric_unit
from cosmic.search.objectives import MetricLimit, loss
from cosmic.search.study.study_comparison import Course
from cosmic.search.study.study_comparison import compare_studies as study_comparison_compare_studies
from cosmic.simulate.user_engines import direction

MOST_KEPT_BYTES = 2**26
"""Size of all cached documents."""


class DocumentCache:
    """Documents of studies, cached until the study changes."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kept: OrderedDict[tuple[str, str, tuple[int, ...]], bytes] = OrderedDict()
        self._lock = Lock()

    def document(self, name: str) -> bytes:
        """Return the document of a study as a container."""
        return self._made(pack_study, name)

    def report(self, name: str) -> bytes:
        """Return the report of a study as a page."""
        return self._made(render_study_report, name)

    def _made(self, make: Callable[[Library, str], bytes], name: str) -> bytes:
        key = (make.__name__, name, self._library.root.stamp(name))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        document = make(self._library, name)
        with self._lock:
            self._kept[key] = document
            while sum(map(len, self._kept.values())) > MOST_KEPT_BYTES:
                self._kept.popitem(last=False)
        return document


def pack_study(library: Library, name: str) -> bytes:
    """Return the document of a study as a container: its report's, without the searches of single layers."""
    report = make_report(library.study(name), beside={})
    return pack_container(report.document, report.binary)


def render_study_report(library: Library, name: str) -> bytes:
    """Return the report of a study: one self-contained page."""
    return make_report(library.study(name)).html.encode(errors="backslashreplace")


def pack_trials(library: Library, name: str, first: int) -> bytes:
    """Return the trials of a study from *first* on, as a container."""
    study, trials, pulse = library.block(name, first)
    binary = Binary()
    packed = block_of(study.problem, trials, binary, first)
    about = {"n": first + len(trials), "total": pulse.n, "state": pulse.state}
    return pack_container({**about, "block": packed}, binary)


def pack_design(named: NamedDesign, engine: str = "analytic", limits: Sequence[MetricLimit] = ()) -> bytes:
    """Return a design, its cluster, roofline and timeline, as a container; *limits* are those of its study."""
    binary = Binary()
    return pack_container(design_of(named, engine, binary, limits), binary)


def _curve_to_end(objective: str, course: Course) -> list[list[float]]:
    """Return how a search converged, to its last evaluation: a search that found nothing better went on too."""
    values = loss(objective, course.losses)
    points = [[int(evaluation), float(value)] for evaluation, value in zip(course.evaluations, values, strict=True)]
    if points and points[-1][0] < course.evaluated:
        points.append([course.evaluated, points[-1][1]])
    return points


def compare_studies(library: Library, names: list[str]) -> dict[str, Any]:
    """Return a comparison of studies: what each found, and how it converged."""
    comparison = study_comparison_compare_studies([library.study(name) for name in names])
    curves = [
        {"name": course.name, "points": _curve_to_end(comparison.objective, course)} for course in comparison.courses
    ]
    name = comparison.objective
    about = {"objective": name, "label": metric_label(name), "unit": metric_unit(name), "better": direction(name)}
    return {**about, "studies": comparison.rows(), "curves": curves}
