"""Statistics of traces: nodes, work and traffic, differences between ranks, and the longest chains of nodes.

Amounts are sums over all ranks, as their nodes state them: an all-reduce of 1 MB among four ranks is four nodes and
4 MB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require
from cosmic.base.json_types import unit
from cosmic.traces.comm_groups import ALL_RANKS, known_groups, ranks_by_template
from cosmic.traces.dependencies import dependencies_of, longest_chains, topological_order
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType, Template, TraceSet, template_of
from cosmic.traces.trace_views import enum_name

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankRange:
    """The minimum and maximum over all ranks."""

    least: Annotated[float, unit("that of the amount")]
    """The least of a rank."""
    most: Annotated[float, unit("that of the amount")]
    """The most of a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTally:
    """Collectives of one type in groups of one size."""

    collective: str
    """Which collective, such as ALL_REDUCE."""
    group_size: int | None
    """Ranks in the group; None where they are not given."""
    nodes: int
    """Number of nodes."""
    bytes: int
    """Their total payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChain:
    """Nodes of a rank, each of which depends on the one before."""

    rank: int
    """The first rank with such a chain."""
    nodes: int
    """Number of nodes."""
    seconds: float
    """Their time."""
    nodes_by_type: dict[str, int]
    """Nodes, by type."""
    seconds_by_type: dict[str, float]
    """Time, by type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStatistics:
    """Statistics of the traces of a job."""

    ranks: int
    nodes: int
    templates: int
    """Number of distinct templates: ranks of one template differ only in groups and peers."""
    nodes_by_type: dict[str, int]
    collectives: tuple[CollectiveTally, ...]
    """The most bytes first."""
    collective_bytes: int
    sent_bytes: int
    received_bytes: int
    compute_flop: int
    tensor_bytes: int
    duration_s: float
    by_rank: dict[str, RankRange]
    """The range of each amount over ranks."""
    longest_chain: NodeChain | None
    """The chain of most nodes; None if every rank has a cycle."""
    critical_path: NodeChain | None
    """The chain of most seconds, if every node runs as soon as its dependencies are done."""


def summarize_traces(
    traces: TraceSet,
    groups: Mapping[str, Sequence[int]] | None = None,
    flop_per_s: float | None = None,
    bytes_per_s: float | None = None,
) -> TraceStatistics:
    """Return the statistics of *traces*; with rates, compute nodes take the time of `node_seconds`."""
    parts = ranks_by_template(traces)
    amounts = [(_amounts(template), len(ranks)) for template, ranks in parts]
    names = _amounts(template_of([]))
    types: Counter[str] = Counter()
    for template, ranks in parts:
        types.update({name: count * len(ranks) for name, count in _by_type(template.type).items()})
    chains = [
        chains
        for template, ranks in parts
        if (chains := _chains(template, ranks[0], node_seconds(template, flop_per_s, bytes_per_s)))
    ]
    return TraceStatistics(
        ranks=len(traces.ranks),
        templates=len(parts),
        nodes_by_type=dict(types),
        collectives=tuple(_collectives(traces, known_groups(traces, groups))),
        by_rank={name: _range([amount[name] for amount, _ in amounts]) for name in names},
        longest_chain=max((longest for longest, _ in chains), key=lambda chain: chain.nodes, default=None),
        critical_path=max(
            (critical for _, critical in chains), key=lambda chain: (chain.seconds, chain.nodes), default=None
        ),
        **{name: sum(amount[name] * ranks for amount, ranks in amounts) for name in names},
    )


def node_seconds(template: Template, flop_per_s: float | None = None, bytes_per_s: float | None = None) -> Seconds:
    """Return the seconds of each node: its recorded duration or, with rates, a compute node's roofline time.

        t = max(w / F, m / B)

    w  operations (`num_ops`)            F  *flop_per_s*, if given
    m  bytes of tensors (`tensor_size`)  B  *bytes_per_s*, if given

    >>> template = template_of([{"id": 0, "type": NodeType.COMP, "num_ops": 600, "tensor_size": 8, "duration_us": 7}])
    >>> node_seconds(template).tolist(), node_seconds(template, flop_per_s=100.0, bytes_per_s=1.0).tolist()
    ([7e-06], [8.0])
    """
    seconds = template.duration_us / 1e6
    states = np.zeros(template.nodes, bool)
    roofline = np.zeros(template.nodes)
    rates = {"flop_per_s": (template.num_ops, flop_per_s), "bytes_per_s": (template.tensor_size, bytes_per_s)}
    for name, (amount, rate) in rates.items():
        if rate is not None:
            require(rate > 0, name, rate, "must be positive")
            states |= amount != ABSENT
            roofline = np.maximum(roofline, amount / rate)
    return np.where(states & (template.type == NodeType.COMP), roofline, seconds)


