"""The result of a simulation: when each rank finishes, and how it spends its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.simulation.event.inputs import System
from cosmic.simulation.event.job import Job
from cosmic.simulation.event.lowering import is_of
from cosmic.simulation.event.outcome import Simulated, Simulation
from cosmic.simulation.event.ranks import NEVER
from cosmic.simulation.replay import Replayed
from cosmic.traces.trace import COMMUNICATION, Ints, NodeType, Template, TraceSet

MOST_OPERATORS = 20


@dataclass(frozen=True, slots=True, eq=False)
class RankTimes:
    """The node times of a simulated rank, in nanoseconds by row of its template, and the ranks it stands for."""

    ranks: tuple[int, ...]
    template: Template
    peers: tuple[int, ...]
    begun: Ints
    ended: Ints
    """-1 where a node never ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMemory:
    """The local memory of one rank over time (`cosmic.simulation.event.local_memory`)."""

    npu: int
    peak_bytes: int
    peak_ns: int
    """When it is first reached."""
    start_bytes: int
    """Of tensors that are there from the start."""
    end_bytes: int
    """Of tensors that are left when the rank ends: no node reads them."""
    largest: tuple[tuple[str, int], ...]
    """The largest tensors at the peak, and their bytes."""
    unstated: int
    """Nodes that state no tensors, whose memory is not counted."""
    times_ns: Ints = field(repr=False)
    bytes: Ints = field(repr=False)
    """From each time until the next."""

    def as_json(self) -> dict[str, Any]:
        """Return everything, the timeline as pairs of a time and the bytes from then on."""
        names = ("npu", "peak_bytes", "peak_ns", "start_bytes", "end_bytes", "unstated")
        largest = [{"tensor": name, "bytes": size} for name, size in self.largest]
        timeline = [[int(time), int(held)] for time, held in zip(self.times_ns, self.bytes, strict=True)]
        return {name: getattr(self, name) for name in names} | {"largest": largest, "timeline": timeline}


@dataclass(frozen=True, slots=True, kw_only=True)
class Npu:
    """One rank's time, in nanoseconds."""

    npu: int
    cycles: int
    """When it finishes."""
    exposed_cycles: int
    """Cycles in which its accelerator does not compute: ASTRA-sim's exposed communication, waiting included."""
    compute_cycles: int
    communication_cycles: int
    """Cycles in which a collective, send or receive is in progress."""
    hidden_cycles: int
    """Cycles of communication that computation overlaps."""
    idle_cycles: int
    """Cycles with neither computation nor communication."""
    compute_bound: float | None
    """Share of the computing time that the accelerator's peak bounds, not its memory; None if not modelled."""
    compute_utilization: float | None
    """Share of the accelerator's peak, while it computes."""
    memory_utilization: float | None
    """Share of the memory's bandwidth, while it computes."""
    operational_intensity: float | None
    """Operations per byte, averaged over the computing time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One computation of the rank that finishes last, and what bounds it in a roofline."""

    node: int
    name: str
    cycles: int
    operational_intensity: float
    """Operations per byte."""
    bound: str
    """compute or memory"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionUse:
    """The share of a dimension's bandwidth that the whole run uses."""

    dimension: int
    topology: str
    npus: int
    sent_bytes: int
    """By all NPUs."""
    mean_utilization: float
    max_utilization: float
    """Of the busiest NPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """The busy time of a link."""

    link: str
    busy_cycles: int
    utilization: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a simulation."""

    cycles: int
    """When the last rank finishes [ns]."""
    per_npu: tuple[Npu, ...]
    dimensions: tuple[DimensionUse, ...]
    links: tuple[LinkUse, ...]
    """The busiest first; only where links are simulated. One stands for those of all equivalent ranks."""
    operators: tuple[Operator, ...]
    """The longest computations of the rank that finishes last, where a roofline models them."""
    events: int
    cpu_s: float
    """CPU seconds of this process, reading files included."""
    simulated_ranks: int
    """Number of classes of equivalent ranks; one rank of each is simulated."""
    warnings: tuple[str, ...] = ()
    rank_times: tuple[RankTimes, ...] = field(default=(), repr=False)
    local_memory: tuple[LocalMemory, ...] = ()
    """Of each rank, where it is tracked."""

    def as_json(self) -> dict[str, Any]:
        """Return everything but the times of single nodes."""
        names = ("cycles", "events", "cpu_s", "simulated_ranks")
        plain: dict[str, Any] = {name: getattr(self, name) for name in names}
        plain["warnings"] = list(self.warnings)
        for name in ("dimensions", "links", "operators", "per_npu"):
            plain[name] = [
                {key: getattr(each, key) for key in each.__dataclass_fields__} for each in getattr(self, name)
            ]
        if self.local_memory:
            plain["local_memory"] = [each.as_json() for each in self.local_memory]
        return plain


