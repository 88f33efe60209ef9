"""The result of a simulation: when each rank finishes, how it spends its time, and its local memory over time.

`Simulation` is what a simulation leaves behind, in Python or compiled: the input of results and of errors about
deadlocks. Local memory is ASTRA-sim's `track-local-mem`. A tensor is in memory from the begin of the first node that
writes it to the end of the last one that reads it. One that is read first was there from the start; one that no node
reads stays to the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.base.json_types import Count, PositiveCount, Share, json_keys, one_of, unit
from cosmic.simulate.events.astra_sim_inputs import System
from cosmic.simulate.events.collective_planner import CollectivePlacement
from cosmic.simulate.events.simulation_job import Job, has_type
from cosmic.simulate.events.simulation_world import NEVER
from cosmic.traces.chakra.trace_reader import NodeTensors, read_contents, tensors_of, trace_paths
from cosmic.traces.replay import Replayed
from cosmic.traces.trace import COMMUNICATION_TYPES, Ints, NodeType, Template, TraceSet

# ---- What a simulation leaves behind, in Python or compiled: the input of results and of errors about deadlocks


class FinishedRank(Protocol):
    """A rank that was simulated."""

    rank: int
    end_ns: int
    compute_ns: int

    @property
    def begun_ns(self) -> list[int] | Ints:
        """When each node began; -1 where it did not."""

    @property
    def ended_ns(self) -> list[int] | Ints:
        """When each node ended; -1 where it did not."""

    def action_of(self, row: int) -> int:
        """Return what issuing a node does."""

    def placement_of(self, row: int) -> CollectivePlacement:
        """Return the placement of a collective."""

    def streams_of(self, slot: int) -> int:
        """Return the number of streams that the group in *slot* has begun."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Simulation:
    """One rank of each class, simulated."""

    ranks: Sequence[FinishedRank]
    entity_of: Sequence[int]
    """The index in `ranks` of the one simulated for each rank."""
    sent_bytes: Sequence[Sequence[int]] | Ints
    """By entity and dimension."""
    busy_ns: Mapping[str, int]
    """Of every link that was used, by name."""
    events: int


# ---- The result of a simulation: when each rank finishes, and how it spends its time

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


@dataclass(frozen=True, slots=True)
class LargestTensor:
    """One tensor."""

    tensor: str
    """Its name."""
    bytes: int
    """Its bytes."""


