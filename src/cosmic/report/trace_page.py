"""The traces of a job as the document that their page shows: columns of nodes, a dictionary of names, a summary.

Ranks that run the same nodes share a view. Nodes are in ascending order of their ids: names, ids and dependencies then
differ little from one to the next, and are compressed to a few bytes a node. Nodes are drawn when they were recorded,
or along their dependencies, each on a row of its thread, stream or slot. The summary has facts, the operators that take
the most time, and classes of kernels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cosmic.base.errors import one_line, require
from cosmic.base.files import write_text
from cosmic.base.units import SECONDS
from cosmic.report.container import Binary
from cosmic.report.document_types import (
    AbsentDependencies,
    DependencyColumns,
    Fact,
    Kind,
    NodeAttribute,
    NodeColumns,
    OperatorJson,
    Packed,
    SignedNumbers,
    TraceDocument,
    TraceRank,
    TraceViewJson,
)
from cosmic.report.html_file import render_trace
from cosmic.simulate.step_timeline import TimelineTrack
from cosmic.traces.dependencies import (
    Dependencies,
    dependencies_of,
    earliest_starts,
    find_cycle,
    longest_chains,
    recorded_critical_path,
    topological_order,
)
from cosmic.traces.trace import (
    ABSENT,
    COMMUNICATION_TYPES,
    MEMORY_TYPES,
    CollectiveType,
    Ints,
    NodeType,
    Template,
    TraceSet,
    ranks_by_template,
)
from cosmic.traces.trace_statistics import union_length
from cosmic.traces.trace_views import enum_name, readable_amount

LONGEST_TIME = 2**53
"""Nanoseconds of a recorded trace, 104 days, or microseconds of another: whole numbers that JavaScript knows."""
LANES, SLOT_LANES = 16, 6
"""Rows that one recorded thread or stream gets, or one slot, where its nodes overlap; beyond, they hide each other."""
SHOWN_CYCLE = 6
"""Nodes of a cycle that are named."""
NODE_KINDS: tuple[Kind, ...] = ("compute", "communication", "memory", "cpu", "other")
COMPUTE, EXCHANGE, STORAGE, CPU, OTHER = range(len(NODE_KINDS))
PROCESS_NAMES = ("CPU threads", "CUDA streams", "communication", "other")
SLOT_NAMES = ("CPU", "compute", "communication", "other")
_PROCESS_OF_KIND = (1, 2, 1, 0, 3)
"""Of each kind, the process that it belongs to."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TraceSchedule:
    """The nodes of a template in time; times are whole numbers of *tick*."""

    recorded: bool
    tick: float
    """Seconds; 1 step where no node states a time."""
    unit: Literal["s", "steps"]
    """"s", or "steps"."""
    start: Ints
    duration: Ints
    depth: Ints
    """The most nodes that must run before it, one after the other."""
    kind: Ints
    """Index into `NODE_KINDS`."""
    critical: Ints
    """Rows of the critical path, first row first; none if there is a cycle."""
    dependencies: Dependencies
    cycle: tuple[int, ...]
    """Rows, each of which depends on the next; empty if there is no cycle."""
    first: int
    """The recorded start that is drawn at 0."""
    timeless: int
    """Nodes that state no duration, or in recorded traces no start."""

    @property
    def end(self) -> int:
        """When the last node ends."""
        return int((self.start + self.duration).max(initial=0))

    @property
    def critical_length(self) -> int:
        """The time of the critical path; of a node, until the next one begins."""
        start, end = self.start[self.critical], (self.start + self.duration)[self.critical]
        return int((np.minimum(end, np.append(start[1:], end[-1:])) - start).sum())


