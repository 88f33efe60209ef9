"""Workloads in other formats, as Chakra traces: ASTRA-sim 1.0's text, and the JSON of Chakra's feeder.

**Text workloads** have a line for each layer. Every rank runs the same nodes. A pass goes forward through the layers and backward from the last to the first, as
ASTRA-sim 1.0's training loop does without overlap between layers:

    forward     compute, then its collective, which blocks
    backward    input gradient: compute, then its collective, which blocks;
                weight gradient: compute, then its collective, beside whatever comes next;
                update, after that collective

In the next pass the forward compute of a layer waits for its update. Computes run in the order of the loop, an update
as soon as it may. What takes no time, has no bytes or runs in a group of one is left out.

Collectives over whole dimensions of the network name the dimensions (`involved_dim`), others a communicator group.

The file counts whole nanoseconds, Chakra whole microseconds. Compute nodes therefore state operations, 1,000 for each
nanosecond at 1 TFLOP/s, and half a nanosecond more because simulators cut fractions off (`system_text`).

**JSON traces** are a file for each rank: ``{"workload_graph": [{"Id": 4, "NodeType": 4}]}``. Writers spell keys in several ways: `ctrlDeps`, `ctrl_deps`. So case and underscores do not count. A key that means
nothing here is left out, and named in a note.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, require, shorten
from cosmic.base.files import read_text
from cosmic.traces.chakra.trace_reader import read_contents
from cosmic.traces.chakra.wire_format import INTEGER_LIMIT, MOST_DIMENSIONS
from cosmic.traces.trace import ABSENT, ALL_RANKS, CollectiveType, NodeType, RankTrace, TraceSet, template_of

Phase = Literal["Forward", "InputGrad", "WeightGrad"]
Kind = Literal["ALLREDUCE", "REDUCESCATTER", "ALLGATHER", "ALLTOALL"]
PHASES: tuple[Phase, ...] = get_args(Phase)
KINDS: tuple[Kind, ...] = get_args(Kind)
UNUSED = -1
"""The members of a dimension that a communicator does not use."""
Communicator = Mapping[Phase, tuple[int, ...]]
"""Of each pass the members of a group in every dimension; -1 where the group has none."""
COLUMNS = (12, 13)
"""Words of a layer: its name, a dependence, of each pass nanoseconds, collective and bytes, the update; some files name
the parallelism of the layer last."""
MOST_BYTES = 16 * 2**20
LARGEST = 1e18
"""The largest number of bytes or nanoseconds of a layer; far beyond what anybody trains."""
LONGEST_NS = 10**15
"""The longest compute of a trace: its operations are whole numbers of 64 bits, and its time is exact."""
OPERATIONS_PER_NS = 1000
"""Of a rank with 1 TFLOP/s."""
MOST_NODES = 5_000_000
"""Of a rank."""
Ids = tuple[int, ...]
"""Nodes that others wait for."""
NAMES = {"Forward": "forward", "InputGrad": "input_gradient", "WeightGrad": "weight_gradient"}
TYPES = {
    "ALLREDUCE": CollectiveType.ALL_REDUCE,
    "REDUCESCATTER": CollectiveType.REDUCE_SCATTER,
    "ALLGATHER": CollectiveType.ALL_GATHER,
    "ALLTOALL": CollectiveType.ALL_TO_ALL,
}


@dataclass(frozen=True, slots=True)
class LayerPass:
    """What a layer does in one pass."""

    compute_ns: float
    kind: Kind | None
    size_bytes: float
    """As ASTRA-sim counts: what a rank begins with for an all-gather, its whole buffer for the others."""


@dataclass(frozen=True, slots=True)
class TextLayer:
    """A line of a text workload."""

    name: str
    where: str
    """File and line, for messages."""
    passes: Mapping[Phase, LayerPass]
    update: str
    """Nanoseconds of the update as they are written: only traces read them."""


@dataclass(frozen=True, slots=True)
class TextJob:
    """The traces of a text workload."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    """The ranks of each communicator group, by its name in the traces."""


# ---- reading


def read_layers(path: str | Path) -> tuple[TextLayer, ...]:
    """Return the layers in a text file of ASTRA-sim 1.0, with or without its two lines of header."""
    where = Path(path).name
    lines = [
        (index, line.split()) for index, line in enumerate(read_text(path, "workload", MOST_BYTES).splitlines(), 1)
    ]
    lines = [(number, words) for number, words in lines if words]
    require(bool(lines), where, 0, "there are no layers")
    rule = "is neither a profile of PyTorch (JSON) nor a text workload of ASTRA-sim 1.0: no line looks like a layer"
    require(any(_is_like_layer(words) for _, words in lines), "file", where, rule)
    if len(lines) >= 2 and len(lines[1][1]) == 1:  # the parallelism, and the number of layers
        count = lines[1][1][0]
        lines = lines[2:]
        require(count.isdecimal() and int(count) == len(lines), f"{where} line 2", count, f"{len(lines)} layers follow")
    require(bool(lines), where, 0, "there are no layers")
    return tuple(_parse_layer(words, f"{where} line {number}") for number, words in lines)


def _is_like_layer(words: list[str]) -> bool:
    """Return whether a line begins as a layer does: a name, a dependence, and more.

    >>> _is_like_layer(["conv", "-1", "1000"]), _is_like_layer(["any", "other", "text"])
    (True, False)
    """
    return len(words) > MOST_OF_HEADER and words[1].removeprefix("-").isdecimal()


MOST_OF_HEADER = 2
"""Words of a line that is no layer."""


def _parse_layer(words: list[str], where: str) -> TextLayer:
    rule = "must be a layer of 12 words: name, dependence, of each pass ns, collective and bytes, and the update's ns"
    require(len(words) in COLUMNS, where, " ".join(words), rule)
    passes = {phase: _parse_pass(words[2 + 3 * index : 5 + 3 * index], where) for index, phase in enumerate(PHASES)}
    return TextLayer(words[0], where, passes, words[11])


def _parse_pass(words: list[str], where: str) -> LayerPass:
    time, kind, size = words
    compute_ns, size_bytes = _parse_amount(time, where), _parse_amount(size, where)
    if kind == "NONE":
        return LayerPass(compute_ns, None, size_bytes)
    if kind not in KINDS:
        raise UnknownName.among(where, kind, "collective", (*KINDS, "NONE"))
    return LayerPass(compute_ns, kind, size_bytes)


def _parse_amount(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise SpecError(where, text, "must be a number") from None
    require(0 <= value <= LARGEST, where, text, f"must be from 0 to {LARGEST:g}")
    return value


# ---- traces


def traces_of_layers(
    layers: Sequence[TextLayer], npus: Sequence[int], communicator: Communicator | None = None, *, passes: int = 1
) -> TextJob:
    """Return the traces of *passes* training passes on a network with *npus* in each dimension, innermost first.

    Without a communicator, all ranks are one group.
    """
    members = communicator or dict.fromkeys(PHASES, tuple(npus))
    groups, names = _groups(npus, members)
    attributes: dict[Phase, dict[str, int]] = {}
    for index, phase in enumerate(PHASES):
        if names[index]:
            attributes[phase] = {"group": index}
        elif dims := _dims(members[phase]):
            everywhere = tuple(members[phase]) == tuple(npus)  # then on whatever network the traces run
            attributes[phase] = {} if everywhere else {"involved_dims": dims}
    nodes = 7 * len(layers) * passes
    require(nodes <= MOST_NODES, "passes", passes, f"a rank would run {nodes:,} nodes, more than {MOST_NODES:,}")
    tape = _Tape(attributes)
    for number in range(passes):
        prefix = f"pass{number + 1}." if passes > 1 else ""
        for position, layer in enumerate(layers):
            _add_pass(tape, layer, "Forward", prefix, tape.updates.get(position, ()))
        for layer_index in reversed(range(len(layers))):
            layer = layers[layer_index]
            _add_pass(tape, layer, "InputGrad", prefix)
            summed = _add_pass(tape, layer, "WeightGrad", prefix)
            update_ns = _to_nanoseconds(_parse_amount(layer.update, layer.where), layer.where)
            tape.updates[layer_index] = tape.compute(f"{prefix}{layer.name}.update", update_ns, summed)
    template = template_of(tape.rows)
    own = [tuple(column[rank] if column else "" for column in names) for rank in range(prod(npus))]
    return TextJob(TraceSet(tuple(RankTrace(template, groups=rank_groups) for rank_groups in own)), groups)


@dataclass(slots=True)
class _Tape:
    """The nodes so far, and what the next ones wait for."""

    places: Mapping[Phase, dict[str, int]]
    """Where the collectives of each pass run: in a group of a rank, or in dimensions; nowhere in groups of one."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    last: Ids = ()
    """What the loop waits for."""
    updates: dict[int, Ids] = field(default_factory=dict)
    """What the next pass of a layer waits for."""

    def compute(self, name: str, nanoseconds: int, after: Ids) -> Ids:
        """Add a compute node; return what waits for it waits for, which is *after* if it takes no time."""
        operations = OPERATIONS_PER_NS * nanoseconds + OPERATIONS_PER_NS // 2
        node = {"type": NodeType.COMP, "num_ops": operations, "tensor_size": 1}
        return self._add(name, after, node) if nanoseconds else after

    def collective(self, name: str, phase: Phase, layer: TextLayer, after: Ids) -> Ids:
        """Add the collective of a pass; return what waits for it waits for."""
        kind, size = layer.passes[phase].kind, _whole_number(layer.passes[phase].size_bytes, "bytes", layer.where)
        if kind is None or not size or phase not in self.places:
            return after
        node = {"type": NodeType.COMM_COLL, "comm_type": TYPES[kind], "comm_size": size}
        node |= {"comm_priority": int(phase != "WeightGrad"), **self.places[phase]}
        return self._add(f"{name}.{kind.lower()}", after, node)

    def _add(self, name: str, after: Ids, node: dict[str, Any]) -> Ids:
        self.rows.append({"id": len(self.rows), "name": name, "data": sorted(set(after)), **node})
        return (len(self.rows) - 1,)


