"""A design for every combination of some fields' values, and what else was chosen anew for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.loading import Source
from cosmic.evaluation import evaluate
from cosmic.search.compare.design_differences import differing_fields, field_text
from cosmic.search.compare.remapping import value_at
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Outcome

CHOSEN_LAYERS = ("workload", "collective")
"""Layers of which fields are chosen that nobody states; the others are what a catalog says."""
FOLLOWING_FIELDS = ("workload.dp", "collective.algorithms")
"""Follow from the rest: dp takes the accelerators that the other axes leave, algorithms are as many as dimensions."""
MAX_NAMED = 4
"""Values of a field that a sentence names."""


@dataclass(frozen=True, slots=True)
class SweptDesign:
    """One combination."""

    values: dict[str, Any]
    """The varied fields, named as they were given."""
    outcome: Outcome
    moved: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Other fields that differ from the base: its value and this design's, as in files."""


def sweep_design(
    source: Source,
    overrides: Mapping[str, Any],
    varied: Mapping[str, Sequence[Any]],
    fix: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> list[SweptDesign]:
    """Return a row for every combination of the *varied* fields' values.

    Fields at the paths to *fix* keep the values of the base, the design with *overrides* alone. *progress* is called
    with a line of text before each design.
    """
    combinations = list(product(*varied.values()))
    progress("the base design")
    base, refusal = _load_swept(source, overrides)
    base_values = _values_to_hold(base, refusal, varied, [full_path(path) for path in fix])
    rows: list[SweptDesign] = []
    refusals: list[SpecError] = []
    for index, values in enumerate(combinations, 1):
        progress(f"{index:,} of {len(combinations):,} designs")
        chosen = dict(zip(varied, values, strict=True))
        point, refusal = _load_swept(source, {**overrides, **base_values, **chosen})
        if point is None:  # one combination may be malformed; if all are, what is varied is wrong itself
            refusals += [refusal] if refusal else []
            rows.append(SweptDesign(chosen, Infeasible((str(refusal),))))
        else:
            base = base or point
            rows.append(SweptDesign(chosen, evaluate(point), _moved_fields(base, point, varied)))
    if len(refusals) == len(rows):
        raise refusals[0]
    return rows


def _load_swept(source: Source, overrides: Mapping[str, Any]) -> tuple[DesignPoint | None, SpecError | None]:
    try:
        return load_design(source, overrides), None
    except SpecError as error:
        return None, error


def _values_to_hold(
    base: DesignPoint | None, refusal: SpecError | None, varied: Iterable[str], fix: Sequence[str]
) -> dict[str, Any]:
    """Return the base's values of the fields to hold."""
    paths = [full_path(name) for name in varied]
    for path in fix:
        require(not any(map(_overlaps(path), paths)), "--fix", path, "is varied: leave one of them out")
    if base is None and fix and refusal is not None:
        raise refusal
    return {} if base is None else {path: value_at(base, path, "--fix") for path in fix}


def _overlaps(path: str) -> Callable[[str], bool]:
    return lambda varied_path: f"{path}.".startswith(f"{varied_path}.") or f"{varied_path}.".startswith(f"{path}.")


def _moved_fields(base: DesignPoint, point: DesignPoint, varied: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """Return the fields that were chosen otherwise than in the base, besides those that were varied."""
    if (base.workload, base.collective) == (point.workload, point.collective):
        return {}
    paths = [full_path(name) for name in varied]
    differing = {path: pair for fields in differing_fields(base, point).values() for path, pair in fields.items()}
    return {
        path: pair
        for path, pair in differing.items()
        if path.partition(".")[0] in CHOSEN_LAYERS and not any(map(_overlaps(path), paths))
    }


def moved_fields_text(rows: Iterable[SweptDesign], varied: Iterable[str]) -> str:
    """Return which fields moved along with those that were varied, and how to hold them; empty if none did.

    >>> rows = [SweptDesign({"tp": 4}, Infeasible(("",)), {"workload.dp": (8, 2), "workload.recompute": ("none", "full")})]
    >>> moved_fields_text(rows, ["tp"])
    'dp 8 → 2, recompute none → full moved along with tp; --fix recompute holds it'
    """
    texts_by_path: dict[str, dict[str, None]] = {}
    for row in rows:
        for path, (old, new) in row.moved.items():
            texts_by_path.setdefault(path, {field_text(old): None})[field_text(new)] = None
    if not texts_by_path:
        return ""
    parts = [f"{shorten_path(path)} {_values_text(list(values))}" for path, values in texts_by_path.items()]
    sentence = f"{', '.join(parts)} moved along with {' and '.join(map(shorten_path, varied))}"
    free = [shorten_path(path) for path in texts_by_path if path not in FOLLOWING_FIELDS]
    return f"{sentence}; --fix {','.join(free)} holds {'it' if len(free) == 1 else 'them'}" if free else sentence


def _values_text(texts: Sequence[str]) -> str:
    first, *later = texts
    ellipsis = " …" if len(later) > MAX_NAMED else ""
    return f"{first} → {' | '.join(later[:MAX_NAMED])}{ellipsis}"


def shorten_path(path: str) -> str:
    """Return a path without its layer, where that is the workload."""
    return path.removeprefix("workload.")