def schedule_of(template: Template) -> TraceSchedule:
    """Return when the nodes ran, where they say so; else when each could begin, once its dependencies are done."""
    _check_times(template)
    dependencies = dependencies_of(template).within()
    order = topological_order(dependencies)
    around = tuple(find_cycle(dependencies, order))
    if around:  # those on earlier nodes alone have none
        dependencies = _drop_forward(dependencies)
        order = np.arange(template.nodes)
    recorded = template.is_recorded
    tick, unit, duration, timeless = _durations(template, recorded)
    first = int(template.start_ns[template.start_ns != ABSENT].min()) if recorded else 0
    recorded_start = np.where(template.start_ns != ABSENT, template.start_ns - first, ABSENT)
    start = earliest_starts(dependencies, order, duration, recorded_start)
    ones = np.ones(template.nodes, np.int64)
    return TraceSchedule(
        recorded=recorded,
        tick=tick,
        unit=unit,
        start=start,
        duration=duration,
        depth=earliest_starts(dependencies, order, ones),
        kind=kinds_of(template),
        critical=np.zeros(0, np.int64) if around else _critical_path(template, dependencies, order, start, duration),
        dependencies=dependencies,
        cycle=around,
        first=first,
        timeless=timeless,
    )


def _check_times(template: Template) -> None:
    """Refuse times whose sum is not exact in a page: those of a damaged file."""
    starts = template.start_ns[template.start_ns != ABSENT].astype(float)
    recorded_ns = np.maximum(template.duration_ns.astype(float), 1e3 * template.duration_us)
    total = np.maximum(recorded_ns if len(starts) else template.duration_us, 0).sum(dtype=float) + (
        np.ptp(starts) if len(starts) else 0
    )
    require(
        total < LONGEST_TIME,
        "trace",
        f"{total:.3g}",
        f"durations and starts add up to {LONGEST_TIME:,} at most, in a page",
    )


def _drop_forward(dependencies: Dependencies) -> Dependencies:
    """Return the dependencies on rows before the dependent one."""
    backward = dependencies.row < dependencies.dependent
    return Dependencies(
        dependencies.nodes,
        dependencies.dependent[backward],
        dependencies.wanted[backward],
        dependencies.row[backward],
        dependencies.absent[backward],
    )


def _durations(template: Template, recorded: bool) -> tuple[float, Literal["s", "steps"], Ints, int]:
    """Return the tick, its unit, the duration of each node in it, and how many nodes state no time."""
    if recorded:
        recorded_ns = np.where(template.duration_ns != ABSENT, template.duration_ns, 1000 * template.duration_us)
        return 1e-9, "s", np.maximum(recorded_ns, 0), int((template.start_ns == ABSENT).sum())
    if (template.duration_us > 0).any():
        duration = np.maximum(template.duration_us, 0)
        return 1e-6, "s", duration, int((duration == 0).sum())
    return 1.0, "steps", np.ones(template.nodes, np.int64), template.nodes


def _critical_path(template: Template, dependencies: Dependencies, order: Ints, start: Ints, duration: Ints) -> Ints:
    """Return the rows of the critical path: of a recorded trace, threads and streams run one node after the other."""
    if not template.is_recorded:
        return longest_chains(dependencies, order, [duration])[0]
    alone = -2 - np.arange(template.nodes)  # nodes without a thread or a stream wait for no other
    queue = np.where(template.stream == ABSENT, alone, 2 * template.stream + template.on_cpu)
    return recorded_critical_path(dependencies, start, duration, queue)


def kinds_of(template: Template) -> Ints:
    """Return the kind of each node, as an index into `NODE_KINDS`."""
    kind = np.full(template.nodes, OTHER)
    kind[template.type == NodeType.COMP] = COMPUTE
    kind[np.isin(template.type, MEMORY_TYPES)] = STORAGE
    kind[template.on_cpu > 0] = CPU
    kind[np.isin(template.type, COMMUNICATION_TYPES)] = EXCHANGE
    return kind


@dataclass(frozen=True, slots=True, eq=False)
class TraceRows:
    """The rows of a timeline."""

    processes: list[str]
    process: list[int]
    """Of each row, its process."""
    names: list[str]
    of: Ints
    """The row of each node."""


