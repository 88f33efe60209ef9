"""Find equivalent ranks, so that each class of them is simulated once.

Two ranks are equivalent if they run the same nodes and exchange messages, in the same steps and over equal routes, with
equivalent ranks. Classes are found by partition refinement: all ranks with the same template begin in one class; a
class is split as long as its ranks see different classes around them. The ranks of a final class behave the same: all
start at time 0, and each next event follows from a rank's own past and from messages of equivalent ranks.

The peers of a step depend on the algorithm: in a ring only the neighbours, in others more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.base.numeric import is_power_of_two
from cosmic.simulate.events.astra_sim_inputs import COLLECTIVES, OURS, Algorithm, System
from cosmic.simulate.events.collective_rings import GIVEN, KIND_OF, NO_MEMBER, algorithm_steps, double_binary_trees
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.traces.trace import ABSENT, MEMORY_TYPES, CollectiveType, Ints, NodeType, RankTrace, Template, TraceSet

Groups = Mapping[str, Sequence[int]]
Hashes = npt.NDArray[np.uint64]
MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))
"""Odd constants that spread bits: two different signatures practically never collide in 64 bits."""


Rows = dict[tuple[int, int], list[int]]
"""Sends, or receives, with one peer: rows by tag and size."""


@dataclass(frozen=True, slots=True, eq=False)
class Exchanges:
    """Pairs of ranks that exchange messages; an entry stands for all messages between a rank and one of its peers."""

    rank: Ints
    peer: Ints
    kind: Ints
    """Equal where both sides send the same messages, from the same rows of the same templates."""
    complete: bool
    """Whether every message has a sender and a receiver."""


@dataclass(frozen=True, slots=True, eq=False)
class Folding:
    """The entity that is simulated for each rank; entities are numbered in the order of their first ranks."""

    entity_of: list[int]

    @property
    def entities(self) -> int:
        """Number of classes."""
        return max(self.entity_of) + 1

    def channels(self, traces: TraceSet) -> dict[tuple[int, int], tuple[int, ...]]:
        """Return the channel of each message by rank and row: the receiving entity, and its first row that receives.

        Only simulated ranks have entries; every message must have a receiver.
        """
        messages = _Messages()
        channels: dict[tuple[int, int], tuple[int, ...]] = {}
        first = {entity: rank for rank, entity in reversed(list(enumerate(self.entity_of)))}
        for entity, rank in first.items():
            trace = traces.ranks[rank]
            for peer in set(trace.peers):
                peer_trace = traces.ranks[peer]
                slots, back = _indices_of_peer(trace, peer), _indices_of_peer(peer_trace, rank)
                waiting = messages.rows(peer_trace.template, NodeType.COMM_RECV, back)
                for key, rows in messages.rows(trace.template, NodeType.COMM_SEND, slots).items():
                    channels.update({(rank, row): (self.entity_of[peer], waiting[key][0]) for row in rows})
                for rows in messages.rows(trace.template, NodeType.COMM_RECV, slots).values():
                    channels.update({(rank, row): (entity, rows[0]) for row in rows})
        return channels


class _Messages:
    """The sends and receives of templates, by peer."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, NodeType], dict[int, Rows]] = {}

    def rows(self, template: Template, kind: NodeType, slots: tuple[int, ...]) -> Rows:
        """Return the rows in which a template sends to, or receives from, the peer at these *slots*."""
        key = (id(template), kind)
        if key not in self._found:
            by_peer: dict[int, Rows] = {}
            rows = np.flatnonzero((template.type == kind) & (template.peer != ABSENT))
            columns = (template.peer, template.comm_tag, template.comm_size)
            for row, slot, tag, size in zip(rows.tolist(), *(column[rows].tolist() for column in columns), strict=True):
                by_peer.setdefault(slot, {}).setdefault((tag, size), []).append(row)
            self._found[key] = by_peer
        if len(slots) == 1:
            return self._found[key].get(slots[0], {})
        merged: Rows = {}
        for slot in slots:
            for message, rows_of_message in self._found[key].get(slot, {}).items():
                merged[message] = sorted(merged.get(message, []) + rows_of_message)
        return merged

    def complete(
        self, template: Template, slots: tuple[int, ...], peer_template: Template, back: tuple[int, ...]
    ) -> bool:
        """Return whether two ranks receive all that they send each other."""
        send, receive = NodeType.COMM_SEND, NodeType.COMM_RECV
        return all(
            {key: len(rows) for key, rows in self.rows(template, first, slots).items()}
            == {key: len(rows) for key, rows in self.rows(peer_template, second, back).items()}
            for first, second in ((send, receive), (receive, send))
        )


def _indices_of_peer(trace: RankTrace, peer: int) -> tuple[int, ...]:
    """Return the indices of *peer* among the peers of a trace."""
    return tuple(index for index, other_rank in enumerate(trace.peers) if other_rank == peer)


