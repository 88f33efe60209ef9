"""What a rank does in a step, operator by operator: one side of a comparison of traces (`cosmic.profiles.contrasting`).

Amounts are those of one rank and one step: means, where a trace has several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from cosmic.profiles.accounting import Idle, Path, idle_of, on_device, path_of, span_s, times_ns
from cosmic.profiles.kernel_classes import COMMUNICATION, FUSED, OPTIMIZER, WorkClass, class_of
from cosmic.traces.groups import ALL_RANKS, known_groups, ranks_by_template
from cosmic.traces.trace import ABSENT, CollectiveType, NodeType, RankTrace, Template, TraceSet
from cosmic.traces.trace import COMMUNICATION as COMMUNICATES
from cosmic.traces.views import enum_name

Kind = Literal["recorded", "generated", "design"]
Floats = npt.NDArray[np.float64]
NANO = 1e-9
ROUNDING = 1e-9
"""Share of a span below which an overlap is none."""
DEEPEST = 64
"""Operators around a kernel that are looked at."""


@dataclass(frozen=True, slots=True)
class Operator:
    """What identifies an operator in a comparison."""

    of: WorkClass
    name: str
    work: str
    """Of a kernel, what it computes; of a collective, its bytes and ranks; empty where that is not known."""
    type: str
    """The type of its nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much there is of something, in one step of one rank."""

    count: float = 0.0
    seconds: float = 0.0
    flop: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            count=self.count + other.count,
            seconds=self.seconds + other.seconds,
            flop=self.flop + other.flop,
            bytes=self.bytes + other.bytes,
        )

    def __mul__(self, share: float) -> Amount:
        """Return a share of it.

        >>> Amount(count=4, seconds=2.0) * 0.5
        Amount(count=2.0, seconds=1.0, flop=0.0, bytes=0.0)
        """
        return Amount(
            count=self.count * share, seconds=self.seconds * share, flop=self.flop * share, bytes=self.bytes * share
        )

    @property
    def flop_per_s(self) -> float | None:
        """The rate of its operations; None where it takes no time or has none."""
        return self.flop / self.seconds if self.seconds and self.flop else None

    @property
    def bytes_per_s(self) -> float | None:
        """The rate of its bytes; None where it takes no time or has none."""
        return self.bytes / self.seconds if self.seconds and self.bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """How many nodes and dependencies the graphs of all ranks have."""

    ranks: int
    nodes: int
    host_nodes: int
    data_dependencies: int
    control_dependencies: int
    streams: int
    """Of the rank that has most."""
    nodes_by_type: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSide:
    """One side of a comparison."""

    name: str
    kind: Kind
    operators: Mapping[Operator, Amount]
    span_s: float | None = None
    """From the first start to the last end of a rank; None where a trace does not say when it ran."""
    idle: Idle = field(default_factory=Idle)
    path: Path | None = None
    structure: Structure | None = None
    order: tuple[Operator, ...] = ()
    """The operators of rank 0, in the order in which they began."""
    shapes: Mapping[str, str] = field(default_factory=dict)
    """Parts of the model by the shapes of their GEMMs; of designs."""
    steps: int = 1
    notes: tuple[str, ...] = ()

    def sum_s(self, *, communicated: bool) -> float:
        """Return the seconds of all kernels, or of all communication."""
        found = (each for what, each in self.operators.items() if (what.of.group == COMMUNICATION) == communicated)
        return sum(each.seconds for each in found)

    @property
    def overlap_s(self) -> float | None:
        """How much longer all operators take together than a device is busy; None without a span."""
        if self.span_s is None:
            return None
        found = self.sum_s(communicated=False) + self.sum_s(communicated=True) + self.idle.total_s - self.span_s
        return found if abs(found) > ROUNDING * self.span_s else 0.0


def side_of_traces(
    traces: TraceSet,
    groups: Mapping[str, Sequence[int]] | None = None,
    steps: int = 1,
    seconds: Mapping[int, Floats] | None = None,
) -> TraceSide:
    """Return what *traces* do: those of *steps* steps, with the *seconds* of their nodes by `id` of a template."""
    known = known_groups(traces, groups)
    parts = ranks_by_template(traces)
    timed = bool(parts) and all(template.is_recorded for template, _ in parts if template.nodes) and traces.nodes > 0
    found: dict[Operator, Amount] = {}
    span, idle, paths = 0.0, Idle(), []
    for template, ranks in parts:
        share = len(ranks) / len(traces.ranks) / steps
        took = _seconds(template) if seconds is None else seconds[id(template)]
        for number in _distinct(traces, ranks):
            weight = share * number[1] / len(ranks)
            for what, amount in _amounts(traces.ranks[number[0]], took, known).items():
                found[what] = found.get(what, Amount()) + amount * weight
        if timed:
            span += share * span_s(template)
            waited = idle_of(template)
            idle = replace(idle, host_s=idle.host_s + share * waited.host_s, gaps_s=idle.gaps_s + share * waited.gaps_s)
            paths.append((span_s(template), path_of(template)))
    return TraceSide(
        name=traces.where,
        kind="recorded" if timed else "generated",
        operators=found,
        span_s=span if timed else None,
        idle=idle,
        path=max(paths, key=lambda each: each[0])[1] if timed else None,
        structure=_structure(parts),
        order=_order(traces, known),
        steps=steps,
        notes=tuple(_notes(traces, timed, steps)),
    )


def _notes(traces: TraceSet, timed: bool, steps: int) -> list[str]:
    notes = []
    if len(traces.ranks) > 1:
        notes.append(f"{traces.where}: means over {len(traces.ranks):,} ranks")
    if steps > 1:
        notes.append(f"{traces.where}: means over {steps} steps")
    recorded = [template for template in traces.templates() if template.is_recorded]
    if timed and not any(len(on_device(template)) for template in recorded):
        notes.append(f"{traces.where}: nothing runs on a device in it; all time is the host's")
    if recorded and not timed:
        notes.append(f"{traces.where}: some ranks do not say when they ran; no span is known")
    return notes


def _distinct(traces: TraceSet, ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Return a rank for each set of groups among *ranks*, which share a template, and how many have it."""
    found: dict[tuple[str, ...], list[int]] = {}
    for rank in ranks:
        found.setdefault(traces.ranks[rank].groups, []).append(rank)
    return [(each[0], len(each)) for each in found.values()]


