"""A design for every combination of some fields' values, and what else was chosen anew for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from cosmic.comparing.contrast import differing_fields
from cosmic.comparing.remapping import value_at
from cosmic.comparing.words import as_text
from cosmic.design.paths import full_path
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, require
from cosmic.evaluation import Infeasible, Outcome, evaluate
from cosmic.mapping.completing import load_design

CHOSEN = ("workload", "collective")
"""Layers of which fields are chosen that nobody states; the others are what a catalog says."""
FOLLOWING = ("workload.dp", "collective.algorithms")
"""Follow from the rest: dp takes the accelerators that the other axes leave, algorithms are as many as dimensions."""
NAMED = 4
"""Values of a field that a sentence names."""


@dataclass(frozen=True, slots=True)
class Row:
    """One combination."""

    values: dict[str, Any]
    """The varied fields, named as they were given."""
    outcome: Outcome
    moved: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Other fields that differ from the base: its value and this design's, as in files."""


def sweep_design(
    source: str,
    overrides: Mapping[str, Any],
    varied: Mapping[str, Sequence[Any]],
    fix: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Return a row for every combination of the *varied* fields' values.

    Fields at the paths to *fix* keep the values of the base, the design with *overrides* alone. *progress* is called
    with a line of text before each design.
    """
    combinations = list(product(*varied.values()))
    progress("the base design")
    base, refusal = _loaded(source, overrides)
    held = _held(base, refusal, varied, [full_path(path) for path in fix])
    rows: list[Row] = []
    refusals: list[SpecError] = []
    for place, values in enumerate(combinations, 1):
        progress(f"{place:,} of {len(combinations):,} designs")
        chosen = dict(zip(varied, values, strict=True))
        point, refusal = _loaded(source, {**overrides, **held, **chosen})
        if point is None:  # one combination may be malformed; if all are, what is varied is wrong itself
            refusals += [refusal] if refusal else []
            rows.append(Row(chosen, Infeasible((str(refusal),))))
        else:
            base = base or point
            rows.append(Row(chosen, evaluate(point), _moved(base, point, varied)))
    if len(refusals) == len(rows):
        raise refusals[0]
    return rows


def _loaded(source: str, overrides: Mapping[str, Any]) -> tuple[DesignPoint | None, SpecError | None]:
    try:
        return load_design(source, overrides), None
    except SpecError as error:
        return None, error


def _held(
    base: DesignPoint | None, refusal: SpecError | None, varied: Iterable[str], fix: Sequence[str]
) -> dict[str, Any]:
    """Return the base's values of the fields to hold."""
    paths = [full_path(each) for each in varied]
    for path in fix:
        require(not any(map(_overlaps(path), paths)), "--fix", path, "is varied: leave one of them out")
    if base is None and fix and refusal is not None:
        raise refusal
    return {} if base is None else {path: value_at(base, path, "--fix") for path in fix}


def _overlaps(path: str) -> Callable[[str], bool]:
    return lambda other: f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


def _moved(base: DesignPoint, point: DesignPoint, varied: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """Return the fields that were chosen otherwise than in the base, besides those that were varied."""
    if (base.workload, base.collective) == (point.workload, point.collective):
        return {}
    paths = [full_path(each) for each in varied]
    differing = {path: pair for fields in differing_fields(base, point).values() for path, pair in fields.items()}
    return {
        path: pair
        for path, pair in differing.items()
        if path.partition(".")[0] in CHOSEN and not any(map(_overlaps(path), paths))
    }


def moved_in_words(rows: Iterable[Row], varied: Iterable[str]) -> str:
    """Return which fields moved along with those that were varied, and how to hold them; empty if none did.

    >>> rows = [Row({"tp": 4}, Infeasible(("",)), {"workload.dp": (8, 2), "workload.recompute": ("none", "full")})]
    >>> moved_in_words(rows, ["tp"])
    'dp 8 → 2, recompute none → full moved along with tp; --fix recompute holds it'
    """
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        for path, (old, new) in row.moved.items():
            found.setdefault(path, {as_text(old): None})[as_text(new)] = None
    if not found:
        return ""
    parts = [f"{short(path)} {_values(list(values))}" for path, values in found.items()]
    said = f"{', '.join(parts)} moved along with {' and '.join(map(short, varied))}"
    free = [short(path) for path in found if path not in FOLLOWING]
    return f"{said}; --fix {','.join(free)} holds {'it' if len(free) == 1 else 'them'}" if free else said


def _values(texts: Sequence[str]) -> str:
    first, *others = texts
    more = " …" if len(others) > NAMED else ""
    return f"{first} → {' | '.join(others[:NAMED])}{more}"


def short(path: str) -> str:
    """Return a path without its layer, where that is the workload."""
    return path.removeprefix("workload.")
