"""Lower traces and settings to what the event loop runs: durations, slots, and groups as rings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.simulate.events.astra_sim_inputs import COLLECTIVES, Algorithm, System
from cosmic.simulate.events.collective_planner import GroupLevel
from cosmic.simulate.events.collective_rings import ALL, Ring
from cosmic.simulate.events.message_fabrics import GRAPH, SimulatedNetwork
from cosmic.simulate.events.simulated_rank import Action, Slot, Work
from cosmic.traces.dependencies import checked_dependencies
from cosmic.traces.findings import node_text
from cosmic.traces.replay import durations_ns
from cosmic.traces.trace import ABSENT, COMMUNICATION_TYPES, MEMORY_TYPES, CollectiveType, Ints, NodeType, Template

Groups = Mapping[str, Sequence[int]]
NAMES = {kind: name for name, kind in COLLECTIVES.items()}
ACTIONS = {
    NodeType.COMP: Action.RUN,
    NodeType.MEM_LOAD: Action.MEMORY,
    NodeType.MEM_STORE: Action.MEMORY,
    NodeType.COMM_SEND: Action.SEND,
    NodeType.COMM_RECV: Action.RECEIVE,
    NodeType.COMM_COLL: Action.COLLECTIVE,
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
        action = np.full(template.nodes, int(Action.RUN))
        for node_type in COMMUNICATION_TYPES:
            action[template.type == node_type] = ACTIONS[node_type]
        duration = size = given_ns
    computes = (template.type == NodeType.COMP) & (template.on_cpu == 0) & (action == Action.RUN)
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
        return np.full(template.nodes, int(Action.RUN))
    kind = template.type
    action = np.full(template.nodes, int(Action.SKIP))
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
    action[collective & (template.comm_type == CollectiveType.BROADCAST)] = Action.RUN
    action[by_roofline & (template.tensor_size == 0)] = Action.SKIP
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
    modelled = (template.type == NodeType.COMP) & (template.on_cpu == 0) & (action == Action.RUN)
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
