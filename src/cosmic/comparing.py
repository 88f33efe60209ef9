"""The differences between two designs, and how much of the difference in step time, or another metric, each explains.

Fields that only make sense together change together, as a group: a mesh must use every accelerator, and an
accelerator's rates belong to its memory. A design *between* A and B takes some groups from B and the others from A.
Changes interact, so the effect of one depends on which were made before it. Its Shapley value is the mean over all
orders: the only attribution that adds up to the whole and treats symmetric changes equally (L. S. Shapley, A value for
n-person games, 1953).
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

from cosmic.design import schema
from cosmic.design.batch import batch_of
from cosmic.design.point import STACKS, DesignPoint
from cosmic.errors import SpecError, join
from cosmic.evaluation import BETTER, Infeasible, evaluate, evaluate_batch
from cosmic.units import SECONDS, show
from cosmic.workload.checks import invalid_reasons

MAPPING = (
    *("tp", "pp", "cp", "ep", "dp", "micro_batch", "virtual_stages", "first_stage_layers", "last_stage_layers"),
    *("schedule", "placement"),
)
"""Fields of a workload that change together, the mapping; dp comes last, as the other axes determine it."""
LAYERS = {"network": "network", "collective": "collective", "compute": "accelerator", "memory": "accelerator"}
"""Layers that change as a whole, and the names of their groups."""
EXACT = 8
"""Up to this many groups all subsets are evaluated; with more, orders are sampled."""
ORDERS = 32
"""Orders that are sampled then: half of them random, the others the same in reverse."""
PARTNERS = 3
"""How many groups at most a group is joined with, where it cannot change alone."""

Fields = dict[str, dict[str, tuple[Any, Any]]]
"""Fields by group and path, with A's and B's values as files write them."""
Method = Literal["exact", "sampled", "one_at_a_time", "none"]
Group = tuple[str, ...]
"""The names of groups that change together: one name, unless the designs between would be infeasible."""
Value = Callable[[Iterable[Group]], float | None]
"""Returns the attributed value, such as seconds of a step, with some groups taken from B; None where it has none."""
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
    a: dict[str, Any]
    """A's values as files write them, by path; None where A has no such field."""
    b: dict[str, Any]
    alone_s: float | None = None
    """The change of the step when A takes only this group from B; None if that is infeasible."""
    worth_s: float | None = None
    """The part of the whole difference that it explains."""
    worth_share: float | None = None


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
    """How many designs between have an invalid mapping, and so no time."""
    over_memory: int
    """How many designs are out of memory; their times count all the same."""
    together_s: float
    """The seconds that no single difference explains: 0, except where changes are made one at a time."""


def compare_designs(a: DesignPoint, b: DesignPoint) -> Contrast:
    """Return the differences between *a* and *b*, the effect of each, and the metrics of both."""
    one, other = _side(a), _side(b)
    fields = differing_fields(a, b)
    start, end = one.metrics.get("step_s"), other.metrics.get("step_s")
    if not fields or start is None or end is None:
        return Contrast(one, other, tuple(_difference((name,), fields) for name in fields), "none", 0, 0, 0, 0.0)
    between = Between(a, b, fields)
    groups = coupled([(name,) for name in fields], between.fits)
    method, worth = attribute(groups, between.value)
    found = []
    for group in groups:
        alone, part = between.value((group,)), worth[group]
        change = None if alone is None else alone - start
        share = None if part is None or end == start else part / (end - start)
        found.append(_difference(group, fields, change, part, share))
    found.sort(key=lambda each: -abs(each.worth_s or 0.0))
    rest = end - start - sum(part for part in worth.values() if part is not None)
    together = rest if method == "one_at_a_time" else 0.0  # only rounding otherwise
    invalid = list(between.values.values()).count(None)
    designs, over = len(between.values) - invalid, len(between.over_memory)
    return Contrast(one, other, tuple(found), method, designs, invalid, over, together)


def _side(point: DesignPoint) -> Side:
    if reasons := invalid_reasons(point):
        return Side(point, reasons, {}, {})
    outcome = evaluate(point)
    columns = {name: float(column[0]) for name, column in evaluate_batch(batch_of(point)).columns.items()}
    return Side(
        point,
        outcome.reasons if isinstance(outcome, Infeasible) else (),
        {name: None if isnan(columns[name]) else columns[name] for name in BETTER},
        {name.partition(".")[2]: value for name, value in columns.items() if name.startswith("breakdown.")},
    )