@json_keys("timeline", without=("times_ns", "bytes"))
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMemory:
    """The local memory of one rank over time."""

    npu: Count
    """Its number."""
    peak_bytes: int
    """Most bytes of tensors at one time."""
    peak_ns: int
    """When they are first reached."""
    start_bytes: int
    """Tensors that are there from the start: read before they are written."""
    end_bytes: int
    """Tensors that are left at the end: no node reads them."""
    largest: tuple[LargestTensor, ...]
    """The largest tensors at the peak."""
    unstated: Count
    """Nodes that state no tensors, whose memory is not counted."""
    times_ns: Ints = field(repr=False)
    bytes: Ints = field(repr=False)
    """From each time until the next."""

    @property
    def timeline(self) -> Sequence[Sequence[int]]:
        """Pairs: a time in ns, and the bytes from then on."""
        return [[int(time), int(held)] for time, held in zip(self.times_ns, self.bytes, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NpuTimes:
    """One rank's time, in nanoseconds."""

    npu: int
    """Its number."""
    cycles: int
    """When it finishes."""
    exposed_cycles: int
    """Cycles in which its accelerator does not compute: ASTRA-sim's exposed communication, waiting included."""
    compute_cycles: int
    """Time of compute."""
    communication_cycles: int
    """Cycles in which a collective, send or receive is in progress."""
    hidden_cycles: int
    """Cycles of communication that computation overlaps."""
    idle_cycles: int
    """Cycles with neither computation nor communication."""
    compute_bound: Share | None
    """Share of the computing time that the accelerator's peak bounds, not its memory; None if not modelled."""
    compute_utilization: float | None
    """Share of the accelerator's peak, while it computes."""
    memory_utilization: float | None
    """Share of the memory's bandwidth, while it computes."""
    operational_intensity: Annotated[float, unit("FLOP/B")] | None
    """Operations per byte, averaged over the computing time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOperator:
    """One computation of the rank that finishes last, and what bounds it in a roofline."""

    node: int
    """Its number in the trace."""
    name: str
    """Its name."""
    cycles: int
    """Its time."""
    operational_intensity: Annotated[float, unit("FLOP/B")]
    """Operations per byte."""
    bound: Annotated[str, one_of("compute", "memory")]
    """compute or memory"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionUse:
    """The share of a dimension's bandwidth that the whole run uses."""

    dimension: int
    """Its number, from 0 on."""
    topology: str
    """Its topology."""
    npus: int
    """NPUs that it connects."""
    sent_bytes: int
    """By all NPUs."""
    mean_utilization: float
    """Utilization of its bandwidth, mean over NPUs and time."""
    max_utilization: float
    """Of the busiest NPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """The busy time of a link."""

    link: str
    """Which link."""
    busy_cycles: int
    """Busy time."""
    utilization: float
    """Busy time as a share of the run."""


@json_keys(without=("rank_times",), optional=("local_memory",), local_memory="tracked_memory")
@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """Traces simulated on a cluster. A cycle is a nanosecond, as in ASTRA-sim."""

    cycles: int
    """When the last rank ends."""
    per_npu: tuple[NpuTimes, ...]
    """The ranks."""
    dimensions: tuple[DimensionUse, ...]
    """Dimensions of the network, innermost first."""
    links: tuple[LinkUse, ...]
    """Links, the busiest first; empty unless links are simulated (--backend aware)."""
    operators: tuple[SimulatedOperator, ...]
    """The longest operators of the last rank; empty unless they are modelled by a roofline."""
    events: Count
    """Events that were simulated."""
    cpu_s: float
    """Processor time, files read included."""
    simulated_ranks: PositiveCount
    """Ranks that were simulated; the others are identical."""
    warnings: tuple[str, ...] = ()
    """Settings of the inputs that are ignored, a sentence each."""
    rank_times: tuple[RankTimes, ...] = field(default=(), repr=False)
    local_memory: tuple[LocalMemory, ...] = ()
    """Of each rank, where it is tracked."""

    @property
    def tracked_memory(self) -> tuple[LocalMemory, ...] | None:
        """The local memory of the ranks; only with --track-local-mem, or that key of the system."""
        return self.local_memory or None


def result_of(job: Job, simulation: Simulation, cpu_s: float) -> SimulationResult:
    """Return the result of a simulation of *job*."""
    ranks, system = simulation.ranks, job.system
    cycles = max(rank.end_ns for rank in ranks)
    classes: list[list[int]] = [[] for _ in ranks]
    for rank, entity in enumerate(simulation.entity_of):
        classes[entity].append(rank)
    npu_times: list[NpuTimes | None] = [None] * len(simulation.entity_of)
    rank_times = []
    for simulated, members in zip(ranks, classes, strict=True):
        trace = job.traces.ranks[simulated.rank]
        template = trace.template
        begun, ended = np.asarray(simulated.begun_ns, np.int64), np.asarray(simulated.ended_ns, np.int64)
        communicates = has_type(template, COMMUNICATION_TYPES)
        computes = (template.type == NodeType.COMP) & (template.on_cpu == 0)
        communication = _covered_ns(begun[communicates], ended[communicates])
        computation = _covered_ns(begun[computes], ended[computes])
        busy = _covered_ns(begun, ended)
        either = _covered_ns(begun[communicates | computes], ended[communicates | computes])
        # Both run at once for as long as their sum is more than the time in which either runs.
        times = {
            "compute_cycles": simulated.compute_ns,
            "exposed_cycles": simulated.end_ns - simulated.compute_ns,
            "communication_cycles": communication,
            "hidden_cycles": communication + computation - either,
            "idle_cycles": simulated.end_ns - busy,
        } | _mean_roofline(template, system, begun, ended)
        for rank in members:
            npu_times[rank] = NpuTimes(npu=rank, cycles=simulated.end_ns, **times)
        rank_times.append(RankTimes(tuple(members), template, trace.peers, begun, ended))
    sent = np.asarray(simulation.sent_bytes, np.float64)
    ordered = sorted(simulation.busy_ns.items(), key=lambda item: (-item[1], item[0]))
    network, graph, counts = job.network, job.graph, np.array(list(map(len, classes)))
    dimensions = []
    for index, dim in enumerate(network.dims):
        rate: Any = network.bytes_per_ns[index]
        if graph is not None:  # an NPU that has no link sends nothing
            rate = np.bincount(graph.sources, graph.bandwidth_bytes_per_s, graph.nodes)[: graph.npus] / 1e9
            rate = np.where(rate > 0, rate, 1.0)
        share = sent[:, index] / (rate * max(1, cycles))
        dimensions.append(
            DimensionUse(
                dimension=index,
                topology=dim.topology,
                npus=dim.npus,
                sent_bytes=int((sent[:, index] * counts).sum()),
                mean_utilization=float((share * counts).sum() / counts.sum()),
                max_utilization=float(share.max()),
            )
        )
    return SimulationResult(
        cycles=cycles,
        per_npu=tuple(npu_time for npu_time in npu_times if npu_time is not None),
        dimensions=tuple(dimensions),
        links=tuple(LinkUse(link=name, busy_cycles=time, utilization=time / max(1, cycles)) for name, time in ordered),
        operators=_operators_of_rank(rank_times[max(range(len(ranks)), key=lambda place: ranks[place].end_ns)], system),
        events=simulation.events,
        cpu_s=cpu_s,
        simulated_ranks=len(ranks),
        warnings=system.warnings,
        rank_times=tuple(rank_times),
    )


def result_of_recorded(traces: TraceSet) -> SimulationResult:
    """Return the result that traces state themselves: when their nodes began, and how long they took."""
    begun = tuple(rank.template.start_ns for rank in traces.ranks)
    ended = tuple(rank.template.start_ns + rank.template.duration_ns for rank in traces.ranks)
    return result_of_replay(traces, Replayed(begun, ended))


def result_of_replay(traces: TraceSet, replayed: Replayed) -> SimulationResult:
    """Return the result of a replay, in which time counts from the first start on."""
    first = min((int(rank_starts.min()) for rank_starts in replayed.begun if len(rank_starts)), default=0)
    npus, rank_times = [], []
    for number, (rank, begun, ended) in enumerate(zip(traces.ranks, replayed.begun, replayed.ended, strict=True)):
        template, end = rank.template, int(ended.max(initial=first)) - first
        on_device = template.on_cpu == 0
        communicates, computes = has_type(template, COMMUNICATION_TYPES), (template.type == NodeType.COMP) & on_device
        communication = _covered_ns(begun[communicates], ended[communicates])
        computation = _covered_ns(begun[computes], ended[computes])
        busy = _covered_ns(begun[communicates | computes], ended[communicates | computes])
        unmodelled = dict.fromkeys(
            ("compute_bound", "compute_utilization", "memory_utilization", "operational_intensity")
        )
        npus.append(
            NpuTimes(
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
    return SimulationResult(
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


def _covered_ns(begun: Ints, ended: Ints) -> int:
    """Return the length of the union of the intervals.

    >>> _covered_ns(np.array([0, 2, 10]), np.array([4, 6, 11]))
    7
    """
    ran = (begun != NEVER) & (ended > begun)
    if not ran.any():
        return 0
    order = np.argsort(begun[ran], kind="stable")
    starts, ends = begun[ran][order], np.maximum.accumulate(ended[ran][order])
    reached = np.concatenate([[starts[0]], ends[:-1]])
    return int((ends - np.maximum(starts, reached)).clip(0).sum())


def _mean_roofline(template: Template, system: System, begun: Ints, ended: Ints) -> dict[str, Any]:
    """Return the roofline measures of `NpuTimes`, averaged over the computing time."""
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


def _operators_of_rank(times: RankTimes, system: System) -> tuple[SimulatedOperator, ...]:
    template = times.template
    modelled = (template.type == NodeType.COMP) & (template.on_cpu == 0) & (template.tensor_size > 0)
    if not system.roofline or system.replay_only:
        return ()
    rows = np.flatnonzero(modelled & (times.begun != NEVER))
    longest = rows[np.argsort(times.begun[rows] - times.ended[rows], kind="stable")][:MOST_OPERATORS]
    operators = []
    for row in longest.tolist():
        intensity = float(template.num_ops[row] / template.tensor_size[row])
        bound = "compute" if system.memory_bytes_per_s * intensity >= system.peak_flop_per_s else "memory"
        cycles = int(times.ended[row] - times.begun[row])
        name = template.names[row]
        operators.append(
            SimulatedOperator(
                node=int(template.id[row]), name=name, cycles=cycles, operational_intensity=intensity, bound=bound
            )
        )
    return tuple(operators)


# ---- Local memory over the time of a simulation: ASTRA-sim's `track-local-mem`

LARGEST = 5
"""Tensors that are named at the peak."""


def track_local_memory(result: SimulationResult, workload: str | Path) -> tuple[LocalMemory, ...]:
    """Return the local memory of each rank of a simulation of the traces *workload*."""
    distinct: dict[tuple[int, bytes], LocalMemory] = {}
    by_rank: dict[int, LocalMemory] = {}
    paths = trace_paths(workload, len(result.per_npu))
    read: dict[bytes, Mapping[int, NodeTensors]] = {}
    for index, times in enumerate(result.rank_times):
        for rank in times.ranks:
            data = read_contents(paths[rank])
            digest = sha256(data).digest()
            if digest not in read:
                read[digest] = tensors_of(data, paths[rank].name)
            if (index, digest) not in distinct:
                distinct[index, digest] = local_memory_of_rank(rank, times, read[digest], result.per_npu[rank].cycles)
            by_rank[rank] = replace(distinct[index, digest], npu=rank)
    if not any(read.values()):
        rule = "no node states the tensors that it reads and writes (attributes inputs and outputs)"
        raise SpecError("track_local_mem", str(workload), rule)
    return tuple(by_rank[rank] for rank in sorted(by_rank))


def local_memory_of_rank(rank: int, times: RankTimes, tensors: Mapping[int, NodeTensors], end_ns: int) -> LocalMemory:
    """Return the local memory of one rank, whose nodes ran at *times* until *end_ns*."""
    lives = _lifetimes_of_tensors(times, tensors, end_ns)
    size = np.array([life[2] for life in lives.values()], np.int64)
    begun = np.array([life[0] for life in lives.values()], np.int64)
    ended = np.array([life[1] for life in lives.values()], np.int64)
    moments = np.unique(np.concatenate([[0], begun, ended, [end_ns]]).astype(np.int64))
    change = np.zeros(len(moments), np.int64)
    np.add.at(change, np.searchsorted(moments, begun), size)
    np.subtract.at(change, np.searchsorted(moments, ended), size)
    during = moments <= end_ns
    moments, held = moments[during], np.cumsum(change)[during]
    top = int(np.argmax(held))
    peak_ns = int(moments[top])
    live = [(name, life[2]) for name, life in lives.items() if life[0] <= peak_ns < life[1]]
    return LocalMemory(
        npu=rank,
        peak_bytes=int(held[top]),
        peak_ns=peak_ns,
        start_bytes=int(held[0]),
        end_bytes=int(held[-1]),
        largest=tuple(
            LargestTensor(*tensor) for tensor in sorted(live, key=lambda tensor: (-tensor[1], tensor[0]))[:LARGEST]
        ),
        unstated=sum(int(node) not in tensors for node in times.template.id),
        times_ns=moments,
        bytes=held,
    )


def _lifetimes_of_tensors(
    times: RankTimes, tensors: Mapping[int, NodeTensors], end_ns: int
) -> dict[str, tuple[int, int, int]]:
    """Return from when to when each tensor is in memory, and its bytes: the most that any node states.

    One that no node reads is there beyond the end.
    """
    first_write: dict[str, int] = {}
    first_read: dict[str, int] = {}
    last_read: dict[str, int] = {}
    size: dict[str, int] = {}
    for row, node in enumerate(times.template.id.tolist()):
        node_tensors = tensors.get(node)
        if node_tensors is None or times.ended[row] < 0:
            continue
        begun, ended = int(times.begun[row]), int(times.ended[row])
        for name, count in node_tensors.writes:
            first_write[name] = min(first_write.get(name, begun), begun)
            size[name] = max(size.get(name, 0), count)
        for name, count in node_tensors.reads:
            first_read[name] = min(first_read.get(name, begun), begun)
            last_read[name] = max(last_read.get(name, ended), ended)
            size[name] = max(size.get(name, 0), count)
    lifetimes = {}
    for name, count in size.items():
        first_written, read = first_write.get(name), first_read.get(name)
        start = 0 if first_written is None or (read is not None and read < first_written) else first_written
        lifetimes[name] = start, last_read.get(name, end_ns + 1), count
    return lifetimes
