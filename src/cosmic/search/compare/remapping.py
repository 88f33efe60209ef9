"""Designs to compare, each with its best mapping or both with one; what a change is worth by itself, and re-mapped.

Where a design states no mapping, loading chooses its best. So two designs that differ in the machine usually differ in
the mapping as well, and the gain is a product:

    B / A  =  (B with A's mapping) / A   ×   B / (B with A's mapping)

A design for every combination of some fields' values, and what else was chosen anew for each.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Literal

from cosmic.base.errors import SpecError, require
from cosmic.design import schema
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.field_facts import fields_used
from cosmic.design.loading import Source, stated_fields
from cosmic.design.workload_layer import Workload
from cosmic.evaluation import evaluate
from cosmic.search.compare.design_differences import EQUAL_SHARE, differing_fields, field_text, ratio_text
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Outcome
from cosmic.workload.mapping_rules import invalid_reasons

Mode = Literal["best", "same", "fixed", "stated"]
"""B has its best mapping; A's; its best with some fields of A's; or the one that it states."""
WORK = ("task", "sequence", "global_batch")
"""Fields of a workload that say what there is to do: no mapping."""
MESH = frozenset({"workload.tp", "workload.cp", "workload.pp"})
"""A mesh that is stated is kept, and nothing is chosen."""
MAPPING_FIELDS = frozenset(f"workload.{name}" for name in fields_used(Workload, "remapped"))
"""What belongs to a mapping, also where it is stated; dp takes the accelerators that are left."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two designs as they are compared."""

    a: DesignPoint
    b: DesignPoint
    mode: Mode
    settings: dict[str, Any]
    """What was set of B, by path: what was asked for, and what it takes from A."""
    a_is_stated: bool
    """Whether A states its mesh."""
    fixed: tuple[str, ...] = ()
    """The fields that B was asked to take from A."""
    other: DesignPoint | None = None
    """B with A's mapping or, where it has that, with its best; None where B states its own, or where there is none."""
    reasons: tuple[str, ...] = ()
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class GainSplit:
    """A gain in tokens per second, split: B over A is the product of both, where B has its best mapping."""

    change: float | None
    """B with A's mapping over A; None where one of them cannot run."""
    remapping: float | None
    """B with its best mapping over B with A's."""
    reasons: tuple[str, ...]
    """Why B cannot run with A's mapping, if that is why."""
    remapped: dict[str, tuple[Any, Any]]
    """Fields of the workload in which the two mappings of B differ: A's value, and B's own."""


