"""What commands on traces, and simulations of them, print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired, TypedDict

from cosmic.accuracy.trace_fidelity import FidelityReport
from cosmic.accuracy.trace_suite import CaseOutcome
from cosmic.base.json_types import AlwaysTrue, Count, Keywords, PositiveCount, described, one_of, unit
from cosmic.cli.answers.common_keys import CountsByName, Identity
from cosmic.simulate.events.simulation_result import DimensionUse, LinkUse, NpuTimes, SimulatedOperator
from cosmic.traces.anonymization import Policy, ValueChange
from cosmic.traces.profiles.trace_contrast import CriticalPath, DeviceIdle, GraphStructure, OperatorOrder
from cosmic.traces.repaired_traces import Repair
from cosmic.traces.trace_statistics import CollectiveTally, NodeChain, RankRange, Recorded


class TraceCounts(TypedDict):
    """How many traces there are."""

    ranks: Count
    """Ranks."""
    nodes: Count
    """Nodes of all ranks."""
    templates: Count
    """Ranks that differ in more than their peers and groups."""


class WrittenTraces(TypedDict):
    """The files that were written."""

    files: Annotated[int, Keywords(minimum=2)]
    """Files."""
    bytes: int
    """Their total size."""
    seconds: float
    """Elapsed time."""


class LargestTensor(TypedDict):
    """One tensor."""

    tensor: str
    """Its name."""
    bytes: int
    """Its bytes."""


class SimulatedLocalMemory(TypedDict):
    """One rank."""

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
    unstated: Count
    """Nodes that state no tensors, whose memory is not counted."""
    largest: Sequence[LargestTensor]
    """The largest tensors at the peak."""
    timeline: Sequence[Sequence[int]]
    """Pairs: a time in ns, and the bytes from then on."""


class SimulateAnswer(TypedDict):
    """Traces simulated on a cluster. A cycle is a nanosecond, as in ASTRA-sim."""

    cycles: int
    """When the last rank ends."""
    events: Count
    """Events that were simulated."""
    cpu_s: float
    """Processor time, files read included."""
    simulated_ranks: PositiveCount
    """Ranks that were simulated; the others are identical."""
    warnings: Sequence[str]
    """Settings of the inputs that are ignored, a sentence each."""
    dimensions: Sequence[DimensionUse]
    """Dimensions of the network, innermost first."""
    links: Sequence[LinkUse]
    """Links, the busiest first; empty unless links are simulated (--backend aware)."""
    operators: Sequence[SimulatedOperator]
    """The longest operators of the last rank; empty unless they are modelled by a roofline."""
    per_npu: Sequence[NpuTimes]
    """The ranks."""
    local_memory: NotRequired[Sequence[SimulatedLocalMemory]]
    """The local memory of the ranks; only with --track-local-mem, or that key of the system."""


class TraceNodeRow(TypedDict):
    """A node."""

    id: int
    """Its number."""
    type: str
    """Its type, such as COMP or COMM_COLL."""
    name: str
    """Its name."""
    data: Sequence[int]
    """Nodes whose data it needs, by number."""
    ctrl: Sequence[int]
    """Nodes that must come before, by number."""
    duration_us: NotRequired[Annotated[int, unit("µs")]]
    """Its time."""
    comm_priority: NotRequired[int]
    """Priority of its communication."""
    num_ops: NotRequired[Annotated[int, unit("FLOP")]]
    """Its floating-point operations."""
    tensor_size: NotRequired[Annotated[int, unit("B")]]
    """Bytes that it reads and writes."""
    comm_size: NotRequired[Annotated[int, unit("B")]]
    """Bytes that it sends or receives."""
    comm_tag: NotRequired[int]
    """Tag of its message."""
    on_cpu: NotRequired[AlwaysTrue]
    """Whether it runs on the host; absent if it does not."""
    comm_type: NotRequired[str]
    """Which collective, such as ALL_REDUCE."""
    group: NotRequired[str]
    """Communicator group."""
    peer: NotRequired[int]
    """Rank to or from which it sends or receives."""
    involved_dims: NotRequired[Sequence[int]]
    """Dimensions of the network that it uses."""


TraceShowAnswer = Annotated[
    Sequence[TraceNodeRow], described("The nodes of one rank with their attributes: keys and units are Chakra's.")
]


class TraceCheckAnswer(TraceCounts):
    """Whether traces can run. Exit code 2 if they cannot."""

    problems: Sequence[str]
    """What is wrong, a sentence each."""


class TraceRepairAnswer(TraceCounts, WrittenTraces):
    """What was mended in traces, and what could not be. Exit code 2 if something is left."""

    prefix: str
    """Prefix of the files."""
    groups_file: str
    """File of the communicator groups."""
    copied_ranks: Count
    """Ranks that run the nodes of the one that was read."""
    groups: Count
    """Communicator groups."""
    repairs: Sequence[Repair]
    """What was done."""
    problems: Sequence[str]
    """What is left, a sentence each."""


class TraceGenerateAnswer(TraceCounts, WrittenTraces):
    """The traces that were written."""

    identity: Identity
    prefix: str
    """Prefix of the files."""
    groups: Count
    """Communicator groups."""


class TraceConvertAnswer(TraceCounts, WrittenTraces):
    """The traces that were written."""

    prefix: str
    """Prefix of the files."""
    groups_file: str
    """File of the communicator groups."""
    system_file: str | None
    """ASTRA-sim's system JSON; null if none was asked for."""
    layers: PositiveCount | None
    """Layers of a text workload; null for others."""
    kernels: Count | None
    """Kernels of profiles, of all ranks; null for others."""
    described_kernels: Count | None
    """Those whose work is known; null for others."""
    step_s: Sequence[Annotated[float, unit("s")]] | None
    """What the recorded steps of rank 0 took; null where no step is marked."""
    device: str | None
    """What the driver calls the accelerator; null where it is not known."""
    notes: Sequence[str]
    """What was assumed or left out, a sentence each."""
    groups: Count
    """Communicator groups."""


