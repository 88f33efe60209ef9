"""PyTorch's execution traces: operators with their inputs and outputs, without times; schemas 1.0.1 to 1.1.1.

A node states what it was called with as text that is parsed only where it is needed: a trace of a million operators
has some that launch kernels. `check_pair` and `operators_of_run` say whether an execution trace and a Kineto trace
are of one recording, and which operators are the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.traces.profiles.integer_sets import is_in, sorted_distinct
from cosmic.traces.profiles.json_stream import (
    FUNCTION,
    TEXT,
    WHOLE,
    JsonDocument,
    Key,
    RowBatch,
    RowReader,
    decode_json,
)
from cosmic.traces.profiles.kineto import OPERATOR, Kineto

KEY = "nodes"
SCHEMAS = ("1.0.1", "1.0.2", "1.0.3", "1.1.0", "1.1.1")
GROUPS_NODE = "## process_group:init ##"
ROOT = "[pytorch|profiler|execution_trace|"
"""What the names of a process and of a thread begin with."""
COMMUNICATION = ("record_param_comms", "c10d::", "_c10d_functional::")
_NAMED_TEXTS = (*COMMUNICATION, GROUPS_NODE)
_NAMED = tuple(name.encode() for name in _NAMED_TEXTS)
"""Nodes that are always read."""
MOST_NODES = 4_000_000
Ints = npt.NDArray[np.int64]
_RAW = msgspec.Raw(b"[]")
_NO_ATTRIBUTES = msgspec.Raw(b"")
"""Of a flat node."""


class _Attribute(msgspec.Struct, gc=False):
    name: str
    value: msgspec.Raw = _RAW


class _Node(msgspec.Struct, gc=False):
    """A node of either layout: flat (1.0.1), or with lists of attributes."""

    id: int
    name: str
    ctrl_deps: int | None = None
    inputs: msgspec.Raw = _RAW
    outputs: msgspec.Raw = _RAW
    attrs: msgspec.Raw = _NO_ATTRIBUTES
    parent: int | None = None
    rf_id: int = 0
    tid: int = 0
    input_shapes: msgspec.Raw = _RAW
    input_types: msgspec.Raw = _RAW
    output_shapes: msgspec.Raw = _RAW
    output_types: msgspec.Raw = _RAW


_NODES = msgspec.json.Decoder(list[_Node])
_ATTRIBUTES = msgspec.json.Decoder(list[_Attribute])
_FUNCTION = re.compile(rb'"rf_id", *"type": *"uint64", *"value": *([0-9]{1,18})(?![0-9])')
"""As PyTorch writes it: far faster than to decode all attributes."""


class Details(msgspec.Struct, frozen=True, gc=False):
    """What an operator was called with, as texts."""

    name: str
    inputs: bytes
    """A JSON object with values, shapes and types, a list each, and strides where the schema has them."""
    outputs: bytes
    attributes: dict[str, Any] = {}
    """Of collectives: collective_name, dtype, in_msg_nelems, pg_name ..."""


@dataclass(slots=True)
class ExecutionTrace:
    """One rank's execution trace, an entry for each operator, in the order in which they began."""

    where: str
    schema: str = ""
    process: str = ""
    """Id of the process that was recorded, where it is stated."""
    names: list[str] = field(default_factory=list)
    id: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    function: list[int] = field(default_factory=list)
    """Id of PyTorch's record function: the link to Kineto."""
    thread: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    """Index into *names*."""
    details: dict[int, Details] = field(default_factory=dict)
    """By function."""
    groups: list[dict[str, Any]] = field(default_factory=list)
    """Process groups: pg_name, ranks, group_size ..."""


def read_execution_trace(path: str | Path, wanted: Ints | None = None) -> ExecutionTrace:
    """Return the trace in the file at *path*; with *wanted*, details of those functions and of collectives only."""
    document = JsonDocument(Path(path), KEY)
    trace = ExecutionTrace(document.where)
    names: dict[str, int] = {}
    for function, node in _nodes(document) if wanted is None else _select_nodes(document, wanted):
        if node.name == GROUPS_NODE:
            # The process groups that a node lists, as JSON in a string
            values = parse_side(_node_details(node, trace.where).inputs)["values"]
            try:
                listed = json.loads(values[0]) if values and isinstance(values[0], str) else []
            except (ValueError, RecursionError):
                raise SpecError(
                    f"{trace.where}: {GROUPS_NODE}", str(values)[:40], "must list process groups as JSON"
                ) from None
            trace.groups += [group for group in listed if isinstance(group, dict)] if isinstance(listed, list) else []
        if wanted is None:
            _add_node(trace, names, node)
        else:
            trace.details[function] = _node_details(node, trace.where)
    require(document.found, trace.where, KEY, "is not there: this is no execution trace")
    trace.schema = str(document.rest.get("schema", ""))
    trace.process = str(document.rest.get("pid", ""))
    version = trace.schema.split("-")[0]
    if version not in SCHEMAS:
        raise SpecError(f"{trace.where}: schema", trace.schema, f"is none of {', '.join(SCHEMAS)}")
    # Put entries in the order of their ids, which PyTorch gives out as operators begin
    order = sorted(range(len(trace.id)), key=trace.id.__getitem__)
    for name in ("id", "parent", "function", "thread", "name"):
        column = getattr(trace, name)
        setattr(trace, name, [column[index] for index in order])
    return trace


