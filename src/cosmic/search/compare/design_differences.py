"""The differences between two designs, how much of the difference each explains, and which is faster, in one sentence.

What is explained is the difference in step time, or in another metric. Fields that only make sense together change
together, as a group: a mesh must use every accelerator, and an accelerator's rates belong to its memory. A design
*between* A and B takes some groups from B and the others from A. Changes interact, so the effect of one depends on
which were made before it: its worth is its Shapley value, the mean over all orders. That is the only attribution that
adds up to the whole and treats symmetric changes equally (L. S. Shapley, A value for n-person games, 1953).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import comb, isclose, isnan
from random import Random
from statistics import fmean
from typing import Any, Literal

from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, join_path
from cosmic.base.units import SECONDS, format_quantity
from cosmic.design import schema
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import STACK_LAYERS, DesignPoint
from cosmic.design.field_facts import facts_of
from cosmic.design.prediction_accuracy import Certainty, assess_certainty
from cosmic.design.workload_layer import Workload
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.simulate.metrics import BETTER, Infeasible
from cosmic.workload.mapping_rules import invalid_reasons

# ---- The worth of each of several changes: how much of a difference it explains, whatever their order

MAX_EXACT_GROUPS = 8
"""Up to this many groups all subsets are evaluated; with more, orders are sampled."""
SAMPLED_ORDERS = 32
"""Orders that are sampled then: half of them random, the others the same in reverse."""
MAX_PARTNERS = 3
"""How many groups at most a group is joined with, where it cannot change alone."""

Method = Literal["exact", "sampled", "one_at_a_time", "none"]
Group = tuple[str, ...]
"""The names of groups that change together: one name, unless the designs between would be infeasible."""
Value = Callable[[Iterable[Group]], float | None]
"""Returns the attributed value, such as seconds of a step, with some groups taken from B; None where it has none."""


def couple_groups(groups: list[Group], fits: Callable[[Iterable[Group]], bool]) -> list[Group]:
    """Return *groups*, joined where one cannot change alone: neither as the first change of A nor as the last to B.

    >>> couple_groups([("model",), ("mapping",), ("network",)], lambda some: (("mapping",) in some) == (("network",) in some))
    [('model',), ('mapping', 'network')]
    """

    def apart(subset: tuple[Group, ...]) -> bool:
        return fits(subset) and fits(tuple(group for group in groups if group not in subset))

    for group in groups:
        if apart((group,)):
            continue
        other_groups = [member for member in groups if member != group]
        for size in range(1, MAX_PARTNERS + 1):
            for partners in combinations(other_groups, size):
                if apart((group, *partners)):
                    joined = tuple(name for member in groups if member in (group, *partners) for name in member)
                    remaining = [member for member in groups if member not in (group, *partners)]
                    return couple_groups([*remaining, joined], fits)
    return groups


def attribute_worth(groups: list[Group], value: Value) -> tuple[Method, dict[Group, float | None]]:
    """Return the method, and the worth of each group: its part of value(all) - value(none).

    Two groups that only help together get half each:

    >>> attribute_worth([("tp",), ("link",)], lambda some: 6.0 if len(list(some)) == 2 else 10.0)
    ('exact', {('tp',): -2.0, ('link',): -2.0})
    """
    exact = len(groups) <= MAX_EXACT_GROUPS
    worth = compute_shapley(groups, value) if exact else sample_shapley(groups, value)
    if worth is not None:
        return "exact" if exact else "sampled", dict(worth)
    return "one_at_a_time", {group: _first_and_last(group, groups, value) for group in groups}


def compute_shapley(groups: list[Group], value: Value) -> dict[Group, float] | None:
    """Return the Shapley value of each group, from all 2^n subsets; None if one has no value."""
    subsets = [subset for size in range(len(groups) + 1) for subset in combinations(groups, size)]
    values = {frozenset(subset): value(subset) for subset in subsets}
    known_values = {subset: subset_value for subset, subset_value in values.items() if subset_value is not None}
    if len(known_values) < len(values):
        return None
    worth = dict.fromkeys(groups, 0.0)
    for subset, before in known_values.items():
        # The share of orders in which exactly the subset S of n groups comes before the group: |S|! (n - |S| - 1)! / n!
        weight = 1 / (len(groups) * comb(len(groups) - 1, len(subset))) if len(subset) < len(groups) else 0.0
        for group in groups:
            if group not in subset:
                worth[group] += weight * (known_values[subset | {group}] - before)
    return worth


def sample_shapley(groups: list[Group], value: Value) -> dict[Group, float] | None:
    """Return the Shapley values estimated from `SAMPLED_ORDERS` orders, with a fixed seed; None if a subset has no value."""
    random = Random(0)
    worth = dict.fromkeys(groups, 0.0)
    for _ in range(SAMPLED_ORDERS // 2):
        drawn = random.sample(groups, len(groups))
        for order in (drawn, drawn[::-1]):
            values = [value(order[:count]) for count in range(len(order) + 1)]
            for group, (before, after) in zip(order, pairwise(values), strict=True):
                if before is None or after is None:
                    return None
                worth[group] += (after - before) / SAMPLED_ORDERS
    return worth


def _first_and_last(group: Group, groups: list[Group], value: Value) -> float | None:
    """Return the mean effect of *group* as the first and as the last change; None where neither has a value."""
    other_groups = [member for member in groups if member != group]
    pairs = [(value([]), value([group])), (value(other_groups), value(groups))]
    added = [after - before for before, after in pairs if before is not None and after is not None]
    return fmean(added) if added else None


# ---- The differences between two designs, and how much of the difference in step time, or another metric, each explains

MAPPING = (
    *("tp", "pp", "cp", "ep", "dp", "micro_batch", "virtual_stages", "first_stage_layers", "last_stage_layers"),
    *("schedule", "placement", "stage_layers"),
)
"""Fields of a workload that change together, the mapping; dp comes last, as the other axes determine it."""
LAYERS = {"network": "network", "collective": "collective", "compute": "accelerator", "memory": "accelerator"}
"""Layers that change as a whole, and the names of their groups."""
SERVING_GROUPS = {"load": "load", "prefill": "prefill pool"}
"""Parts of the serving layer that change as a whole."""
SERVED_METRIC = "tpot_s"
"""The metric of designs that serve a load whose change is explained."""
MEMORY_RULES = ("memory", "cache")
"""Ends of the rules of memory: a deployment that breaks only these has a valid mapping."""
Fields = dict[str, dict[str, tuple[Any, Any]]]
"""Fields by group and path, with A's and B's values as files write them."""
Measure = Callable[[Mapping[str, float]], float | None]
"""Returns the value to attribute from a design's metrics."""
Grouping = Callable[[str], str]
"""Returns the group of the field at a path."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two designs."""

    point: DesignPoint
    reasons: tuple[str, ...]
    """Why it cannot run, if it cannot."""
    metrics: dict[str, float | None]
    """Its metrics, also where it is out of memory; empty if its mapping is invalid."""
    breakdown: dict[str, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """Fields that change together, and their effect in seconds of a step: negative where time is saved."""

    group: str
    """Name of the group."""
    a: dict[str, Any]
    """A's values as files write them, by path; None where A has no such field."""
    b: dict[str, Any]
    """B's values of its fields, by path."""
    alone_s: float | None = None
    """The change of the step when A takes only this group from B; None if that is infeasible."""
    worth_s: float | None = None
    """The part of the whole difference that it explains."""
    worth_share: float | None = None
    """The same as a share of the whole difference."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A comparison of two designs."""

    a: Side
    b: Side
    differences: tuple[Difference, ...]
    """Largest worth first."""
    method: Method
    """How worth was found: over all orders, over sampled ones, as the mean of changing first and last, or not."""
    designs: int
    """How many designs were evaluated, A and B included."""
    invalid: int
    """How many designs between A and B have an invalid mapping, and so no time."""
    over_memory: int
    """How many designs are out of memory; their times count all the same."""
    together_s: float
    """The seconds that no single difference explains: 0, except where changes are made one at a time."""
    measured: str = "step_s"
    """The metric that differences are worth seconds of: the step, or TPOT where both designs serve a load."""

    @property
    def serves(self) -> bool:
        """Whether both designs serve a load of requests."""
        return self.measured == SERVED_METRIC

    @property
    def certainty(self) -> Certainty | None:
        """How sure it is which design takes less time for a token; None where one has no time, or both are equal."""
        counted = "tokens_per_s" if self.a.metrics.get("tokens_per_s") else "samples_per_s"
        name = SERVED_METRIC if self.serves else counted  # how many tokens are served may be the clients' choice
        a, b = self.a.metrics.get(name), self.b.metrics.get(name)
        if not a or not b or not self.differences:
            return None
        return assess_certainty(self.a.point, self.b.point, b / a if self.serves else a / b)


def compare_designs(a: DesignPoint, b: DesignPoint) -> Contrast:
    """Return the differences between *a* and *b*, the effect of each, and the metrics of both."""
    side_a, side_b = _evaluate_side(a), _evaluate_side(b)
    fields = differing_fields(a, b)
    name = SERVED_METRIC if a.serving is not None and b.serving is not None else "step_s"
    start, end = side_a.metrics.get(name), side_b.metrics.get(name)
    if not fields or start is None or end is None:
        unexplained_differences = tuple(_make_difference((group,), fields) for group in fields)
        return Contrast(side_a, side_b, unexplained_differences, "none", 0, 0, 0, 0.0, name)
    between = DesignsBetween(a, b, fields, lambda metrics: None if isnan(metrics[name]) else metrics[name])
    groups = couple_groups([(name,) for name in fields], between.fits)
    method, worth = attribute_worth(groups, between.value)
    differences = []
    for group in groups:
        alone, group_worth = between.value((group,)), worth[group]
        change = None if alone is None else alone - start
        share = None if group_worth is None or end == start else group_worth / (end - start)
        differences.append(_make_difference(group, fields, change, group_worth, share))
    differences.sort(key=lambda difference: -abs(difference.worth_s or 0.0))
    unexplained = end - start - sum(seconds for seconds in worth.values() if seconds is not None)
    together = unexplained if method == "one_at_a_time" else 0.0  # only rounding otherwise
    invalid = list(between.values.values()).count(None)
    designs, over = len(between.values) - invalid, len(between.over_memory)
    return Contrast(side_a, side_b, tuple(differences), method, designs, invalid, over, together, name)


def _evaluate_side(point: DesignPoint) -> Side:
    outcome = evaluate(point)
    reasons = outcome.reasons if isinstance(outcome, Infeasible) else ()
    if not _is_valid(point):
        return Side(point, reasons, {}, {})
    columns = {name: float(column[0]) for name, column in evaluate_batch(batch_of(point)).columns.items()}
    return Side(
        point,
        reasons,
        {name: None if isnan(columns[name]) else columns[name] for name in BETTER},
        {
            name.partition(".")[2]: value
            for name, value in columns.items()
            if (name.startswith("breakdown.") and (not isnan(value)))
        },
    )


def _make_difference(group: Group, fields: Fields, *numbers: float | None) -> Difference:
    """Return the difference of a group of fields; *numbers* are its effect alone, its worth, and that as a share."""
    pairs = {path: pair for name in group for path, pair in fields[name].items()}
    a, b = ({path: pair[side] for path, pair in pairs.items()} for side in (0, 1))
    return Difference(" + ".join(group), a, b, *numbers)


# ---- what differs


def differing_fields(a: DesignPoint, b: DesignPoint, grouping: Grouping | None = None) -> Fields:
    """Return the fields in which two designs differ, by group; *grouping* says which group, by default `group_of`."""
    grouping = grouping or group_of
    fields_a, fields_b = (dict(_flatten_fields(schema.write_value(point.compact))) for point in (a, b))
    differences: Fields = {}
    for path in sorted({**fields_a, **fields_b}, key=_rank_field):
        value_a, value_b = fields_a.get(path), fields_b.get(path)
        if value_a != value_b:
            differences.setdefault(grouping(path), {})[path] = (value_a, value_b)
    return differences


def group_of(path: str) -> str:
    """Return the group of the field at *path*: the path itself if it changes alone.

    >>> group_of("workload.tp"), group_of("memory.capacity"), group_of("workload.recompute")
    ('mapping', 'accelerator', 'workload.recompute')
    >>> group_of("serving.load.rate"), group_of("serving.prefill.tp"), group_of("serving.engine")
    ('load', 'mapping', 'serving.engine')
    """
    layer, _, field = path.partition(".")
    if layer == "workload":
        return "mapping" if field in MAPPING else path
    if layer == "serving":
        part = field.partition(".")[0]
        return "mapping" if part == "prefill" else SERVING_GROUPS.get(part, path)  # both pools share the accelerators
    return LAYERS.get(layer, layer)


def fine_group_of(path: str) -> str:
    """Return the finer group of the field at *path*: shape and bandwidth of a network, algorithms and chunks apart.

    Use it for two networks with equally many dimensions: otherwise the same path names different dimensions in them.

    >>> fine_group_of("network.dims.0.bandwidth"), fine_group_of("network.dims.1.npus"), fine_group_of("workload.dp")
    ('network bandwidth', 'network shape', 'mapping')
    >>> fine_group_of("serving.load.rate"), fine_group_of("serving.prefill.tp"), fine_group_of("serving.engine")
    ('load', 'prefill pool', 'engine and its limits')
    """
    layer, _, field = path.partition(".")
    if layer == "serving":
        return SERVING_GROUPS.get(field.partition(".")[0], "engine and its limits")
    if layer == "network":
        kinds = {"topology": "shape", "npus": "shape", "bandwidth": "bandwidth"}
        return f"network {kinds.get(field.rpartition('.')[2], 'links')}"
    if layer == "collective":
        return "collective algorithms" if field.startswith("algorithms") else "collective chunks and order"
    return group_of(path)


def _rank_field(path: str) -> tuple[int, int]:
    """Return the sort key of a field: layers as in files, the mapping first within the workload."""
    layer, _, field = path.partition(".")
    return STACK_LAYERS.index(layer), MAPPING.index(field) if layer == "workload" and field in MAPPING else len(MAPPING)


def _flatten_fields(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of every field of a written design; a list of plain values is one value."""
    if isinstance(tree, list) and any(isinstance(item, Mapping) for item in tree):
        tree = {str(index): item for index, item in enumerate(tree)}
    if not isinstance(tree, Mapping):
        yield prefix, tree
        return
    for key, item in tree.items():
        if key == "links" and item:
            yield join_path(prefix, key), f"{len(item):,} links ({digest(repr(item))[:6]})"
        else:
            yield from _flatten_fields(item, join_path(prefix, key))


class DesignsBetween:
    """The designs between A and B: each takes some groups of fields from B and the rest from A.

    The value of a design is the seconds of its step, or what *measure* returns for its metrics. It is kept, as the
    Shapley value asks for the same design in many orders.
    """

    def __init__(
        self, a: DesignPoint, b: DesignPoint, fields: Mapping[str, Iterable[str]], measure: Measure | None = None
    ) -> None:
        self._a = a
        groups_of_layer = Counter(root for paths in fields.values() for root in _root_paths(paths))
        self._changes = {
            name: {root: schema.get_field(b, root) for root in _root_paths(paths, groups_of_layer=groups_of_layer)}
            for name, paths in fields.items()
        }
        self._measure = measure or (lambda metrics: metrics["step_s"])
        self._points: dict[frozenset[str], DesignPoint | None] = {}
        self.values: dict[frozenset[str], float | None] = {}
        """The value by the groups taken from B; None where the mapping is invalid."""
        self.over_memory: set[frozenset[str]] = set()
        """The groups taken from B of designs that are out of memory."""

    def fits(self, groups: Iterable[Group]) -> bool:
        """Return whether A with these groups from B has a valid mapping; memory is not checked."""
        return self._point(_names_of_groups(groups)) is not None

    def value(self, groups: Iterable[Group]) -> float | None:
        """Return the value of A with these groups from B; None if the mapping is invalid."""
        names = _names_of_groups(groups)
        if names not in self.values:
            self.values[names] = self._evaluate(names)
        return self.values[names]

    def _evaluate(self, names: frozenset[str]) -> float | None:
        point = self._point(names)
        if point is None:
            return None
        outcome = evaluate_batch(batch_of(point))
        if not outcome.feasible[0]:
            self.over_memory.add(names)
        return self._measure({name: float(column[0]) for name, column in outcome.columns.items()})

    def _point(self, names: frozenset[str]) -> DesignPoint | None:
        if names not in self._points:
            changes = {root: value for name in sorted(names) for root, value in self._changes[name].items()}
            try:
                point: DesignPoint = schema.assign_fields(self._a, changes)
                self._points[names] = point if _is_valid(point) else None
            except SpecError:  # a layer refuses it, such as algorithms for another number of dimensions
                self._points[names] = None
        return self._points[names]


def _is_valid(point: DesignPoint) -> bool:
    """Return whether a design's mapping is valid; memory is not checked."""
    if point.serving is None:
        return not invalid_reasons(point)
    return all(name.endswith(MEMORY_RULES) for name in evaluate_batch(batch_of(point)).broken)


def _names_of_groups(groups: Iterable[Group]) -> frozenset[str]:
    return frozenset(name for group in groups for name in group)


def _root_paths(paths: Iterable[str], groups_of_layer: Mapping[str, int] | None = None) -> list[str]:
    """Return the paths to assign in order to change the fields at *paths*: workload fields singly, other layers whole.

    A layer with fields in several groups is changed field by field too; *groups_of_layer* counts them.
    """
    counts = groups_of_layer or {}

    def root(path: str) -> str:
        layer = path.partition(".")[0]
        is_shared = counts.get(layer, 1) > 1
        if layer == "serving" and is_shared:
            return ".".join(path.split(".")[:2])  # the other design may not have the pool, and so none of its fields
        return path if layer == "workload" or is_shared else layer

    return list(dict.fromkeys(root(path) for path in paths))


# ---- Which of two designs is faster and why, in one sentence

FIELD_LABELS = {
    **{f"workload.{name}": about.label for name, about in facts_of(Workload).items() if about.label},
    "compute.accelerator": "accelerator",
    "model.name": "model",
}
NAMED_LAYERS = {"model.name": ("model",), "compute.accelerator": ("compute", "memory")}
"""Names that stand for all fields of some layers: the verdict mentions the name only."""
MAX_NAMED = 2
"""How many fields of a difference the verdict names."""
SERVED_LABELS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "tokens_per_s_per_npu": "tokens/s an accelerator"}
"""What of designs that serve a load is compared."""
EQUAL_SHARE = 5e-4
"""Steps whose times differ by a smaller share are equal to three digits."""


def state_verdict(contrast: Contrast) -> str:
    """Return a sentence that says which design is faster, and why."""
    if not contrast.differences:
        return "A and B are the same design"
    for name, side in (("A", contrast.a), ("B", contrast.b)):
        if not side.metrics:
            subject = "step has no time" if side.point.serving is None else "requests have no time"
            return f"{name} has an invalid mapping, so its {subject}: {side.reasons[0]}"
    if contrast.serves:
        return _serving_verdict(contrast)
    (step_a, tokens_a), (step_b, tokens_b) = (
        (side.metrics["step_s"] or 0.0, side.metrics["tokens_per_s"] or side.metrics.get("samples_per_s") or 0.0)
        for side in (contrast.a, contrast.b)
    )
    if abs(step_b / step_a - 1) < EQUAL_SHARE:
        return f"A and B take equally long for a step{_opposing_difference(contrast) if len(contrast.differences) > 1 else ''}"
    if isclose(step_a * tokens_a, step_b * tokens_b):  # a step of both has as many tokens: the shorter one is faster
        is_b_faster = step_b < step_a
        ratio = ratio_text(step_a / step_b if is_b_faster else step_b / step_a)
        sentence = f"B is {ratio} as fast as A" if is_b_faster else f"A is {ratio} as fast as B"
    else:
        counted = "tokens/s" if contrast.a.metrics["tokens_per_s"] else "samples/s"
        longer, rate = ratio_text(step_b / step_a), ratio_text(tokens_b / tokens_a)
        sentence = f"a step of B takes {longer} as long as one of A, at {rate} the {counted}"
    return sentence + _main_cause(contrast)


def _serving_verdict(contrast: Contrast) -> str:
    """Return the verdict on two designs that serve a load: how long tokens take, and how many an accelerator makes."""
    parts = []
    for name, label in SERVED_LABELS.items():
        a, b = contrast.a.metrics.get(name), contrast.b.metrics.get(name)
        if a and b:
            parts.append(f"{ratio_text(b / a)} the {label}" if abs(b / a - 1) >= EQUAL_SHARE else f"the same {label}")
    sentence = (
        f"B has {', '.join(parts[:-1])} and {parts[-1]} of A" if len(parts) > 1 else "B cannot be compared with A"
    )
    a, b = contrast.a.metrics.get(contrast.measured), contrast.b.metrics.get(contrast.measured)
    if not a or not b or abs(b / a - 1) < EQUAL_SHARE:
        return sentence
    return sentence + _main_cause(contrast).replace("of that is", "of the change of TPOT is")


def _main_cause(contrast: Contrast) -> str:
    """Return the end of a sentence that names what explains most of a change."""
    share = contrast.differences[0].worth_share
    if len(contrast.differences) == 1:
        return f"; all of that is {describe_difference(contrast.differences[0])}"
    if share is None or not 0 < share <= 1:
        return _opposing_difference(contrast)
    return f"; {100 * share:.0f} % of that is {describe_difference(contrast.differences[0])}"


def describe_difference(difference: Difference) -> str:
    """Return the first few fields of a difference, with both values.

    >>> describe_difference(Difference("mapping", {"workload.tp": 8, "workload.dp": 2}, {"workload.tp": 4, "workload.dp": 4}))
    'tensor parallelism 8 → 4 with data parallelism 2 → 4'
    """
    renamed = {layer for path, layers in NAMED_LAYERS.items() if path in difference.a for layer in layers}
    paths = [path for path in difference.a if path in NAMED_LAYERS or path.partition(".")[0] not in renamed]
    paths.sort(key=lambda path: path not in FIELD_LABELS)
    names = {path: FIELD_LABELS.get(path, path.removeprefix("workload.")) for path in paths[:MAX_NAMED]}
    parts = [
        f"{name} {field_text(difference.a[path])} → {field_text(difference.b[path])}" for path, name in names.items()
    ]
    return " with ".join(parts) + (f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else "")


def field_text(value: Any) -> str:
    """Return the value of a field on one line, as in ``--set``; a dash for None.

    >>> field_text(["tp", "dp"]), field_text(True), field_text(None)
    ('[tp, dp]', 'true', '-')
    """
    if isinstance(value, list):
        return f"[{', '.join(map(field_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value is None else str(value)


def ratio_text(ratio: float) -> str:
    """Return a ratio with enough digits to tell it from 0 and from 1."""
    return f"{ratio:.2g}×" if ratio < 0.1 else f"{ratio:.2f}×" if abs(ratio - 1) >= 0.01 else f"{ratio:.4f}×"


def _opposing_difference(contrast: Contrast) -> str:
    """Return the end of a sentence that names the difference that saves most and the one that adds most."""
    by_worth = sorted(
        ((difference.worth_s or 0.0, difference) for difference in contrast.differences), key=lambda pair: pair[0]
    )
    step = contrast.a.metrics[contrast.measured] or 0.0
    parts = [
        f"{describe_difference(difference)} {verb} {format_quantity(float(f'{abs(worth):.3g}'), SECONDS)}"
        for (worth, difference), verb, sign in ((by_worth[0], "saves", -1), (by_worth[-1], "adds", 1))
        if sign * worth > EQUAL_SHARE * step
    ]
    return "; " + ", and ".join(parts) if parts else ""