class SynthesisSource(TypedDict):
    """The job whose structure was taken."""

    prefix: str
    """Prefix of its files."""
    ranks: PositiveCount
    """Its ranks."""
    nodes: PositiveCount
    """Nodes of all its ranks."""
    roles: PositiveCount
    """Ranks that differ in the nodes that they run."""
    mesh: Sequence[PositiveCount]
    """Sizes of the axes that its groups show, the innermost first; empty for a single rank, or if they show none."""


class RepeatedBlock(TypedDict):
    """What was repeated more or less often."""

    kind: Annotated[str | None, one_of("blocks", "steps", None)]
    """blocks or steps; null if the length was kept."""
    nodes: Count
    """Nodes of a copy."""
    copies: PositiveCount
    """Copies."""
    before: PositiveCount
    """Copies in the source."""


class RepeatedBlockRow(TypedDict):
    """A block that repeats in the source."""

    kind: Annotated[str, one_of("blocks", "steps")]
    """blocks, or steps: the whole trace."""
    copies: PositiveCount
    """Copies of the largest of the blocks that grow together."""
    nodes: Count
    """Nodes of a copy of it."""
    share: float
    """Part of the source that lies in their copies."""


class SynthesizedFiles(TypedDict):
    """The files that were written."""

    prefix: str
    """Prefix of the files."""
    seed: Count
    """Seed of the random numbers."""
    bytes: int
    """Total size of the files."""
    seconds: float
    """Elapsed time, to make and write them."""


class TraceSynthesizeAnswer(SynthesizedFiles, TraceCounts):
    """The traces that were written, and the model that they are drawn from."""

    groups: Count
    """Communicator groups."""
    scale: Annotated[float, unit("ratio")]
    """Nodes per rank over those of the source: the nearest to what was asked for that its blocks allow."""
    source: SynthesisSource
    mesh: Sequence[PositiveCount]
    """The same of the traces that were written."""
    block: RepeatedBlock
    blocks: Sequence[RepeatedBlockRow]
    """What repeats in the source, in the order in which it would be chosen."""
    rules: int
    """Nodes and repeats that are left if each block is written once, of all roles and jobs."""
    rules_for: int
    """Nodes that they stand for."""
    notes: Sequence[str]
    """What was mended in the traces, a sentence each."""
    report: FidelityReport | None
    """Distances from the source at its own length and ranks, with --report."""


class VisibleStructure(TypedDict):
    """What the traces still show."""

    ranks: PositiveCount
    """Ranks."""
    nodes: Count
    """Nodes of all ranks."""
    templates: PositiveCount
    """Ranks that differ in more than their peers and groups."""
    dependencies: Count
    """Dependencies, of one rank of each template."""
    nodes_by_type: CountsByName
    """Nodes by type."""
    group_sizes: CountsByName
    """Groups by their number of ranks."""


class TraceAnonymizeAnswer(WrittenTraces):
    """The traces that were written, what was changed, and what they still show."""

    prefix: str
    """Prefix of the files."""
    groups_file: str
    """File of the communicator groups."""
    map_file: str | None
    """File with the way back to the original; null if none was asked for."""
    policy: Policy
    """What was done with each part of the traces."""
    changes: Sequence[ValueChange]
    """What was changed, by kind of value."""
    visible: VisibleStructure
    warnings: Sequence[str]
    """What may change simulated times by more than 5 %, a sentence each."""


TraceSuiteAnswer = Annotated[
    Sequence[CaseOutcome],
    described("The benchmark traces, in the order in which they ran; the exit status is 1 if any is not ok."),
]