def tracks_of(template: Template, schedule: TraceSchedule) -> TraceRows:
    """Return the rows: one for each thread or stream, and more where nodes of one overlap."""
    process = np.array(_PROCESS_OF_KIND)[schedule.kind]
    stream = template.stream if schedule.recorded else np.full(template.nodes, ABSENT)
    order = np.lexsort((-schedule.duration, schedule.start, stream, process))  # the outer of nested ones first
    lane = np.empty(template.nodes, np.int64)
    bounds = np.flatnonzero((np.diff(process[order]) != 0) | (np.diff(stream[order]) != 0)) + 1
    ends, most = schedule.start + schedule.duration, LANES if schedule.recorded else SLOT_LANES
    for part in np.split(order, bounds) if template.nodes else ():
        lane[part] = _assign_lanes(schedule.start[part].tolist(), ends[part].tolist(), most)
    keys, track = np.unique(np.stack([process, stream, lane], axis=1), axis=0, return_inverse=True)
    used = np.unique(keys[:, 0]).tolist()
    words = PROCESS_NAMES if schedule.recorded else SLOT_NAMES
    return TraceRows(
        [words[each] for each in used],
        [used.index(each) for each in keys[:, 0].tolist()],
        [_track_name(group, stream, lane, schedule.recorded) for group, stream, lane in keys.tolist()],
        np.asarray(track).reshape(-1),
    )


def _track_name(process: int, stream: int, lane: int, recorded: bool) -> str:
    """Return the name of a row.

    >>> _track_name(1, 7, 0, True), _track_name(0, 3, 2, True), _track_name(2, -1, 0, False)
    ('stream 7', 'thread 3, level 3', 'communication')
    """
    if not recorded:
        name = SLOT_NAMES[process]
    elif stream == ABSENT:
        name = "no thread" if process == 0 else "no stream"
    else:
        name = f"{'thread' if process == 0 else 'stream'} {stream}"
    return f"{name}, level {lane + 1}" if lane else name


def _assign_lanes(starts: list[int], ends: list[int], most: int) -> list[int]:
    """Return the first row that is free for each node, of those in order of their start; of *most*, the first to be.

    >>> _assign_lanes([0, 2, 4, 5], [10, 3, 9, 6], 3), _assign_lanes([0, 2, 4, 5], [10, 3, 9, 6], 2)
    ([0, 1, 1, 2], [0, 1, 1, 1])
    """
    until: list[int] = []
    lanes = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((lane for lane, busy in enumerate(until) if busy <= start), -1)
        if lane < 0 and len(until) < most:
            lane = len(until)
            until.append(end)
        elif lane < 0:
            lane = until.index(min(until))
        until[lane] = end
        lanes.append(lane)
    return lanes


def cycle_text(template: Template, rows: tuple[int, ...]) -> str:
    """Return a cycle in words, first node first."""
    ids = [str(template.id[row]) for row in rows[:SHOWN_CYCLE]]
    more = f" → {len(rows) - SHOWN_CYCLE:,} more" if len(rows) > SHOWN_CYCLE else ""
    return f"{' → '.join(ids)}{more} → {ids[0]}"


MOST_OPERATORS = 20
"""Operators in the table."""
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"\w+")


def time_text(ticks: float, schedule: TraceSchedule) -> str:
    """Return a time of a schedule for a person to read."""
    if schedule.unit == "s":
        return readable_amount(ticks * schedule.tick, SECONDS).replace("us", "µs")
    return f"{ticks:,.0f} step{'' if ticks == 1 else 's'}"


def percent_of(part: float, total: float) -> str:
    """Return a share.

    >>> percent_of(1, 3), percent_of(0, 5), percent_of(1, 1_000_000), percent_of(9999, 10_000)
    ('33 %', '0 %', '<0.1 %', '99.9 %')
    """
    share = 100 * part / total if total else 0.0
    if 0 < share < 0.1:
        return "<0.1 %"
    return f"{min(share, 99.9):.3g} %" if 99.5 <= share < 100 else f"{share:.2g} %" if share < 99.5 else "100 %"