def list_exchanges(traces: TraceSet) -> Exchanges:
    """Return the pairs of ranks that exchange messages."""
    messages, complete = _Messages(), True
    kinds: dict[tuple[int, tuple[int, ...], int, tuple[int, ...]], int] = {}
    entries: list[tuple[int, int, int]] = []
    for rank, trace in enumerate(traces.ranks):
        for peer in dict.fromkeys(trace.peers):
            if not 0 <= peer < len(traces.ranks):
                complete = False
                continue
            peer_trace = traces.ranks[peer]
            slots, back = _indices_of_peer(trace, peer), _indices_of_peer(peer_trace, rank)
            key = (id(trace.template), slots, id(peer_trace.template), back)
            if key not in kinds:
                kinds[key] = len(kinds)
                complete = complete and messages.complete(trace.template, slots, peer_trace.template, back)
            entries.append((rank, peer, kinds[key]))
    table = np.array(entries, np.int64).reshape(-1, 3)
    return Exchanges(table[:, 0], table[:, 1], table[:, 2], complete)


def fold_ranks(
    traces: TraceSet, groups: Groups, system: System, network: SimulatedNetwork, *, links: bool, exact_routes: bool
) -> Folding:
    """Return the classes of equivalent ranks; each rank is its own class where equivalence cannot be shown.

    *links*: messages may delay each other in links. *exact_routes*: the whole route of a message matters.
    """
    unfolded = Folding(list(range(len(traces.ranks))))
    if not _is_foldable(traces, system) or not _name_only_own_groups(traces, groups):
        return unfolded
    exchanged = list_exchanges(traces)
    stacks = list(_stack_groups(traces, groups, system, network))
    if not exchanged.complete or (links and not _links_of_ranks(network, stacks, exchanged)):
        return unfolded
    numbers: dict[int, int] = {}
    color = np.array([numbers.setdefault(id(rank.template), len(numbers)) for rank in traces.ranks], np.int64)
    classes = len(numbers)
    while True:
        signature = color.astype(np.uint64) * MIX[0]
        for stack in stacks:
            stack.sign(signature, color, network, exact_routes=exact_routes)
        # Mix the classes of message peers, and the routes to them, into the signatures of ranks
        route = _route_code(network, exchanged.rank, exchanged.peer, exact_routes=exact_routes)
        seen = _mix_hashes(exchanged.kind.astype(np.uint64), color[exchanged.peer].astype(np.uint64), route)
        with np.errstate(over="ignore"):
            np.add.at(signature, exchanged.rank, seen)
        _, first, refined = np.unique(signature, return_index=True, return_inverse=True)
        order = np.empty(len(first), np.int64)
        order[np.argsort(first)] = np.arange(len(first))
        color = order[refined.reshape(-1)]
        if len(first) == classes:
            return Folding(color.tolist())
        classes = len(first)


def _is_foldable(traces: TraceSet, system: System) -> bool:
    """Return whether ranks affect each other through messages only."""
    if system.custom or system.custom_by_node or system.bus is not None:
        return False
    own = all(algorithm.name == GIVEN for listed in system.implementations.values() for algorithm in listed)
    return own or not any(np.isin(template.type, MEMORY_TYPES).any() for template in traces.templates())


def _name_only_own_groups(traces: TraceSet, groups: Groups) -> bool:
    """Return whether every rank is a member of all groups that it names."""
    members = {name: set(ranks) for name, ranks in groups.items()}
    return all(rank in members.get(name, ()) for rank, trace in enumerate(traces.ranks) for name in trace.groups)


class _Stack:
    """Disjoint groups of one size: a row of members for each, and the slot under which each member knows it."""

    def __init__(self, members: Ints, slots: Ints, relations: list[Ints], *, placed: bool) -> None:
        self.members, self.slots, self.relations, self.placed = members, slots, relations, placed

    def sign(self, signature: Hashes, color: Ints, network: SimulatedNetwork, *, exact_routes: bool) -> None:
        """Mix the classes of its peers into every member's signature."""
        size = self.members.shape[1]
        seen = color[self.members] * np.int64(2**20) + self.slots
        own = _mix_hashes(signature[self.members], seen.astype(np.uint64), np.uint64(size))
        if self.placed:
            own = _mix_hashes(own, np.arange(size, dtype=np.uint64)[None, :], np.uint64(1))
        for relation in self.relations:
            has_partner = relation != NO_MEMBER
            partners = np.where(has_partner, relation, 0)
            route = _route_code(network, self.members, self.members[:, partners], exact_routes=exact_routes)
            mixed = _mix_hashes(own, seen[:, partners].astype(np.uint64), route)
            own = np.where(has_partner[None, :], mixed, _mix_hashes(own, np.uint64(11), np.uint64(13)))
        signature[self.members] = own


def _mix_hashes(state: Hashes, first: Hashes | np.uint64, second: Hashes | np.uint64) -> Hashes:
    with np.errstate(over="ignore"):
        mixed: Hashes = (state ^ (first * MIX[0] + second + np.uint64(1))) * MIX[1]
        mixed ^= mixed >> np.uint64(29)
        return mixed * MIX[0]


def _route_code(network: SimulatedNetwork, sources: Ints, targets: Ints, *, exact_routes: bool) -> Hashes:
    """Return codes that are equal for equal routes: the first dimension and its links, or the *exact_routes* path."""
    if exact_routes:
        return network.path_codes(sources, targets).astype(np.uint64)
    dims, hops = network.routes(sources, targets)
    return (dims * np.int64(2**40) + hops).astype(np.uint64)