class TraceStatsAnswer(TraceCounts):
    """Statistics of a job's traces. Amounts are sums over all ranks."""

    nodes_by_type: CountsByName
    """Nodes, by type."""
    collectives: Sequence[CollectiveTally]
    """Collectives by type and size of group, the most bytes first."""
    collective_bytes: int
    """Payload of all collectives."""
    sent_bytes: int
    """Bytes sent in messages."""
    received_bytes: int
    """Bytes received in messages."""
    compute_flop: int
    """Floating-point operations."""
    tensor_bytes: int
    """Bytes that compute nodes read and write."""
    duration_s: float
    """Sum of all durations."""
    by_rank: Mapping[str, RankRange]
    """The least and the most of a rank, by name of the amount."""
    longest_chain: NodeChain | None
    """The chain with the most nodes; null where the dependencies have a cycle."""
    critical_path: NodeChain | None
    """The chain that takes longest; null where the dependencies have a cycle."""
    recorded: Sequence[Recorded]
    """Where the time of each rank went; empty unless the traces were recorded."""


class OperatorAmountRow(TypedDict):
    """How much there is of an operator."""

    count: Annotated[float, unit("runs")]
    """Runs."""
    seconds: float
    """Time of all of them."""
    flop: float
    """Floating-point operations, where they are known."""
    bytes: float
    """Bytes moved or sent, where they are known."""
    flop_per_s: float | None
    """Rate of operations; null where it is not known."""
    bytes_per_s: float | None
    """Rate of bytes; null where it is not known."""


class ComparedTrace(TypedDict):
    """A trace or a design."""

    name: str
    """Prefix of its files, or the design."""
    kind: Literal["recorded", "generated", "design"]
    """Recorded by a profiler, not recorded (generated), or the prediction of a design."""
    steps: PositiveCount
    """Recorded steps."""
    span_s: float | None
    """From the first start to the last end of a rank; null where the trace does not say."""
    kernels_s: float
    """Time of all kernels."""
    communication_s: float
    """Time of all communication."""
    overlap_s: float | None
    """How much longer these take than a device is busy."""
    idle: DeviceIdle
    """Time in which a device runs nothing."""
    critical_path: CriticalPath | None
    """The nodes that waited for one another, back from the last to end, of the rank with the longest span; null where
    a trace does not say when it ran."""
    structure: GraphStructure | None
    """Its graphs; null for a design."""
    notes: Sequence[str]
    """What is to be known of it."""


class TracePartTimes(TypedDict):
    """One part."""

    a_s: float
    """In A."""
    b_s: float
    """In B."""
    difference_s: float
    """B less A."""


_OperatorDifferenceRowKeys = TypedDict(
    "_OperatorDifferenceRowKeys",
    {"class": Annotated[str, described("Class of work, such as 'memory operators: norms'; empty by type.")]},
)


class OperatorDifferenceRow(_OperatorDifferenceRowKeys):
    """Operators of one name, kernel, type or class."""

    name: str
    """Name of the kernel or the node; by type, the type of the nodes; empty where a row has several."""
    work: str
    """What a kernel computes, or the bytes and ranks of a collective; empty where a row has several."""
    a: OperatorAmountRow
    """How much there is in A."""
    b: OperatorAmountRow
    """How much there is in B."""
    difference_s: float
    """Time in B less that in A."""


class TraceDiffAnswer(TypedDict):
    """What differs between two traces, A and B, operator by operator. Amounts are those of one rank and one step: means where there are several."""

    headline: str
    """The difference in one sentence."""
    identical: bool
    """Whether every rank has the same nodes and dependencies; of two designs, whether they are the same."""
    by: Literal["name", "kernel", "type", "class"]
    """What a row is."""
    a: ComparedTrace
    """The first side."""
    b: ComparedTrace
    """The second side."""
    span_difference_s: float | None
    """The span of B less that of A; null where one is not known."""
    beside_operators_s: float | None
    """The part of it that overlap and idle time explain; operators explain the rest."""
    parts: Mapping[str, TracePartTimes]
    """Time by group of operators, by kind of idle time, and overlap, which counts negative: they add up to the spans,
    where these are known."""
    order: OperatorOrder | None
    """How many operators of rank 0 come in the same order: their longest common subsequence; null where a side is a
    design, or has too many."""
    rows: Sequence[OperatorDifferenceRow]
    """Operators, the largest difference of time first; all of them."""


class TraceProjectAnswer(TypedDict):
    """A recorded trace, and the same on another machine."""

    prefix: str
    """Prefix of the recorded traces."""
    out: str | None
    """Prefix of the projected traces; null if they were not asked for."""
    old_machine: str
    """What the traces were recorded on."""
    new_machine: str
    """What they were put on."""
    ranks: PositiveCount
    """Ranks of the new job."""
    speedup: Annotated[float, unit("ratio")]
    """Old over new time of a step."""
    throughput: Annotated[float, unit("ratio")]
    """New over old tokens a second, of all ranks."""
    without_host_s: float | None
    """What the projected step would take if the host took no time; null where it hardly waits for it."""
    described_share: float
    """Share of kernel time whose work is known."""
    old: Recorded
    """Of the rank that took longest, as recorded."""
    new: Recorded
    """Of the rank that takes longest, projected."""
    notes: Sequence[str]
    """What was assumed, a sentence each."""
