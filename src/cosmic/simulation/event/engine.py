"""Play execution traces on a simulated cluster: ASTRA-sim's job, on its inputs.

files ──▶ traces, system, network ──▶ classes of ranks alike ──▶ one rank of each, played ──▶ times of all ranks
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
from cosmic.simulation.event.folding import Folding, fold
from cosmic.simulation.event.inputs import KINDS, RemoteMemory, System, read_network, read_remote_memory, read_system
from cosmic.simulation.event.lowering import Rings, lower
from cosmic.simulation.event.network import Ambiguous, Aware, Consistent, Network, Timed
from cosmic.simulation.event.planning import Where
from cosmic.simulation.event.ranks import Action, Rank, Work
from cosmic.simulation.event.result import Result, result_of
from cosmic.simulation.event.rings import Ring
from cosmic.simulation.event.stalls import explain, stands
from cosmic.simulation.event.world import World
from cosmic.traces.checks import check
from cosmic.traces.groups import EVERYONE, known_groups, read_groups
from cosmic.traces.reading import read_traces
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType, RankTrace, TraceSet

BACKENDS = ("unaware", "aware")
AGREED = "chunks that reach a queue at one moment: all ranks are taken to agree on their order, else they stand still"
Channels = dict[tuple[int, int], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be simulated."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    system: System
    network: Network
    memory: RemoteMemory = field(default_factory=RemoteMemory)
    scripts: Mapping[str, TraceSet] = field(default_factory=dict)
    """By prefix: traces that say what a collective does, in place of an algorithm."""
    given_ns: Mapping[int, Ints] | None = None
    """By the `id` of a template: how long each of its nodes takes, in place of what system and network would say."""
    backend: str = "unaware"
    queues_per_dim: int = 1
    rendezvous: bool = False
    compat: bool = True
    """As ASTRA-sim does, even where it multiplies bandwidth; otherwise an NPU's bandwidth is shared by what it
    sends at a time, and groups pay the endpoint delay that the settings give."""

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
            require(
                own in (None, rank), f"{self.traces.where}.{rank}.et", own, f"talks as this rank, but is rank {rank}"
            )
        for script in self.scripts.values():
            check(script)


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
    """Play the traces *workload*.0.et, *workload*.1.et ... on a system and a network: ASTRA-sim's own files."""
    began = time.process_time()
    net = Network(read_network(network))
    settings = read_system(system, injection_scale)
    memory = read_remote_memory(remote_memory) if remote_memory else RemoteMemory()
    given = {} if comm_groups in (None, "empty") else read_groups(comm_groups or "")  # ASTRA-sim's word for none
    traces = read_traces(workload, net.npus)
    known = {name: ranks for name, ranks in known_groups(traces, given).items() if name not in EVERYONE}
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
    return run(job, began=began)


def _scripts(system: System, beside: Path) -> dict[str, TraceSet]:
    """Return the traces of collectives that settings name, as from here or as from *beside* the settings."""
    found = {}
    for prefix in {*system.custom.values(), *system.custom_by_node.values()}:
        here = exists(f"{prefix}.0.et") or not exists(beside / f"{prefix}.0.et")
        found[prefix] = read_traces(prefix if here else beside / prefix)
    return found


def run(job: Job, *, folded: bool = True, closed_forms: bool = True, began: float | None = None) -> Result:
    """Simulate *job*: ranks alike once, and phases whose course is known at once, unless told otherwise.

    Where a result depends on the order of events of one moment, which these short cuts do not keep, all is played.
    """
    began = time.process_time() if began is None else began
    each = Folding(list(range(len(job.traces.ranks))))
    found = _folding(job) if folded and not _subtle(job) else each
    try:
        world, ranks = play(job, found, closed_forms=closed_forms)
    except Ambiguous:
        world, ranks = play(job, each, closed_forms=False)
    warnings = world.system.warnings
    if any(map(stands, ranks)) and (agreed := _agreed(job)) is not None:
        world, ranks = agreed
        warnings += (AGREED,)
    explain(job.traces, job.groups, ranks, world.entity_of)
    return replace(result_of(world, ranks, job.traces, time.process_time() - began), warnings=warnings)


def _folding(job: Job) -> Folding:
    links = job.backend == "aware"
    return fold(job.traces, job.groups, job.system, job.network, links=links, whole=links or not job.compat)


def _agreed(job: Job) -> tuple[World, list[Rank]] | None:
    """Play a job that stands still as if ranks alike took the events of one moment in one order, if that helps."""
    try:
        world, ranks = play(job, _folding(job), closed_forms=True, checks_order=False)
    except Ambiguous:
        return None
    return None if any(map(stands, ranks)) else (world, ranks)


