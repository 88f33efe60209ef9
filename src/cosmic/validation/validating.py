"""Validation: predict measured rows and summarise the errors by source.

files ──▶ rows, of a kind ──▶ designs or kernels ──▶ predicted beside measured ──▶ errors by source
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from math import expm1
from pathlib import Path
from statistics import fmean
from typing import Any

from cosmic.errors import UnknownName
from cosmic.validation.baseline import left_out_errors
from cosmic.validation.rows import Verdict, carried_files, read_rows
from cosmic.validation.sources import source_of
from cosmic.validation.statistics import Summary, summarise


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many measured times are from P5 to P95 of their prediction."""

    rows: int
    """Rows whose prediction has a range."""
    sources: int
    of_rows: float
    """Share of the rows."""
    of_sources: float
    """Mean over sources of the share of their rows."""
    width: float
    """Mean distance of P95 from the prediction, as a share."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Verdicts on measured rows, and their error statistics."""

    verdicts: tuple[Verdict, ...]
    by: str
    """The column by which errors are summarised."""
    summary: tuple[Summary, ...]
    """Errors of times."""
    memory_summary: tuple[Summary, ...]
    """Errors of peak memory, of the rows that give it."""

    @property
    def coverage(self) -> Coverage | None:
        """How many measured times are in the range of their prediction; None where no prediction has one."""
        inside: dict[str, list[bool]] = {}
        widths = []
        for each in self.verdicts:
            found, within = each.range_s, each.in_range
            if found is not None and within is not None:
                inside.setdefault(source_of(each.set), []).append(within)
                widths.append(found.p95 / found.p50 - 1)
        if not widths:
            return None
        by_source = fmean(fmean(each) for each in inside.values())
        return Coverage(len(widths), len(inside), fmean(chain(*inside.values())), by_source, fmean(widths))

    def to_dict(self) -> dict[str, Any]:
        """Return it all as plain data, in SI units."""
        return {
            "rows": [verdict.to_dict() for verdict in self.verdicts],
            "summary": [each.to_dict(self.by) for each in self.summary],
            "memory_summary": [each.to_dict(self.by) for each in self.memory_summary],
            "coverage": None if (found := self.coverage) is None else asdict(found),
        }


def validate(
    paths: Sequence[Path | str] | None = None, by: str = "set", report: Callable[[str], None] = lambda _: None
) -> Validation:
    """Predict every row of the CSV files at *paths*, by default those that the package carries, and compare.

    Errors are summarised *by* the rows' source, or by any of their columns. A file's columns say its kind (see
    `cosmic.validation.rows.KINDS`). *report* gets a line of progress for each file.
    """
    files: Iterable[Path | str] = paths if paths is not None else carried_files()
    verdicts: list[Verdict] = []
    for path in files:
        kind, rows = read_rows(path)
        report(f"{Path(path).name}: {len(rows):,} rows")
        verdicts += map(_beside_left_out, kind.judge(rows))
    return assess(verdicts, by)


def _beside_left_out(verdict: Verdict) -> Verdict:
    """Return a verdict with its error by constants that were fitted without its source, if it is of the package."""
    known = left_out_errors().get((source_of(verdict.set), verdict.id)) if verdict.expected else None
    return verdict if known is None else replace(verdict, left_out=expm1(known))


def assess(verdicts: Sequence[Verdict], by: str = "set") -> Validation:
    """Return the error statistics of *verdicts*."""
    known = {"set", *(name for verdict in verdicts for name in verdict.row)}
    if by not in known:
        raise UnknownName.among("--by", by, "column", known)
    parts: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        name = verdict.set if by == "set" else verdict.row.get(by, "")
        parts.setdefault(name, []).append(verdict)
    summary = tuple(summarise(name, part) for name, part in parts.items())
    with_memory = {name: [each for each in part if each.peak_bytes_measured] for name, part in parts.items()}
    memory = tuple(summarise(name, part, memory=True) for name, part in with_memory.items() if part)
    return Validation(tuple(verdicts), by, summary, memory)