def result_of(job: Job, simulation: Simulation, cpu_s: float) -> Result:
    """Return the result of a simulation of *job*."""
    ranks, system = simulation.ranks, job.system
    cycles = max(rank.end_ns for rank in ranks)
    classes: list[list[int]] = [[] for _ in ranks]
    for rank, entity in enumerate(simulation.entity_of):
        classes[entity].append(rank)
    found: list[Npu | None] = [None] * len(simulation.entity_of)
    rank_times = []
    for simulated, members in zip(ranks, classes, strict=True):
        trace = job.traces.ranks[simulated.rank]
        template = trace.template
        begun, ended = np.asarray(simulated.begun_ns, np.int64), np.asarray(simulated.ended_ns, np.int64)
        times = _times(simulated, template, begun, ended) | _roofline(template, system, begun, ended)
        for rank in members:
            found[rank] = Npu(npu=rank, cycles=simulated.end_ns, **times)
        rank_times.append(RankTimes(tuple(members), template, trace.peers, begun, ended))
    sent = np.asarray(simulation.sent_bytes, np.float64)
    return Result(
        cycles=cycles,
        per_npu=tuple(each for each in found if each is not None),
        dimensions=_dimensions(job, sent, list(map(len, classes)), cycles),
        links=_links(simulation.busy_ns, cycles),
        operators=_operators(rank_times[max(range(len(ranks)), key=lambda place: ranks[place].end_ns)], system),
        events=simulation.events,
        cpu_s=cpu_s,
        simulated_ranks=len(ranks),
        warnings=system.warnings,
        rank_times=tuple(rank_times),
    )


def result_of_recorded(traces: TraceSet) -> Result:
    """Return the result that traces state themselves: when their nodes began, and how long they took."""
    begun = tuple(rank.template.start_ns for rank in traces.ranks)
    ended = tuple(rank.template.start_ns + rank.template.duration_ns for rank in traces.ranks)
    return result_of_replay(traces, Replayed(begun, ended))


def result_of_replay(traces: TraceSet, replayed: Replayed) -> Result:
    """Return the result of a replay, in which time counts from the first start on."""
    first = min((int(each.min()) for each in replayed.begun if len(each)), default=0)
    npus, rank_times = [], []
    for number, (rank, begun, ended) in enumerate(zip(traces.ranks, replayed.begun, replayed.ended, strict=True)):
        template, end = rank.template, int(ended.max(initial=first)) - first
        on_device = template.on_cpu == 0
        communicates, computes = is_of(template, COMMUNICATION), (template.type == NodeType.COMP) & on_device
        communication = _covered(begun[communicates], ended[communicates])
        computation = _covered(begun[computes], ended[computes])
        busy = _covered(begun[communicates | computes], ended[communicates | computes])
        unmodelled = dict.fromkeys(
            ("compute_bound", "compute_utilization", "memory_utilization", "operational_intensity")
        )
        npus.append(
            Npu(
                npu=number,
                cycles=end,
                exposed_cycles=end - computation,
                compute_cycles=computation,
                communication_cycles=communication,
                hidden_cycles=communication + computation - busy,
                idle_cycles=end - busy,
                **unmodelled,
            )
        )
        rank_times.append(RankTimes((number,), template, rank.peers, begun - first, ended - first))
    return Result(
        cycles=max((npu.cycles for npu in npus), default=0),
        per_npu=tuple(npus),
        dimensions=(),
        links=(),
        operators=(),
        events=traces.nodes,
        cpu_s=0.0,
        simulated_ranks=len(npus),
        rank_times=tuple(rank_times),
    )