def trace_facts(template: Template, schedule: TraceSchedule) -> list[Fact]:
    """Return the facts of one rank: nodes, dependencies, span, critical path, and what the time goes to."""
    data, ctrl = len(template.data_id), len(template.ctrl_id)
    note = f"{data:,} data, {ctrl:,} control"
    facts = [
        Fact("nodes", f"{template.nodes:,}", template.nodes, types_text([(template, 1)])),
        Fact("dependencies", f"{data + ctrl:,}", data + ctrl, note),
        Fact("depth", f"{int(schedule.depth.max(initial=-1)) + 1:,}", None, "nodes, one after the other"),
    ]
    end = schedule.end
    if schedule.unit == "s":
        how = "as recorded" if schedule.recorded else "each node as soon as its dependencies are done"
        facts.append(Fact("span", time_text(end, schedule), end * schedule.tick, how))
    if len(schedule.critical):
        length, nodes = schedule.critical_length, len(schedule.critical)
        share = f", {percent_of(length, end)} of the span" if schedule.recorded and end else ""
        value = length * schedule.tick if schedule.unit == "s" else None
        word = "node" if nodes == 1 else "nodes"
        facts.append(Fact("critical path", time_text(length, schedule), value, f"{nodes:,} {word}{share}"))
    return facts + (_share_facts(schedule) if schedule.unit == "s" and end else [])


def types_text(parts: Iterable[tuple[Template, int]]) -> str:
    """Return the number of nodes of each type, of templates that so many ranks have.

    >>> from cosmic.traces.trace import template_of
    >>> types_text([(template_of([{"id": 1, "type": 7}, {"id": 2, "type": 4}, {"id": 3, "type": 4}]), 10)])
    '20 COMP, 10 COMM_COLL'
    """
    nodes_by_type: Counter[int] = Counter()
    for template, ranks in parts:
        numbers, counts = np.unique(template.type, return_counts=True)
        nodes_by_type.update(dict(zip(numbers.tolist(), (ranks * counts).tolist(), strict=True)))
    return ", ".join(f"{count:,} {enum_name(NodeType, number)}" for number, count in nodes_by_type.most_common())


def _share_facts(schedule: TraceSchedule) -> list[Fact]:
    """Return which share of the span goes to compute, to communication, and to neither."""
    own = {"compute": np.isin(schedule.kind, (COMPUTE, STORAGE)), "communication": schedule.kind == EXCHANGE}
    words = "of the span, on the accelerator"
    if not own["compute"].any():
        own["compute"], words = schedule.kind == CPU, "of the span, on the CPU"
    end, ends = schedule.end, schedule.start + schedule.duration
    busy = {name: union_length(schedule.start[rows], ends[rows]) for name, rows in own.items()}
    both = own["compute"] | own["communication"]
    either = union_length(schedule.start[both], ends[both])
    notes = {"compute": words, "communication": f"{percent_of(either - busy['compute'], end)} exposed"}
    if own["communication"].any() and not busy["communication"]:
        notes["communication"] = "it states no duration"
    facts = [
        Fact(name, percent_of(time, end), time / end, notes[name])
        for name, time in busy.items()
        if own[name].any() or name == "compute"
    ]
    return [*facts, Fact("idle", percent_of(end - either, end), 1 - either / end, "neither of them runs")]


