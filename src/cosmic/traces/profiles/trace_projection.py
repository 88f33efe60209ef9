"""Project a recorded trace onto another machine: kernels re-timed, other ranks, links and sizes.

Kernels. A kernel whose work is known takes what it took, times the ratio of its predicted times on the new and the
old accelerator; or, from shapes alone, its predicted time. Where the work is not known, the ratio is that of all
kernels of its class.

Collectives take their predicted time on the new machine once all members have entered; what they waited for each
other follows from the replay. A wider data parallelism keeps the whole buffer of a collective, so that shards
shrink.

The host takes what it took, times a factor. Nothing else changes: which kernels run, in which order, on which
streams.

More or fewer tokens in a step (`scale_works`): weights stay, activations scale. A GEMM's dimension that counts
tokens is found by how much work has it: every layer multiplies as many rows as there are tokens (forward and to the
input's gradient, as m; to the weight's gradient, as k). Attention scales with its batch; kernels that stream with
the bytes they move, unless they are an optimizer's.

`projection_caveats` says what is assumed: number formats that the accelerator lacks, and kernels of another vendor.

More or fewer layers in a step: blocks of nodes that repeat are repeated more or less often. Layers show as runs of one
sequence of kernels, one run forward and one backward. A block of a run is its kernels on the main stream, what the host did between their launches, and whatever it launched meanwhile. Copies follow each other as
blocks did: what waited for the block before waits for the copy before. What grows with the weights of layers outside of
their blocks is scaled: the optimizer, and collectives.

A `Machine` is what a trace is put on: an accelerator, and what collectives take on its network. `WhatIf` is what may be asked of a recorded trace, `ProjectedTraces` the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.graphs import sort_after_waits
from cosmic.base.json_types import PositiveCount, json_keys, unit
from cosmic.design import catalog_entries
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.compute_layer import Compute
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import load_machine
from cosmic.design.measured_hardware import find_accelerator, find_system, find_system_with
from cosmic.design.systems import YAML_ENDINGS, is_model_at_system, split_size
from cosmic.network.collective_costs import (
    NetworkDimension,
    Subgroup,
    barrier_seconds,
    broadcast_seconds,
    collective_seconds,
    send_seconds,
    subgroups,
)
from cosmic.network.mesh_spans import axis_spans
from cosmic.step.kernel_prices import SIZES, KernelWork, kernel_seconds, parse_work
from cosmic.traces.dependencies import dependencies_of
from cosmic.traces.replay import ReplayChanges, Replayed, durations_ns, recorded_times, replay_traces
from cosmic.traces.trace import (
    ABSENT,
    COLUMNS,
    COMMUNICATION_TYPES,
    CollectiveType,
    Ints,
    NodeType,
    RankTrace,
    Template,
    TraceSet,
)
from cosmic.traces.trace_statistics import Recorded, coarse_node_classes, recorded_statistics

TINY = {"family": "decoder", "layers": 1, "hidden": 64, "heads": 1, "ffn": 64, "vocab": 2}
"""A model for designs of which only the hardware is asked."""
KINDS: dict[CollectiveType, CollectiveKind] = {
    CollectiveType.ALL_REDUCE: "all_reduce",
    CollectiveType.ALL_GATHER: "all_gather",
    CollectiveType.REDUCE_SCATTER: "reduce_scatter",
    CollectiveType.REDUCE_SCATTER_BLOCK: "reduce_scatter",
    CollectiveType.ALL_TO_ALL: "all_to_all",
}
ROOTED = (CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER)
"""From one member to all, or the other way round: both are priced as a broadcast of the whole."""


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that communicate: so many, so far apart."""

    members: int
    stride: int

    @classmethod
    def from_ranks(cls, ranks: Sequence[int]) -> RankGroup:
        """Return the group of *ranks*; the distance of the first two counts.

        >>> RankGroup.from_ranks((1, 5, 9)), RankGroup.from_ranks((3,))
        (RankGroup(members=3, stride=4), RankGroup(members=1, stride=1))
        """
        ordered = sorted(ranks)
        return cls(len(ordered), ordered[1] - ordered[0] if len(ordered) > 1 else 1)


@dataclass(frozen=True)
class Machine:
    """A system of so many accelerators."""

    name: str
    point: DesignPoint

    @cached_property
    def _batch(self) -> Batch:
        return batch_of(self.point)

    @cached_property
    def _dims(self) -> list[NetworkDimension]:
        return [NetworkDimension.of(self._batch, index) for index in range(len(self.point.network.dims))]

    def _subgroups(self, group: RankGroup) -> list[Subgroup]:
        spans = axis_spans([dim.npus for dim in self._dims], group.stride, group.members)
        used = [index for index, span in enumerate(spans) if float(span.members) > 1]
        return subgroups([self._dims[dim_index] for dim_index in used], [spans[dim_index] for dim_index in used])

    def collective_s(self, kind: CollectiveType, whole_bytes: float, group: RankGroup) -> float:
        """Return the seconds of a collective whose whole buffer has *whole_bytes*."""
        if group.members <= 1:
            return 0.0
        self._check(group)
        spanned = self._subgroups(group)
        if kind == CollectiveType.BARRIER:
            return float(barrier_seconds(spanned))
        if kind in ROOTED:
            return float(broadcast_seconds(spanned, whole_bytes))
        layer = self.point.collective
        chunks = layer.chunks if len(spanned) > 1 else 1
        return float(collective_seconds(spanned, KINDS[kind], whole_bytes, chunks, layer.multi_dim))

    def message_s(self, size_bytes: float, distance: int) -> float:
        """Return the seconds of a message to a rank that is *distance* away."""
        group = RankGroup(2, max(1, abs(distance)))
        self._check(RankGroup(1, group.stride + 1))
        return float(send_seconds(self._subgroups(group), size_bytes))

    def _check(self, group: RankGroup) -> None:
        last = group.stride * (group.members - 1) + 1
        npus = self.point.network.npus
        if last > npus:
            raise SpecError("machine", self.name, f"has {npus} accelerators, and the job has ranks up to {last - 1}")


