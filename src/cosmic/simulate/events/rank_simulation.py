"""Simulate one rank of each class: compiled where that is possible and pays, else in Python.

Both do the same, event by event; tests hold them to the same nanoseconds. Python is the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cosmic.base.garbage_collection import without_garbage_collection
from cosmic.base.native.library import native_library
from cosmic.simulate.events.message_fabrics import AwareFabric, ConsistentFabric, GraphFabric, TimedFabric
from cosmic.simulate.events.rank_folding import Folding
from cosmic.simulate.events.rank_preparation import Prepared, prepare_ranks
from cosmic.simulate.events.simulated_rank import Action, SimulatedRank, WorkLists
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.simulation_result import Simulation
from cosmic.simulate.events.simulation_world import World
from cosmic.simulate.events.trace_lowering import RingCache

FEW = 300
"""Up to this many nodes, or messages of a node and a chunk, Python is done before the core is loaded."""
Channels = dict[tuple[int, int], tuple[int, ...]]


def simulate_ranks(job: Job, folding: Folding, *, closed_forms: bool, checks_order: bool = True) -> Simulation:
    """Simulate one rank of each class; raise `Ambiguous` where the order of events of one moment is unknown."""
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
        pair = (rank, peer) if action == Action.SEND else (peer, rank)
        yield row, (peer, channels.get((rank, row), (*pair, tag, size)))
