"""The traces of a job as the document that their page shows: columns of nodes, a dictionary of names, a summary.

Ranks that run the same nodes share a view. Nodes are in ascending order of their ids: names, ids and dependencies then
differ little from one to the next, and are compressed to a few bytes a node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cosmic.errors import one_line, require
from cosmic.files import write_text
from cosmic.publishing.container import Binary
from cosmic.publishing.contract import Fact, Packed
from cosmic.publishing.html import trace_page
from cosmic.publishing.trace_contract import Attribute, Edges, Nodes, Rank, Signed, TraceDocument, View
from cosmic.publishing.trace_schedule import KINDS, Schedule, Tracks, cycle_text, schedule_of, tracks_of
from cosmic.publishing.trace_tables import fact, facts_of, kernels_of, operators_of, time_text, types_text
from cosmic.traces.groups import ranks_by_template
from cosmic.traces.order import Dependencies, dependencies_of
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType, Template, TraceSet
from cosmic.traces.views import enum_name

MOST_NODES = 1_000_000
"""Nodes that a page may hold, those of ranks that run the same counted once."""
MOST_VALUES = 4096
"""Distinct values up to which an attribute is stored as codes."""
EXACT = 2**60
"""Whole numbers beyond this are rounded: twice their difference could have more than 64 bits."""
MOST_NAME = 2_000
"""Letters of a name that are kept."""


def write_trace_page(traces: TraceSet, title: str, path: str | Path, where: str = "--html") -> int:
    """Write the page of some traces to a file; return its bytes."""
    binary = Binary()
    document = document_of_traces(traces, title, binary)
    text = trace_page(document, binary)
    write_text(path, text, where)
    return len(text.encode())


def document_of_traces(traces: TraceSet, title: str, binary: Binary) -> TraceDocument:
    """Return the document of some traces, its numbers added to *binary*."""
    parts = ranks_by_template(traces)
    nodes = sum(template.nodes for template, _ in parts)
    several = "; give the file of one rank, such as PREFIX.0.et" if len(traces.ranks) > 1 else ""
    rule = f"has {nodes:,} nodes in ranks that differ, and a page holds {MOST_NODES:,} at most{several}"
    require(nodes <= MOST_NODES, "trace", traces.where, rule)
    place = {rank: view for view, (_, ranks) in enumerate(parts) for rank in ranks}
    return {
        "format": 1,
        "title": one_line(title),
        "facts": _job(traces, [(template, len(ranks)) for template, ranks in parts]),
        "kinds": list(KINDS),
        "ranks": [_rank(traces, rank, place[rank]) for rank in range(len(traces.ranks))],
        "views": [view_of(template, binary) for template, _ in parts],
    }


def _job(traces: TraceSet, parts: list[tuple[Template, int]]) -> list[Fact]:
    """Return the facts of all ranks together; none of a single one."""
    ranks = len(traces.ranks)
    if ranks == 1:
        return []
    kinds = "all run the same nodes" if len(parts) == 1 else f"{len(parts):,} kinds that run different nodes"
    return [
        fact("ranks", f"{ranks:,}", ranks, kinds),
        fact("nodes of all ranks", f"{traces.nodes:,}", traces.nodes, types_text(parts)),
    ]


def _rank(traces: TraceSet, rank: int, view: int) -> Rank:
    trace = traces.ranks[rank]
    own = trace.own_rank if len(traces.ranks) == 1 and trace.own_rank is not None else rank
    return {"rank": own, "view": view, "groups": list(trace.groups), "peers": list(trace.peers)}


def view_of(template: Template, binary: Binary) -> View:
    """Return the nodes of ranks that run the same, their numbers added to *binary*."""
    schedule = schedule_of(template)
    tracks = tracks_of(template, schedule)
    every = dependencies_of(template)
    names, code = _names(template)
    types, kinds = np.unique(template.type, return_inverse=True)
    operators, note = operators_of(names, code, schedule)
    return {
        "facts": facts_of(template, schedule),
        "reading": _reading(template, schedule),
        "problems": _problems(template, schedule, every),
        "recorded": schedule.recorded,
        "tick": schedule.tick,
        "unit": schedule.unit,
        "duration": schedule.end * schedule.tick,
        "processes": tracks.processes,
        "tracks": [
            {"process": process, "name": name} for process, name in zip(tracks.process, tracks.names, strict=True)
        ],
        "types": [enum_name(NodeType, each) for each in types.tolist()],
        "names": names,
        "operators": operators,
        "operators_note": note,
        "kernels": kernels_of(template, schedule),
        "nodes": _nodes(template, schedule, tracks, (code, len(names)), (kinds, len(types)), binary),
    }


def _names(template: Template) -> tuple[list[str], Ints]:
    """Return the distinct names, in the order of the nodes, and which of them each node has."""
    known: dict[str, int] = {}
    code = [known.setdefault(name, len(known)) for name in template.names]
    names = [each if len(each) <= MOST_NAME else f"{each[: MOST_NAME - 1]}…" for each in map(one_line, known)]
    return names, np.array(code, np.int64)


def _nodes(
    template: Template,
    schedule: Schedule,
    tracks: Tracks,
    names: tuple[Ints, int],
    types: tuple[Any, int],
    binary: Binary,
) -> Nodes:
    every = dependencies_of(template)
    critical = np.zeros(template.nodes, np.int64)
    critical[schedule.critical] = 1
    return {
        "count": template.nodes,
        "id": _signed(template.id, binary, running=True),
        "type": binary.add_codes(types[0].reshape(-1), types[1]),
        "name": binary.add_codes(*names),
        "track": binary.add_codes(tracks.of, len(tracks.names)),
        "kind": binary.add_codes(schedule.kind, len(KINDS)),
        "start": _signed(schedule.start, binary, running=True),
        "duration": _numbers(schedule.duration, binary),
        "depth": _numbers(schedule.depth, binary),
        "critical": binary.add_codes(critical, 2),
        "data": _edges(template, "data", binary),
        "ctrl": _edges(template, "ctrl", binary),
        "absent": {
            "node": _numbers(every.dependent[every.absent], binary),
            "id": _numbers(every.wanted[every.absent], binary),
        },
        "attributes": _attributes(template, binary),
    }


def _edges(template: Template, kind: str, binary: Binary) -> Edges:
    """Return the dependencies of one kind on nodes that there are: how many each node has, and how far back each is."""
    start, wanted = getattr(template, f"{kind}_start"), getattr(template, f"{kind}_id")
    dependent = np.repeat(np.arange(template.nodes), np.diff(start))
    row = np.minimum(np.searchsorted(template.id, wanted), max(template.nodes - 1, 0))
    present = template.id[row] == wanted if len(wanted) else np.zeros(0, bool)
    counts = np.bincount(dependent[present], minlength=template.nodes)
    back = dependent[present] - row[present]
    return {"counts": _numbers(counts, binary), "back": _signed(back, binary)}


def _numbers(values: Any, binary: Binary) -> Packed:
    """Return whole numbers that are not negative, in as few bytes each as possible."""
    most = int(values.max(initial=0))
    return binary.add_codes(values, most + 1) if most < 2**32 else binary.add(values, "f64")


def _signed(values: Ints, binary: Binary, *, running: bool = False) -> Signed:
    """Return whole numbers of either sign; with *running*, the differences from one to the next."""
    exact = values if np.abs(values.astype(float)).max(initial=0) < EXACT else values.astype(float)
    steps = np.diff(exact, prepend=0) if running else exact
    return {"numbers": _numbers(np.where(steps < 0, -2 * steps - 1, 2 * steps), binary), "running": running}


_ATTRIBUTES = (
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


def _attributes(template: Template, binary: Binary) -> list[Attribute]:
    """Return the attributes that any node states."""
    found = []
    for name, label, unit in _ATTRIBUTES:
        column = getattr(template, name)
        absent = column == (0 if name == "comm_priority" else ABSENT)
        if name == "comm_type":  # meaningless in other nodes
            absent = absent | (template.type != NodeType.COMM_COLL)
        if not absent.all():
            found.append(_attribute(template, name, label, unit, np.where(absent, ABSENT, column), binary))
    return found


def _attribute(template: Template, name: str, label: str, unit: str, column: Ints, binary: Binary) -> Attribute:
    values, codes = np.unique(column, return_inverse=True)
    worth = 1e-9 if name.endswith("_ns") else 1
    found: Attribute = {"name": name, "label": label, "unit": unit}
    if len(values) > MOST_VALUES:
        return {**found, "numbers": _numbers(np.maximum(column, ABSENT) + 1, binary), "worth": worth}
    shown = [None if each == ABSENT else _value(template, name, each, worth) for each in values.tolist()]
    return {**found, "values": shown, "codes": binary.add_codes(codes.reshape(-1), len(values))}


def _value(template: Template, name: str, value: int, worth: float) -> str | int | float:
    """Return a value as the page shows it; groups and peers stay places, as ranks differ in them."""
    if name == "comm_type":
        return enum_name(CollectiveType, value)
    if name == "kernel":
        return one_line(template.kernels[value])
    if name == "involved_dims":
        return " ".join(str(place) for place in range(value.bit_length()) if value >> place & 1)
    return value if worth == 1 else value * worth


def _reading(template: Template, schedule: Schedule) -> str:
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


def _problems(template: Template, schedule: Schedule, every: Dependencies) -> list[str]:
    """Return what is wrong with the dependencies."""
    found = []
    if not template.nodes:
        found.append("The trace has no nodes.")
    if schedule.cycle:
        text = cycle_text(template, schedule.cycle)
        found.append(
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
            found.append(
                f"{count:,} dependenc{'y is' if count == 1 else 'ies are'} {words}; the first, of node {first}."
            )
    return found
