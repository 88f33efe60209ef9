"""The inputs of one simulation: its network file, its job, and the ranks prepared from it.

The network file is ASTRA-sim's network YAML, or a graph of links in any known format. Ranks are prepared by lowering
their traces to what the event loop runs, placing their collectives and addressing their messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.files import read_text
from cosmic.design.plain_data import load_yaml
from cosmic.network.link_graph import LinkGraph
from cosmic.simulate.events.astra_sim_inputs import (
    COLLECTIVES,
    Algorithm,
    AstraSimDimension,
    RemoteMemory,
    System,
    read_astra_sim_network,
)
from cosmic.simulate.events.collective_planner import CollectivePlacement, GroupLevel
from cosmic.simulate.events.collective_rings import ALL, Ring
from cosmic.simulate.events.message_fabrics import GRAPH, SimulatedNetwork
from cosmic.simulate.events.rank_folding import Folding, Groups
from cosmic.simulate.events.simulation_world import NodeAction, Slot, Work
from cosmic.traces.dependencies import checked_dependencies
from cosmic.traces.replay import durations_ns
from cosmic.traces.trace import (
    ABSENT,
    COMMUNICATION_TYPES,
    MEMORY_TYPES,
    CollectiveType,
    Ints,
    NodeType,
    RankTrace,
    Template,
    TraceSet,
)
from cosmic.traces.trace_checks import check_traces, node_text

# ---- A simulation's network file: ASTRA-sim's network YAML, or a graph of links in any known format

SUFFIXES_OF_TREES = (".yaml", ".yml", ".json")
_DIMENSIONS = re.compile(r"^\s*[\"']?topology[\"']?\s*:", re.MULTILINE)
"""A key of ASTRA-sim's network YAML that no list of links has."""


def read_any_network(
    path: str | Path, failures: Sequence[str] = ()
) -> tuple[tuple[AstraSimDimension, ...], LinkGraph | None]:
    """Return the dimensions of a network file, and its links where it is a graph: then one dimension of all NPUs."""
    graph = _read_graph(Path(path), failures)
    if graph is None:
        rule = "leaves out links of a network that is a graph, and this one has ASTRA-sim's dimensions"
        require(not failures, "--fail", ", ".join(failures), rule)
        return read_astra_sim_network(path), None
    return (dimension_of(graph),), graph


def dimension_of(graph: LinkGraph) -> AstraSimDimension:
    """Return all NPUs of a graph as one dimension; messages take no time by it, but by their links."""
    return AstraSimDimension(GRAPH, graph.npus, 1.0, 0.0)


def _read_graph(path: Path, failures: Sequence[str]) -> LinkGraph | None:
    """Return the graph in a file, every NPU of which reaches every other; None if it holds ASTRA-sim's dimensions."""
    ending = path.suffix.lower()
    tree = load_yaml(path) if ending in SUFFIXES_OF_TREES else None
    if isinstance(tree, dict) and "topology" in tree:
        return None
    if ending not in (*SUFFIXES_OF_TREES, ".csv", ".graphml", ".xml") and _DIMENSIONS.search(read_text(path)):
        return None
    from cosmic.network.link_graph import require_connected  # noqa: PLC0415
    from cosmic.network.network_files.network_file import (  # noqa: PLC0415
        degrade_links,
        graph_of_data,
        is_network_data,
        read_graph,
    )

    if ending not in SUFFIXES_OF_TREES:
        graph = read_graph(path)
    elif is_network_data(tree) or (isinstance(tree, dict) and "links" in tree):
        graph = graph_of_data(tree, path.name)
    else:
        return None
    graph = degrade_links(graph, failures)
    require_connected(graph, where=str(path))
    return graph


