"""Prepare ranks for a simulation: their nodes lowered, their collectives placed, their messages addressed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.simulate.events.astra_sim_inputs import COLLECTIVES
from cosmic.simulate.events.collective_planner import CollectivePlacement
from cosmic.simulate.events.rank_folding import Folding
from cosmic.simulate.events.simulated_rank import Action, Work
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.trace_lowering import RingCache, lower_template
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType, RankTrace


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
        for rows in _rows_by_placement(job, trace, np.flatnonzero(work.action == Action.COLLECTIVE))
    ]
    exchanges = np.flatnonzero((work.action == Action.SEND) | (work.action == Action.RECEIVE))
    in_job = [0 <= peer < job.network.npus and peer != rank for peer in trace.peers]
    slots = template.peer[exchanges]
    if not all(in_job) and not (present := np.array(in_job)[slots]).all():
        row = int(exchanges[np.argmin(present)])
        where = f"rank {rank}: node {template.id[row]}: peer"
        raise SpecError(where, trace.peers[int(template.peer[row])], "no such other rank")
    peers = np.array(
        [peer if is_known else ABSENT for peer, is_known in zip(trace.peers, in_job, strict=True)], np.int64
    )
    remote = np.flatnonzero(work.action == Action.MEMORY)
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
