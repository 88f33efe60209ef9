"""What differs between two traces, operator by operator: read this first.

    traces, or a design ──▶ two sides (`cosmic.profiles.sides`) ──▶ a row for each operator ──▶ what explains the spans

The span of a rank is what its operators take, less what overlaps, and what its device is idle
(`cosmic.profiles.accounting`). So the difference of two spans is, exactly, the sum of the differences of all operators,
of the overlap and of the idle time. A side without a span (traces that were not recorded) has operators only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

from cosmic.errors import require
from cosmic.profiles.accounting import Idle
from cosmic.profiles.kernel_classes import COMMUNICATION, GEMMS, WorkClass, shape_of, with_parts
from cosmic.profiles.sides import Amount, Operator, TraceSide
from cosmic.traces.trace import COLUMNS, RankTrace, Template, TraceSet

By = Literal["name", "kernel", "type", "class"]
BYS: tuple[By, ...] = ("name", "kernel", "type", "class")
IDLE = {"host_s": "idle: host", "gaps_s": "idle: gaps", "bubble_s": "idle: bubble", "offload_s": "idle: offload"}
OVERLAP = "overlap"
MOST_PAIRS = 4_000_000_000
"""Pairs of operators that are aligned: sequences of up to 63,000 each, which takes seconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """An operator, or several of one key, on both sides."""

    of: str
    """Its class."""
    name: str
    work: str
    a: Amount
    b: Amount

    @property
    def difference_s(self) -> float:
        """What it takes in B beyond what it takes in A."""
        return self.b.seconds - self.a.seconds

    @property
    def differs(self) -> bool:
        """Whether anything of it does."""
        return self.a != self.b


@dataclass(frozen=True, slots=True)
class Order:
    """How many operators of rank 0 come in the same order on both sides: their longest common subsequence."""

    a: int
    b: int
    same: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContrast:
    """What differs between two sides."""

    a: TraceSide
    b: TraceSide
    by: By
    rows: tuple[Row, ...]
    """The largest difference of seconds first."""
    parts: dict[str, tuple[float, float]]
    """Seconds of both sides by group of operators, of idle time, and of overlap, which counts negative; these add up to
    the spans."""
    order: Order | None
    """None where a side is a design, or has too many operators to align."""
    identical: bool

    @property
    def spans(self) -> tuple[float, float] | None:
        """Both spans; None where one is not known."""
        return None if self.a.span_s is None or self.b.span_s is None else (self.a.span_s, self.b.span_s)

    @property
    def totals(self) -> tuple[float, float]:
        """Both spans, or the sums of all operators where a span is not known."""
        if self.spans is not None:
            return self.spans
        return sum(a for a, _ in self.parts.values()), sum(b for _, b in self.parts.values())

    @property
    def beside_operators_s(self) -> float:
        """The part of the difference that overlap and idle time explain; operators explain the rest."""
        return sum(b - a for name, (a, b) in self.parts.items() if name == OVERLAP or name in IDLE.values())

    def only_in(self, side: Literal["a", "b"]) -> list[Row]:
        """Return the rows that the other side has none of."""
        other = "b" if side == "a" else "a"
        return [row for row in self.rows if getattr(row, side).count and not getattr(row, other).count]


def contrast(a: TraceSide, b: TraceSide, by: By | None = None, *, identical: bool = False) -> TraceContrast:
    """Return what differs between *a* and *b*, with a row for each operator of one name, kernel, type or class.

    Without *by*: by class where one of them is a design or was not recorded, else by name.
    """
    kinds = {a.kind, b.kind}
    chosen: By = by or ("name" if kinds in ({"recorded"}, {"generated"}) else "class")
    rule = "operators of a design and recorded kernels have different names: compare them by class or kernel"
    require(chosen != "name" or kinds != {"design", "recorded"}, "--by", chosen, rule)
    if not all(map(_knows_works, (a, b))):
        a, b = _without_works(a, b), _without_works(b, a)
    shapes = {**a.shapes, **b.shapes}
    loose = "design" in kinds
    rows: dict[tuple[str, str, str], list[Amount]] = {}
    for place, side in enumerate((a, b)):
        for operator, amount in side.operators.items():
            amounts = rows.setdefault(_key(operator, chosen, shapes, loose), [Amount(), Amount()])
            amounts[place] += amount
    found = [Row(*key, *amounts) for key, amounts in rows.items()]
    found.sort(key=_weight)
    designs = "design" in kinds
    return TraceContrast(
        a=a,
        b=b,
        by=chosen,
        rows=tuple(found),
        parts=_parts(a, b),
        order=None if designs else _aligned(a.order, b.order),
        identical=identical,
    )


def _knows_works(side: TraceSide) -> bool:
    """Return whether the work of any kernel is known: the kernels of a CUDA graph, for one, have none."""
    return side.kind != "recorded" or any(each.work for each in side.operators if each.of.group != COMMUNICATION)