BACKENDS = ("unaware", "aware")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The inputs of one simulation."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    system: System
    network: SimulatedNetwork
    memory: RemoteMemory = field(default_factory=RemoteMemory)
    scripts: Mapping[str, TraceSet] = field(default_factory=dict)
    """Traces that implement a collective in place of an algorithm, by prefix."""
    given_ns: Mapping[int, Ints] | None = None
    """Durations of nodes by the `id` of their template, in place of those that system and network would give."""
    graph: LinkGraph | None = None
    """The links of a network that is a graph; `network` then has its NPUs in one dimension."""
    backend: str = "unaware"
    queues_per_dim: int = 1
    rendezvous: bool = False
    compat: bool = True
    """Compute as ASTRA-sim does, even where it multiplies bandwidth. Otherwise concurrent messages share an NPU's
    bandwidth, and groups take the endpoint delay of the system."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UnknownName.among("backend", self.backend, "back end", BACKENDS)
        rule = "messages queue on the links of a network that is a graph: leave it out, or use aware"
        require(self.graph is None or self.backend == "aware", "backend", self.backend, rule)
        count = self.queues_per_dim
        require(isinstance(count, int) and 1 <= count <= 2**16, "queues_per_dim", count, "must be at least 1")
        npus, ranks = self.network.npus, len(self.traces.ranks)
        require(npus == ranks, self.traces.where, ranks, f"the network has {npus} NPUs: one trace for each")
        for name, members in self.groups.items():
            absent = [rank for rank in members if not 0 <= rank < npus]
            require(not absent, f"group {name}", absent[:1] or None, f"the network has ranks 0 to {npus - 1}")
        for rank, trace in enumerate(self.traces.ranks):
            own = trace.own_rank
            rule = f"sends and receives as this rank, but is rank {rank}"
            require(own in (None, rank), f"{self.traces.where}.{rank}.et", own, rule)
        for script in self.scripts.values():
            check_traces(script)

    @property
    def order_may_differ(self) -> bool:
        """Whether ranks may begin chunks in different orders because two chunks end at one moment."""
        plain = self.backend == "unaware" and self.compat and not self.rendezvous
        return self.queues_per_dim > 1 and not (plain and self.system.intra_dimension_scheduling == "FIFO")


# ---- Traces and settings as what the event loop runs: durations, slots, and groups as rings

NAMES = {kind: name for name, kind in COLLECTIVES.items()}
ACTIONS = {
    NodeType.COMP: NodeAction.RUN,
    NodeType.MEM_LOAD: NodeAction.MEMORY,
    NodeType.MEM_STORE: NodeAction.MEMORY,
    NodeType.COMM_SEND: NodeAction.SEND,
    NodeType.COMM_RECV: NodeAction.RECEIVE,
    NodeType.COMM_COLL: NodeAction.COLLECTIVE,
}
LONGEST_NS = 2**53
"""Beyond this a double cannot represent every nanosecond; more than a hundred days."""


def lower_template(template: Template, system: System, where: str, given_ns: Ints | None = None) -> Work:
    """Return *template* ready for the event loop; *given_ns* overrides the durations of its nodes."""
    start, before = checked_dependencies(template, where)
    waits = np.diff(start)
    dependents = np.repeat(np.arange(template.nodes), waits)
    child_start = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=template.nodes))])
    child = dependents[np.argsort(before, kind="stable")]
    if given_ns is None:
        action = _actions_of_rows(template, system, where)
        duration = _durations_of_rows(template, system, action, where)
        slot = _slots_of_rows(template)
        size = np.where(has_type(template, COMMUNICATION_TYPES), template.comm_size, template.tensor_size)
    else:
        # Slots as closed forms assume them: overlapped communication does not delay exposed communication
        slot = _slots_of_rows(template)
        slot[(slot == Slot.COMMUNICATION) & (template.comm_priority == 0)] = Slot.BACKGROUND
        slot[has_type(template, MEMORY_TYPES)] = Slot.MEMORY
        action = np.full(template.nodes, int(NodeAction.RUN))
        for node_type in COMMUNICATION_TYPES:
            action[template.type == node_type] = ACTIONS[node_type]
        duration = size = given_ns
    computes = (template.type == NodeType.COMP) & (template.on_cpu == 0) & (action == NodeAction.RUN)
    return Work(
        slot=slot,
        action=action,
        duration_ns=duration,
        size=size,
        compute_ns=np.where(computes, duration, 0),
        waits=waits,
        child_start=child_start,
        child=child,
    )


def has_type(template: Template, types: Sequence[NodeType]) -> npt.NDArray[np.bool_]:
    """Return which nodes are of one of these types; for a few types, several times faster than `numpy.isin`."""
    matches: npt.NDArray[np.bool_] = template.type == types[0]
    for type_ in types[1:]:
        matches |= template.type == type_
    return matches


def _slots_of_rows(template: Template) -> Ints:
    slots = np.full(template.nodes, int(Slot.COMMUNICATION))
    slots[template.type == NodeType.COMP] = Slot.COMPUTE
    slots[template.on_cpu != 0] = Slot.CPU
    slots[template.type == NodeType.COMM_RECV] = Slot.NONE
    return slots


def _actions_of_rows(template: Template, system: System, where: str) -> Ints:
    """Return the action that issuing each node takes; refuse a node that lacks an attribute it needs."""
    if system.replay_only:
        return np.full(template.nodes, int(NodeAction.RUN))
    kind = template.type
    action = np.full(template.nodes, int(NodeAction.SKIP))
    compute = kind == NodeType.COMP
    memory = has_type(template, MEMORY_TYPES)
    for node, does in ACTIONS.items():
        action[kind == node] = does
    communicates = has_type(template, COMMUNICATION_TYPES)
    collective = kind == NodeType.COMM_COLL
    exchange = communicates & ~collective
    by_roofline = compute & (template.on_cpu == 0) & system.roofline
    _require_attribute(template, by_roofline & (template.num_ops == ABSENT), "num_ops", where)
    _require_attribute(template, (by_roofline | memory) & (template.tensor_size == ABSENT), "tensor_size", where)
    _require_attribute(template, communicates & (template.comm_size == ABSENT), "comm_size", where)
    _require_attribute(template, exchange & (template.peer == ABSENT), "comm_dst or comm_src", where)
    _require_attribute(template, exchange & (template.comm_tag == ABSENT), "comm_tag", where)
    _require_attribute(template, collective & (template.comm_type == ABSENT), "comm_type", where)
    if (communicates & (template.on_cpu != 0)).any():
        row = int(np.argmax(communicates & (template.on_cpu != 0)))
        raise SpecError(f"{where}: {node_text(template, row)}", "is_cpu_op", "communication runs on the accelerator")
    action[collective & (template.comm_type == CollectiveType.BROADCAST)] = NodeAction.RUN
    action[by_roofline & (template.tensor_size == 0)] = NodeAction.SKIP
    return action


def _require_attribute(template: Template, lacking: npt.NDArray[np.bool_], key: str, where: str) -> None:
    if lacking.any():
        raise SpecError(f"{where}: {node_text(template, int(np.argmax(lacking)))}", None, f"needs {key}")


def _durations_of_rows(template: Template, system: System, action: Ints, where: str) -> Ints:
    """Return durations in nanoseconds: as recorded (at least 1), or by roofline, t = trunc(W / min(P, B W / Q)).

    W  operations    Q  bytes    P  peak [flop/s]    B  bandwidth of memory [bytes/s]
    """
    recorded = durations_ns(template.duration_us, template.duration_ns)
    _check_length(template, np.maximum(template.duration_us * 1e3, recorded.astype(np.float64)), where)
    replayed: Ints = np.maximum(1, recorded)
    if not system.roofline or system.replay_only:
        return replayed
    modelled = (template.type == NodeType.COMP) & (template.on_cpu == 0) & (action == NodeAction.RUN)
    work = np.where(modelled, template.num_ops, 1).astype(np.float64)
    size = np.where(modelled, template.tensor_size, 1).astype(np.float64)
    rate = np.minimum(system.memory_bytes_per_s * (work / size), system.peak_flop_per_s)
    none = work == 0  # only moves bytes
    seconds = np.where(none, size / system.memory_bytes_per_s, work / np.where(none, 1.0, rate))
    _check_length(template, np.where(modelled, seconds * 1e9, 0.0), where)
    nanoseconds: Ints = (np.where(modelled, seconds, 0.0) * 1e9).astype(np.int64)
    return np.where(modelled, nanoseconds, replayed)


def _check_length(template: Template, nanoseconds: npt.NDArray[np.floating[Any]], where: str) -> None:
    beyond = ~(nanoseconds <= LONGEST_NS)
    if beyond.any():
        row = int(np.argmax(beyond))
        rule = f"takes more than the {LONGEST_NS / 1e9:,.0f} s that can be simulated to the nanosecond"
        raise SpecError(f"{where}: {node_text(template, row)}", f"{nanoseconds[row] / 1e9:g} s", rule)


# ---- groups


class RingCache:
    """The rings of all ranks, each made once."""

    def __init__(
        self,
        network: SimulatedNetwork,
        system: System,
        groups: Groups,
        entity_of: Sequence[int],
        slots: Mapping[tuple[str, int], int],
    ) -> None:
        self._network, self._system, self._groups = network, system, groups
        self._entity_of, self._slots = entity_of, slots  # slots: the index under which a rank knows a group
        self._made: dict[tuple[str, int, int], Ring] = {}

    def levels(self, rank: int, kind: CollectiveType, group: str | None, mask: int) -> list[GroupLevel]:
        """Return the dimensions in which *rank* runs a collective of *kind* in a group, or among all."""
        levels = self._levels(rank, kind, group, mask)
        for level in levels:
            if level.algorithm.name == "inSwitch":
                self._need_switch(level)
        return levels

    def _need_switch(self, level: GroupLevel) -> None:
        members = level.ring.members
        if len(members) == 1:
            return
        crossed = {self._network.dims[dim].topology for dim in self._network.routes(members, np.roll(members, 1))[0]}
        rule = "no switch of a network of links reduces here: use ring, direct, halvingDoubling or doubleBinaryTree"
        require(GRAPH not in crossed, "inSwitch", f"{self._network.npus} NPUs", rule)
        require(crossed == {"Switch"}, "inSwitch", sorted(crossed), "runs in dimensions with a switch")

    def _levels(self, rank: int, kind: CollectiveType, group: str | None, mask: int) -> list[GroupLevel]:
        algorithms = self._algorithms(kind)
        if group is not None and len(self._groups[group]) < self._network.npus:
            chosen = algorithms[0] if len(algorithms) == 1 else Algorithm("ring")
            return [GroupLevel(0, self._group(group, rank), Algorithm(chosen.name, chosen.window))]
        if all(named == algorithms[0] and named.flat for named in algorithms):
            return [GroupLevel(0, self._all(group), algorithms[0])]
        dims, listed = len(self._network.dims), [named.name for named in algorithms]
        where = f"system: {NAMES[kind]}-implementation"
        require(len(algorithms) == dims, where, listed, f"one for each of {dims} dimensions, or one for all of them")
        require(
            not any(named.flat for named in algorithms), where, listed, "one for all dimensions must be the only one"
        )
        return [
            GroupLevel(dim, self._line(dim, rank, group), algorithm)
            for dim, algorithm in enumerate(algorithms)
            if group is not None or mask == ABSENT or mask >> dim & 1
        ]

    def whole_group(self, rank: int, group: str | None) -> GroupLevel:
        """Return a group as one dimension, however many the network has."""
        small = group is not None and len(self._groups[group]) < self._network.npus
        ring = self._group(group, rank) if group is not None and small else self._all(group)
        return GroupLevel(0, ring, Algorithm("ring"))

    def _algorithms(self, kind: CollectiveType) -> tuple[Algorithm, ...]:
        chosen = self._system.implementations.get(kind)
        if not chosen:
            where = f"system: {NAMES[kind]}-implementation"
            raise SpecError(where, None, "the trace has such collectives: name an algorithm")
        return chosen

    def _line(self, dim: int, rank: int, group: str | None) -> Ring:
        stride, npus = self._network.strides[dim], self._network.dims[dim].npus
        first = rank - self._network.coordinate(rank, dim) * stride
        return self._ring((group or "", dim, first), range(first, first + stride * npus, stride), group)

    def _all(self, group: str | None) -> Ring:
        return self._ring((group or "", -1, 0), range(self._network.npus), group)

    def _group(self, group: str, rank: int) -> Ring:
        members = self._groups[group]
        require(rank in members, f"group {group}", list(members), f"rank {rank} uses it and is no member")
        return self._ring((group, -2, 0), members, group)

    def _ring(self, key: tuple[str, int, int], members: Sequence[int], group: str | None) -> Ring:
        if key not in self._made:
            entities = [self._entity_of[rank] for rank in members]
            strange = ALL - 1 - len(self._made)  # to a rank that does not name the group, no two are the same
            slots = [ALL if group is None else self._slots.get((group, rank), strange) for rank in members]
            self._made[key] = Ring(self._network, members, entities, slots)
        return self._made[key]

    def made(self) -> list[tuple[int, Ring]]:
        """Return every ring made so far, with the dimension in whose queues its streams run."""
        return [(max(0, dim), ring) for (_, dim, _), ring in self._made.items()]


# ---- Prepare ranks for a simulation: their nodes lowered, their collectives placed, their messages addressed


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A rank that is ready to be simulated, for itself and for those that are like it."""

    entity: int
    rank: int
    trace: RankTrace
    work: Work
    collectives: list[tuple[Ints, CollectiveType, CollectivePlacement]]
    """Rows of collectives, and where they run."""
    exchanges: Ints
    """Rows of sends and receives."""
    peers: Ints
    """The other rank of each of them."""