def _seconds(template: Template) -> Floats:
    start, end = times_ns(template)
    return (end - start).astype(np.float64) * NANO


def _amounts(rank: RankTrace, seconds: Floats, known: Mapping[str, Sequence[int]]) -> dict[Operator, Amount]:
    """Return what one rank does on its device."""
    template = rank.template
    rows = on_device(template)
    operators = _operators(rank, rows.tolist(), known)
    numbers: dict[Operator, int] = {}
    code = np.array([numbers.setdefault(each, len(numbers)) for each in operators], np.int64)
    communicates = np.isin(template.type[rows], [int(each) for each in COMMUNICATES])
    moved = np.where(communicates, template.comm_size[rows], template.tensor_size[rows])
    columns = (np.ones(len(rows)), seconds[rows], np.maximum(template.num_ops[rows], 0), np.maximum(moved, 0))
    count, took, flop, size = (np.bincount(code, each, len(numbers)).tolist() for each in columns)
    return {
        what: Amount(count=count[at], seconds=took[at], flop=flop[at], bytes=size[at]) for what, at in numbers.items()
    }


def _operators(rank: RankTrace, rows: Sequence[int], known: Mapping[str, Sequence[int]]) -> list[Operator]:
    """Return what each row is; alike rows share one value."""
    template, cache, found = rank.template, dict[object, Operator](), []
    parents = _parents(template)
    types, kernels, recorded = template.type.tolist(), template.kernel.tolist(), template.is_recorded
    for row in rows:
        if types[row] in COMMUNICATES:
            key: object = (template.names[row], types[row], *_exchange(rank, row))
        else:
            key = (template.names[row], kernels[row], types[row], int(parents[row]))
        if key not in cache:
            cache[key] = (
                _exchanged(rank, row, known) if types[row] in COMMUNICATES else _computed(template, row, parents)
            )
        found.append(cache[key])
    return found if recorded else [_unrecorded(each) for each in found]


