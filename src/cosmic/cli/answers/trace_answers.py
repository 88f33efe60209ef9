"""What commands on traces, and simulations of them, print with `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NotRequired, TypedDict

from cosmic.accuracy.trace_fidelity import FidelityReport
from cosmic.accuracy.trace_suite import CaseOutcome
from cosmic.base.json_types import AlwaysTrue, Count, Keywords, PositiveCount, described, json_keys, one_of, unit
from cosmic.cli.answers.common_keys import Identity
from cosmic.traces.anonymization import Policy, ValueChange, VisibleParts
from cosmic.traces.profiles.trace_contrast import TraceContrast
from cosmic.traces.profiles.trace_projection import ProjectedTraces
from cosmic.traces.repaired_traces import Repair
from cosmic.traces.trace_statistics import Recorded, TraceStatistics


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
    visible: VisibleParts
    warnings: Sequence[str]
    """What may change simulated times by more than 5 %, a sentence each."""


TraceSuiteAnswer = Annotated[
    Sequence[CaseOutcome],
    described("The benchmark traces, in the order in which they ran; the exit status is 1 if any is not ok."),
]


@json_keys(beside=("statistics",))
@dataclass(frozen=True, slots=True)
class TraceStatsAnswer:
    """Statistics of a job's traces. Amounts are sums over all ranks."""

    statistics: TraceStatistics
    recorded: Sequence[Recorded]
    """Where the time of each rank went; empty unless the traces were recorded."""


@json_keys(beside=("contrast",))
@dataclass(frozen=True, slots=True)
class TraceDiffAnswer:
    """What differs between two traces, A and B, operator by operator. Amounts are those of one rank and one step: means where there are several."""

    headline: str
    """The difference in one sentence."""
    contrast: TraceContrast


@json_keys(beside=("projected",))
@dataclass(frozen=True, slots=True)
class TraceProjectAnswer:
    """A recorded trace, and the same on another machine."""

    prefix: str
    """Prefix of the recorded traces."""
    out: str | None
    """Prefix of the projected traces; None if they were not asked for."""
    projected: ProjectedTraces
