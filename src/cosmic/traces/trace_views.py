"""Traces for people and for graph tools: nodes as plain values, as lines of text, for Graphviz, and as GraphML 1.0.

NetworkX, Gephi and yEd read GraphML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import IntEnum
from itertools import chain
from typing import Any
from xml.sax.saxutils import escape

from cosmic.base.errors import one_line
from cosmic.base.units import BYTES, FLOP, SECONDS, PhysicalDimension, readable_unit
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType, RankTrace

COLOURS = {
    "METADATA": "#d9d9d9",
    "MEM_LOAD": "#ccebc5",
    "MEM_STORE": "#b3de69",
    "COMP": "#8dd3c7",
    "COMM_SEND": "#fdb462",
    "COMM_RECV": "#fccde5",
    "COMM_COLL": "#80b1d3",
}
_AMOUNTS = ("num_ops", "tensor_size", "comm_size", "comm_tag")


def node_records(trace: RankTrace) -> Iterator[dict[str, Any]]:
    """Yield the nodes as plain values; absent attributes are left out.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 4, "type": NodeType.COMM_SEND, "name": "act", "peer": 0, "comm_size": 8, "data": [2]}]
    >>> next(node_records(RankTrace(template_of(nodes), peers=(6,))))
    {'id': 4, 'type': 'COMM_SEND', 'name': 'act', 'data': [2], 'ctrl': [], 'comm_size': 8, 'peer': 6}
    """
    template = trace.template
    for row in range(template.nodes):
        record: dict[str, Any] = {
            "id": int(template.id[row]),
            "type": enum_name(NodeType, int(template.type[row])),
            "name": template.names[row],
            "data": _ids(template.data_start, template.data_id, row),
            "ctrl": _ids(template.ctrl_start, template.ctrl_id, row),
        }
        for name in ("duration_us", "comm_priority"):
            if value := int(getattr(template, name)[row]):
                record[name] = value
        for name in _AMOUNTS:
            if (value := int(getattr(template, name)[row])) != ABSENT:
                record[name] = value
        yield record | _communication(trace, row)


def _ids(start: Ints, ids: Ints, row: int) -> list[int]:
    listed: list[int] = ids[start[row] : start[row + 1]].tolist()
    return listed


def _communication(trace: RankTrace, row: int) -> dict[str, Any]:
    """Return the collective, group, peer and dimensions of a node, and whether it runs on the CPU."""
    template = trace.template
    attributes: dict[str, Any] = {}
    if template.on_cpu[row] > 0:
        attributes["on_cpu"] = True
    if template.type[row] == NodeType.COMM_COLL:  # meaningless in other nodes
        attributes["comm_type"] = enum_name(CollectiveType, int(template.comm_type[row]))
    if template.group[row] != ABSENT:
        attributes["group"] = trace.groups[template.group[row]]
    if template.peer[row] != ABSENT:
        attributes["peer"] = trace.peers[template.peer[row]]
    if (dims := int(template.involved_dims[row])) != ABSENT:
        attributes["involved_dims"] = [index for index in range(dims.bit_length()) if dims >> index & 1]
    return attributes


def enum_name(names: type[IntEnum], number: int) -> str:
    """Return the name of a number in Chakra's schema, or the number if it has none.

    >>> enum_name(NodeType, 4), enum_name(NodeType, 44), enum_name(CollectiveType, ABSENT)
    ('COMP', 'type 44', 'unstated')
    """
    if number == ABSENT:
        return "unstated"
    return names(number).name if number in names._value2member_map_ else f"type {number}"


def node_summary(record: dict[str, Any]) -> str:
    """Return the attributes of a node, on one line.

    >>> node_summary({"type": "COMM_SEND", "comm_size": 4096, "peer": 6, "comm_tag": 3})
    '4 KiB, to rank 6, tag 3'
    >>> node_summary({"type": "COMM_COLL", "comm_type": "ALL_REDUCE", "comm_size": 1000, "group": "5"})
    'ALL_REDUCE, 1000 B, group 5'
    """
    toward = "from" if record["type"] == "COMM_RECV" else "to"
    texts: dict[str, Callable[[Any], str]] = {
        "comm_type": str,
        "num_ops": lambda value: readable_amount(value, FLOP),
        "tensor_size": lambda value: readable_amount(value, BYTES),
        "comm_size": lambda value: readable_amount(value, BYTES),
        "group": lambda value: f"group {value}",
        "involved_dims": lambda value: f"dimensions {' '.join(map(str, value))}",
        "peer": lambda value: f"{toward} rank {value}",
        "comm_tag": lambda value: f"tag {value}",
        "comm_priority": lambda value: f"priority {value}",
        "duration_us": lambda value: readable_amount(value / 1e6, SECONDS),
        "on_cpu": lambda _: "on the CPU",
    }
    return one_line(", ".join(text(record[name]) for name, text in texts.items() if name in record))


def readable_amount(value: float, dimension: PhysicalDimension) -> str:
    """Return a quantity for a person to read.

    >>> readable_amount(1536, BYTES), readable_amount(0, FLOP), readable_amount(2.5e-3, SECONDS)
    ('1.5 KiB', '0 FLOP', '2.5 ms')
    """
    unit, worth = readable_unit([10 * value], dimension)
    return f"{value / worth:.4g} {unit}" if value else f"0 {'s' if dimension == SECONDS else unit}"


def graphviz_lines(trace: RankTrace) -> Iterator[str]:
    """Yield the lines of a graph for Graphviz: nodes coloured by type, control dependencies dashed."""
    yield "digraph trace {"
    yield '  node [shape=box style=filled fontname="sans-serif"];'
    for record in node_records(trace):
        label = _escaped(f"{record['id']} {record['name']}".strip())
        detail = _escaped(node_summary(record))
        colour = COLOURS.get(record["type"], "#ffffff")
        yield f'  {record["id"]} [label="{label}\\n{detail}" fillcolor="{colour}"];'
        yield from chain(
            (f"  {source} -> {record['id']};" for source in record["data"]),
            (f"  {source} -> {record['id']} [style=dashed];" for source in record["ctrl"]),
        )
    yield "}"


def _escaped(text: str) -> str:
    """Return *text* escaped for a quoted string of Graphviz."""
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')


HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>',
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns '
    'http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">',
)
NODE_KEYS = {
    "label": "string",  # a node's name, where programs look for it
    "type": "string",
    "duration_us": "long",
    "start_ns": "long",
    "duration_ns": "long",
    "stream": "long",
    "num_ops": "long",
    "tensor_size": "long",
    "comm_type": "string",
    "comm_size": "long",
    "comm_tag": "long",
    "comm_priority": "long",
    "group": "string",
    "peer": "long",
    "involved_dims": "string",
    "on_cpu": "boolean",
    "kernel": "string",
    "absent": "string",  # ids that it depends on and that no node has: an edge needs both its nodes
}
"""The attributes of nodes, with their types."""
_RECORDED = ("start_ns", "duration_ns", "stream")
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML 1.0 may hold, not even escaped."""


