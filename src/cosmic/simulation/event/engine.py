"""Simulate execution traces on a cluster: ASTRA-sim's job, on its inputs.

files ──▶ traces, system, network ──▶ classes of equivalent ranks ──▶ one rank of each simulated ──▶ times of all ranks
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os.path import exists
from pathlib import Path

import numpy as np

from cosmic.errors import SpecError, UnknownName, require
from cosmic.simulation.event.deadlocks import is_stuck, raise_if_deadlocked
from cosmic.simulation.event.folding import Folding, fold
from cosmic.simulation.event.inputs import (
    COLLECTIVES,
    RemoteMemory,
    System,
    read_network,
    read_remote_memory,
    read_system,
)
from cosmic.simulation.event.lowering import Rings, lower
from cosmic.simulation.event.network import Ambiguous, Aware, Consistent, Network, Timed
from cosmic.simulation.event.planning import CollectivePlacement
from cosmic.simulation.event.ranks import Action, Rank, Work
from cosmic.simulation.event.result import Result, result_of
from cosmic.simulation.event.rings import Ring
from cosmic.simulation.event.world import World
from cosmic.traces.checks import check
from cosmic.traces.groups import ALL_RANKS, known_groups, read_groups
from cosmic.traces.reading import read_traces
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType, RankTrace, TraceSet

BACKENDS = ("unaware", "aware")
AGREED = "chunks that reach a queue at one moment: ranks are assumed to agree on their order, else they deadlock"
Channels = dict[tuple[int, int], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The inputs of one simulation."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    system: System
    network: Network
    memory: RemoteMemory = field(default_factory=RemoteMemory)
    scripts: Mapping[str, TraceSet] = field(default_factory=dict)
    """Traces that implement a collective in place of an algorithm, by prefix."""
    given_ns: Mapping[int, Ints] | None = None
    """Durations of nodes by the `id` of their template, in place of those that system and network would give."""
    backend: str = "unaware"
    queues_per_dim: int = 1
    rendezvous: bool = False
    compat: bool = True
    """Compute as ASTRA-sim does, even where it multiplies bandwidth. Otherwise concurrent messages share an NPU's
    bandwidth, and groups take the endpoint delay of the system."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UnknownName.among("backend", self.backend, "back end", BACKENDS)
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
            check(script)


APART = 0.02
"""From this relative difference on, durations in the traces are worth a sentence."""


def simulate(  # noqa: PLR0913  ASTRA-sim's inputs, by name
    *,
    workload: str | Path,
    system: str | Path,
    network: str | Path,
    comm_groups: str | Path | None = None,
    remote_memory: str | Path | None = None,
    backend: str = "unaware",
    queues_per_dim: int = 1,
    injection_scale: float = 1.0,
    rendezvous: bool = False,
    compat: bool = True,
) -> Result:
    """Simulate the traces *workload*.0.et, *workload*.1.et ... on ASTRA-sim's system and network files."""
    began = time.process_time()
    net = Network(read_network(network))
    settings = read_system(system, injection_scale)
    memory = read_remote_memory(remote_memory) if remote_memory else RemoteMemory()
    given = {} if comm_groups in (None, "empty") else read_groups(comm_groups or "")  # ASTRA-sim's word for none
    traces = read_traces(workload, net.npus)
    known = {name: ranks for name, ranks in known_groups(traces, given).items() if name not in ALL_RANKS}
    job = Job(
        traces=traces,
        groups=known,
        system=settings,
        network=net,
        memory=memory,
        scripts=_scripts(settings, Path(system).parent),
        backend=backend,
        queues_per_dim=queues_per_dim,
        rendezvous=rendezvous,
        compat=compat,
    )
    result = run(job, began=began)
    return replace(result, warnings=(*result.warnings, *_other_durations(result, traces, settings)))


def _other_durations(result: Result, traces: TraceSet, system: System) -> Iterator[str]:
    """Yield a sentence where the traces record other durations of compute than the roofline that replaces them."""
    if not system.roofline or system.replay_only:
        return
    slowest = max(result.per_npu, key=lambda npu: npu.cycles)
    template = traces.ranks[slowest.npu].template
    recorded = int(template.duration_us[template.type == NodeType.COMP].sum()) * 1000
    if recorded > 0 and abs(slowest.compute_cycles / recorded - 1) > APART:
        yield (
            f"compute takes {slowest.compute_cycles:,} cycles by the roofline of the system file, {recorded:,} as the"
            " traces record it: roofline-enabled 0 plays the latter"
        )