def prepare_ranks(job: Job, folding: Folding) -> tuple[list[Prepared], RingCache]:
    """Return one rank of each class, and the rings in which they run collectives."""
    slots = {
        (name, rank): slot for rank, trace in enumerate(job.traces.ranks) for slot, name in enumerate(trace.groups)
    }
    rings = RingCache(job.network, job.system, job.groups, folding.entity_of, slots)
    works: dict[int, Work] = {}
    prepared: list[Prepared] = []
    for rank, entity in enumerate(folding.entity_of):
        if entity < len(prepared):
            continue
        trace = job.traces.ranks[rank]
        key = id(trace.template)
        if key not in works:
            durations_ns = None if job.given_ns is None else job.given_ns[key]
            works[key] = lower_template(trace.template, job.system, f"{job.traces.where}.{rank}.et", durations_ns)
        prepared.append(_prepare_rank(job, entity, rank, works[key], rings))
    return prepared, rings


def _prepare_rank(job: Job, entity: int, rank: int, work: Work, rings: RingCache) -> Prepared:
    trace = job.traces.ranks[rank]
    template = trace.template
    collectives = [
        (rows, *_placement_of_row(job, rank, trace, int(rows[0]), rings))
        for rows in _rows_by_placement(job, trace, np.flatnonzero(work.action == NodeAction.COLLECTIVE))
    ]
    exchanges = np.flatnonzero((work.action == NodeAction.SEND) | (work.action == NodeAction.RECEIVE))
    in_job = [0 <= peer < job.network.npus and peer != rank for peer in trace.peers]
    slots = template.peer[exchanges]
    if not all(in_job) and not (present := np.array(in_job)[slots]).all():
        row = int(exchanges[np.argmin(present)])
        where = f"rank {rank}: node {template.id[row]}: peer"
        raise SpecError(where, trace.peers[int(template.peer[row])], "no such other rank")
    peers = np.array(
        [peer if is_known else ABSENT for peer, is_known in zip(trace.peers, in_job, strict=True)], np.int64
    )
    remote = np.flatnonzero(work.action == NodeAction.MEMORY)
    if len(remote) and job.memory.type == "NO_MEMORY_EXPANSION":
        where = f"rank {rank}: node {template.id[remote[0]]}"
        raise SpecError(where, NodeType(int(template.type[remote[0]])).name, "needs a remote memory")
    return Prepared(entity, rank, trace, work, collectives, exchanges, peers[slots] if len(slots) else slots)