def operators_of(
    names: Sequence[str], code: Ints, schedule: TraceSchedule, most: int = MOST_OPERATORS
) -> tuple[list[OperatorJson], str]:
    """Return the operators that take the most time, and what is to be said of them.

    *code* says which of *names* each node has. Where nearly every node has a name of its own, names that differ in
    numbers alone count as one.
    """
    note = ""
    if len(names) > max(MOST_OPERATORS, len(code) // 2):
        stems: dict[str, int] = {}
        code = np.array([stems.setdefault(_NUMBER.sub("*", name), len(stems)) for name in names], np.int64)[code]
        names, note = list(stems), "Names that differ in numbers alone count as one; * stands for a number."
    return _operator_table(code, schedule, lambda place: names[place] or "(no name)", most), note


def kernels_of(template: Template, schedule: TraceSchedule, most: int = MOST_OPERATORS) -> list[OperatorJson]:
    """Return the classes of kernels that take the most time; none where no kernel is known."""
    has_kernel = template.kernel >= 0
    if not has_kernel.any():
        return []
    words: dict[str, int] = {}
    first = [match[0] if (match := _WORD.search(text)) else "kernel" for text in template.kernels]
    word_code = np.array([words.setdefault(word, len(words)) for word in first], np.int64)
    code = np.where(has_kernel, word_code[np.maximum(template.kernel, 0)], -1)
    names = list(words)
    return _operator_table(code, schedule, lambda at: names[at], most)


def _operator_table(code: Ints, schedule: TraceSchedule, name: Callable[[int], str], most: int) -> list[OperatorJson]:
    """Return nodes by code and kind, the most time first; *name* is that of a code. Negative codes are left out."""
    keys = code * len(NODE_KINDS) + schedule.kind
    coded = code >= 0
    distinct, group = np.unique(keys[coded], return_inverse=True)
    counts = np.bincount(group, minlength=len(distinct))
    totals = np.bincount(group, schedule.duration[coded], minlength=len(distinct))
    total = totals.sum()
    return [
        OperatorJson(
            name=name(int(distinct[row]) // len(NODE_KINDS)),
            kind=NODE_KINDS[int(distinct[row]) % len(NODE_KINDS)],
            count=int(counts[row]),
            total=float(totals[row]) * schedule.tick,
            share=float(totals[row] / total) if total else 0.0,
        )
        for row in np.lexsort((-counts, -totals))[:most]
    ]


MOST_NODES = 1_000_000
"""Nodes that a page may hold, those of ranks that run the same counted once."""
MOST_VALUES = 4096
"""Distinct values up to which an attribute is stored as codes."""
MOST_EXACT = 2**60
"""Whole numbers beyond this are rounded: twice their difference could have more than 64 bits."""
MOST_NAME = 2_000
"""Letters of a name that are kept."""


def write_trace_page(traces: TraceSet, title: str, path: str | Path, where: str = "--html") -> int:
    """Write the page of some traces to a file; return its bytes."""
    binary = Binary()
    document = document_of_traces(traces, title, binary)
    text = render_trace(document, binary)
    write_text(path, text, where)
    return len(text.encode())


def document_of_traces(traces: TraceSet, title: str, binary: Binary) -> TraceDocument:
    """Return the document of some traces, its numbers added to *binary*."""
    parts = ranks_by_template(traces)
    nodes = sum(template.nodes for template, _ in parts)
    several = "; give the file of one rank, such as PREFIX.0.et" if len(traces.ranks) > 1 else ""
    rule = f"has {nodes:,} nodes in ranks that differ, and a page holds {MOST_NODES:,} at most{several}"
    require(nodes <= MOST_NODES, "trace", traces.where, rule)
    view_of_rank = {rank: view for view, (_, ranks) in enumerate(parts) for rank in ranks}
    return TraceDocument(
        format=1,
        title=one_line(title),
        facts=_job_facts(traces, [(template, len(ranks)) for template, ranks in parts]),
        kinds=list(NODE_KINDS),
        ranks=[_rank_json(traces, rank, view_of_rank[rank]) for rank in range(len(traces.ranks))],
        views=[trace_view_of(template, binary) for template, _ in parts],
    )


def _job_facts(traces: TraceSet, parts: list[tuple[Template, int]]) -> list[Fact]:
    """Return the facts of all ranks together; none of a single one."""
    ranks = len(traces.ranks)
    if ranks == 1:
        return []
    kinds = "all run the same nodes" if len(parts) == 1 else f"{len(parts):,} kinds that run different nodes"
    return [
        Fact("ranks", f"{ranks:,}", ranks, kinds),
        Fact("nodes of all ranks", f"{traces.nodes:,}", traces.nodes, types_text(parts)),
    ]


def _rank_json(traces: TraceSet, rank: int, view: int) -> TraceRank:
    trace = traces.ranks[rank]
    own = trace.own_rank if len(traces.ranks) == 1 and trace.own_rank is not None else rank
    return TraceRank(rank=own, view=view, groups=list(trace.groups), peers=list(trace.peers))


def trace_view_of(template: Template, binary: Binary) -> TraceViewJson:
    """Return the nodes of ranks that run the same, their numbers added to *binary*."""
    schedule = schedule_of(template)
    tracks = tracks_of(template, schedule)
    every = dependencies_of(template)
    names, code = _name_codes(template)
    types, kinds = np.unique(template.type, return_inverse=True)
    operators, note = operators_of(names, code, schedule)
    return TraceViewJson(
        facts=trace_facts(template, schedule),
        reading=_describe_times(template, schedule),
        problems=_describe_problems(template, schedule, every),
        recorded=schedule.recorded,
        tick=schedule.tick,
        unit=schedule.unit,
        duration=schedule.end * schedule.tick,
        processes=tracks.processes,
        tracks=[
            TimelineTrack(process=process, name=name)
            for process, name in zip(tracks.process, tracks.names, strict=True)
        ],
        types=[enum_name(NodeType, type_) for type_ in types.tolist()],
        names=names,
        operators=operators,
        operators_note=note,
        kernels=kernels_of(template, schedule),
        nodes=_node_columns(template, schedule, tracks, (code, len(names)), (kinds, len(types)), binary),
    )


def _name_codes(template: Template) -> tuple[list[str], Ints]:
    """Return the distinct names, in the order of the nodes, and which of them each node has."""
    codes: dict[str, int] = {}
    code = [codes.setdefault(name, len(codes)) for name in template.names]
    names = [each if len(each) <= MOST_NAME else f"{each[: MOST_NAME - 1]}…" for each in map(one_line, codes)]
    return names, np.array(code, np.int64)


def _node_columns(
    template: Template,
    schedule: TraceSchedule,
    tracks: TraceRows,
    names: tuple[Ints, int],
    types: tuple[Any, int],
    binary: Binary,
) -> NodeColumns:
    every = dependencies_of(template)
    critical = np.zeros(template.nodes, np.int64)
    critical[schedule.critical] = 1
    return NodeColumns(
        count=template.nodes,
        id=_pack_signed_numbers(template.id, binary, running=True),
        type=binary.add_codes(types[0].reshape(-1), types[1]),
        name=binary.add_codes(*names),
        track=binary.add_codes(tracks.of, len(tracks.names)),
        kind=binary.add_codes(schedule.kind, len(NODE_KINDS)),
        start=_pack_signed_numbers(schedule.start, binary, running=True),
        duration=_pack_whole_numbers(schedule.duration, binary),
        depth=_pack_whole_numbers(schedule.depth, binary),
        critical=binary.add_codes(critical, 2),
        data=_dependency_columns(template, "data", binary),
        ctrl=_dependency_columns(template, "ctrl", binary),
        absent=AbsentDependencies(
            node=_pack_whole_numbers(every.dependent[every.absent], binary),
            id=_pack_whole_numbers(every.wanted[every.absent], binary),
        ),
        attributes=_node_attributes(template, binary),
    )


def _dependency_columns(template: Template, kind: str, binary: Binary) -> DependencyColumns:
    """Return the dependencies of one kind on nodes that there are: how many each node has, and how far back each is."""
    start, wanted = getattr(template, f"{kind}_start"), getattr(template, f"{kind}_id")
    dependent = np.repeat(np.arange(template.nodes), np.diff(start))
    row = np.minimum(np.searchsorted(template.id, wanted), max(template.nodes - 1, 0))
    present = template.id[row] == wanted if len(wanted) else np.zeros(0, bool)
    counts = np.bincount(dependent[present], minlength=template.nodes)
    back = dependent[present] - row[present]
    return DependencyColumns(counts=_pack_whole_numbers(counts, binary), back=_pack_signed_numbers(back, binary))


def _pack_whole_numbers(values: Any, binary: Binary) -> Packed:
    """Return whole numbers that are not negative, in as few bytes each as possible."""
    most = int(values.max(initial=0))
    return binary.add_codes(values, most + 1) if most < 2**32 else binary.add(values, "f64")


def _pack_signed_numbers(values: Ints, binary: Binary, *, running: bool = False) -> SignedNumbers:
    """Return whole numbers of either sign; with *running*, the differences from one to the next."""
    exact = values if np.abs(values.astype(float)).max(initial=0) < MOST_EXACT else values.astype(float)
    steps = np.diff(exact, prepend=0) if running else exact
    return SignedNumbers(
        numbers=_pack_whole_numbers(np.where(steps < 0, -2 * steps - 1, 2 * steps), binary), running=running
    )


_SHOWN_ATTRIBUTES = (
    ("comm_type", "collective", ""),
    ("num_ops", "operations", "FLOP"),
    ("tensor_size", "tensors", "B"),
    ("comm_size", "message", "B"),
    ("group", "group", ""),
    ("peer", "peer", ""),
    ("comm_tag", "tag", ""),
    ("comm_priority", "priority", ""),
    ("involved_dims", "dimensions", ""),
    ("kernel", "kernel", ""),
    ("delay_ns", "delay after its dependencies", "s"),
)
"""Columns of a template that the page shows of a node, with their labels and units."""


def _node_attributes(template: Template, binary: Binary) -> list[NodeAttribute]:
    """Return the attributes that any node states."""
    attributes = []
    for name, label, unit in _SHOWN_ATTRIBUTES:
        column = getattr(template, name)
        absent = column == (0 if name == "comm_priority" else ABSENT)
        if name == "comm_type":  # meaningless in other nodes
            absent = absent | (template.type != NodeType.COMM_COLL)
        if not absent.all():
            attributes.append(_node_attribute(template, name, label, unit, np.where(absent, ABSENT, column), binary))
    return attributes


def _node_attribute(
    template: Template, name: str, label: str, unit: str, column: Ints, binary: Binary
) -> NodeAttribute:
    values, codes = np.unique(column, return_inverse=True)
    worth = 1e-9 if name.endswith("_ns") else 1
    attribute: NodeAttribute = NodeAttribute(name=name, label=label, unit=unit)
    if len(values) > MOST_VALUES:
        numbers = _pack_whole_numbers(np.maximum(column, ABSENT) + 1, binary)
        return replace(attribute, numbers=numbers, worth=worth)
    shown = [None if value == ABSENT else _attribute_value(template, name, value, worth) for value in values.tolist()]
    return replace(attribute, values=shown, codes=binary.add_codes(codes.reshape(-1), len(values)))


def _attribute_value(template: Template, name: str, value: int, worth: float) -> str | int | float:
    """Return a value as the page shows it; groups and peers stay places, as ranks differ in them."""
    if name == "comm_type":
        return enum_name(CollectiveType, value)
    if name == "kernel":
        return one_line(template.kernels[value])
    if name == "involved_dims":
        return " ".join(str(index) for index in range(value.bit_length()) if value >> index & 1)
    return value if worth == 1 else value * worth


def _describe_times(template: Template, schedule: TraceSchedule) -> str:
    """Return where the times come from, in a sentence or two."""
    less = f"{schedule.timeless:,} of {template.nodes:,} nodes"
    if schedule.recorded:
        more = f" {less} state no start, and are drawn where their dependencies end." if schedule.timeless else ""
        since = f", from the first start on ({time_text(schedule.first, schedule)} into the trace)"
        return f"Times are those that were recorded{since if schedule.first else ''}.{more}"
    if schedule.unit == "steps":
        return "No node states a duration: each takes one step, after all that it depends on."
    more = f" {less} state none, and are drawn as taking no time." if schedule.timeless else ""
    return f"Nodes start as soon as all that they depend on is done, and take the durations that they state.{more}"


def _describe_problems(template: Template, schedule: TraceSchedule, every: Dependencies) -> list[str]:
    """Return what is wrong with the dependencies."""
    problems = []
    if not template.nodes:
        problems.append("The trace has no nodes.")
    if schedule.cycle:
        text = cycle_text(template, schedule.cycle)
        problems.append(
            f"The dependencies have a cycle, {text} (each depends on the next): the trace cannot run. "
            "Depths and times follow dependencies on nodes with smaller ids alone, and there is no critical path."
        )
    kinds = {
        "of a node on itself": (every.row == every.dependent) & ~every.absent,
        "on a node that the trace does not have": every.absent,
    }
    for words, wrong in kinds.items():
        if wrong.any():
            count, first = int(wrong.sum()), int(template.id[every.dependent[wrong][0]])
            problems.append(
                f"{count:,} dependenc{'y is' if count == 1 else 'ies are'} {words}; the first, of node {first}."
            )
    return problems