def _scripts(system: System, beside: Path) -> dict[str, TraceSet]:
    """Return the traces of custom collectives, by prefix relative to the working directory or to *beside*."""
    found = {}
    for prefix in {*system.custom.values(), *system.custom_by_node.values()}:
        here = exists(f"{prefix}.0.et") or not exists(beside / f"{prefix}.0.et")
        found[prefix] = read_traces(prefix if here else beside / prefix)
    return found


def run(job: Job, *, folded: bool = True, closed_forms: bool = True, began: float | None = None) -> Result:
    """Simulate *job*.

    *folded* simulates equivalent ranks once; *closed_forms* evaluates the phases of collectives that have a closed
    form. Neither keeps the order of events of one moment. Where the result depends on it, every rank and every message
    is simulated.
    """
    began = time.process_time() if began is None else began
    each = Folding(list(range(len(job.traces.ranks))))
    found = _folding(job) if folded and not _order_may_differ(job) else each
    try:
        world, ranks = simulate_ranks(job, found, closed_forms=closed_forms)
    except Ambiguous:
        world, ranks = simulate_ranks(job, each, closed_forms=False)
    warnings = world.system.warnings
    if any(map(is_stuck, ranks)) and (agreed := _simulate_in_agreed_order(job)) is not None:
        world, ranks = agreed
        warnings += (AGREED,)
    raise_if_deadlocked(job.traces, job.groups, ranks, world.entity_of)
    return replace(result_of(world, ranks, job.traces, time.process_time() - began), warnings=warnings)


def _folding(job: Job) -> Folding:
    links = job.backend == "aware"
    return fold(job.traces, job.groups, job.system, job.network, links=links, whole=links or not job.compat)


def _simulate_in_agreed_order(job: Job) -> tuple[World, list[Rank]] | None:
    """Simulate a deadlocked job as if equivalent ranks took events of one moment in one order; None if it deadlocks."""
    try:
        world, ranks = simulate_ranks(job, _folding(job), closed_forms=True, checks_order=False)
    except Ambiguous:
        return None
    return None if any(map(is_stuck, ranks)) else (world, ranks)


def _order_may_differ(job: Job) -> bool:
    """Return whether ranks may begin chunks in different orders because two chunks end at one moment."""
    plain = job.backend == "unaware" and job.compat and not job.rendezvous
    return job.queues_per_dim > 1 and not (plain and job.system.intra_dimension_scheduling == "FIFO")


def simulate_ranks(
    job: Job, folding: Folding, *, closed_forms: bool, checks_order: bool = True
) -> tuple[World, list[Rank]]:
    """Simulate one rank of each class; return the world and these ranks."""
    world = _world(job, folding.entity_of, closed_forms=closed_forms)
    world.checks_order = world.checks_order and checks_order
    slots = {
        (name, rank): slot for rank, trace in enumerate(job.traces.ranks) for slot, name in enumerate(trace.groups)
    }
    rings = Rings(job.network, job.system, job.groups, folding.entity_of, slots)
    channels = folding.channels(job.traces) if folding.entities < len(folding.entity_of) else {}
    works: dict[int, Work] = {}
    ranks: list[Rank] = []
    for rank, entity in enumerate(folding.entity_of):
        if entity < len(ranks):
            continue
        trace = job.traces.ranks[rank]
        if id(trace.template) not in works:
            given = None if job.given_ns is None else job.given_ns[id(trace.template)]
            works[id(trace.template)] = lower(trace.template, job.system, f"{job.traces.where}.{rank}.et", given)
        simulated = Rank(world, entity, rank, works[id(trace.template)])
        _place(job, simulated, trace, rings, channels)
        ranks.append(simulated)
    for dim, ring in rings.made():
        world.add_ring(ring, dim)
    with _without_garbage_collection():
        for simulated in ranks:
            simulated.begin()
        world.clock.run()
    return world, ranks


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector: the loop makes no cycles, and scanning millions of live nodes takes time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _world(job: Job, entity_of: Sequence[int], *, closed_forms: bool) -> World:
    world = World(job.network, job.system, job.memory, entity_of)
    world.queues_per_dim, world.rendezvous, world.compat = job.queues_per_dim, job.rendezvous, job.compat
    if job.given_ns is not None:
        world.fabric = Timed(job.network, world.clock)
    elif job.backend == "aware":
        world.fabric = Aware(job.network, world.clock, entity_of)
    elif not job.compat:
        world.fabric = Consistent(job.network, world.clock, entity_of)
    quiet = job.backend == "unaware" and job.compat and not job.rendezvous and job.system.bus is None
    world.closed_forms = quiet and closed_forms and not _order_may_differ(job)
    world.checks_order = job.given_ns is None and (world.closed_forms or len(set(entity_of)) < len(entity_of))
    return world