def _stack_groups(traces: TraceSet, groups: Groups, system: System, network: SimulatedNetwork) -> Iterator[_Stack]:
    """Yield the groups in which ranks run collectives."""
    listed = [algorithms for kind in COLLECTIVES.values() if (algorithms := system.implementations.get(kind))]
    slots = {(name, rank): slot for rank, trace in enumerate(traces.ranks) for slot, name in enumerate(trace.groups)}
    names = {name: len(groups[name]) for name, _ in slots if name in groups}
    for size, stacked in _are_disjoint(
        {name: groups[name] for name, size in names.items() if 1 < size < network.npus}, slots
    ):
        chosen = {dim_algorithms[0] if len(dim_algorithms) == 1 else Algorithm("ring") for dim_algorithms in listed}
        relations, placed = _relations_of_ranks(chosen, size)
        slots_of_members = np.array([[slots.get((name, rank), ABSENT) for rank in groups[name]] for name in stacked])
        yield _Stack(np.array([groups[name] for name in stacked], np.int64), slots_of_members, relations, placed=placed)
    everyone = any(
        (template.group[template.type == NodeType.COMM_COLL] == ABSENT).any() for template in traces.templates()
    )
    if everyone or network.npus in names.values():
        ranks = np.arange(network.npus)
        flat = {algorithms[0] for algorithms in listed if algorithms[0].flat}
        if flat:
            hops, offsets = _relations_of_ranks(flat, network.npus)
            yield _Stack(ranks[None, :], np.zeros_like(ranks)[None, :], hops, placed=offsets)
        for dim, (stride, spec) in enumerate(zip(network.strides, network.dims, strict=True)):
            used = {
                dim_algorithms[dim]
                for dim_algorithms in listed
                if len(dim_algorithms) > dim and not dim_algorithms[0].flat
            }
            lines = ranks.reshape(-1, spec.npus, stride).swapaxes(1, 2).reshape(-1, spec.npus)
            hops, offsets = _relations_of_ranks(used, spec.npus)
            yield _Stack(lines, np.zeros_like(lines), hops, placed=offsets)


def _are_disjoint(groups: Groups, slots: dict[tuple[str, int], int]) -> Iterator[tuple[int, list[str]]]:
    """Yield lists of disjoint groups of one size; equivalent ranks see them in the same order."""
    stacks: dict[tuple[int, int], list[tuple[list[str], set[int]]]] = {}
    for name, members in groups.items():
        slot = min(slots.get((name, rank), 2**31) for rank in members)
        candidates = stacks.setdefault((slot, len(members)), [])
        fitting = next((stack for stack in candidates if stack[1].isdisjoint(members)), None)
        if fitting is None:
            candidates.append(fitting := ([], set()))
        fitting[0].append(name)
        fitting[1].update(members)
    for (_, size), candidates in sorted(stacks.items(), key=lambda item: item[0]):
        for names, _ in candidates:
            yield size, names


def _relations_of_ranks(algorithms: set[Algorithm], size: int) -> tuple[list[Ints], bool]:
    """Return the peers of each position, step by step, and whether a member's own position matters."""
    position, partners, placed = np.arange(size), [], False
    names = {algorithm.name for algorithm in algorithms}
    if "direct" in names or "inSwitch" in names:
        partners += [(position + distance) % size for distance in range(1, size)]
    if "ring" in names or GIVEN in names:
        partners += [(position + 1) % size, (position - 1) % size]
    if "halvingDoubling" in names:
        for step in algorithm_steps("halvingDoubling", CollectiveType.ALL_REDUCE, size, 1 << 40):
            partners += [step.to, step.source]
        placed = placed or not is_power_of_two(size)
    for name in sorted(name for name in names if name.startswith(OURS)):
        for kind in KIND_OF:
            for step in algorithm_steps(name, kind, size, 1 << 40):
                partners += [step.to, step.source]
        placed = True
    if "doubleBinaryTree" in names:
        for tree in double_binary_trees(size):
            partners.append(np.array(tree.parent))
            partners += [
                np.array([(*children, NO_MEMBER, NO_MEMBER)[side] for children in tree.children]) for side in (0, 1)
            ]
        placed = True  # an inner node distinguishes its children
    return partners, placed


def _links_of_ranks(network: SimulatedNetwork, stacks: list[_Stack], exchanged: Exchanges) -> bool:
    """Return whether every link is used by one rank only, as sender or as receiver.

    That holds where messages cross one dimension, and only between neighbours if it is a ring.
    """
    pairs = [
        (stack.members, stack.members[:, np.where(relation == NO_MEMBER, np.arange(len(relation)), relation)])
        for stack in stacks
        for relation in stack.relations
    ]
    for sources, targets in [*pairs, (exchanged.rank, exchanged.peer)]:
        dims, passed = network.dimensions_crossed(sources, targets)
        if (dims > 1).any() or (passed > 1).any():
            return False
    return True