def machine_named(
    name: str, npus: int, settings: Mapping[str, Any] | None = None, where: str = "--accelerator"
) -> Machine:
    """Return the machine that *name* means, with *npus* accelerators: a system, an accelerator's usual one, a design.

    *settings* override fields of it, such as ``network.dims.0.bandwidth``.
    """
    if is_model_at_system(name):
        return Machine(name, load_machine(name, dict(settings or {})))
    stem, size = split_size(name)
    system = stem if stem.endswith(YAML_ENDINGS) else _system(stem, where)
    mesh = {"sequence": 1, "global_batch": 1, "tp": 1, "cp": 1, "pp": 1}
    sized = f"{system}:{size or npus}"
    return Machine(sized, load_machine({"model": TINY, "system": sized, "workload": mesh}, dict(settings or {})))


def _system(name: str, where: str) -> str:
    """Return the system that *name* means: its own name, or the usual one of an accelerator."""
    entry = catalog_entries.resolve_name("systems", name) or name
    if entry in catalog_entries.entry_names("systems"):
        return entry
    if name in catalog_entries.entry_names("accelerators"):
        return find_system_with(name)
    try:
        return find_system_with(find_accelerator(name).like)
    except UnknownName:
        raise UnknownName.among(where, name, "accelerator or system", catalog_entries.entry_names("systems")) from None


def recorded_machine(device: str, npus: int) -> Machine | None:
    """Return the usual machine of the accelerator that a driver calls *device*; None if the catalog has none."""
    system = find_system(device)
    return machine_named(system, npus) if system else None


LEAST_GAP_NS = 400
"""Between two kernels of a stream: the median in CUDA graphs of steps on an H200 is 416 to 448."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is asked."""

    machine: str = ""
    """An accelerator, a system or a design; empty for the one that the trace was recorded on."""
    network: str = ""
    """A system whose network is taken; empty for that of the machine."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the machine, such as ``network.dims.0.bandwidth``."""
    dp: int | None = None
    """Ranks of a data-parallel group."""
    batch: float = 1.0
    """Factor of the tokens of a step."""
    layers: float = 1.0
    """Factor of the number of layers."""
    host: float = 1.0
    """Factor of what the host takes; 0 as if it had captured everything in CUDA graphs."""
    from_shapes: bool = False
    """Take predicted times of kernels, not recorded ones times a ratio."""


