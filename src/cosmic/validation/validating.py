"""Validation: rows of several files judged, and their errors added up by source.

files ──▶ rows, of a kind ──▶ designs or kernels ──▶ predicted beside measured ──▶ errors by source
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic.errors import UnknownName
from cosmic.validation.rows import Verdict, carried_files, read_rows
from cosmic.validation.statistics import Summary, summarise


@dataclass(frozen=True, slots=True)
class Validation:
    """What is predicted of measured rows, and how far off it is."""

    verdicts: tuple[Verdict, ...]
    by: str
    """The column by which errors are added up."""
    summary: tuple[Summary, ...]
    """Errors of times."""
    memory_summary: tuple[Summary, ...]
    """Errors of the peak of memory, of the rows that give one."""

    def to_dict(self) -> dict[str, Any]:
        """Return it all as plain data, in SI units."""
        return {
            "rows": [verdict.to_dict() for verdict in self.verdicts],
            "summary": [each.to_dict(self.by) for each in self.summary],
            "memory_summary": [each.to_dict(self.by) for each in self.memory_summary],
        }


def validate(
    paths: Sequence[Path | str] | None = None, by: str = "set", tell: Callable[[str], None] = lambda _: None
) -> Validation:
    """Predict every measured row of some CSV files and compare; without *paths*, of those the package carries.

    Errors are added up *by* the rows' source, or by any of their columns. Kinds of files are told by their columns (see
    `cosmic.validation.rows.KINDS`). How far it is, *tell* is told.
    """
    files: Iterable[Path | str] = paths if paths is not None else carried_files()
    verdicts: list[Verdict] = []
    for path in files:
        kind, rows = read_rows(path)
        tell(f"{Path(path).name}: {len(rows):,} rows")
        verdicts += kind.judge(rows)
    return assess(verdicts, by)


def assess(verdicts: Sequence[Verdict], by: str = "set") -> Validation:
    """Return what *verdicts* add up to."""
    known = {"set", *(name for verdict in verdicts for name in verdict.row)}
    if by not in known:
        raise UnknownName.among("--by", by, "column", known)
    parts: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        name = verdict.set if by == "set" else verdict.row.get(by, "")
        parts.setdefault(name, []).append(verdict)
    summary = tuple(summarise(name, part) for name, part in parts.items())
    weighed = {name: [each for each in part if each.peak_bytes_measured] for name, part in parts.items()}
    memory = tuple(summarise(name, part, memory=True) for name, part in weighed.items() if part)
    return Validation(tuple(verdicts), by, summary, memory)
