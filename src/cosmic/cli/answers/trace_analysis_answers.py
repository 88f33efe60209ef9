"""What commands that analyse traces print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from cosmic.base.json_types import PositiveCount, described, unit
from cosmic.cli.answers.common_keys import CountsByName
from cosmic.cli.answers.trace_answers import TraceCounts
from cosmic.traces.profiles.trace_contrast import CriticalPath, DeviceIdle, GraphStructure, OperatorOrder
from cosmic.traces.trace_statistics import CollectiveTally, NodeChain, RankRange, Recorded


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
