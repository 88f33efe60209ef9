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
from math import isnan
from typing import Any

from cosmic.catalog.pair_accuracy import Certainty, certainty
from cosmic.comparing.worth import Group, Method, attribute, coupled
from cosmic.design import schema
from cosmic.design.batch import batch_of
from cosmic.design.point import STACKS, DesignPoint
from cosmic.digests import digest
from cosmic.errors import SpecError, join
from cosmic.evaluation import BETTER, Infeasible, evaluate, evaluate_batch
from cosmic.workload.checks import invalid_reasons

MAPPING = (
    *("tp", "pp", "cp", "ep", "dp", "micro_batch", "virtual_stages", "first_stage_layers", "last_stage_layers"),
    *("schedule", "placement", "stage_layers"),
)
"""Fields of a workload that change together, the mapping; dp comes last, as the other axes determine it."""
LAYERS = {"network": "network", "collective": "collective", "compute": "accelerator", "memory": "accelerator"}
"""Layers that change as a whole, and the names of their groups."""
OF_SERVING = {"load": "load", "prefill": "prefill pool"}
"""Parts of the serving layer that change as a whole."""
OF_TOKEN = "tpot_s"
"""The metric of designs that serve a load whose change is explained."""
WITHOUT_ROOM = ("memory", "cache")
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
    measured: str = "step_s"
    """The metric that differences are worth seconds of: the step, or TPOT where both designs serve a load."""

    @property
    def serves(self) -> bool:
        """Whether both designs serve a load of requests."""
        return self.measured == OF_TOKEN

    @property
    def certainty(self) -> Certainty | None:
        """How sure it is which design takes less time for a token; None where one has no time, or both are equal."""
        counted = "tokens_per_s" if self.a.metrics.get("tokens_per_s") else "samples_per_s"
        name = OF_TOKEN if self.serves else counted  # how many tokens are served may be the clients' choice
        a, b = self.a.metrics.get(name), self.b.metrics.get(name)
        if not a or not b or not self.differences:
            return None
        return certainty(self.a.point, self.b.point, b / a if self.serves else a / b)


def compare_designs(a: DesignPoint, b: DesignPoint) -> Contrast:
    """Return the differences between *a* and *b*, the effect of each, and the metrics of both."""
    one, other = _side(a), _side(b)
    fields = differing_fields(a, b)
    name = OF_TOKEN if a.serving is not None and b.serving is not None else "step_s"
    start, end = one.metrics.get(name), other.metrics.get(name)
    if not fields or start is None or end is None:
        found_none = tuple(_difference((group,), fields) for group in fields)
        return Contrast(one, other, found_none, "none", 0, 0, 0, 0.0, name)
    between = Between(a, b, fields, lambda metrics: None if isnan(metrics[name]) else metrics[name])
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
    return Contrast(one, other, tuple(found), method, designs, invalid, over, together, name)


def _side(point: DesignPoint) -> Side:
    outcome = evaluate(point)
    reasons = outcome.reasons if isinstance(outcome, Infeasible) else ()
    if not _is_valid(point):
        return Side(point, reasons, {}, {})
    columns = {name: float(column[0]) for name, column in evaluate_batch(batch_of(point)).columns.items()}
    return Side(
        point,
        reasons,
        {name: None if isnan(columns[name]) else columns[name] for name in BETTER},
        {name.partition(".")[2]: value for name, value in columns.items() if _is_part(name, value)},
    )


def _is_part(name: str, value: float) -> bool:
    """Return whether a column is a part of the step that the design has."""
    return name.startswith("breakdown.") and not isnan(value)


def _difference(group: Group, fields: Fields, *numbers: float | None) -> Difference:
    pairs = {path: pair for name in group for path, pair in fields[name].items()}
    a, b = ({path: pair[side] for path, pair in pairs.items()} for side in (0, 1))
    return Difference(" + ".join(group), a, b, *numbers)


# --------------------------------------------------------------------------------------------- what differs


def differing_fields(a: DesignPoint, b: DesignPoint, grouping: Grouping | None = None) -> Fields:
    """Return the fields in which two designs differ, by the group of their paths: `group_of`, or another *grouping*."""
    grouped = grouping or group_of
    ours, theirs = (dict(_flat(schema.write(each.compact))) for each in (a, b))
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
    >>> group_of("serving.load.rate"), group_of("serving.prefill.tp"), group_of("serving.engine")
    ('load', 'mapping', 'serving.engine')
    """
    layer, _, field = path.partition(".")
    if layer == "workload":
        return "mapping" if field in MAPPING else path
    if layer == "serving":
        part = field.partition(".")[0]
        return "mapping" if part == "prefill" else OF_SERVING.get(part, path)  # both pools share the accelerators
    return LAYERS.get(layer, layer)


def finer_group_of(path: str) -> str:
    """Return the finer group of the field at *path*: shape and bandwidth of a network, algorithms and chunks apart.

    It is for networks with equally many dimensions: otherwise the same path is about another link.

    >>> finer_group_of("network.dims.0.bandwidth"), finer_group_of("network.dims.1.npus"), finer_group_of("workload.dp")
    ('network bandwidth', 'network shape', 'mapping')
    >>> finer_group_of("serving.load.rate"), finer_group_of("serving.prefill.tp"), finer_group_of("serving.engine")
    ('load', 'prefill pool', 'engine and its limits')
    """
    layer, _, field = path.partition(".")
    if layer == "serving":
        return OF_SERVING.get(field.partition(".")[0], "engine and its limits")
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
        if key == "links" and item:
            yield join(prefix, key), _links(item)
        else:
            yield from _flat(item, join(prefix, key))


def _links(listed: list[Any]) -> str:
    """Return links that are listed as one value: as many as there are would hide what else differs."""
    return f"{len(listed):,} links ({digest(repr(listed))[:6]})"


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
                self._points[names] = point if _is_valid(point) else None
            except SpecError:  # a layer refuses it, such as algorithms for another number of dimensions
                self._points[names] = None
        return self._points[names]


def _is_valid(point: DesignPoint) -> bool:
    """Return whether a design's mapping is valid; memory is not checked."""
    if point.serving is None:
        return not invalid_reasons(point)
    return all(name.endswith(WITHOUT_ROOM) for name in evaluate_batch(batch_of(point)).broken)


def _names(groups: Iterable[Group]) -> frozenset[str]:
    return frozenset(name for group in groups for name in group)


def _roots(paths: Iterable[str], apart: Mapping[str, int] | None = None) -> list[str]:
    """Return the paths to assign in order to change the fields at *paths*: workload fields singly, other layers whole.

    Layers that several groups share (*apart* counts the groups) are changed field by field too.
    """
    shared = apart or {}

    def root(path: str) -> str:
        layer = path.partition(".")[0]
        if layer == "serving" and shared.get(layer, 1) > 1:
            return ".".join(path.split(".")[:2])  # a pool that the other design does not have
        return path if layer == "workload" or shared.get(layer, 1) > 1 else layer

    return list(dict.fromkeys(root(path) for path in paths))