def load_pair(
    a: Source,
    b: Source,
    common: Mapping[str, Any],
    of_b: Mapping[str, Any],
    *,
    fix: Iterable[str] = (),
    same_mapping: bool = False,
) -> Pair:
    """Return the designs *a* and *b* with what is set of *common* and of *b* alone.

    Fields at the paths to *fix* are as in A. With *same_mapping*, so is every field of the mapping that is not set of
    B, also where its file states it, except for dp, which takes the accelerators that the other axes leave.
    """
    set_of_b = {full_path(path): value for path, value in of_b.items()}
    settings = {full_path(path): value for path, value in common.items()} | set_of_b
    first = load_design(a, common)
    fixed = {}
    for path in (full_path(field_name) for field_name in fix):
        require(path not in set_of_b, "--fix", path, "is set of B alone, too: leave one of them out")
        fixed[path] = value_at(first, path, "--fix")
    set_fields = {**settings, **fixed}
    by_a, by_b = stated_fields(a, common), stated_fields(b, set_fields)
    about = (by_a >= MESH, tuple(fixed))
    own_design, why = (load_design(b, set_fields), ()) if not same_mapping else _load_or_refuse(b, set_fields)
    if by_b >= MESH and own_design is not None and not same_mapping:
        return Pair(first, own_design, "stated", set_fields, *about)
    batches = _candidate_batches(first, own_design) if "workload.global_batch" not in by_b else []
    if same_mapping or own_design is None:  # what is asked for here counts, not what a file states
        held_fields = {**set_fields, **_mapping_to_keep(first, by_a, set_fields)}
        if "workload.dp" in by_b and "workload.dp" not in set_fields and own_design is not None:
            held_fields["workload.dp"] = max(1, own_design.network.npus // prod(held_fields[path] for path in MESH))
        second, used_fields = _first_valid(b, held_fields, batches)
        return Pair(first, second, "same", used_fields, *about, own_design, why)
    held_fields = {**set_fields, **_mapping_to_keep(first, by_a, by_b)}
    mode: Mode = "fixed" if fixed else "best"
    try:
        return Pair(first, own_design, mode, set_fields, *about, _first_valid(b, held_fields, batches)[0])
    except SpecError as error:
        return Pair(first, own_design, mode, set_fields, *about, None, (str(error),))


def _mapping_to_keep(point: DesignPoint, by_a: Container[str], by_b: Container[str]) -> dict[str, Any]:
    """Return the fields of A's mapping that B does not state, as files write them.

    What neither states was chosen, or is as usual. What A states is its mapping only where it is about that.
    """
    names = [f"workload.{name}" for name in schema.slots(Workload) if name not in (*WORK, "dp")]
    free = [path for path in names if path not in by_b and (path in MAPPING_FIELDS or path not in by_a)]
    return {path: value_at(point, path, path) for path in free}


def _candidate_batches(first: DesignPoint, own_design: DesignPoint | None) -> list[int]:
    """Return the batches with which B may have A's mapping: training, its own first; serving, A's, a mapping's part."""
    batches = (
        [first.workload.global_batch]
        if own_design is None
        else [own_design.workload.global_batch, first.workload.global_batch]
    )
    return batches if first.workload.task == "training" else batches[::-1]


def _first_valid(
    source: Source, fields: Mapping[str, Any], batches: Sequence[int]
) -> tuple[DesignPoint, dict[str, Any]]:
    """Return a design with the first batch that makes its mapping valid, or with the first, and what was set of it."""
    tried = [{**fields, "workload.global_batch": batch} for batch in batches] or [dict(fields)]
    loaded = [(load_design(source, settings), settings) for settings in tried]
    return next((settings for settings in loaded if not invalid_reasons(settings[0])), loaded[0])


def _load_or_refuse(source: Source, fields: Mapping[str, Any]) -> tuple[DesignPoint | None, tuple[str, ...]]:
    try:
        return load_design(source, fields), ()
    except SpecError as error:
        return None, (str(error),)


def value_at(point: DesignPoint, path: str, option: str) -> Any:
    """Return the value of one field as files write it; *option* asked for it."""
    try:
        value, slot = schema.get_field(point, path), schema.slot_at(point, path)
    except SpecError as error:
        raise SpecError(option, path, error.rule) from None
    require("." in path, option, path, "is a whole layer: name a field of it, such as tp")
    return schema.write_value(value, slot.dimension)


# ---- the gain


def split_gain(pair: Pair) -> GainSplit | None:
    """Return what the change is worth at A's mapping, and what re-mapping adds; None where B states its mapping."""
    if pair.mode == "stated":
        return None
    if pair.other is None:
        return GainSplit(None, None, pair.reasons if pair.mode != "same" else (), {})
    same_mapping, best = (pair.b, pair.other) if pair.mode == "same" else (pair.other, pair.b)
    first, between, remapped = (evaluate(point) for point in (pair.a, same_mapping, best))
    ours, theirs = schema.write_value(same_mapping.workload), schema.write_value(best.workload)
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return GainSplit(
        _throughput_ratio(first, between),
        _throughput_ratio(between, remapped),
        between.reasons if isinstance(between, Infeasible) else (),
        {f"workload.{name}": (ours.get(name), theirs.get(name)) for name in names},
    )


def _throughput_ratio(before: Outcome, after: Outcome) -> float | None:
    """Return the throughput of one outcome over those of another; None where one cannot run."""
    if isinstance(before, Infeasible) or isinstance(after, Infeasible):
        return None
    return after.throughput_per_s / before.throughput_per_s


def compared_mappings_text(pair: Pair, split: GainSplit | None) -> str:
    """Return which mappings are compared, and how the gain splits."""
    sentence = _compared_text(pair)
    if split is None:
        return sentence
    if pair.mode == "same":
        if not split.remapped or split.remapping is None:
            return sentence
        return f"{sentence}; a mapping of its own would make B {ratio_text(split.remapping)} as fast ({_fields(split)})"
    if split.reasons:
        return f"{sentence}; A's mapping does not run on B: {split.reasons[0]}"
    if not split.remapped:
        return f"{sentence}, which is the same"
    if split.change is None or split.remapping is None:
        return sentence
    return (
        f"{sentence}: the change itself is worth {_worth_text(split.change)} at A's mapping, "
        f"and re-mapping {_worth_text(split.remapping)} ({_fields(split)})"
    )


def _worth_text(ratio: float) -> str:
    return "nothing" if abs(ratio - 1) < EQUAL_SHARE else ratio_text(ratio)


def _compared_text(pair: Pair) -> str:
    names = ", ".join(path.removeprefix("workload.") for path in pair.fixed)
    if pair.mode == "same":
        return "same mapping: B has A's"
    if pair.mode == "stated":
        return (
            "both with the mapping that they state" if pair.a_is_stated else "A with its best mapping, B with its own"
        )
    same_mapping = f" with A's {names}" if names else ""
    if pair.a_is_stated:
        return f"A with the mapping that it states, B with its best{same_mapping}"
    return f"each with its best mapping{f', B{same_mapping}' if same_mapping else ''}"


def _fields(split: GainSplit) -> str:
    parts = [
        f"{path.removeprefix('workload.')} {field_text(old)} → {field_text(new)}"
        for path, (old, new) in split.remapped.items()
    ]
    return ", ".join(parts)


# ---- A design for every combination of some fields' values, and what else was chosen anew for each

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