def _unrecorded(operator: Operator) -> Operator:
    """Return an operator of a trace that was not recorded: a node that states no work may hold several."""
    if operator.work or operator.of.group == COMMUNICATION:
        return operator
    optimizer = operator.name.endswith("optimizer")
    return replace(operator, of=WorkClass(OPTIMIZER if optimizer else FUSED))


def _exchange(rank: RankTrace, row: int) -> tuple[int, int, int]:
    template = rank.template
    return int(template.comm_type[row]), int(template.comm_size[row]), int(template.group[row])


def _exchanged(rank: RankTrace, row: int, known: Mapping[str, Sequence[int]]) -> Operator:
    """Return a collective, a send or a receive, with its bytes and the size of its group."""
    template = rank.template
    kind, size, group = _exchange(rank, row)
    node_type = enum_name(NodeType, int(template.type[row]))
    if template.type[row] != NodeType.COMM_COLL:
        part = node_type.removeprefix("COMM_").lower()
        return Operator(WorkClass(COMMUNICATION, part), template.names[row], f"{part} {max(size, 0)}", node_type)
    part = enum_name(CollectiveType, kind).lower() if kind != ABSENT else "collective"
    members = known.get(rank.groups[group] if group != ABSENT else ALL_RANKS[0])
    ranks = "?" if members is None else len(members)
    work = f"{part} {max(size, 0)} {ranks}"
    return Operator(WorkClass(COMMUNICATION, part), template.names[row], work, node_type)


def _computed(template: Template, row: int, parents: npt.NDArray[np.int64]) -> Operator:
    name, kernel = template.names[row], int(template.kernel[row])
    work = template.kernels[kernel] if kernel != ABSENT else ""
    around: list[str] = []
    at = int(parents[row])
    while at >= 0 and len(around) < DEEPEST:
        around.append(template.names[at])
        at = int(parents[at])
    return Operator(class_of(name, work, around), name, work, enum_name(NodeType, int(template.type[row])))


def _parents(template: Template) -> npt.NDArray[np.int64]:
    """Return the row of the operator around each node, its first control dependency; -1 if it has none."""
    parents = np.full(template.nodes, -1)
    if not template.is_recorded:
        return parents
    has = np.flatnonzero(np.diff(template.ctrl_start) > 0)
    wanted = template.ctrl_id[template.ctrl_start[has]]
    place = np.minimum(np.searchsorted(template.id, wanted), max(template.nodes - 1, 0))
    there = template.id[place] == wanted
    parents[has[there]] = place[there]
    return parents


def _structure(parts: Sequence[tuple[Template, Sequence[int]]]) -> Structure:
    types: dict[str, int] = {}
    for template, ranks in parts:
        for kind, count in zip(*np.unique(template.type, return_counts=True), strict=True):
            name = enum_name(NodeType, int(kind))
            types[name] = types.get(name, 0) + int(count) * len(ranks)
    streams = [
        np.unique(template.stream[(template.stream != ABSENT) & (template.on_cpu == 0)]) for template, _ in parts
    ]
    return Structure(
        ranks=sum(len(ranks) for _, ranks in parts),
        nodes=sum(template.nodes * len(ranks) for template, ranks in parts),
        host_nodes=sum(int(template.on_cpu.sum()) * len(ranks) for template, ranks in parts),
        data_dependencies=sum(len(template.data_id) * len(ranks) for template, ranks in parts),
        control_dependencies=sum(len(template.ctrl_id) * len(ranks) for template, ranks in parts),
        streams=max(map(len, streams), default=0),
        nodes_by_type=types,
    )


def _order(traces: TraceSet, known: Mapping[str, Sequence[int]]) -> tuple[Operator, ...]:
    """Return the operators of rank 0 in the order in which they began, or of their ids."""
    if not traces.ranks:
        return ()
    template = traces.ranks[0].template
    rows = on_device(template)
    rows = rows[np.argsort(np.maximum(template.start_ns[rows], 0), kind="stable")]
    return tuple(_operators(traces.ranks[0], rows.tolist(), known))