def _amounts(template: Template) -> dict[str, Any]:
    """Return the amounts of one rank, by their names in `TraceStatistics`."""
    kind = template.type
    return {
        "nodes": template.nodes,
        "collective_bytes": _sum(template.comm_size[kind == NodeType.COMM_COLL]),
        "sent_bytes": _sum(template.comm_size[kind == NodeType.COMM_SEND]),
        "received_bytes": _sum(template.comm_size[kind == NodeType.COMM_RECV]),
        "compute_flop": _sum(template.num_ops),
        "tensor_bytes": _sum(template.tensor_size),
        "duration_s": _sum(template.duration_us) / 1e6,
    }


def _sum(values: Ints) -> int:
    """Return the exact sum of the *values* that are stated; sums of work can exceed 64 bits."""
    stated = np.maximum(values, 0)
    return (int((stated >> 32).sum()) << 32) + int((stated & 0xFFFFFFFF).sum())


def _range(values: Sequence[float]) -> RankRange:
    return RankRange(min(values, default=0), max(values, default=0))


def _by_type(types: Ints) -> dict[str, int]:
    numbers, counts = np.unique(types, return_counts=True)
    return {enum_name(NodeType, number): count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}


def _collectives(traces: TraceSet, members_of: Mapping[str, Sequence[int]]) -> list[CollectiveTally]:
    """Return the collectives of all ranks by type and group size, the most bytes first."""
    nodes: Counter[tuple[int, int | None]] = Counter()
    moved: Counter[tuple[int, int | None]] = Counter()
    for template, ranks in ranks_by_template(traces):
        tallies = list(_tallies(template))
        for rank in ranks:
            for group, kind, count, size in tallies:
                members = members_of.get(traces.ranks[rank].groups[group] if group != ABSENT else ALL_RANKS[0])
                key = kind, (None if members is None else len(members))
                nodes[key] += count
                moved[key] += size
    return [
        CollectiveTally(collective=enum_name(CollectiveType, key[0]), group_size=key[1], nodes=nodes[key], bytes=size)
        for key, size in moved.most_common()
    ]


def _tallies(template: Template) -> Iterator[tuple[int, int, int, int]]:
    """Yield the collectives of each group and type: index of the group, type, number, bytes."""
    rows = np.flatnonzero(template.type == NodeType.COMM_COLL)
    rows = rows[np.lexsort((template.comm_type[rows], template.group[rows]))]
    group, kind = template.group[rows], template.comm_type[rows]
    starts = np.flatnonzero((np.diff(group) != 0) | (np.diff(kind) != 0)) + 1
    for part in np.split(rows, starts) if len(rows) else ():
        yield int(template.group[part[0]]), int(template.comm_type[part[0]]), len(part), _sum(template.comm_size[part])


def _chains(template: Template, rank: int, seconds: Seconds) -> tuple[NodeChain, NodeChain] | None:
    """Return the chains of most nodes and of most seconds, unless there is a cycle."""
    dependencies = dependencies_of(template).within()
    order = topological_order(dependencies)
    if len(order) < template.nodes:
        return None
    weights = [np.ones(template.nodes), seconds] if seconds.any() else [np.ones(template.nodes)]
    chains = [_chain(template, rank, rows, seconds) for rows in longest_chains(dependencies, order, weights)]
    return chains[0], chains[-1]


def _chain(template: Template, rank: int, rows: Ints, seconds: Seconds) -> NodeChain:
    types = template.type[rows]
    times = {enum_name(NodeType, kind): float(seconds[rows[types == kind]].sum()) for kind in np.unique(types).tolist()}
    return NodeChain(
        rank=rank,
        nodes=len(rows),
        seconds=float(seconds[rows].sum()),
        nodes_by_type=_by_type(types),
        seconds_by_type=times,
    )