def _times(simulated: Simulated, template: Template, begun: Ints, ended: Ints) -> dict[str, Any]:
    communicates = is_of(template, COMMUNICATION)
    computes = (template.type == NodeType.COMP) & (template.on_cpu == 0)
    communication = _covered(begun[communicates], ended[communicates])
    computation = _covered(begun[computes], ended[computes])
    busy = _covered(begun, ended)
    either = _covered(begun[communicates | computes], ended[communicates | computes])
    return {
        "compute_cycles": simulated.compute_ns,
        "exposed_cycles": simulated.end_ns - simulated.compute_ns,
        "communication_cycles": communication,
        "hidden_cycles": communication + computation - either,
        "idle_cycles": simulated.end_ns - busy,
    }


def _covered(begun: Ints, ended: Ints) -> int:
    """Return the length of the union of the intervals.

    >>> _covered(np.array([0, 2, 10]), np.array([4, 6, 11]))
    7
    """
    ran = (begun != NEVER) & (ended > begun)
    if not ran.any():
        return 0
    order = np.argsort(begun[ran], kind="stable")
    starts, ends = begun[ran][order], np.maximum.accumulate(ended[ran][order])
    reached = np.concatenate([[starts[0]], ends[:-1]])
    return int((ends - np.maximum(starts, reached)).clip(0).sum())


def _roofline(template: Template, system: System, begun: Ints, ended: Ints) -> dict[str, Any]:
    """Return the roofline measures of `Npu`, averaged over the computing time."""
    names = ("compute_bound", "compute_utilization", "memory_utilization", "operational_intensity")
    modelled = (template.type == NodeType.COMP) & (template.on_cpu == 0) & (template.tensor_size > 0)
    modelled &= (template.num_ops > 0) & (begun != NEVER)
    time = np.where(modelled, ended - begun, 0)
    if not system.roofline or system.replay_only or not time.sum():
        return dict.fromkeys(names)
    intensity = template.num_ops[modelled] / template.tensor_size[modelled]
    rate = np.minimum(system.memory_bytes_per_s * intensity, system.peak_flop_per_s)
    columns = (
        rate >= system.peak_flop_per_s,
        rate / system.peak_flop_per_s,
        rate / intensity / system.memory_bytes_per_s,
        intensity,
    )
    weights = time[modelled] / time.sum()
    return {name: float((column * weights).sum()) for name, column in zip(names, columns, strict=True)}


def _operators(times: RankTimes, system: System) -> tuple[Operator, ...]:
    template = times.template
    modelled = (template.type == NodeType.COMP) & (template.on_cpu == 0) & (template.tensor_size > 0)
    if not system.roofline or system.replay_only:
        return ()
    rows = np.flatnonzero(modelled & (times.begun != NEVER))
    longest = rows[np.argsort(times.begun[rows] - times.ended[rows], kind="stable")][:MOST_OPERATORS]
    found = []
    for row in longest.tolist():
        intensity = float(template.num_ops[row] / template.tensor_size[row])
        bound = "compute" if system.memory_bytes_per_s * intensity >= system.peak_flop_per_s else "memory"
        cycles = int(times.ended[row] - times.begun[row])
        name = template.names[row]
        found.append(
            Operator(node=int(template.id[row]), name=name, cycles=cycles, operational_intensity=intensity, bound=bound)
        )
    return tuple(found)


def _dimensions(
    job: Job, sent: npt.NDArray[np.float64], classes: Sequence[int], cycles: int
) -> tuple[DimensionUse, ...]:
    network, graph, counts = job.network, job.graph, np.array(classes)
    found = []
    for place, dim in enumerate(network.dims):
        rate: Any = network.bytes_per_ns[place]
        if graph is not None:  # an NPU that has no link sends nothing
            rate = np.bincount(graph.sources, graph.bandwidth_bytes_per_s, graph.nodes)[: graph.npus] / 1e9
            rate = np.where(rate > 0, rate, 1.0)
        share = sent[:, place] / (rate * max(1, cycles))
        found.append(
            DimensionUse(
                dimension=place,
                topology=dim.topology,
                npus=dim.npus,
                sent_bytes=int((sent[:, place] * counts).sum()),
                mean_utilization=float((share * counts).sum() / counts.sum()),
                max_utilization=float(share.max()),
            )
        )
    return tuple(found)


def _links(busy: Mapping[str, int], cycles: int) -> tuple[LinkUse, ...]:
    ordered = sorted(busy.items(), key=lambda item: (-item[1], item[0]))
    return tuple(LinkUse(link=name, busy_cycles=time, utilization=time / max(1, cycles)) for name, time in ordered)