@json_keys(
    "speedup",
    "throughput",
    without=("traces", "groups", "device", "npus", "tokens"),
    described_share="priced_share",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedTraces:
    """A trace, and the same on another machine."""

    traces: TraceSet
    """With the new times."""
    groups: dict[str, tuple[int, ...]]
    old: Recorded
    """Of the rank that took longest, as recorded."""
    new: Recorded
    """Of the rank that takes longest, projected."""
    old_machine: str
    """What the traces were recorded on."""
    new_machine: str
    """What they were put on."""
    device: str
    """What the new accelerator is called."""
    npus: int
    """Accelerators of the new machine."""
    ranks: PositiveCount
    """Ranks of the new job."""
    tokens: float
    """New over old tokens of a step, of all ranks."""
    without_host_s: float | None = None
    """What the projected step would take if the host took no time; None where it hardly waits for it."""
    priced_share: float
    """Share of kernel time whose work is known."""
    notes: tuple[str, ...]
    """What was assumed, a sentence each."""

    def job(self) -> TraceSet:
        """Return the traces of all ranks of the new job, where a single rank was recorded and stands for all of them.

        Of several recorded ranks, these, with their groups and shards as they were.
        """
        if len(self.traces.ranks) > 1 or self.ranks == 1:
            return self.traces
        # A rank's trace whose all-gathers have shards of so many ranks
        rank = self.traces.ranks[0]
        template = rank.template
        gathers = (template.type == NodeType.COMM_COLL) & (template.comm_type == CollectiveType.ALL_GATHER)
        size = np.where(gathers & (template.comm_size > 0), -(-template.comm_size // self.ranks), template.comm_size)
        return TraceSet((replace(rank, template=replace(template, comm_size=size)),) * self.ranks, self.traces.where)

    @property
    def throughput(self) -> Annotated[float, unit("ratio")]:
        """New over old tokens a second, of all ranks."""
        return self.speedup * self.tokens

    @property
    def speedup(self) -> Annotated[float, unit("ratio")]:
        """Old over new time of a step."""
        return self.old.span_s / self.new.span_s if self.new.span_s else float("inf")


def retime_rank(rank: RankTrace, replayed: Replayed, number: int) -> RankTrace:
    """Return a rank's trace with replayed times."""
    begin, ended = replayed.begun[number], replayed.ended[number]
    micro = (ended + 500) // 1000 - (begin + 500) // 1000
    template = replace(rank.template, start_ns=begin, duration_ns=ended - begin, duration_us=micro)
    return replace(rank, template=template)


def scale_host_delays(template: Template, delay: Ints, factor: float) -> Ints:
    """Return delays where the host takes *factor* times as long: its own, and of launches what exceeds a usual gap."""
    dependencies = dependencies_of(template).within()
    end = template.start_ns + np.maximum(template.duration_ns, 0)
    last = {True: np.zeros(template.nodes, np.int64), False: np.zeros(template.nodes, np.int64)}
    for of_host in (True, False):
        chosen = (template.on_cpu[dependencies.row] > 0) == of_host
        np.maximum.at(last[of_host], dependencies.dependent[chosen], end[dependencies.row[chosen]])
    device = template.on_cpu == 0
    queued = device & (last[False] >= last[True]) & (last[False] > 0)
    gap = max(float(np.median(delay[queued])), LEAST_GAP_NS) if queued.any() else float(LEAST_GAP_NS)
    launched = device & ~queued & (delay > gap)
    scaled = np.where(launched, gap + (delay - gap) * factor, np.where(device, delay, delay * factor))
    return np.rint(scaled).astype(np.int64)


FEWEST = 3
"""Repeats that make a run."""
LONGEST = 2_000
"""Kernels of a block at most."""
LEAST_COVERED = 0.4
"""Of the time of kernels: blocks that cover less are no layers."""
MOST_KERNELS = 60_000
"""Kernels of the main stream that are searched for runs."""
MOST_NODES = 2_000_000
"""Of a rank with other layers."""


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Equal blocks of kernels that follow each other, as indices into the sequence of a stream's kernels."""

    start: int
    period: int
    repeats: int

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.start + self.period * self.repeats


def find_layer_runs(codes: Ints) -> list[LayerRun]:
    """Return the runs in a sequence of kernels: the longest, then the longest in what is left.

    >>> find_layer_runs(np.array([9, 1, 2, 1, 2, 1, 2, 8, 3, 3, 3, 3]))
    [LayerRun(start=1, period=2, repeats=3), LayerRun(start=8, period=1, repeats=4)]
    """
    runs: list[LayerRun] = []
    parts = [(0, len(codes))]
    while parts:
        first, last = parts.pop()
        # The run that covers most; of those the one of the shortest block
        kernels_between = codes[first:last]
        best: LayerRun | None = None
        for period in range(1, min(LONGEST, len(kernels_between) // FEWEST) + 1):
            same = np.concatenate([[False], kernels_between[:-period] == kernels_between[period:], [False]])
            edges = np.flatnonzero(same[1:] != same[:-1])
            starts, ends = edges[::2], edges[1::2]
            if not len(starts):
                continue
            longest = int(np.argmax(ends - starts))
            repeats = (int(ends[longest] - starts[longest]) + period) // period
            if repeats >= FEWEST and (best is None or period * repeats > best.period * best.repeats):
                best = LayerRun(int(starts[longest]), period, repeats)
        if best is not None:
            runs.append(replace(best, start=best.start + first))
            parts += [(first, first + best.start), (first + best.start + best.period * best.repeats, last)]
    return sorted(runs, key=lambda run: run.start)


def scale_layers(rank: RankTrace, factor: float, where: str = "trace") -> tuple[RankTrace, str]:
    """Return the trace of a rank with *factor* times as many layers, and what was found; a replay gives its times."""
    template = rank.template
    kernels = _main_stream(template)
    # A number for each kernel, equal for equal names and works
    numbers: dict[tuple[str, int], int] = {}
    codes = np.array(
        [
            numbers.setdefault((template.names[row], int(template.kernel[row])), len(numbers))
            for row in kernels.tolist()
        ],
        np.int64,
    )
    runs = find_layer_runs(codes) if len(codes) <= MOST_KERNELS else []
    layers = _layers(runs)
    if not layers:
        raise SpecError("scale_layers", factor, f"{where} has no blocks of kernels that repeat {FEWEST} times or more")
    count = layers[0].repeats
    wanted = round(count * factor)
    if wanted < 1:
        raise SpecError("scale_layers", factor, f"{where} has {count} blocks that repeat: at least one must be left")
    repeated = sum(int(_block(template, kernels, run, 0, 1).sum()) for run in layers)
    rule = f"{where} would have more than the {MOST_NODES:,} nodes that a projection may have"
    require(template.nodes + (wanted - count) * repeated <= MOST_NODES, "scale_layers", factor, rule)
    # Layers' share of the step's operations: about their share of the weights
    work = np.maximum(template.num_ops[kernels], 0).astype(np.float64)
    layer_work = sum(float(work[run.start : run.stop].sum()) for run in layers)
    share = layer_work / float(work.sum()) if work.sum() else 1.0
    time = template.duration_ns[kernels]
    covered = sum(int(time[run.start : run.stop].sum()) for run in layers) / max(1, int(time.sum()))
    if covered < LEAST_COVERED:
        rule = f"blocks of kernels that repeat are only {100 * covered:.0f} % of {where}: its layers are not alike"
        raise SpecError("scale_layers", factor, rule)
    inside = np.zeros(template.nodes, bool)
    for run in layers:
        inside |= _block(template, kernels, run, 0, run.repeats)
    # The optimizer and collectives outside of layers work on all weights.
    scale = 1 + share * (wanted / count - 1)
    classes = np.array(coarse_node_classes(template), dtype=object)
    rows = (~inside) & ((classes == "optimizer") | (classes == "collectives"))
    columns: dict[str, Any] = {}
    for name in ("duration_ns", "duration_us", "comm_size", "tensor_size", "num_ops"):
        column: Ints = getattr(template, name)
        columns[name] = np.where(rows & (column != ABSENT), np.rint(column * scale), column).astype(np.int64)
    template = replace(template, **columns)
    for run in reversed(layers):  # from the end on, so that places of earlier ones stay
        template, moved = _resized(template, kernels, run, wanted - count)
        kernels = moved[kernels]
    blocks = " and ".join(f"{run.period:,}" for run in layers)
    note = f"{count} blocks of {blocks} kernels repeat, {100 * covered:.0f} % of kernel time: now there are {wanted}"
    return replace(rank, template=template), note


def _main_stream(template: Template) -> Ints:
    """Return the rows of the kernels of the stream that computes most, in their order."""
    computes = (template.on_cpu == 0) & ~np.isin(template.type, COMMUNICATION_TYPES)
    streams = np.unique(template.stream[computes])
    if not len(streams):
        return np.empty(0, np.int64)
    busy = [int(template.duration_ns[computes & (template.stream == stream)].sum()) for stream in streams]
    rows = np.flatnonzero(computes & (template.stream == streams[int(np.argmax(busy))]))
    return rows[np.argsort(template.start_ns[rows], kind="stable")]


def _layers(runs: Sequence[LayerRun]) -> list[LayerRun]:
    """Return the runs of layers: the one that covers most, and all others of as many repeats."""
    if not runs:
        return []
    longest = max(runs, key=lambda run: (run.stop - run.start, -run.period))
    return [run for run in runs if run.repeats == longest.repeats]


def _resized(template: Template, kernels: Ints, run: LayerRun, more: int) -> tuple[Template, Ints]:
    """Return a template with *more* blocks of a run, or fewer, and where its rows are now; -1 if they are gone."""
    if more == 0:
        return template, np.arange(template.nodes)
    if more > 0:
        middle = run.repeats // 2
        rows = _block(template, kernels, run, middle, middle + 1)
        return _with_copies(template, rows, more)
    first = (run.repeats + more) // 2 + (run.repeats + more) % 2
    return _without_rows(template, _block(template, kernels, run, first, first - more))


def _block(template: Template, kernels: Ints, run: LayerRun, first: int, last: int) -> npt.NDArray[np.bool_]:
    """Return which rows belong to the blocks from *first* to before *last* of a run."""
    own = kernels[run.start + run.period * first : run.start + run.period * last]
    before = kernels[run.start + run.period * first - 1] if run.start + run.period * first else None
    inside = np.zeros(template.nodes, bool)
    inside[own] = True
    # The row of the call that launched each kernel: the last node of the host that it waits for; -1 if none
    launches = np.full(template.nodes, -1, np.int64)
    dependents = np.repeat(np.arange(template.nodes), np.diff(template.data_start))
    rows = np.searchsorted(template.id, template.data_id)
    from_host = (template.on_cpu[rows] > 0) & (template.on_cpu[dependents] == 0)
    np.maximum.at(launches, dependents[from_host], rows[from_host])
    begins = launches[before] if before is not None else -1
    ends = launches[own[-1]]
    if ends < 0:  # of a CUDA graph, or without a host
        return inside
    thread = template.stream[ends]
    host = (template.on_cpu > 0) & (template.stream == thread)
    order = np.arange(template.nodes)
    after = -1 if before is None else ends - 1
    if begins >= 0 and template.stream[begins] == thread:
        after = begins
    inside |= host & (order > after) & (order <= ends)
    launched = launches >= 0
    inside |= (template.on_cpu == 0) & launched & inside[np.where(launched, launches, 0)]
    return inside


def _lanes(template: Template) -> list[tuple[int, int]]:
    """Return the thread or stream of each node."""
    return list(zip((template.on_cpu > 0).astype(int).tolist(), template.stream.tolist(), strict=True))


def _with_copies(template: Template, inside: npt.NDArray[np.bool_], copies: int) -> tuple[Template, Ints]:
    """Return a template in which the rows *inside* come *copies* more times, one after the other."""
    lanes = _lanes(template)
    rows = np.flatnonzero(inside).tolist()
    last_of = {lanes[row]: row for row in rows}
    nodes, size = template.nodes, len(rows)
    position = {row: index for index, row in enumerate(rows)}

    def copy(row: int, number: int) -> int:
        return row if number == 0 else nodes + (number - 1) * size + position[row]

    waits: list[list[int]] = []
    for row, waits_of_row in enumerate(_waits(template)):
        waits.append([copy(wait, copies) if inside[wait] and not inside[row] else wait for wait in waits_of_row])

    def waited(wait: int, number: int) -> int:
        if inside[wait]:
            return copy(wait, number)
        return copy(last_of[lanes[wait]], number - 1) if lanes[wait] in last_of else wait

    for number in range(1, copies + 1):
        waits += [[waited(wait, number) for wait in _wait_list(template, row)] for row in rows]
    picked = np.concatenate([np.arange(nodes), *[np.array(rows, np.int64)] * copies])
    keys = [(row, 0, 0) for row in range(nodes)]
    keys += [(rows[-1], number, row) for number in range(1, copies + 1) for row in rows]
    grown, order = _rebuilt(template, picked, waits, keys)
    moved = np.empty(len(order), np.int64)
    moved[order] = np.arange(len(order))
    return grown, moved[:nodes]


def _without_rows(template: Template, inside: npt.NDArray[np.bool_]) -> tuple[Template, Ints]:
    """Return a template without the rows *inside*; who waited for them waits for what came before them."""
    lanes = _lanes(template)
    before: dict[tuple[int, int], int] = {}
    instead = np.arange(template.nodes)
    for row in range(template.nodes):
        if inside[row]:
            instead[row] = before.get(lanes[row], -1)
        else:
            before[lanes[row]] = row
    remaining = np.flatnonzero(~inside)
    number = np.full(template.nodes + 1, -1, np.int64)
    number[remaining] = np.arange(len(remaining))
    all_waits = _waits(template)
    waits = [
        sorted({int(number[instead[wait]]) for wait in all_waits[row] if instead[wait] >= 0} - {-1})
        for row in remaining.tolist()
    ]
    shortened, order = _rebuilt(template, remaining, waits, [(row, 0, 0) for row in range(len(remaining))])
    moved = np.full(template.nodes, -1, np.int64)
    moved[remaining[order]] = np.arange(len(order))
    return shortened, moved


def _waits(template: Template) -> list[list[int]]:
    rows = np.searchsorted(template.id, template.data_id).tolist()
    starts = template.data_start.tolist()
    return [rows[first:last] for first, last in pairwise(starts)]


def _wait_list(template: Template, row: int) -> list[int]:
    ids = template.data_id[template.data_start[row] : template.data_start[row + 1]]
    rows: list[int] = np.searchsorted(template.id, ids).tolist()
    return rows


def _rebuilt(
    template: Template, picked: Ints, waits: Sequence[Sequence[int]], keys: Sequence[tuple[int, int, int]]
) -> tuple[Template, Ints]:
    """Return a template of the rows *picked*, in the order of *keys* as far as dependencies allow, and that order."""
    order = np.array(sort_after_waits(waits, keys), np.int64)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    rows = picked[order]
    columns: dict[str, Ints] = {name: getattr(template, name)[rows] for name in COLUMNS}
    columns["id"] = np.arange(len(rows))
    lists = [sorted({int(number[wait]) for wait in waits[node]}) for node in order.tolist()]
    columns["data_start"] = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    columns["data_id"] = np.array([wait for waits_of_row in lists for wait in waits_of_row], np.int64)
    columns["ctrl_start"] = np.zeros(len(rows) + 1, np.int64)
    columns["ctrl_id"] = np.empty(0, np.int64)
    names = [template.names[row] for row in rows.tolist()]
    return Template(**columns, names=names, kernels=template.kernels, process_groups={}), order


GEMM_KINDS = ("gemm", "grouped_gemm", "convolution")


def count_step_tokens(works: Sequence[KernelWork | None]) -> int:
    """Return the tokens of a step: the size that most of the GEMMs' work has as m or k; 0 without GEMMs."""
    votes: Counter[int] = Counter()
    for work in works:
        if work is not None and work.kind in GEMM_KINDS:
            for size in {work["m"], work["k"]}:
                votes[size] += int(work.flop)
    return votes.most_common(1)[0][0] if votes else 0


def scale_works(works: Sequence[KernelWork | None], factor: float) -> list[KernelWork | None]:
    """Return the works of a step with *factor* times as many tokens.

    >>> from cosmic.step.kernel_prices import parse_work
    >>> forward, weight = parse_work("gemm bf16 1 4096 3072 1024"), parse_work("gemm bf16 1 3072 1024 4096")
    >>> [work.text for work in scale_works([forward, weight], 2)]
    ['gemm bf16 1 8192 3072 1024', 'gemm bf16 1 3072 1024 8192']
    """
    tokens = count_step_tokens(works)
    scaled: dict[KernelWork, KernelWork] = {}
    scaled_works: list[KernelWork | None] = []
    for work in works:
        if work is None:
            scaled_works.append(None)
            continue
        if work not in scaled:
            scaled[work] = _scale_work(work, factor, tokens)
        scaled_works.append(scaled[work])
    return scaled_works


def _scale_work(work: KernelWork, factor: float, tokens: int) -> KernelWork:
    names = SIZES[work.kind]
    sizes = dict(zip(names, work.sizes, strict=True))
    if work.kind in GEMM_KINDS:
        # The tokens of a GEMM are its m, or its k where a gradient of weights sums over them.
        token_size = "m" if sizes["m"] == tokens or sizes["k"] != tokens else "k"
        scaled = (token_size, *(("moved",) if "moved" in sizes else ()))
    elif work.kind.startswith("attention"):
        scaled = ("batch",)
    elif work.kind == "stream" and work.walk != "optimizer":
        scaled = ("read", "written", "flop", "elements", "blocks")
    else:
        scaled = ()
    for name in scaled:
        sizes[name] = max(1, round(sizes[name] * factor)) if sizes[name] else 0
    return replace(work, sizes=tuple(sizes[name] for name in names))


MATRIX_UNIT_KINDS = ("gemm", "grouped_gemm", "convolution", "attention", "attention_backward")
"""Kinds of kernels that run on matrix units."""
WITHOUT_BF16 = ("v100-sxm2-32gb",)
"""Accelerators whose matrix units know fp16, but not bf16 (catalog: "no bf16")."""


def projection_caveats(works: Iterable[KernelWork | None], compute: Compute, recorded: str) -> Iterator[str]:
    """Yield what is assumed of kernels recorded on the accelerator *recorded* (of the catalog; may be empty)."""
    name = compute.accelerator
    formats = {work.dtype for work in works if work is not None and work.kind in MATRIX_UNIT_KINDS}
    if "bf16" in formats and name in WITHOUT_BF16:
        yield f"{name} has no bf16: products in bf16 take its rate in fp16, as if the model ran in that"
    rates = {"fp8": compute.fp8_flop_per_s, "fp4": compute.fp4_flop_per_s, "int8": compute.int8_flop_per_s}
    for narrow, rate in rates.items():
        if narrow in formats and rate is None:
            yield f"{name} has no {narrow} in the catalog: products in {narrow} take the rate of the next wider format"
    recorded_vendor, asked = _vendor(recorded), _vendor(name)
    if recorded_vendor and asked and recorded_vendor != asked:
        rule = "the same operators take what equal work takes there, as its own kernels and compiler are not known"
        yield f"kernels of {recorded_vendor} do not run on {name} of {asked}: {rule}"


def _vendor(accelerator: str) -> str:
    """Return who makes an accelerator of the catalog; empty if that is not known.

    >>> _vendor("tpu-v5e"), _vendor("no such")
    ('Google', '')
    """
    if accelerator not in catalog_entries.entry_names("accelerators"):
        return ""
    return str(catalog_entries.read_entry("accelerators", accelerator).get("vendor", ""))


SECOND = 1e9
MOST_FACTOR = 10**6
MOSTLY = 0.5
"""Share of kernel time whose work must be known for a question about its sizes."""
ALLOWED = 1.25
"""By so much a kernel may be slower than both peak and bandwidth say."""
LAUNCH_BOUND = 0.05
"""From this share of a step on, what it takes without the host is worth knowing."""
FAR = 1.5
"""From this ratio on, recorded and predicted times of collectives are worth a sentence."""
WORTH_SAYING = 0.01
"""Of kernel time."""
CLASS_WORDS = 2
"""Of an anonymized work without its sizes: kind and number format."""
Floats = npt.NDArray[np.float64]


def project_traces(
    traces: TraceSet, groups: Mapping[str, Sequence[int]], device: str, asked: WhatIf
) -> ProjectedTraces:
    """Return recorded *traces* on another machine; *device* is what the driver calls the one of the recording."""
    require(0 <= asked.host <= MOST_FACTOR, "host", asked.host, f"must be a number from 0 to {MOST_FACTOR:,}")
    require(0 < asked.batch <= MOST_FACTOR, "batch", asked.batch, f"must be positive, and at most {MOST_FACTOR:,}")
    for rank in traces.ranks:
        require(
            rank.template.is_recorded,
            "trace",
            traces.where,
            "was not recorded: cosmic simulate --on puts it on a machine",
        )
    rule = f"must be positive, and at most {MOST_FACTOR:,}"
    require(0 < asked.layers <= MOST_FACTOR, "scale_layers", asked.layers, rule)
    if (asked.machine or not device) and not any(_kernels(rank).any() for rank in traces.ranks):
        rule = "has no kernels of a device: convert its execution traces alone with --accelerator to predict them"
        raise SpecError("trace", traces.where, rule)
    projected = _project_checked(traces, groups, device, asked)
    if asked.host == 0 or projected.new.launch_bound_s < LAUNCH_BOUND * projected.new.span_s:
        return projected
    return replace(
        projected, without_host_s=_project_checked(traces, groups, device, replace(asked, host=0.0)).new.span_s
    )


def _project_checked(
    traces: TraceSet, groups: Mapping[str, Sequence[int]], device: str, asked: WhatIf
) -> ProjectedTraces:
    projected = _Projection(traces, groups, device, asked).projected()
    return projected if asked.layers == 1 else _with_layers(projected, groups, asked.layers)


class _Projection:
    """A projection under way."""

    def __init__(self, traces: TraceSet, groups: Mapping[str, Sequence[int]], device: str, asked: WhatIf) -> None:
        self.traces, self.groups, self.asked = traces, groups, asked
        self.notes: list[str] = []
        self.world = max([len(traces.ranks), *(rank + 1 for ranks in groups.values() for rank in ranks)])
        self.scaled = self._data_parallel()
        self.ranks = self._new_ranks()
        self.old = recorded_machine(device, max(self.world, 1))
        self.device = device
        name = asked.machine or (self.old.name.partition(":")[0] if self.old else "")
        if not name:
            where = device or "a device that it does not name"
            raise SpecError("--accelerator", None, f"the trace is of {where}: name the accelerator to put it on")
        self.new = machine_named(name, self.ranks, asked.settings)
        self.links = self.new
        if asked.network:
            self.links = machine_named(asked.network, self.ranks, asked.settings, "--network")
        same = self.old is not None and self.old.point.compute == self.new.point.compute
        if self.old is None and not asked.from_shapes:
            self.notes.append(f"{device or 'the recorded device'} is not in the catalog: kernels take predicted times")
        self.reprices = not same or asked.from_shapes or asked.batch != 1
        # Whether collectives take as long on both
        self.moves = (
            self.ranks != self.world
            or self.old is None
            or not (
                self.old.point.network == self.links.point.network
                and self.old.point.collective == self.links.point.collective
            )
        )
        if asked.batch != 1 and any(_communicates(rank).any() for rank in traces.ranks):
            self.notes.append("collectives and messages keep their bytes: a batch scales kernels only")

    # ------------------------------------------------------------------------------------------ ranks

    def _data_parallel(self) -> set[str]:
        """Return the groups that grow with data parallelism: the outermost, whose members are furthest apart."""
        if self.asked.dp is None:
            return set()
        used = {name for rank in self.traces.ranks for name in rank.groups}
        used |= {
            ""
            for rank in self.traces.ranks
            if bool(((rank.template.type == NodeType.COMM_COLL) & (rank.template.group == ABSENT)).any())
        }
        if not used:
            self.notes.append("the trace has no collectives: a wider data parallelism changes nothing")
            return set()
        alone = {name for name in used if len(self._members(name)) == 1}
        if alone:
            if len(alone) < len(used):
                self.notes.append("groups of one rank are taken as data parallel")
            return alone
        inner = {name for name in used if len(self._members(name)) < self.world} or used
        furthest = max(RankGroup.from_ranks(self._members(name)).stride for name in inner)
        groups = {name for name in inner if RankGroup.from_ranks(self._members(name)).stride == furthest}
        if len(used) > 1 or self.world > 1:
            some = len(self._members(min(groups)))
            self.notes.append(f"groups of {some} ranks that are {furthest} apart are taken as data parallel")
        return groups

    def _members(self, name: str) -> Sequence[int]:
        return self.groups[name] if name and name in self.groups else range(self.world)

    def _new_ranks(self) -> int:
        if self.asked.dp is None or not self.scaled:
            return self.world
        width = max(len(self._members(name)) for name in self.scaled)
        require(self.asked.dp >= 1, "--dp", self.asked.dp, "must be at least 1")
        return max(1, self.world // width) * self.asked.dp

    def _group(self, rank: RankTrace, row: int) -> tuple[RankGroup, int]:
        """Return the new group of a collective, and how many members it had."""
        index = int(rank.template.group[row])
        name = "" if index == ABSENT else rank.groups[index]
        old = self._old_group(rank, row)
        if name in self.scaled and self.asked.dp:
            stride = old.stride if old.members > 1 else max(1, self.ranks // self.asked.dp)
            return RankGroup(self.asked.dp, stride), old.members
        grows = any(
            len(self._members(group_name)) > 1 for group_name in self.scaled
        )  # else the world is model parallel
        everyone = grows and old.members == self.world
        return (RankGroup(self.ranks, 1) if everyone else old), old.members

    # ------------------------------------------------------------------------------------------ times

    def projected(self) -> ProjectedTraces:
        """Return the projection; the share of idle time that leaves power to kernels is found in two rounds."""
        base = recorded_times(self.traces)
        works, priced_share = self._works()
        if self.asked.batch != 1:
            rule = f"the work of only {100 * priced_share:.0f} % of kernel time is known: record shapes and an execution trace"
            require(priced_share >= MOSTLY, "--batch", self.asked.batch, rule)
        if self.reprices:
            recorded_on = self.old.point.compute.accelerator if self.old is not None else ""
            self.notes += projection_caveats(
                (work for rank_works in works for work in rank_works), self.new.point.compute, recorded_on
            )
        idle = [self._idle(rank) for rank in self.traces.ranks]
        durations = [self._durations(number, works[number], idle[number], idle[number]) for number in range(len(idle))]
        for _ in range(2 if self.reprices else 1):
            replayed = self._replay(base, durations)
            if self.reprices:
                later = [self._idle_of(rank, replayed, number) for number, rank in enumerate(self.traces.ranks)]
                durations = [
                    self._durations(number, works[number], idle[number], later[number]) for number in range(len(idle))
                ]
        replayed = self._replay(base, durations)
        self._compare_collectives()
        projected = self._with_times(replayed)
        longest = max(range(len(replayed.ended)), key=lambda rank: int(replayed.ended[rank].max(initial=0)))
        old = max((recorded_statistics(rank, index) for index, rank in enumerate(self.traces.ranks)), key=_trace_span)
        new = recorded_statistics(projected.ranks[longest], longest)
        if old is None or new is None:
            raise SpecError("trace", self.traces.where, "has no recorded nodes")
        return ProjectedTraces(
            traces=projected,
            groups={name: tuple(ranks) for name, ranks in self.groups.items()},
            old=old,
            new=new,
            old_machine=f"{self.world} x {self.device or 'an unnamed device'}",
            new_machine=self.new.name if self.links is self.new else f"{self.new.name}, network of {self.links.name}",
            device=self.new.point.compute.accelerator,
            npus=self.new.point.network.npus,
            ranks=self.ranks,
            tokens=self.ranks / self.world * self.asked.batch,
            priced_share=priced_share,
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _compare_collectives(self) -> None:
        """Say so where recorded collectives took much more, or less, than the recorded machine is predicted to take."""
        if not self.moves or self.old is None:
            return
        recorded_s = expected = 0.0
        for rank in self.traces.ranks:
            for row in np.flatnonzero(rank.template.type == NodeType.COMM_COLL).tolist():
                size, group = max(0, int(rank.template.comm_size[row])), self._old_group(rank, row)
                kind = CollectiveType(int(rank.template.comm_type[row]))
                whole_bytes = size * group.members if kind == CollectiveType.ALL_GATHER else size
                recorded_s += float(rank.template.duration_ns[row]) / SECOND
                expected += self.old.collective_s(kind, whole_bytes, group)
        if expected > 0 and not 1 / FAR < recorded_s / expected < FAR:
            apart = f"{recorded_s / expected:.1f} times what {self.old.name} is predicted to take, waiting included"
            self.notes.append(f"collectives take predicted times of {self.links.name}; recorded, they took {apart}")

    def _old_group(self, rank: RankTrace, row: int) -> RankGroup:
        index = int(rank.template.group[row])
        return RankGroup.from_ranks(self._members("" if index == ABSENT else rank.groups[index]))

    def _works(self) -> tuple[list[list[KernelWork | None]], float]:
        """Return the work of each node, after the change of batch, and the share of kernel time that has one."""
        works = []
        known_ns = total = 0.0
        for rank in self.traces.ranks:
            template = rank.template
            texts = [parse_work(text) if len(text.split()) > CLASS_WORDS else None for text in template.kernels]
            works.append([texts[kernel] if kernel != ABSENT else None for kernel in template.kernel.tolist()])
            durations = np.maximum(template.duration_ns, 0)
            kernels = _kernels(rank)
            total += float(durations[kernels].sum())
            known_ns += float(durations[kernels & (template.kernel != ABSENT)].sum())
        return works, known_ns / total if total else 1.0

    def _idle(self, rank: RankTrace) -> float:
        statistics = recorded_statistics(rank)
        return (
            0.0
            if statistics is None or not statistics.span_s
            else min(0.99, max(0.0, 1 - statistics.busy_s / statistics.span_s))
        )

    def _idle_of(self, rank: RankTrace, replayed: Replayed, number: int) -> float:
        return self._idle(retime_rank(rank, replayed, number))

    def _durations(self, number: int, works: list[KernelWork | None], idle: float, later: float) -> Ints:
        """Return the nanoseconds of each node of a rank, without collectives."""
        template = self.traces.ranks[number].template
        durations = durations_ns(template.duration_us, template.duration_ns).astype(np.float64)
        if self.asked.host != 1:
            durations = np.where(template.on_cpu > 0, durations * self.asked.host, durations)
        if self.reprices:
            kernels = (template.on_cpu == 0) & ~np.isin(template.type, COMMUNICATION_TYPES)
            durations = np.where(kernels, self._reprice_kernels(template, works, durations, (idle, later)), durations)
        return np.rint(durations).astype(np.int64)

    def _reprice_kernels(
        self, template: Template, works: list[KernelWork | None], recorded_ns: Floats, idle: tuple[float, float]
    ) -> Floats:
        """Return the nanoseconds of kernels on the new machine; what is not known takes the ratio of its class."""
        new = self.new.point
        asked = scale_works(works, self.asked.batch) if self.asked.batch != 1 else works
        seconds = kernel_seconds(asked, new.compute, new.memory, idle=idle[1]) * SECOND
        if self.old is None:
            before = np.where(np.isnan(seconds), np.nan, recorded_ns)
        else:
            old_point = self.old.point
            before = kernel_seconds(works, old_point.compute, old_point.memory, idle=idle[0]) * SECOND
        predicted = self.asked.from_shapes or self.old is None
        with np.errstate(invalid="ignore", divide="ignore"):
            projected_ns = seconds if predicted else recorded_ns * np.minimum(seconds / before, self._slowest())
        unknown = (
            np.isnan(projected_ns)
            & (recorded_ns > 0)
            & (template.on_cpu == 0)
            & ~np.isin(template.type, COMMUNICATION_TYPES)
        )
        return np.where(
            np.isnan(projected_ns),
            recorded_ns * self._class_ratio(template, recorded_ns, projected_ns, unknown),
            projected_ns,
        )

    def _class_ratio(
        self, template: Template, recorded_ns: Floats, projected_ns: Floats, unknown: npt.NDArray[np.bool_]
    ) -> Floats:
        """Return the ratio of new and old times of the class of each kernel, of its known members."""
        ratio = np.ones(len(recorded_ns))
        if not unknown.any():
            return ratio
        classes = np.array(coarse_node_classes(template), dtype=object)
        for name in set(classes[unknown].tolist()):
            priced = (classes == name) & ~np.isnan(projected_ns) & (recorded_ns > 0)
            rows = unknown & (classes == name)
            if priced.any():
                ratio[rows] = projected_ns[priced].sum() / recorded_ns[priced].sum()
            elif self.old is not None:
                ratio[rows] = self._nominal_ratio(name)
            share = recorded_ns[rows].sum() / recorded_ns[template.on_cpu == 0].sum()
            if share > WORTH_SAYING:
                share_text = f"the work of {100 * share:.0f} % of kernel time ({name}) is not known"
                how = "as recorded" if (ratio[rows] == 1).all() else "scaled with its class"
                self.notes.append(f"{share_text}: {how}")
        return ratio

    def _slowest(self) -> float:
        """Return the largest ratio of new and old times that data sheets allow; a faster chip is never slower.

        Where a kernel was not measured on the new accelerator, the model may not know how libraries cut it up there.
        """
        if self.asked.batch != 1:
            return float("inf")
        return max(1.0, self._nominal_ratio("GEMMs"), self._nominal_ratio("")) * ALLOWED

    def _nominal_ratio(self, name: str) -> float:
        """Return the ratio of times by data sheets: of peak rates for GEMMs, of memory bandwidth for all else."""
        old, new = self.old.point if self.old else self.new.point, self.new.point
        if name in ("GEMMs", "attention", "convolutions"):
            return old.compute.bf16_flop_per_s / new.compute.bf16_flop_per_s
        return old.memory.bandwidth_bytes_per_s / new.memory.bandwidth_bytes_per_s

    def _replay(self, base: ReplayChanges, durations: list[Ints]) -> Replayed:
        transfers: dict[tuple[int, int], int] = {}
        if self.moves:
            for number, rank in enumerate(self.traces.ranks):
                for row in np.flatnonzero(_communicates(rank)).tolist():
                    transfer_ns = round(self._transfer_s(number, rank, row) * SECOND)
                    transfers[number, row] = transfer_ns
                    if self._is_alone(rank, row):
                        durations[number][row] = transfer_ns  # nobody else is there to wait for
        delays = base.delay_ns
        if self.asked.host != 1:
            delays = tuple(
                scale_host_delays(rank.template, delay, self.asked.host)
                for rank, delay in zip(self.traces.ranks, delays, strict=True)
            )
        return replay_traces(self.traces, self.groups, ReplayChanges(tuple(durations), delays, transfers))

    def _is_alone(self, rank: RankTrace, row: int) -> bool:
        """Return whether no other trace has the same collective or message: there is nobody to meet in a replay."""
        template, present = rank.template, len(self.traces.ranks)
        if template.type[row] != NodeType.COMM_COLL:
            peer = int(template.peer[row])
            return peer == ABSENT or rank.peers[peer] >= present
        index = int(template.group[row])
        members = self._members("" if index == ABSENT else rank.groups[index])
        return sum(member < present for member in members) < len(members) or len(members) == 1

    def _transfer_s(self, number: int, rank: RankTrace, row: int) -> float:
        template = rank.template
        size = max(0, int(template.comm_size[row]))
        if template.type[row] != NodeType.COMM_COLL:
            peer = int(template.peer[row])
            return self.links.message_s(size, rank.peers[peer] - number) if peer != ABSENT else 0.0
        group, before = self._group(rank, row)
        kind = CollectiveType(int(template.comm_type[row]))
        # A node of an all-gather states the shard of a rank, a cost model prices the whole buffer.
        whole_bytes = size * before if kind == CollectiveType.ALL_GATHER else size
        return self.links.collective_s(kind, whole_bytes, group)

    def _with_times(self, replayed: Replayed) -> TraceSet:
        """Return the traces with replayed times."""
        ranks = tuple(retime_rank(rank, replayed, number) for number, rank in enumerate(self.traces.ranks))
        return TraceSet(ranks, self.traces.where)


def _communicates(rank: RankTrace) -> npt.NDArray[np.bool_]:
    return np.isin(rank.template.type, COMMUNICATION_TYPES)


def _trace_span(statistics: Recorded | None) -> float:
    return 0.0 if statistics is None else statistics.span_s


def _with_layers(projected: ProjectedTraces, groups: Mapping[str, Sequence[int]], factor: float) -> ProjectedTraces:
    """Return a projection with *factor* times as many layers."""
    found_layers = [scale_layers(rank, factor, projected.traces.where) for rank in projected.traces.ranks]
    ranks = tuple(rank for rank, _ in found_layers)
    traces = TraceSet(ranks, projected.traces.where)
    changes = recorded_times(traces)
    replayed = replay_traces(traces, groups, changes)
    moved = TraceSet(tuple(retime_rank(rank, replayed, number) for number, rank in enumerate(ranks)), traces.where)
    new = recorded_statistics(moved.ranks[projected.new.rank], projected.new.rank)
    return replace(projected, traces=moved, new=new or projected.new, notes=(*projected.notes, found_layers[0][1]))


def _kernels(rank: RankTrace) -> npt.NDArray[np.bool_]:
    """Return which nodes are kernels, copies or fills."""
    kernels: npt.NDArray[np.bool_] = (rank.template.on_cpu == 0) & (rank.template.type == NodeType.COMP)
    return kernels