def _difference(group: Group, fields: Fields, *numbers: float | None) -> Difference:
    pairs = {path: pair for name in group for path, pair in fields[name].items()}
    a, b = ({path: pair[side] for path, pair in pairs.items()} for side in (0, 1))
    return Difference(" + ".join(group), a, b, *numbers)


# --------------------------------------------------------------------------------------------- what differs


def differing_fields(a: DesignPoint, b: DesignPoint, grouping: Grouping | None = None) -> Fields:
    """Return the fields in which two designs differ, by the group of their paths: `group_of`, or another *grouping*."""
    grouped = grouping or group_of
    ours, theirs = dict(_flat(schema.write(a))), dict(_flat(schema.write(b)))
    found: Fields = {}
    for path in sorted({**ours, **theirs}, key=_rank):
        pair = ours.get(path), theirs.get(path)
        if pair[0] != pair[1]:
            found.setdefault(grouped(path), {})[path] = pair
    return found


def group_of(path: str) -> str:
    """Return the group of the field at *path*: the path itself if it changes alone.

    >>> group_of("workload.tp"), group_of("memory.capacity"), group_of("workload.recompute")
    ('mapping', 'accelerator', 'workload.recompute')
    """
    layer, _, field = path.partition(".")
    if layer == "workload":
        return "mapping" if field in MAPPING else path
    return LAYERS.get(layer, layer)


def finer_group_of(path: str) -> str:
    """Return the finer group of the field at *path*: shape and bandwidth of a network, algorithms and chunks apart.

    It is for networks with equally many dimensions: otherwise the same path is about another link.

    >>> finer_group_of("network.dims.0.bandwidth"), finer_group_of("network.dims.1.npus"), finer_group_of("workload.dp")
    ('network bandwidth', 'network shape', 'mapping')
    """
    layer, _, field = path.partition(".")
    if layer == "network":
        kinds = {"topology": "shape", "npus": "shape", "bandwidth": "bandwidth"}
        return f"network {kinds.get(field.rpartition('.')[2], 'links')}"
    if layer == "collective":
        return "collective algorithms" if field.startswith("algorithms") else "collective chunks and order"
    return group_of(path)


def _rank(path: str) -> tuple[int, int]:
    """Return the sort key of a field: layers as in files, the mapping first within the workload."""
    layer, _, field = path.partition(".")
    return STACKS.index(layer), MAPPING.index(field) if layer == "workload" and field in MAPPING else len(MAPPING)