def _rows_by_placement(job: Job, trace: RankTrace, rows: Ints) -> Iterator[Ints]:
    """Yield rows of collectives that share a placement."""
    template, by_node = trace.template, job.system.custom_by_node
    columns = [template.comm_type, template.group, template.involved_dims, template.comm_priority]
    if by_node:
        columns.append(np.where(np.isin(template.id, list(by_node)), template.id, ABSENT))
    table = np.stack(columns, axis=1)[rows]
    _, kind = number_distinct_rows(table)
    order = np.argsort(kind, kind="stable")
    for same in np.split(rows[order], np.flatnonzero(np.diff(kind[order])) + 1):
        if len(same):
            yield same


def number_distinct_rows(table: Ints) -> tuple[int, Ints]:
    """Return the number of distinct rows, and the number of each row in their ascending order.

    >>> number_distinct_rows(np.array([[1, 2], [0, 5], [1, 2]]))
    (2, array([1, 0, 1]))
    """
    if len(table) == 0:
        return 0, np.zeros(0, np.int64)
    order = np.lexsort(table.T[::-1])
    new = np.concatenate([[False], (np.diff(table[order], axis=0) != 0).any(axis=1)])
    numbers = np.empty(len(table), np.int64)
    numbers[order] = np.cumsum(new)
    return int(new.sum()) + 1, numbers