def _place(job: Job, simulated: Rank, trace: RankTrace, rings: Rings, channels: Channels) -> None:
    """Set the placements of a rank's collectives, and the peers and channels of its sends and receives."""
    template, action = trace.template, np.asarray(simulated.work.action)
    for rows in _by_placement(job, trace, np.flatnonzero(action == Action.COLLECTIVE)):
        simulated.placements.update(dict.fromkeys(rows, _placement(job, simulated.rank, trace, rows[0], rings)))
    for row in np.flatnonzero((action == Action.SEND) | (action == Action.RECEIVE)).tolist():
        peer = trace.peers[int(template.peer[row])]
        place = f"rank {simulated.rank}: node {template.id[row]}: peer"
        require(0 <= peer < job.network.npus and peer != simulated.rank, place, peer, "no such other rank")
        pair = (simulated.rank, peer) if action[row] == Action.SEND else (peer, simulated.rank)
        key = (*pair, int(template.comm_tag[row]), int(template.comm_size[row]))
        simulated.channels[row] = (peer, channels.get((simulated.rank, row), key))
    remote = np.flatnonzero(action == Action.MEMORY)
    if len(remote) and job.memory.type == "NO_MEMORY_EXPANSION":
        place = f"rank {simulated.rank}: node {template.id[remote[0]]}"
        raise SpecError(place, NodeType(int(template.type[remote[0]])).name, "needs a remote memory")


def _by_placement(job: Job, trace: RankTrace, rows: Ints) -> Iterator[list[int]]:
    """Yield rows of collectives that share a placement."""
    template, by_node = trace.template, job.system.custom_by_node
    columns = [template.comm_type, template.group, template.involved_dims, template.comm_priority]
    if by_node:
        columns.append(np.where(np.isin(template.id, list(by_node)), template.id, ABSENT))
    table = np.stack(columns, axis=1)[rows]
    _, kind = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(kind.reshape(-1), kind="stable")
    for same in np.split(rows[order], np.flatnonzero(np.diff(kind.reshape(-1)[order])) + 1):
        if len(same):
            yield same.tolist()


def _placement(
    job: Job, rank: int, trace: RankTrace, row: int, rings: Rings
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
        level = rings.whole(rank, group)
        return kind, CollectivePlacement(slot, [level], priority, _script(job, prefix, level.ring, rank))
    known = "has no algorithm; choose from " + ", ".join(COLLECTIVES)
    require(kind in COLLECTIVES.values(), f"rank {rank}: node {node}: comm_type", kind.name.lower(), known)
    return kind, CollectivePlacement(slot, rings.levels(rank, kind, group, int(template.involved_dims[row])), priority)


def _script(job: Job, prefix: str, ring: Ring, rank: int) -> RankTrace:
    """Return the trace that *rank* runs in a custom collective."""
    scripts = job.scripts[prefix].ranks
    require(len(scripts) == len(ring), f"{prefix}.*.et", len(scripts), f"the group has {len(ring)} members")
    position = ring.position[rank]
    script = scripts[position]
    outside = [peer for peer in script.peers if not 0 <= peer < len(ring) or peer == position]
    require(not outside, f"{prefix}.{position}.et", outside[:1] or None, "no such other member")
    return script