def _flat(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of every field of a written design; a list of plain values is one value."""
    if isinstance(tree, list) and any(isinstance(item, Mapping) for item in tree):
        tree = {str(place): item for place, item in enumerate(tree)}
    if not isinstance(tree, Mapping):
        yield prefix, tree
        return
    for key, item in tree.items():
        yield from _flat(item, join(prefix, key))


class Between:
    """The designs between two: each takes some groups from B and the rest from A, and is evaluated once.

    The value of a design is the seconds of its step, or what *measure* returns for its metrics.
    """

    def __init__(
        self, a: DesignPoint, b: DesignPoint, fields: Mapping[str, Iterable[str]], measure: Measure | None = None
    ) -> None:
        self._a = a
        whole = Counter(root for paths in fields.values() for root in _roots(paths))
        self._changes = {
            name: {root: schema.get(b, root) for root in _roots(paths, apart=whole)} for name, paths in fields.items()
        }
        self._measure = measure or (lambda metrics: metrics["step_s"])
        self._points: dict[frozenset[str], DesignPoint | None] = {}
        self.values: dict[frozenset[str], float | None] = {}
        """The value by the groups taken from B; None where the mapping is invalid."""
        self.over_memory: set[frozenset[str]] = set()

    def fits(self, groups: Iterable[Group]) -> bool:
        """Return whether A with these groups from B has a valid mapping; memory is not checked."""
        return self._point(_names(groups)) is not None

    def value(self, groups: Iterable[Group]) -> float | None:
        """Return the value of A with these groups from B; None if the mapping is invalid."""
        names = _names(groups)
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
                point: DesignPoint = schema.assign(self._a, changes)
                self._points[names] = None if invalid_reasons(point) else point
            except SpecError:  # a layer refuses it, such as algorithms for another number of dimensions
                self._points[names] = None
        return self._points[names]


def _names(groups: Iterable[Group]) -> frozenset[str]:
    return frozenset(name for group in groups for name in group)


def _roots(paths: Iterable[str], apart: Mapping[str, int] | None = None) -> list[str]:
    """Return the paths to assign in order to change the fields at *paths*: workload fields singly, other layers whole.

    Layers that several groups share (*apart* counts the groups) are changed field by field too.
    """
    shared = apart or {}

    def root(path: str) -> str:
        layer = path.partition(".")[0]
        return path if layer == "workload" or shared.get(layer, 1) > 1 else layer

    return list(dict.fromkeys(root(path) for path in paths))


def coupled(groups: list[Group], fits: Callable[[Iterable[Group]], bool]) -> list[Group]:
    """Return *groups*, joined where one cannot change alone: neither as the first change of A nor as the last to B.

    >>> coupled([("model",), ("mapping",), ("network",)], lambda some: (("mapping",) in some) == (("network",) in some))
    [('model',), ('mapping', 'network')]
    """

    def apart(some: tuple[Group, ...]) -> bool:
        return fits(some) and fits(tuple(group for group in groups if group not in some))

    for group in groups:
        if apart((group,)):
            continue
        others = [each for each in groups if each != group]
        for size in range(1, PARTNERS + 1):
            for partners in combinations(others, size):
                if apart((group, *partners)):
                    joined = tuple(name for each in groups if each in (group, *partners) for name in each)
                    rest = [each for each in groups if each not in (group, *partners)]
                    return coupled([*rest, joined], fits)
    return groups


# -------------------------------------------------------------------------------------------------- worth


def attribute(groups: list[Group], value: Value) -> tuple[Method, dict[Group, float | None]]:
    """Return the method, and the worth of each group: its part of value(all) - value(none).

    Two groups that only help together get half each:

    >>> attribute([("tp",), ("link",)], lambda some: 6.0 if len(list(some)) == 2 else 10.0)
    ('exact', {('tp',): -2.0, ('link',): -2.0})
    """
    exact = len(groups) <= EXACT
    worth = shapley(groups, value) if exact else sampled(groups, value)
    if worth is not None:
        return "exact" if exact else "sampled", dict(worth)
    return "one_at_a_time", {group: _first_and_last(group, groups, value) for group in groups}


def shapley(groups: list[Group], value: Value) -> dict[Group, float] | None:
    """Return the Shapley value of each group, from all 2^n subsets; None if one has no value."""
    subsets = [some for size in range(len(groups) + 1) for some in combinations(groups, size)]
    values = {frozenset(some): value(some) for some in subsets}
    known = {some: found for some, found in values.items() if found is not None}
    if len(known) < len(values):
        return None
    worth = dict.fromkeys(groups, 0.0)
    for some, before in known.items():
        weight = 1 / (len(groups) * comb(len(groups) - 1, len(some))) if len(some) < len(groups) else 0.0
        for group in groups:
            if group not in some:
                worth[group] += weight * (known[some | {group}] - before)
    return worth


def sampled(groups: list[Group], value: Value) -> dict[Group, float] | None:
    """Return the Shapley values estimated from `ORDERS` orders, with a fixed seed; None if a subset has no value."""
    random = Random(0)
    worth = dict.fromkeys(groups, 0.0)
    for _ in range(ORDERS // 2):
        drawn = random.sample(groups, len(groups))
        for order in (drawn, drawn[::-1]):
            values = [value(order[:count]) for count in range(len(order) + 1)]
            for group, (before, after) in zip(order, pairwise(values), strict=True):
                if before is None or after is None:
                    return None
                worth[group] += (after - before) / ORDERS
    return worth


def _first_and_last(group: Group, groups: list[Group], value: Value) -> float | None:
    """Return the mean effect of *group* as the first and as the last change; None where neither has a value."""
    others = [each for each in groups if each != group]
    pairs = [(value([]), value([group])), (value(others), value(groups))]
    added = [after - before for before, after in pairs if before is not None and after is not None]
    return fmean(added) if added else None


# ------------------------------------------------------------------------------------------------ in words


WORDS = {
    "workload.tp": "tensor parallelism",
    "workload.pp": "pipeline stages",
    "workload.cp": "context parallelism",
    "workload.ep": "expert parallelism",
    "workload.etp": "expert tensor parallelism",
    "workload.dp": "data parallelism",
    "workload.micro_batch": "microbatch",
    "workload.first_stage_layers": "layers of the first stage",
    "workload.last_stage_layers": "layers of the last stage",
    "compute.accelerator": "accelerator",
    "model.name": "model",
}
NAMES = {"model.name": ("model",), "compute.accelerator": ("compute", "memory")}
"""Names that stand for all fields of some layers: the verdict mentions the name only."""
NAMED = 2
"""How many fields of a difference the verdict names."""
EQUAL = 5e-4
"""Steps whose times differ by a smaller share are equal to three digits."""


def verdict(contrast: Contrast) -> str:
    """Return a sentence that says which design is faster, and why."""
    if not contrast.differences:
        return "A and B are the same design"
    for name, side in (("A", contrast.a), ("B", contrast.b)):
        if not side.metrics:
            return f"{name} has an invalid mapping, so its step has no time: {side.reasons[0]}"
    (a, tokens_a), (b, tokens_b) = (_pace(side) for side in (contrast.a, contrast.b))
    if abs(b / a - 1) < EQUAL:
        return f"A and B take equally long for a step{_opposed(contrast) if len(contrast.differences) > 1 else ''}"
    if isclose(a * tokens_a, b * tokens_b):
        said = f"B is {_times(a / b)} as fast as A" if b < a else f"A is {_times(b / a)} as fast as B"
    else:
        said = f"a step of B takes {_times(b / a)} as long as one of A, at {_times(tokens_b / tokens_a)} the tokens/s"
    share = contrast.differences[0].worth_share
    if len(contrast.differences) == 1:
        return f"{said}; all of that is {words(contrast.differences[0])}"
    if share is None or not 0 < share <= 1:
        return said + _opposed(contrast)
    return f"{said}; {100 * share:.0f} % of that is {words(contrast.differences[0])}"


def words(difference: Difference) -> str:
    """Return the first few fields of a difference, with both values.

    >>> words(Difference("mapping", {"workload.tp": 8, "workload.dp": 2}, {"workload.tp": 4, "workload.dp": 4}))
    'tensor parallelism 8 → 4 with data parallelism 2 → 4'
    """
    renamed = {layer for path, layers in NAMES.items() if path in difference.a for layer in layers}
    paths = [path for path in difference.a if path in NAMES or path.partition(".")[0] not in renamed]
    paths.sort(key=lambda path: path not in WORDS)
    names = {path: WORDS.get(path, path.removeprefix("workload.")) for path in paths[:NAMED]}
    parts = [f"{name} {as_text(difference.a[path])} → {as_text(difference.b[path])}" for path, name in names.items()]
    return " with ".join(parts) + (f" and {len(paths) - NAMED} more" if len(paths) > NAMED else "")


def as_text(value: Any) -> str:
    """Return the value of a field on one line, as in ``--set``; a dash for None.

    >>> as_text(["tp", "dp"]), as_text(True), as_text(None)
    ('[tp, dp]', 'true', '-')
    """
    if isinstance(value, list):
        return f"[{', '.join(map(as_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value is None else str(value)


def _times(ratio: float) -> str:
    """Return a ratio with enough digits to tell it from 0 and from 1."""
    return f"{ratio:.2g}×" if ratio < 0.1 else f"{ratio:.2f}×" if abs(ratio - 1) >= 0.01 else f"{ratio:.4f}×"


def _pace(side: Side) -> tuple[float, float]:
    return side.metrics["step_s"] or 0.0, side.metrics["tokens_per_s"] or 0.0


def _opposed(contrast: Contrast) -> str:
    """Return the end of a sentence that names the difference that saves most and the one that adds most."""
    rated = sorted(((each.worth_s or 0.0, each) for each in contrast.differences), key=lambda pair: pair[0])
    step = _pace(contrast.a)[0]
    said = [
        f"{words(each)} {verb} {show(float(f'{abs(part):.3g}'), SECONDS)}"
        for (part, each), verb, sign in ((rated[0], "saves", -1), (rated[-1], "adds", 1))
        if sign * part > EQUAL * step
    ]
    return "; " + ", and ".join(said) if said else ""