def _add_pass(tape: _Tape, layer: TextLayer, phase: Phase, prefix: str, update: Ids = ()) -> Ids:
    """Add compute and collective of a pass; the loop goes on after both, in WeightGrad after the compute."""
    name = f"{prefix}{layer.name}.{NAMES[phase]}"
    nanoseconds = _to_nanoseconds(layer.passes[phase].compute_ns, layer.where)
    computed = tape.compute(name, nanoseconds, (*tape.last, *update))
    summed = tape.collective(name, phase, layer, computed)
    tape.last = computed if phase == "WeightGrad" else summed
    return summed


def _to_nanoseconds(value: float, where: str) -> int:
    require(value <= LONGEST_NS, where, value, f"a compute of a trace takes at most {LONGEST_NS:,} ns")
    return _whole_number(value, "nanoseconds", where)


def _whole_number(value: float, unit: str, where: str) -> int:
    require(value == int(value), where, value, f"a trace has whole {unit}")
    return int(value)


# ---- groups


def _groups(npus: Sequence[int], members: Communicator) -> tuple[dict[str, tuple[int, ...]], list[list[str]]]:
    """Return the groups of all passes, numbered from 1, and each rank's group in each pass.

    A pass in whole dimensions has none: simulators take its dimensions one after the other, but a group as one ring.
    """
    groups: dict[str, tuple[int, ...]] = {}
    names_by_shape: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    names: list[list[str]] = []
    for phase in PHASES:
        counts = tuple(max(1, count) for count in members[phase])
        inside = tuple(_group_stride(phase, index, npus[index], members) for index in range(len(npus)))
        if all(count in (1, size) for count, size in zip(counts, npus, strict=True)):
            names.append([])
            continue
        if (counts, inside) not in names_by_shape:
            names_by_shape[counts, inside] = _add_groups(groups, npus, counts, inside)
        names.append(names_by_shape[counts, inside])
    return groups, names


