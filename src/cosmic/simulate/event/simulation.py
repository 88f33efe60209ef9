"""Play execution traces on a simulated cluster: ASTRA-sim's job, on its inputs.

    files ──▶ traces, system, network ──▶ classes of ranks alike ──▶ one rank of each, played ──▶ times of all ranks
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosmic.errors import SpecError, require
from cosmic.simulate.event.folding import Folding, fold
from cosmic.simulate.event.inputs import RemoteMemory, System, read_network, read_remote_memory, read_system
from cosmic.simulate.event.lowering import Groups, Rings, all_groups, lower
from cosmic.simulate.event.network import Aware, Consistent, Network
from cosmic.simulate.event.ranks import NEVER, Action, Rank, Work
from cosmic.simulate.event.streams import Where
from cosmic.simulate.event.world import World
from cosmic.traces.trace import ABSENT, CollectiveType, NodeType, RankTrace, TraceSet

Channels = dict[tuple[int, int], tuple[int, ...]]
BACKENDS = ("unaware", "aware")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be simulated."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    system: System
    network: Network
    memory: RemoteMemory = field(default_factory=RemoteMemory)
    backend: str = "unaware"
    queues_per_dim: int = 1
    rendezvous: bool = False
    compat: bool = True
    scripts: dict[str, TraceSet] = field(default_factory=dict)


def play(job: Job, folding: Folding, *, closed_forms: bool = True) -> list[Rank]:
    """Play one rank of each class, and return them."""
    entity_of = folding.entity_of
    folded = folding.entities < len(entity_of)
    channels = folding.channels() if folded else {}
    world = World(job.network, job.system, job.memory, entity_of)
    world.queues_per_dim, world.rendezvous, world.compat = job.queues_per_dim, job.rendezvous, job.compat
    if job.backend == "aware":
        world.fabric = Aware(job.network, world.clock, entity_of)
    elif not job.compat:
        world.fabric = Consistent(job.network, world.clock, entity_of)
    quiet = job.backend == "unaware" and job.compat and not job.rendezvous and job.system.bus is None
    world.closed_forms = quiet and closed_forms
    rings = Rings(job.network, job.system, job.groups, entity_of)
    rings.slots = {
        (name, rank): slot for rank, trace in enumerate(job.traces.ranks) for slot, name in enumerate(trace.groups)
    }
    works: dict[int, Work] = {}
    ranks = []
    for rank, entity in enumerate(entity_of):
        if entity == len(ranks):
            trace = job.traces.ranks[rank]
            if id(trace.template) not in works:
                works[id(trace.template)] = lower(trace.template, job.system, f"{job.traces.where}.{rank}.et")
            player = Rank(world, entity, rank, works[id(trace.template)])
            _place(job, player, trace, rings, channels)
            ranks.append(player)
    for dim, ring in rings.made():
        world.introduce(ring, dim)
    for player in ranks:
        player.begin()
    world.clock.run()
    return ranks


def _place(job: Job, player: Rank, trace: RankTrace, rings: Rings, channels: Channels) -> None:
    """Tell a rank where its collectives run, and with whom its sends and receives talk."""
    template = trace.template
    for row, action in enumerate(player.work.action):
        if action == Action.COLLECTIVE:
            player.wheres[row] = _where(job, player.rank, trace, row, rings)
        elif action in (Action.SEND, Action.RECEIVE):
            peer = trace.peers[int(template.peer[row])]
            require(0 <= peer < job.network.npus, f"rank {player.rank}: node {template.id[row]}: peer", peer, "no such rank")
            tag, size = int(template.comm_tag[row]), int(template.comm_size[row])
            pair = (player.rank, peer) if action == Action.SEND else (peer, player.rank)
            player.channels[row] = (peer, channels.get((player.rank, row), (*pair, tag, size)))
        elif action == Action.MEMORY:
            require(job.memory.type != "NO_MEMORY_EXPANSION", f"rank {player.rank}: node {template.id[row]}", NodeType(int(template.type[row])).name, "needs a remote memory")


def _where(job: Job, rank: int, trace: RankTrace, row: int, rings: Rings) -> tuple[CollectiveType, Where]:
    template = trace.template
    kind = CollectiveType(int(template.comm_type[row]))
    slot = int(template.group[row])
    group = None if slot == ABSENT else trace.groups[slot]
    if group is not None and group not in job.groups:
        raise SpecError(f"rank {rank}: node {template.id[row]}: pg_name", group, "no such group")
    levels = rings.levels(rank, kind, group, int(template.involved_dims[row]))
    return kind, Where(slot, levels, int(template.comm_priority[row]))


def simulate(  # noqa: PLR0913  the inputs of ASTRA-sim, by name
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
) -> Any:
    """Play the traces *workload*.0.et ... on a system and a network, given as ASTRA-sim's own files."""
    from cosmic.traces.groups import read_groups
    from cosmic.traces.reading import read_traces

    net = Network(read_network(network))
    traces = read_traces(str(workload), net.npus)
    groups = all_groups(traces, read_groups(comm_groups) if comm_groups else {}, net.npus)
    job = Job(
        traces=traces,
        groups=groups,
        system=read_system(system, injection_scale),
        network=net,
        memory=read_remote_memory(remote_memory) if remote_memory else RemoteMemory(),
        backend=backend,
        queues_per_dim=queues_per_dim,
        rendezvous=rendezvous,
        compat=compat,
    )
    import os
    folding = fold(traces, groups, job.system, net, aware=backend == "aware")
    if os.environ.get("NOFOLD"): folding = Folding(list(range(net.npus)), folding.sends, folding.receives)
    if os.environ.get("SHOW"): print("entities", folding.entities)
    ranks = play(job, folding, closed_forms=not os.environ.get("NOCF"))
    class R: pass
    r = R(); r.cycles = max(x.end_ns for x in ranks); r.ranks = [ranks[e] for e in folding.entity_of]; r.folding=folding
    if any(x.end_ns == NEVER or x._ongoing for x in ranks): raise SpecError("workload", str(workload), "deadlock")
    return r
