"""Simulate execution traces on a cluster: ASTRA-sim's job, on its inputs.

files ──▶ traces, system, network ──▶ classes of equivalent ranks ──▶ one rank of each simulated ──▶ times of all ranks

A simulation that deadlocks is an error that says which ranks wait for each other, and in which nodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os.path import exists
from pathlib import Path

from cosmic.base.errors import SpecError, require
from cosmic.base.event_clock import without_garbage_collection
from cosmic.base.native.library import native_library
from cosmic.simulate.events.astra_sim_inputs import (
    COLLECTIVES,
    Algorithm,
    RemoteMemory,
    System,
    read_remote_memory,
    read_system,
)
from cosmic.simulate.events.message_fabrics import (
    AmbiguousOrder,
    AwareFabric,
    ConsistentFabric,
    GraphFabric,
    SimulatedNetwork,
    TimedFabric,
)
from cosmic.simulate.events.rank_folding import Folding, fold_ranks
from cosmic.simulate.events.simulation_job import Job, Prepared, RingCache, prepare_ranks, read_any_network
from cosmic.simulate.events.simulation_result import (
    FinishedRank,
    Simulation,
    SimulationResult,
    result_of,
    result_of_replay,
    track_local_memory,
)
from cosmic.simulate.events.simulation_world import NEVER, NodeAction, SimulatedRank, WorkLists, World
from cosmic.traces.chakra.trace_reader import read_traces
from cosmic.traces.replay import replay_traces
from cosmic.traces.trace import ALL_RANKS, NodeType, TraceSet, known_groups, read_groups
from cosmic.traces.trace_checks import check_traces, node_text

# ---- One rank of each class simulated: compiled where that is possible and pays, else in Python. Both do the same, event by event; tests hold them to the same nanoseconds. Python is the reference

FEW = 300
"""Up to this many nodes, or messages of a node and a chunk, Python is done before the core is loaded."""
Channels = dict[tuple[int, int], tuple[int, ...]]


def simulate_ranks(job: Job, folding: Folding, *, closed_forms: bool, checks_order: bool = True) -> Simulation:
    """Simulate one rank of each class; raise `AmbiguousOrder` where the order of events of one moment is unknown."""
    world = World(job.network, job.system, job.memory, folding.entity_of)
    world.queues_per_dim, world.rendezvous, world.compat = job.queues_per_dim, job.rendezvous, job.compat
    if job.given_ns is not None:
        world.fabric = TimedFabric(job.network, world.clock)
    elif job.graph is not None:
        world.fabric = GraphFabric(job.graph, world.clock)
    elif job.backend == "aware":
        world.fabric = AwareFabric(job.network, world.clock, folding.entity_of)
    elif not job.compat:
        world.fabric = ConsistentFabric(job.network, world.clock, folding.entity_of)
    quiet = job.backend == "unaware" and job.compat and not job.rendezvous and job.system.bus is None
    world.closed_forms = quiet and closed_forms and not job.order_may_differ
    world.checks_order = job.given_ns is None and (
        world.closed_forms or len(set(folding.entity_of)) < len(folding.entity_of)
    )
    world.checks_order = world.checks_order and checks_order
    prepared, rings = prepare_ranks(job, folding)
    channels = folding.channels(job.traces) if folding.entities < len(folding.entity_of) else {}
    if job.graph is None and _worth_compiling(world, prepared) and native_library() is not None:
        from cosmic.simulate.events.compiled_core import simulate_compiled  # noqa: PLC0415  small jobs need none of it

        if (compiled := simulate_compiled(job, world, prepared, rings, channels)) is not None:
            return compiled
    return _simulate_in_python(world, prepared, rings, channels)


def _worth_compiling(world: World, prepared: Sequence[Prepared]) -> bool:
    nodes = sum(rank.work.nodes for rank in prepared)
    each_node = 1 if world.closed_forms else world.network.npus * world.system.splits
    return nodes * each_node > FEW


def _simulate_in_python(world: World, prepared: Sequence[Prepared], rings: RingCache, channels: Channels) -> Simulation:
    works: dict[int, WorkLists] = {}
    ranks = []
    for prepared_rank in prepared:
        if id(prepared_rank.work) not in works:
            works[id(prepared_rank.work)] = prepared_rank.work.listed()
        rank = SimulatedRank(world, prepared_rank.entity, prepared_rank.rank, works[id(prepared_rank.work)])
        for rows, kind, placement in prepared_rank.collectives:
            rank.placements.update(dict.fromkeys(rows.tolist(), (kind, placement)))
        rank.channels.update(_channels_of_messages(prepared_rank, channels))
        ranks.append(rank)
    for dim, ring in rings.made():
        world.add_ring(ring, dim)
    with without_garbage_collection():
        for rank in ranks:
            rank.begin()
        world.clock.run()
    return Simulation(
        ranks=ranks,
        entity_of=world.entity_of,
        sent_bytes=world.sent_bytes,
        busy_ns=world.fabric.busy_ns(),
        events=world.clock.events,
    )


def _channels_of_messages(prepared: Prepared, channels: Channels) -> Iterator[tuple[int, tuple[int, tuple[int, ...]]]]:
    """Yield the peer and the channel of sends and receives, by row."""
    template, rank = prepared.trace.template, prepared.rank
    rows = prepared.exchanges
    columns = (prepared.work.action[rows], template.comm_tag[rows], template.comm_size[rows])
    numbers = (column.tolist() for column in (rows, prepared.peers, *columns))
    for row, peer, action, tag, size in zip(*numbers, strict=True):
        pair = (rank, peer) if action == NodeAction.SEND else (peer, rank)
        yield row, (peer, channels.get((rank, row), (*pair, tag, size)))


# ---- Why a simulation deadlocks: which ranks wait for each other, and in which nodes

SHOWN = 4
"""Ranks of a chain that the error names."""


def raise_if_deadlocked(
    traces: TraceSet, groups: Mapping[str, Sequence[int]], ranks: Sequence[FinishedRank], entity_of: Sequence[int]
) -> None:
    """Raise an error that says which ranks wait for each other, if any did not finish.

    Malformed traces (a cycle, a message without a receiver) get the error of `check_traces`. *entity_of* gives, for
    each rank,
    the index in *ranks* of the one simulated for it.
    """
    unfinished = [is_stuck(rank) for rank in ranks]
    stuck = [rank for rank, entity in enumerate(entity_of) if unfinished[entity]]
    if not stuck:
        return
    check_traces(traces, groups)
    chain: list[str] = []
    seen: list[int] = []
    waiting: int | None = stuck[0]
    while waiting is not None and unfinished[entity_of[waiting]] and waiting not in seen and len(chain) < SHOWN:
        text, waiting, following = _describe_wait(waiting, ranks[entity_of[waiting]], traces, ranks)
        seen.append(waiting)
        chain.append(text)
        waiting = following
    end = f", and so on back to rank {waiting}" if waiting in seen and len(seen) > 1 else ""
    count = "1 rank deadlocks" if len(stuck) == 1 else f"{len(stuck):,} ranks deadlock"
    raise SpecError(traces.where, count, "; ".join(chain) + end)


def is_stuck(rank: FinishedRank) -> bool:
    """Return whether a rank has nodes that did not finish."""
    return NEVER in rank.ended_ns


def _describe_wait(
    rank: int, simulated: FinishedRank, traces: TraceSet, ranks: Sequence[FinishedRank]
) -> tuple[str, int, int | None]:
    """Return a sentence about what rank *rank* waits for, the rank that it names, and the rank it waits for.

    *simulated* is the rank that was simulated for *rank*.
    """
    trace = traces.ranks[rank]
    begun, ended = simulated.begun_ns, simulated.ended_ns
    row = next((row for row, time in enumerate(begun) if time != NEVER and ended[row] == NEVER), None)
    if row is None:
        return f"rank {rank} has nodes that nothing starts", rank, None
    node, action = node_text(trace.template, row), simulated.action_of(row)
    if action in (NodeAction.SEND, NodeAction.RECEIVE):
        peer = trace.peers[int(trace.template.peer[row])]
        does = "receive from it" if action == NodeAction.SEND else "send to it"
        return f"rank {rank} {node} waits for rank {peer} to {does}", rank, peer
    rank = simulated.rank  # only the simulated rank's rings say which member is absent
    if action == NodeAction.COLLECTIVE:
        absent = _find_absent_member(simulated, row, ranks)
        if absent is not None:
            return f"rank {rank} {node} waits for rank {absent} to join", rank, absent
        return f"rank {rank} {node} was joined by all members, in different orders", rank, None
    return f"rank {rank} {node} never ends", rank, None


def _find_absent_member(rank: FinishedRank, row: int, ranks: Sequence[FinishedRank]) -> int | None:
    """Return a member that has begun fewer collectives of this group."""
    placement = rank.placement_of(row)
    begun = rank.streams_of(placement.slot)
    for level in placement.levels:
        for member, entity, slot in zip(level.ring.ranks, level.ring.entities, level.ring.slots, strict=True):
            if ranks[entity].streams_of(slot) < begun:
                return member
    return None


AGREED = "chunks that reach a queue at one moment: ranks are assumed to agree on their order, else they deadlock"


APART = 0.02
"""From this relative difference on, durations in the traces are worth a sentence."""


def simulate(  # noqa: PLR0913  ASTRA-sim's inputs, by name
    *,
    workload: str | Path,
    system: str | Path | None = None,
    network: str | Path | None = None,
    comm_groups: str | Path | None = None,
    remote_memory: str | Path | None = None,
    fail: Sequence[str] = (),
    backend: str | None = None,
    queues_per_dim: int = 1,
    injection_scale: float = 1.0,
    rendezvous: bool = False,
    compat: bool = True,
    track_local_mem: bool = False,
) -> SimulationResult:
    """Simulate the traces *workload*.0.et, *workload*.1.et ... on ASTRA-sim's system and network files.

    Recorded traces need neither: they are replayed on the machine that they were recorded on. With a *network* alone,
    their compute takes what it took, and collectives run as rings.
    *network* may also be a graph of links, in any format that `cosmic.network.network_files.network_file` knows; *fail*
    leaves out, or
    slows, some of them. Without *backend*, messages queue on the links of a graph, and nowhere else.
    *track_local_mem*, or the system's key of this name, adds the memory of the tensors that nodes state.
    """
    began = time.process_time()
    explicit_groups = _read_groups(workload, comm_groups)
    if network is None:
        for name, value in {"system": system, "remote_memory": remote_memory, "fail": fail, "backend": backend}.items():
            require(not value, name, value, "needs a network; without one, a recorded trace is replayed as it was")
        recorded = read_traces(workload)
        members = known_groups(recorded, explicit_groups)
        replayed = replay_traces(recorded, members)
        return _add_local_memory(
            replace(result_of_replay(recorded, replayed), cpu_s=time.process_time() - began), workload, track_local_mem
        )
    dims, graph = read_any_network(network, fail)
    net = SimulatedNetwork(dims)
    # A system whose compute takes what was recorded, with a ring in each dimension
    settings = (
        read_system(system, injection_scale)
        if system is not None
        else System(implementations=dict.fromkeys(COLLECTIVES.values(), (Algorithm("ring"),) * len(dims)))
    )
    memory = read_remote_memory(remote_memory) if remote_memory else RemoteMemory()
    traces = read_traces(workload, net.npus if graph is None else None)
    if system is None:
        require(
            all(rank.template.is_recorded for rank in traces.ranks), "system", None, "was not given: name a system JSON"
        )
    groups = {name: ranks for name, ranks in known_groups(traces, explicit_groups).items() if name not in ALL_RANKS}
    job = Job(
        traces=traces,
        groups=groups,
        system=settings,
        network=net,
        memory=memory,
        scripts=_read_scripts(settings, Path(system).parent) if system is not None else {},
        graph=graph,
        backend=backend or ("unaware" if graph is None else "aware"),
        queues_per_dim=queues_per_dim,
        rendezvous=rendezvous,
        compat=compat,
    )
    result = simulate_job(job, began=began)
    result = replace(result, warnings=(*result.warnings, *_differing_durations(result, traces, settings)))
    return _add_local_memory(result, workload, track_local_mem or settings.track_local_mem)


def _add_local_memory(result: SimulationResult, workload: str | Path, tracked: bool) -> SimulationResult:
    """Return a result with the local memory of its ranks, if it is *tracked*."""
    if not tracked:
        return result
    memories = track_local_memory(result, workload)
    unstated = sum(memory.unstated for memory in memories)
    note = f"{unstated:,} nodes state no tensors: their memory is not counted"
    return replace(result, local_memory=memories, warnings=(*result.warnings, *([note] if unstated else [])))


def _read_groups(workload: str | Path, path: str | Path | None) -> dict[str, tuple[int, ...]]:
    """Return the groups of a file that is given, or that lies beside the traces."""
    if path == "empty":  # ASTRA-sim's word for none
        return {}
    beside = f"{workload}.json"
    if path is None:
        return read_groups(beside) if exists(beside) and exists(f"{workload}.0.et") else {}
    return read_groups(path)


def _differing_durations(result: SimulationResult, traces: TraceSet, system: System) -> Iterator[str]:
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


def _read_scripts(system: System, beside: Path) -> dict[str, TraceSet]:
    """Return the traces of custom collectives, by prefix relative to the working directory or to *beside*."""
    scripts = {}
    for prefix in {*system.custom.values(), *system.custom_by_node.values()}:
        from_here = exists(f"{prefix}.0.et") or not exists(beside / f"{prefix}.0.et")
        scripts[prefix] = read_traces(prefix if from_here else beside / prefix)
    return scripts


def simulate_job(
    job: Job, *, folded: bool = True, closed_forms: bool = True, began: float | None = None
) -> SimulationResult:
    """Simulate *job*.

    *folded* simulates equivalent ranks once; *closed_forms* evaluates the phases of collectives that have a closed
    form. Neither keeps the order of events of one moment. Where the result depends on it, every rank and every message
    is simulated.
    """
    began = time.process_time() if began is None else began
    unfolded = _simulate_unfolded(job)
    folding = _fold_job(job) if folded and not job.order_may_differ else unfolded
    try:
        simulation = simulate_ranks(job, folding, closed_forms=closed_forms)
    except AmbiguousOrder:
        simulation = simulate_ranks(job, unfolded, closed_forms=False)
    warnings = job.system.warnings
    if any(map(is_stuck, simulation.ranks)) and (agreed := _simulate_in_agreed_order(job)) is not None:
        simulation = agreed
        warnings += (AGREED,)
    raise_if_deadlocked(job.traces, job.groups, simulation.ranks, simulation.entity_of)
    return replace(result_of(job, simulation, time.process_time() - began), warnings=warnings)


def _simulate_unfolded(job: Job) -> Folding:
    return Folding(list(range(len(job.traces.ranks))))


def _fold_job(job: Job) -> Folding:
    if job.graph is not None:
        return _simulate_unfolded(job)  # no two ranks of a graph are known to have equal links around them
    links = job.backend == "aware"
    return fold_ranks(
        job.traces, job.groups, job.system, job.network, links=links, exact_routes=links or not job.compat
    )


def _simulate_in_agreed_order(job: Job) -> Simulation | None:
    """Simulate a deadlocked job as if equivalent ranks took events of one moment in one order; None if it deadlocks."""
    try:
        simulation = simulate_ranks(job, _fold_job(job), closed_forms=True, checks_order=False)
    except AmbiguousOrder:
        return None
    return None if any(map(is_stuck, simulation.ranks)) else simulation
