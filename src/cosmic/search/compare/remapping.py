"""Designs to compare, each with its best mapping or both with one; what a change is worth by itself, and re-mapped.

Where a design states no mapping, loading chooses its best. So two designs that differ in the machine usually differ in
the mapping as well, and the gain is a product:

    B / A  =  (B with A's mapping) / A   ×   B / (B with A's mapping)
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from cosmic.base.errors import SpecError, require
from cosmic.design import schema
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.loading import Source, stated_fields
from cosmic.design.workload_layer import Workload
from cosmic.evaluation import evaluate
from cosmic.search.compare.design_differences import EQUAL, field_text, ratio_text
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Outcome
from cosmic.workload.mapping_rules import invalid_reasons

Mode = Literal["best", "same", "fixed", "stated"]
"""B has its best mapping; A's; its best with some fields of A's; or the one that it states."""
WORK = ("task", "sequence", "global_batch")
"""Fields of a workload that say what there is to do: no mapping."""
MESH = frozenset({"workload.tp", "workload.cp", "workload.pp"})
"""A mesh that is stated is kept, and nothing is chosen."""
MAPPED = frozenset(
    f"workload.{name}"
    for name in (
        *("tp", "cp", "pp", "ep", "etp", "micro_batch", "virtual_stages", "schedule", "placement"),
        *("weight_sharding", "recompute", "recompute_modules", "recompute_num_layers"),
    )
)
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
    both: Mapping[str, Any],
    of_b: Mapping[str, Any],
    *,
    fix: Iterable[str] = (),
    same_mapping: bool = False,
) -> Pair:
    """Return the designs *a* and *b* with what is set of *both* and of *b* alone.

    Fields at the paths to *fix* are as in A. With *same_mapping*, so is every field of the mapping that is not set of
    B, also where its file states it, except for dp, which takes the accelerators that the other axes leave.
    """
    set_of_b = {full_path(path): value for path, value in of_b.items()}
    settings = {full_path(path): value for path, value in both.items()} | set_of_b
    first = load_design(a, both)
    fixed = {}
    for path in (full_path(each) for each in fix):
        require(path not in set_of_b, "--fix", path, "is set of B alone, too: leave one of them out")
        fixed[path] = value_at(first, path, "--fix")
    given = {**settings, **fixed}
    by_a, by_b = stated_fields(a, both), stated_fields(b, given)
    about = (by_a >= MESH, tuple(fixed))
    own, why = (load_design(b, given), ()) if not same_mapping else _load_or_refuse(b, given)
    if by_b >= MESH and own is not None and not same_mapping:
        return Pair(first, own, "stated", given, *about)
    batches = _candidate_batches(first, own) if "workload.global_batch" not in by_b else []
    if same_mapping or own is None:  # what is asked for here counts, not what a file states
        held = {**given, **_mapping_to_keep(first, by_a, given)}
        if "workload.dp" in by_b and "workload.dp" not in given and own is not None:
            held["workload.dp"] = max(1, own.network.npus // prod(held[path] for path in MESH))
        second, taken = _first_valid(b, held, batches)
        return Pair(first, second, "same", taken, *about, own, why)
    held = {**given, **_mapping_to_keep(first, by_a, by_b)}
    mode: Mode = "fixed" if fixed else "best"
    try:
        return Pair(first, own, mode, given, *about, _first_valid(b, held, batches)[0])
    except SpecError as error:
        return Pair(first, own, mode, given, *about, None, (str(error),))


def _mapping_to_keep(point: DesignPoint, by_a: Container[str], by_b: Container[str]) -> dict[str, Any]:
    """Return the fields of A's mapping that B does not state, as files write them.

    What neither states was chosen, or is as usual. What A states is its mapping only where it is about that.
    """
    names = [f"workload.{name}" for name in schema.slots(Workload) if name not in (*WORK, "dp")]
    free = [path for path in names if path not in by_b and (path in MAPPED or path not in by_a)]
    return {path: value_at(point, path, path) for path in free}


def _candidate_batches(first: DesignPoint, own: DesignPoint | None) -> list[int]:
    """Return the batches with which B may have A's mapping: training, its own first; serving, A's, a mapping's part."""
    found = [first.workload.global_batch] if own is None else [own.workload.global_batch, first.workload.global_batch]
    return found if first.workload.task == "training" else found[::-1]


def _first_valid(
    source: Source, given: Mapping[str, Any], batches: Sequence[int]
) -> tuple[DesignPoint, dict[str, Any]]:
    """Return a design with the first batch that makes its mapping valid, or with the first, and what was set of it."""
    tried = [{**given, "workload.global_batch": batch} for batch in batches] or [dict(given)]
    loaded = [(load_design(source, each), each) for each in tried]
    return next((each for each in loaded if not invalid_reasons(each[0])), loaded[0])


def _load_or_refuse(source: Source, given: Mapping[str, Any]) -> tuple[DesignPoint | None, tuple[str, ...]]:
    try:
        return load_design(source, given), ()
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


# --------------------------------------------------------------------------------------------------- the gain


def split_gain(pair: Pair) -> GainSplit | None:
    """Return what the change is worth at A's mapping, and what re-mapping adds; None where B states its mapping."""
    if pair.mode == "stated":
        return None
    if pair.other is None:
        return GainSplit(None, None, pair.reasons if pair.mode != "same" else (), {})
    held, best = (pair.b, pair.other) if pair.mode == "same" else (pair.other, pair.b)
    first, between, last = (evaluate(point) for point in (pair.a, held, best))
    ours, theirs = schema.write_value(held.workload), schema.write_value(best.workload)
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return GainSplit(
        _throughput_ratio(first, between),
        _throughput_ratio(between, last),
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
    said = _compared_text(pair)
    if split is None:
        return said
    if pair.mode == "same":
        if not split.remapped or split.remapping is None:
            return said
        return f"{said}; a mapping of its own would make B {ratio_text(split.remapping)} as fast ({_fields(split)})"
    if split.reasons:
        return f"{said}; A's mapping does not run on B: {split.reasons[0]}"
    if not split.remapped:
        return f"{said}, which is the same"
    if split.change is None or split.remapping is None:
        return said
    return (
        f"{said}: the change itself is worth {_worth_text(split.change)} at A's mapping, "
        f"and re-mapping {_worth_text(split.remapping)} ({_fields(split)})"
    )


def _worth_text(ratio: float) -> str:
    return "nothing" if abs(ratio - 1) < EQUAL else ratio_text(ratio)


def _compared_text(pair: Pair) -> str:
    names = ", ".join(path.removeprefix("workload.") for path in pair.fixed)
    if pair.mode == "same":
        return "same mapping: B has A's"
    if pair.mode == "stated":
        return (
            "both with the mapping that they state" if pair.a_is_stated else "A with its best mapping, B with its own"
        )
    held = f" with A's {names}" if names else ""
    if pair.a_is_stated:
        return f"A with the mapping that it states, B with its best{held}"
    return f"each with its best mapping{f', B{held}' if held else ''}"


def _fields(split: GainSplit) -> str:
    parts = [
        f"{path.removeprefix('workload.')} {field_text(old)} → {field_text(new)}"
        for path, (old, new) in split.remapped.items()
    ]
    return ", ".join(parts)