def _dims(members: Sequence[int]) -> int:
    """Return the dimensions with several members as bits.

    >>> _dims((4, -1, 2)), _dims((1, -1))
    (5, 0)
    """
    return sum(1 << index for index, count in enumerate(members) if count > 1)


def _group_stride(phase: Phase, dim: int, npus: int, members: Communicator) -> int:
    """Return how far apart the members of a group are in a dimension.

    Where a dimension is split, Forward and InputGrad take neighbours, and WeightGrad one of each of their groups.
    """
    count, first = max(1, members[phase][dim]), max(1, members["Forward"][dim])
    rule = f"must divide the {npus} NPUs of dimension {dim}"
    require(npus % count == 0, f"communicator {phase}", count, rule)
    return first if phase == "WeightGrad" and npus % (first * count) == 0 else 1


def _add_groups(
    groups: dict[str, tuple[int, ...]], npus: Sequence[int], counts: Sequence[int], inside: Sequence[int]
) -> list[str]:
    """Add the groups with *counts* members in each dimension; return the group of each rank."""
    ranks = np.arange(prod(npus), dtype=np.int64)
    key, below = np.zeros_like(ranks), 1
    for size, count, apart in zip(npus, counts, inside, strict=True):
        coordinate = ranks // below % size
        key += below * (coordinate % apart + apart * (coordinate // (apart * count)))  # equal for members
        below *= size
    _, group_of = np.unique(key, return_inverse=True)
    order, bounds = np.argsort(group_of, kind="stable"), np.cumsum(np.bincount(group_of))[:-1]
    first = len(groups) + 1
    for index, members in enumerate(np.split(order, bounds)):
        groups[str(first + index)] = tuple(members.tolist())
    return [str(first + group) for group in group_of.tolist()]


# ---- a system


def system_text(dims: int) -> str:
    """Return ASTRA-sim's system JSON in which computes take their nanoseconds: 1 TFLOP/s, and rings everywhere."""
    rings = ["ring"] * dims
    data = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 0,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": rings,
        "all-gather-implementation": rings,
        "reduce-scatter-implementation": rings,
        "all-to-all-implementation": rings,
        "collective-optimization": "localBWAware",
        "local-mem-bw": 1_000_000,
        "peak-perf": 1,
        "roofline-enabled": 1,
    }
    return json.dumps(data) + "\n"


# ---- JSON traces of Chakra's feeder

GRAPH = "workload_graph"
_SHOWN_NOTES = 20
Check = Callable[[Any, str], Any]


_MARK = b"\xef\xbb\xbf"
"""What some editors put before UTF-8."""


def read_workload_graph(path: str | Path) -> tuple[RankTrace, tuple[str, ...]]:
    """Return the trace in the JSON file at *path*, plain or gzip, and notes on what in it was left out."""
    path = Path(path)
    return workload_graph_of(read_contents(path), path.name)


def workload_graph_of(data: bytes, where: str) -> tuple[RankTrace, tuple[str, ...]]:
    """Return the trace that JSON says, and notes on what was left out; *where* names it in messages.

    >>> text = b'{"workload_graph": [{"Id": 4, "NodeType": 4, "ctrlDeps": [3], "runtime": 318, "colour": 1}]}'
    >>> trace, notes = workload_graph_of(text, "rank.json")
    >>> trace.template.ctrl_id.tolist(), trace.template.duration_us.tolist(), notes
    ([3], [318], ("rank.json: node key = 'colour': is not understood, and left out of 1 node, first of node 4",))
    """
    document = _parse_json(data, where)
    require(isinstance(document, dict), where, document, f'must be an object with the key "{GRAPH}"')
    require(GRAPH in document, f"{where}: {GRAPH}", None, "the file has no such key: it is no trace in JSON")
    nodes = document[GRAPH]
    require(isinstance(nodes, list), f"{where}: {GRAPH}", nodes, "must be a list of nodes")
    reader = _GraphReader(where)
    rows = [reader.row(node, index) for index, node in enumerate(nodes)]
    unread = [f"{where}: key = {shorten(key)}: is not read" for key in document if key != GRAPH]
    return reader.trace(rows), (*_first_notes(unread), *_first_notes(list(reader.notes())))


def _first_notes(notes: list[str]) -> list[str]:
    """Return the first notes, and how many more there are."""
    more = len(notes) - _SHOWN_NOTES
    return [*notes[:_SHOWN_NOTES], f"and {more:,} more keys that are not read"] if more > 0 else notes


def _parse_json(data: bytes, where: str) -> Any:
    """Return the parsed JSON document."""
    try:
        text = data.removeprefix(_MARK).decode()
        return json.loads(text, object_pairs_hook=_json_object, parse_constant=_refuse)
    except RecursionError:
        raise SpecError("file", where, "is nested too deeply") from None
    except UnicodeDecodeError:
        raise SpecError("file", where, "is not JSON: it is not UTF-8") from None
    except ValueError as error:
        raise SpecError("file", where, f"is not JSON: {error}") from None


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; refuse one with a key twice."""
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"an object has the key {shorten(twice)} twice")
    return members


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


# ---- values


def _whole(least: int, most: int) -> Check:
    """Return the check of a whole number; 318.0 is one."""

    def check(value: Any, where: str) -> int:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if type(number) is not int or not least <= number <= most:
            raise SpecError(where, value, f"must be a whole number from {least:,} to {_number_text(most)}")
        return number

    return check


def _number_text(most: int) -> str:
    return "2^63 - 1" if most == INTEGER_LIMIT - 1 else f"{most:,}"


_SIZE, _INT32 = _whole(0, INTEGER_LIMIT - 1), _whole(0, 2**31 - 1)


def _text(value: Any, where: str) -> str:
    require(isinstance(value, str), where, value, "must be text")
    return str(value)


def _flag(value: Any, where: str) -> int:
    require(value in (0, 1) and isinstance(value, bool | int), where, value, "must be true or false")
    return int(value)


def _ids(value: Any, where: str) -> list[int]:
    require(isinstance(value, list), where, value, "must be a list of ids")
    return [_SIZE(number, f"{where}.{index}") for index, number in enumerate(value)]


def _node_type(value: Any, where: str) -> int:
    if isinstance(value, str) and value.removesuffix("_NODE") in NodeType.__members__:
        return int(NodeType[value.removesuffix("_NODE")])
    return int(_whole(0, max(NodeType))(value, where))


def _comm_type(value: Any, where: str) -> int:
    if isinstance(value, str) and value in CollectiveType.__members__:
        return int(CollectiveType[value])
    return int(_whole(0, max(CollectiveType))(value, where))


def _group(value: Any, where: str) -> str:
    is_name = isinstance(value, str) or (type(value) is int and abs(value) < INTEGER_LIMIT)
    require(is_name, where, value, "must be the name of a group")
    return str(value)


def _dimensions(value: Any, where: str) -> int:
    fits = isinstance(value, list) and len(value) <= MOST_DIMENSIONS
    require(fits, where, value, f"must be a list of at most {MOST_DIMENSIONS} times true or false")
    return sum(_flag(flag, f"{where}.{index}") << index for index, flag in enumerate(value))


FIELDS: dict[str, tuple[str, Check]] = {
    "id": ("id", _SIZE),
    "name": ("name", _text),
    "nodetype": ("type", _node_type),
    "type": ("type", _node_type),
    "runtime": ("duration_us", _SIZE),
    "durationmicros": ("duration_us", _SIZE),
    "datadeps": ("data", _ids),
    "ctrldeps": ("ctrl", _ids),
    "iscpuop": ("on_cpu", _flag),
    "numops": ("num_ops", _SIZE),
    "tensorsize": ("tensor_size", _SIZE),
    "commtype": ("comm_type", _comm_type),
    "commsize": ("comm_size", _SIZE),
    "commpriority": ("comm_priority", _INT32),
    "commtag": ("comm_tag", _INT32),
    "commsrc": ("source", _INT32),
    "commdst": ("destination", _INT32),
    "pgname": ("group_name", _group),
    "involveddim": ("involved_dims", _dimensions),
}
"""Keys of a node, in lower case and without underscores: the column, and the check of its value."""
NEEDED = {"id": "Id", "type": "NodeType"}
"""Columns that every node must state, and their keys."""


# ---- nodes


@dataclass(slots=True)
class _GraphReader:
    """Nodes as they are read, with what they name and what was left out."""

    where: str
    columns: dict[str, str] = field(default_factory=dict)
    """The key without case and underscores, by the key as it is written."""
    ids: set[int] = field(default_factory=set)
    groups: dict[str, int] = field(default_factory=dict)
    peers: dict[int, int] = field(default_factory=dict)
    own_rank: int | None = None
    left_out: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many nodes have a key that is left out, and the first of them."""

    def row(self, node: Any, index: int) -> dict[str, Any]:
        """Return a node as `cosmic.traces.trace.template_of` takes it."""
        where = f"{self.where}: {GRAPH}.{index}"
        require(isinstance(node, dict), where, node, "must be an object: a node")
        row: dict[str, Any] = {}
        unknown: list[str] = []
        for key, value in node.items():
            schema = FIELDS.get(self._plain(key))
            if schema is None:
                unknown.append(f"{shorten(key)}: is not understood")
                continue
            column, check = schema
            require(column not in row, f"{where}.{key}", value, "the node states this twice, in two spellings")
            row[column] = check(value, f"{where}.{key}")
        for column, key in NEEDED.items():
            require(column in row, f"{where}.{key}", None, "every node needs it")
        require(row["id"] not in self.ids, f"{where}.Id", row["id"], "two nodes have this id")
        self.ids.add(row["id"])
        self._bind_rank(row, unknown, where)
        for note in unknown:
            count, first = self.left_out.get(note, (0, row["id"]))
            self.left_out[note] = count + 1, first
        return row

    def _plain(self, key: str) -> str:
        if key not in self.columns:
            self.columns[key] = key.replace("_", "").lower()
        return self.columns[key]

    def _bind_rank(self, row: dict[str, Any], unknown: list[str], where: str) -> None:
        """Replace the name of a group and the ranks of a message by their numbers in the trace."""
        name = row.pop("group_name", ALL_RANKS[0])
        row["group"] = ABSENT if name in ALL_RANKS else self.groups.setdefault(name, len(self.groups))
        ends = {end: row.pop(end) for end in ("source", "destination") if end in row}
        if row["type"] not in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            unknown += (f"{_KEYS[end]!r}: means nothing but to sends and receives" for end in ends)
            return
        own, other = ("source", "destination") if row["type"] == NodeType.COMM_SEND else ("destination", "source")
        if own in ends:
            rule = f"nodes before it belong to rank {self.own_rank}"
            require(self.own_rank in (None, ends[own]), f"{where}.{_KEYS[own]}", ends[own], rule)
            self.own_rank = ends[own]
        if other in ends:
            row["peer"] = self.peers.setdefault(ends[other], len(self.peers))

    def notes(self) -> Iterator[str]:
        """Yield what was left out, a sentence for each key."""
        for note, (count, first) in self.left_out.items():
            nodes = f"{count:,} node{'s' if count > 1 else ''}"
            yield f"{self.where}: node key = {note}, and left out of {nodes}, first of node {first}"

    def trace(self, rows: list[dict[str, Any]]) -> RankTrace:
        """Return the trace of the nodes that were read."""
        return RankTrace(template_of(rows), tuple(self.groups), tuple(self.peers), self.own_rank)


_KEYS = {"source": "comm_src", "destination": "comm_dst"}
