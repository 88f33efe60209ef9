"""Read the JSON traces of Chakra's feeder, a file for each rank: ``{"workload_graph": [{"Id": 4, "NodeType": 4}]}``.

Writers spell keys in several ways: `ctrlDeps`, `ctrl_deps`. So case and underscores do not count. A key that means
nothing here is left out, and named in a note.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from cosmic.base.errors import SpecError, require, shorten
from cosmic.traces.chakra.trace_reader import read_contents
from cosmic.traces.chakra.wire_format import INTEGER_LIMIT, MOST_DIMENSIONS
from cosmic.traces.comm_groups import ALL_RANKS
from cosmic.traces.trace import ABSENT, CollectiveType, NodeType, RankTrace, template_of

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