def _without_works(side: TraceSide, other: TraceSide) -> TraceSide:
    """Return a side whose recorded kernels are known by their names alone.

    Where it knows no works at all, kernels take the class that *other* has for their name, if that is one.
    """
    if side.kind != "recorded":
        return side
    classes: dict[str, set[WorkClass]] = {}
    for each in () if _knows_works(side) else other.operators:
        classes.setdefault(each.name, set()).add(each.of)

    def plain(operator: Operator) -> Operator:
        if operator.of.group == COMMUNICATION:
            return operator
        told = classes.get(operator.name, set())
        return replace(operator, work="", of=next(iter(told)) if len(told) == 1 else operator.of)

    found: dict[Operator, Amount] = {}
    for operator, amount in side.operators.items():
        found[plain(operator)] = found.get(plain(operator), Amount()) + amount
    return replace(side, operators=found, order=tuple(map(plain, side.order)))


def _weight(row: Row) -> tuple[float, float, float, str, str, str]:
    """Return what rows are sorted by."""
    a, b = row.a, row.b
    return -abs(row.difference_s), -abs(b.bytes - a.bytes), -abs(b.count - a.count), row.of, row.name, row.work


def _key(operator: Operator, by: By, shapes: dict[str, str], loose: bool) -> tuple[str, str, str]:
    """Return class, name and work of the row that an operator belongs to."""
    of = with_parts(operator.of, operator.work, shapes).text if operator.of.group == GEMMS else operator.of.text
    match by:
        case "class":
            return of, "", ""
        case "type":
            return "", operator.type, ""
        case "name":
            return of, operator.name, operator.work
        case "kernel":
            if loose:
                return of, "", operator.work if operator.of.group == COMMUNICATION else shape_of(operator.work)
            return of, "" if operator.work else operator.name, operator.work


def _parts(a: TraceSide, b: TraceSide) -> dict[str, tuple[float, float]]:
    """Return the seconds of both sides by group, the groups in the order in which they are met."""
    found: dict[str, list[float]] = {}
    for place, side in enumerate((a, b)):
        for operator, amount in side.operators.items():
            found.setdefault(operator.of.group, [0.0, 0.0])[place] += amount.seconds
    if a.span_s is not None and b.span_s is not None:
        found[OVERLAP] = [-(a.overlap_s or 0.0), -(b.overlap_s or 0.0)]
        for each in fields(Idle):
            found[IDLE[each.name]] = [getattr(a.idle, each.name), getattr(b.idle, each.name)]
    return {name: (each[0], each[1]) for name, each in found.items() if any(each)}


# ---------------------------------------------------------------------------------------------------- alignment


def _aligned(a: Sequence[Operator], b: Sequence[Operator]) -> Order | None:
    first, second = ([(each.name, each.work) for each in side] for side in (a, b))
    if len(first) * len(second) > MOST_PAIRS and first != second:
        return None
    return Order(len(first), len(second), common_length(first, second))


def common_length(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the length of the longest common subsequence, with a bit for each element of *a*.

    After each element of *b*, the zeros of a word are where the table of dynamic programming grows along *a*: an
    addition carries them to the next match.

    >>> common_length("abcde", "xbad"), common_length("abc", "abc"), common_length("", "abc")
    (2, 3, 0)
    """
    if list(a) == list(b):
        return len(a)
    places: dict[object, int] = {}
    for place, each in enumerate(a):
        places[each] = places.get(each, 0) | 1 << place
    everything = (1 << len(a)) - 1
    ones = everything
    for each in b:
        match = ones & places.get(each, 0)
        ones = ((ones + match) | (ones - match)) & everything
    return len(a) - ones.bit_count()


# ---------------------------------------------------------------------------------------------------- identity


def identical_traces(a: TraceSet, b: TraceSet) -> bool:
    """Return whether every rank of *a* and *b* has the same nodes, dependencies, groups and peers."""
    if len(a.ranks) != len(b.ranks):
        return False
    known: dict[tuple[int, int], bool] = {}
    return all(_same_rank(one, other, known) for one, other in zip(a.ranks, b.ranks, strict=True))


def _same_rank(a: RankTrace, b: RankTrace, known: dict[tuple[int, int], bool]) -> bool:
    key = id(a.template), id(b.template)
    if key not in known:
        known[key] = _same_template(a.template, b.template)
    return known[key] and (a.groups, a.peers) == (b.groups, b.peers)


def _same_template(a: Template, b: Template) -> bool:
    if a is b:
        return True
    numbered = [name for name in COLUMNS if name != "kernel"]
    lists = ("data_start", "data_id", "ctrl_start", "ctrl_id")
    if not all(np.array_equal(getattr(a, name), getattr(b, name)) for name in (*numbered, *lists)):
        return False
    return list(a.names) == list(b.names) and _works(a) == _works(b)


def _works(template: Template) -> list[str]:
    texts: Iterable[int] = template.kernel.tolist()
    return ["" if each < 0 else template.kernels[each] for each in texts]