def _nodes(document: JsonDocument) -> Iterator[tuple[int, _Node]]:
    """Yield all nodes with their functions."""
    count = 0
    for text in document.elements():
        nodes: list[_Node] = decode_json(_NODES, text, document.where)
        count += len(nodes)
        rule = f"a trace that is paired by names may have {MOST_NODES:,} nodes"
        require(count <= MOST_NODES, document.where, count, rule)
        for node in nodes:
            yield _function_number(node, document.where), node


_KEYS = (
    *(Key(name, WHOLE) for name in ("id", "ctrl_deps", "parent", "rf_id", "tid")),
    Key("name", TEXT),
    Key("attrs", FUNCTION),
)
_FLAT, _NAME, _LISTED = 3, 5, 6


def _select_nodes(document: JsonDocument, wanted: Ints) -> Iterator[tuple[int, _Node]]:
    """Yield the nodes of *wanted* functions, of collectives and of groups, with their functions."""
    rows = RowReader(document, _KEYS)
    wanted, is_named = sorted_distinct(wanted), _NameFilter()
    functions = set(wanted.tolist())
    for batch in rows.batches():
        listed = batch.table[:, _LISTED]
        function = np.where(listed >= 0, listed, batch.table[:, _FLAT])
        chosen = is_in(function, wanted) | is_named.mask(batch.table[:, _NAME], rows)
        chosen[batch.irregular] = False
        regular = np.flatnonzero(chosen)
        yield from zip(function[regular].tolist(), _decode_batch(batch, regular, document.where), strict=True)
        for node in _decode_batch(batch, batch.irregular, document.where):
            number = _function_number(node, document.where)
            if number in functions or node.name.startswith(_NAMED_TEXTS):
                yield number, node


class _NameFilter:
    """Which names are of nodes that are always read, by their numbers."""

    def __init__(self) -> None:
        self._known = np.zeros(0, bool)

    def mask(self, names: Ints, rows: RowReader) -> npt.NDArray[np.bool_]:
        """Return whether each of *names* is; the names of irregular rows are not known."""
        seen = len(self._known)
        if int(names.max(initial=-1)) >= seen:
            fresh = [text.startswith(_NAMED) for text in rows.texts.listed(seen)]
            self._known = np.append(self._known, np.array(fresh, bool))
        return (names >= 0) & self._known[np.maximum(names, 0)] if len(self._known) else np.zeros(len(names), bool)


def _decode_batch(batch: RowBatch, rows: Ints, where: str) -> list[_Node]:
    text, start, stop = batch.text, batch.start[rows].tolist(), batch.stop[rows].tolist()
    elements = [text[first:last] for first, last in zip(start, stop, strict=True)]
    nodes: list[_Node] = decode_json(_NODES, b"[" + b",".join(elements) + b"]", where)
    return nodes


def _add_node(trace: ExecutionTrace, names: dict[str, int], node: _Node) -> None:
    if node.name.startswith(ROOT):
        return
    number = names.get(node.name)
    if number is None:
        number = names[node.name] = len(names)
        trace.names.append(node.name)
    parent = node.ctrl_deps if node.parent is None else node.parent
    trace.id.append(node.id)
    trace.parent.append(-1 if parent is None or parent == node.id else parent)
    trace.function.append(_function_number(node, trace.where))
    trace.thread.append(
        node.tid if node.attrs is _NO_ATTRIBUTES else _whole_number(_decode_attributes(node, trace.where).get("tid"))
    )
    trace.name.append(number)
    trace.details[trace.function[-1]] = _node_details(node, trace.where)


def _function_number(node: _Node, where: str) -> int:
    if node.attrs is _NO_ATTRIBUTES:
        return node.rf_id if abs(node.rf_id) < 2**62 else 0
    match = _FUNCTION.search(bytes(node.attrs))
    return int(match[1]) if match else _whole_number(_decode_attributes(node, where).get("rf_id"))


def _decode_attributes(node: _Node, where: str) -> dict[str, msgspec.Raw]:
    return {attribute.name: attribute.value for attribute in decode_json(_ATTRIBUTES, bytes(node.attrs), where)}


def _node_details(node: _Node, where: str) -> Details:
    if node.attrs is _NO_ATTRIBUTES:
        inputs = _object(node.inputs, node.input_shapes, node.input_types)
        return Details(node.name, inputs, _object(node.outputs, node.output_shapes, node.output_types))
    attributes = {}
    if node.name.startswith(COMMUNICATION):
        attributes = {
            name: msgspec.json.decode(value)
            for name, value in _decode_attributes(node, where).items()
            if name not in _UNUSED
        }
    return Details(node.name, bytes(node.inputs), bytes(node.outputs), attributes)