def _subtle(job: Job) -> bool:
    """Return whether ranks may begin chunks in different orders only because two end at one moment."""
    plain = job.backend == "unaware" and job.compat and not job.rendezvous
    return job.queues_per_dim > 1 and not (plain and job.system.intra_dimension_scheduling == "FIFO")


def play(job: Job, folding: Folding, *, closed_forms: bool, checks_order: bool = True) -> tuple[World, list[Rank]]:
    """Play one rank of each class, and return them with the world they lived in."""
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
        player = Rank(world, entity, rank, works[id(trace.template)])
        _place(job, player, trace, rings, channels)
        ranks.append(player)
    for dim, ring in rings.made():
        world.introduce(ring, dim)
    with _without_collector():
        for player in ranks:
            player.begin()
        world.clock.run()
    return world, ranks


@contextmanager
def _without_collector() -> Iterator[None]:
    """Leave cyclic garbage alone meanwhile: the loop makes none, and to look at millions of live nodes takes time."""
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
    world.closed_forms = quiet and closed_forms and not _subtle(job)
    world.checks_order = job.given_ns is None and (world.closed_forms or len(set(entity_of)) < len(entity_of))
    return world


def _place(job: Job, player: Rank, trace: RankTrace, rings: Rings, channels: Channels) -> None:
    """Tell a rank where its collectives run, and with whom its sends and receives talk."""
    template, action = trace.template, np.asarray(player.work.action)
    for rows in _alike(job, trace, np.flatnonzero(action == Action.COLLECTIVE)):
        player.wheres.update(dict.fromkeys(rows, _where(job, player.rank, trace, rows[0], rings)))
    for row in np.flatnonzero((action == Action.SEND) | (action == Action.RECEIVE)).tolist():
        peer = trace.peers[int(template.peer[row])]
        place = f"rank {player.rank}: node {template.id[row]}: peer"
        require(0 <= peer < job.network.npus and peer != player.rank, place, peer, "no such other rank")
        pair = (player.rank, peer) if action[row] == Action.SEND else (peer, player.rank)
        key = (*pair, int(template.comm_tag[row]), int(template.comm_size[row]))
        player.channels[row] = (peer, channels.get((player.rank, row), key))
    remote = np.flatnonzero(action == Action.MEMORY)
    if len(remote) and job.memory.type == "NO_MEMORY_EXPANSION":
        place = f"rank {player.rank}: node {template.id[remote[0]]}"
        raise SpecError(place, NodeType(int(template.type[remote[0]])).name, "needs a remote memory")


def _alike(job: Job, trace: RankTrace, rows: Ints) -> Iterator[list[int]]:
    """Yield rows of collectives that run in the same place, in the same way."""
    template, by_node = trace.template, job.system.custom_by_node
    columns = [template.comm_type, template.group, template.involved_dims, template.comm_priority]
    if by_node:
        columns.append(np.where(np.isin(template.id, list(by_node)), template.id, ABSENT))
    table = np.stack(columns, axis=1)[rows]
    _, kind = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(kind.reshape(-1), kind="stable")
    for part in np.split(rows[order], np.flatnonzero(np.diff(kind.reshape(-1)[order])) + 1):
        if len(part):
            yield part.tolist()


def _where(job: Job, rank: int, trace: RankTrace, row: int, rings: Rings) -> tuple[CollectiveType, Where]:
    """Return where a collective runs."""
    template = trace.template
    kind, slot, node = CollectiveType(int(template.comm_type[row])), int(template.group[row]), int(template.id[row])
    prefix = job.system.custom_by_node.get(node, job.system.custom.get(kind))
    group = None if slot == ABSENT else trace.groups[slot]
    if group is not None and group not in job.groups:
        raise SpecError(f"rank {rank}: node {node}: pg_name", group, "no such group")
    priority = int(template.comm_priority[row])
    if prefix is not None:
        level = rings.whole(rank, group)
        return kind, Where(slot, [level], priority, _script(job, prefix, level.ring, rank))
    known = "has no algorithm; choose from " + ", ".join(KINDS)
    require(kind in KINDS.values(), f"rank {rank}: node {node}: comm_type", kind.name.lower(), known)
    return kind, Where(slot, rings.levels(rank, kind, group, int(template.involved_dims[row])), priority)


def _script(job: Job, prefix: str, ring: Ring, rank: int) -> RankTrace:
    """Return what the member of a group does in a collective that is given as traces."""
    scripts = job.scripts[prefix].ranks
    require(len(scripts) == len(ring), f"{prefix}.*.et", len(scripts), f"the group has {len(ring)} members")
    position = ring.position[rank]
    script = scripts[position]
    outside = [peer for peer in script.peers if not 0 <= peer < len(ring) or peer == position]
    require(not outside, f"{prefix}.{position}.et", outside[:1] or None, "no such other member")
    return script
