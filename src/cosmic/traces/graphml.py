"""A trace as GraphML 1.0, which NetworkX, Gephi and yEd read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

from cosmic.traces.trace import RankTrace
from cosmic.traces.views import records

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


def graphml(trace: RankTrace) -> Iterator[str]:
    """Yield the lines of a directed graph: an edge leads from a node to one that depends on it."""
    yield from HEAD
    for name, kind in NODE_KEYS.items():
        yield f'<key id="{name}" for="node" attr.name="{name}" attr.type="{kind}"/>'
    yield '<key id="dependency" for="edge" attr.name="dependency" attr.type="string"/>'
    yield '<graph id="trace" edgedefault="directed">'
    known = set(trace.template.id.tolist())
    for row, record in enumerate(records(trace)):
        yield _node(trace, row, record, known)
    for record in records(trace):
        for kind in ("data", "ctrl"):
            for source in record[kind]:
                if source in known:
                    ends = f'source="{source}" target="{record["id"]}"'
                    yield f'<edge {ends}><data key="dependency">{kind}</data></edge>'
    yield "</graph>"
    yield "</graphml>"


def _node(trace: RankTrace, row: int, record: dict[str, Any], known: set[int]) -> str:
    """Return a node with its attributes."""
    template = trace.template
    stated: dict[str, Any] = {**record, "label": record["name"]}
    for name in _RECORDED:
        if (value := int(getattr(template, name)[row])) >= 0:
            stated[name] = value
    if template.kernel[row] >= 0:
        stated["kernel"] = template.kernels[template.kernel[row]]
    if absent := [each for each in (*record["data"], *record["ctrl"]) if each not in known]:
        stated["absent"] = absent
    data = "".join(f'<data key="{name}">{_text(stated[name])}</data>' for name in NODE_KEYS if name in stated)
    return f'<node id="{record["id"]}">{data}</node>'


def _text(value: Any) -> str:
    r"""Return a value as XML: lists with spaces between, truth as XML writes it.

    >>> _text([1, 2]), _text(True), _text("a<b> \x00")
    ('1 2', 'true', 'a&lt;b&gt; �')
    """
    if isinstance(value, list):
        return " ".join(map(str, value))
    return escape(_FORBIDDEN.sub("\ufffd", str(value).lower() if isinstance(value, bool) else str(value)))