def graphml_lines(trace: RankTrace) -> Iterator[str]:
    """Yield the lines of a directed graph: an edge leads from a node to one that depends on it."""
    yield from HEAD
    for name, kind in NODE_KEYS.items():
        yield f'<key id="{name}" for="node" attr.name="{name}" attr.type="{kind}"/>'
    yield '<key id="dependency" for="edge" attr.name="dependency" attr.type="string"/>'
    yield '<graph id="trace" edgedefault="directed">'
    present_ids = set(trace.template.id.tolist())
    for row, record in enumerate(node_records(trace)):
        yield _node(trace, row, record, present_ids)
    for record in node_records(trace):
        for kind in ("data", "ctrl"):
            for source in record[kind]:
                if source in present_ids:
                    ends = f'source="{source}" target="{record["id"]}"'
                    yield f'<edge {ends}><data key="dependency">{kind}</data></edge>'
    yield "</graph>"
    yield "</graphml>"


def _node(trace: RankTrace, row: int, record: dict[str, Any], present_ids: set[int]) -> str:
    """Return a node with its attributes."""
    template = trace.template
    attributes: dict[str, Any] = {**record, "label": record["name"]}
    for name in _RECORDED:
        if (value := int(getattr(template, name)[row])) >= 0:
            attributes[name] = value
    if template.kernel[row] >= 0:
        attributes["kernel"] = template.kernels[template.kernel[row]]
    if absent := [source for source in (*record["data"], *record["ctrl"]) if source not in present_ids]:
        attributes["absent"] = absent
    data = "".join(f'<data key="{name}">{_text(attributes[name])}</data>' for name in NODE_KEYS if name in attributes)
    return f'<node id="{record["id"]}">{data}</node>'


def _text(value: Any) -> str:
    r"""Return a value as XML: lists with spaces between, truth as XML writes it.

    >>> _text([1, 2]), _text(True), _text("a<b> \x00")
    ('1 2', 'true', 'a&lt;b&gt; �')
    """
    if isinstance(value, list):
        return " ".join(map(str, value))
    return escape(_FORBIDDEN.sub("\ufffd", str(value).lower() if isinstance(value, bool) else str(value)))