def _object(values: msgspec.Raw, shapes: msgspec.Raw, types: msgspec.Raw) -> bytes:
    return b'{"values": %b, "shapes": %b, "types": %b}' % (bytes(values), bytes(shapes), bytes(types))


_UNUSED = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema", "kernel_backend", "kernel_file")


def _whole_number(raw: msgspec.Raw | None) -> int:
    try:
        number = int(bytes(raw)) if raw is not None else 0
    except ValueError:
        return 0
    return number if abs(number) < 2**62 else 0


def parse_side(text: bytes) -> dict[str, list[Any]]:
    """Return the lists of an operator's inputs or outputs; empty ones where they are no lists."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = {}
    listed = document if isinstance(document, dict) else {}
    return {
        key: values if isinstance(values := listed.get(key), list) else []
        for key in ("values", "shapes", "types", "strides")
    }


MOST_NAMES = 0x10FFFF
"""Each name is looked for as one character."""
ALIKE = 0.5
"""Of operators that both have, at least this share must have the same name."""
SHARED = 2 / 3
"""Of the names of operators of an execution trace, at least this share must be in the Kineto trace beside it.

Two runs of one program have more of them in common, two programs mostly fewer.
"""


def check_pair(kineto: Kineto, trace: ExecutionTrace, wanted: int) -> None:
    """Refuse traces of two processes, or whose operators have other numbers or names; *wanted* were looked for.

    Ranks of one job number the same operators alike, so that only the process tells them apart.
    """
    host = kineto.host
    processes = {
        kineto.threads[thread][0] for thread in sorted_distinct(host.thread[host.category == OPERATOR]).tolist()
    }
    if trace.process and processes and trace.process not in processes:
        rule = f"is of another process ({', '.join(sorted(processes))}) than {trace.where} ({trace.process})"
        raise SpecError("file", kineto.where, rule)
    same = different = 0
    functions = np.fromiter(trace.details, np.int64, len(trace.details))
    entries = np.flatnonzero(is_in(host.function, sorted_distinct(functions)) & (host.category == OPERATOR))
    for function, name in zip(host.function[entries].tolist(), host.name[entries].tolist(), strict=True):
        is_same = trace.details[function].name == kineto.names[name]
        same += is_same
        different += not is_same
    if wanted and not is_in(host.function, sorted_distinct(functions)).any():
        rule = f"is of another recording than {trace.where}: no operator that launches a kernel is in both"
        raise SpecError("file", kineto.where, rule)
    if different and same < ALIKE * (same + different):
        rule = f"is of another recording than {trace.where}: {different} of {same + different} operators have other names there"
        raise SpecError("file", kineto.where, rule)


def operators_of_run(kineto: Kineto, trace: ExecutionTrace) -> tuple[ExecutionTrace | None, list[str]]:
    """Link operators by their sequence: older profilers number them only in one of the traces.

    The names that a thread of *trace* began, one after the other, are looked for in each thread of *kineto*; wherever
    they all follow each other there, the operators are the same. Sets `Kineto.host.function`.
    """
    host = kineto.host
    wanted = _sequences(trace)
    codes = {name: code for code, name in enumerate(kineto.names)}
    linked = 0
    if len(kineto.names) >= MOST_NAMES:
        return None, [f"{kineto.where}: it has too many names to find operators of {trace.where} by them"]
    order = np.lexsort((-host.end, host.start, host.thread))
    order = order[host.category[order] == OPERATOR]
    bounds = np.flatnonzero(np.diff(host.thread[order], prepend=-1, append=-1)).tolist()
    for first, last in pairwise(bounds):
        entries = order[first:last].tolist()
        text = "".join(chr(name + 1) for name in host.name[order[first:last]].tolist())
        for names, functions in wanted:
            sought = "".join(chr(codes.get(name, -1) + 1) for name in names)
            position = text.find(sought)
            while position >= 0 and sought and "\0" not in sought:
                for offset, function in enumerate(functions):
                    host.function[entries[position + offset]] = function
                linked += len(functions)
                position = text.find(sought, position + len(functions))
    if linked:
        return trace, []
    names_of_run = {name for names, _ in wanted for name in names}
    both = len(names_of_run & codes.keys())
    if len(order) and both < SHARED * len(names_of_run):
        rule = f"is of another program than {trace.where}: it has {both} of the {len(names_of_run)} names of operators there"
        raise SpecError("file", kineto.where, rule)
    return None, [f"{trace.where}: its operators do not follow each other in {kineto.where}: only the latter is used"]


def _sequences(trace: ExecutionTrace) -> list[tuple[list[str], list[int]]]:
    """Return the names and functions of each thread's operators, in their order; annotations are left out."""
    threads: dict[int, tuple[list[str], list[int]]] = {}
    for index, function in enumerate(trace.function):
        name = trace.names[trace.name[index]]
        if function and not name.startswith(("[", "#", "Optimizer.", "enumerate(", "ProfilerStep", "nccl:", "gloo:")):
            names, functions = threads.setdefault(trace.thread[index], ([], []))
            names.append(name)
            functions.append(function)
    return sorted(threads.values(), key=lambda thread: -len(thread[0]))