def _placement_of_row(
    job: Job, rank: int, trace: RankTrace, row: int, rings: RingCache
) -> tuple[CollectiveType, CollectivePlacement]:
    """Return the type and the placement of a collective."""
    template = trace.template
    kind, slot, node = CollectiveType(int(template.comm_type[row])), int(template.group[row]), int(template.id[row])
    prefix = job.system.custom_by_node.get(node, job.system.custom.get(kind))
    group = None if slot == ABSENT else trace.groups[slot]
    if group is not None and group not in job.groups:
        raise SpecError(f"rank {rank}: node {node}: pg_name", group, "no such group")
    priority = int(template.comm_priority[row])
    if prefix is not None:
        level = rings.whole_group(rank, group)
        # A custom collective: the rank runs the trace of its position in the group.
        scripts = job.scripts[prefix].ranks
        require(
            len(scripts) == len(level.ring), f"{prefix}.*.et", len(scripts), f"the group has {len(level.ring)} members"
        )
        position = level.ring.position[rank]
        script = scripts[position]
        outside = [peer for peer in script.peers if not 0 <= peer < len(level.ring) or peer == position]
        require(not outside, f"{prefix}.{position}.et", outside[:1] or None, "no such other member")
        return kind, CollectivePlacement(slot, [level], priority, script)
    rule = "has no algorithm; choose from " + ", ".join(COLLECTIVES)
    require(kind in COLLECTIVES.values(), f"rank {rank}: node {node}: comm_type", kind.name.lower(), rule)
    return kind, CollectivePlacement(slot, rings.levels(rank, kind, group, int(template.involved_dims[row])), priority)
