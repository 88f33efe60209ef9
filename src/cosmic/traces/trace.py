"""Execution traces as columns, one row per node.

Ranks of a training job run nearly the same nodes, with different groups and peers. A `Template` holds the nodes, a
`RankTrace` binds one to a rank's communicator groups and peers, and a `TraceSet` is a whole job. A thousand ranks that
run the same nodes share one template.

`known_groups` are a job's communicator groups, from a file and from the metadata nodes of traces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.base.files import read_text, write_text

Ints = npt.NDArray[np.int64]

ABSENT = -1
"""In a column: not stated."""


class NodeType(IntEnum):
    """The type of a node, by its number in Chakra's schema."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


COMMUNICATION_TYPES = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)
MEMORY_TYPES = (NodeType.MEM_LOAD, NodeType.MEM_STORE)


class CollectiveType(IntEnum):
    """The type of a collective, by its number in Chakra's schema."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Template:
    """The nodes of a rank, one row each, in ascending order of their ids.

    A column holds `ABSENT` where the node does not state a value. Sizes are bytes.
    """

    id: Ints
    type: Ints
    """Values of `NodeType`."""
    names: Sequence[str]
    data_start: Ints
    """Row *r* depends on the nodes ``data_id[data_start[r]:data_start[r + 1]]``."""
    data_id: Ints
    ctrl_start: Ints
    ctrl_id: Ints
    duration_us: Ints
    """0 where not stated."""
    on_cpu: Ints
    """0 or 1."""
    num_ops: Ints
    tensor_size: Ints
    comm_type: Ints
    """Values of `CollectiveType`."""
    comm_size: Ints
    comm_priority: Ints
    """0 where not stated."""
    comm_tag: Ints
    group: Ints
    """Index into `RankTrace.groups`, for collectives; `ABSENT` means all ranks."""
    peer: Ints
    """Index into `RankTrace.peers`: the destination of a send, or the source of a receive."""
    involved_dims: Ints
    """Bit *d* is set if the collective runs in dimension *d*; `ABSENT` for all."""
    start_ns: Ints
    """When a recorded node began, from the beginning of the job on; this and what follows: where recorded."""
    duration_ns: Ints
    """What `duration_us` rounds."""
    delay_ns: Ints
    """From the end of the last node that it depends on to its start: a launch's latency, a gap between kernels."""
    stream: Ints
    """The CUDA stream of a kernel; the thread of a node on the CPU."""
    kernel: Ints
    """Index into `kernels`."""
    kernels: Sequence[str]
    """What kernels compute, for cost models: `cosmic.step.kernel_prices`."""
    process_groups: Mapping[int, str]
    """Text of metadata nodes about PyTorch's process groups, by row."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.id)

    @property
    def is_recorded(self) -> bool:
        """Whether nodes say when they ran: such a trace can be replayed."""
        return bool((self.start_ns != ABSENT).any())


COLUMNS = tuple(
    field.name
    for field in fields(Template)
    if field.name not in ("names", "data_start", "data_id", "ctrl_start", "ctrl_id", "kernels", "process_groups")
)
"""The columns with one number per node."""
MISSING = dict.fromkeys(COLUMNS, ABSENT) | dict.fromkeys(("id", "type", "duration_us", "on_cpu", "comm_priority"), 0)
"""What each column holds where a node states nothing."""
RECORDED = ("start_ns", "duration_ns", "delay_ns", "stream", "kernel")
"""The columns of recorded traces."""


@dataclass(frozen=True, slots=True, eq=False)
class RankTrace:
    """A template, and the groups and peers of one rank in it."""

    template: Template
    groups: tuple[str, ...] = ()
    """Names of communicator groups (`pg_name`)."""
    peers: tuple[int, ...] = ()
    """Ranks."""
    own_rank: int | None = None
    """The rank that its sends and receives state as their own; None where they state none."""


@dataclass(frozen=True, slots=True, eq=False)
class TraceSet:
    """The traces of a job, rank by rank."""

    ranks: tuple[RankTrace, ...]
    where: str = "trace"
    """The prefix of the files, for messages."""

    @property
    def nodes(self) -> int:
        """Number of nodes of all ranks."""
        return sum(rank.template.nodes for rank in self.ranks)

    def templates(self) -> list[Template]:
        """Return the distinct templates, in the order of their first ranks."""
        return list({id(rank.template): rank.template for rank in self.ranks}.values())


def template_of(rows: Sequence[Mapping[str, Any]]) -> Template:
    """Return a template of *rows*, which map column names, `name`, `work`, `data` and `ctrl` (ids) to values.

    >>> nodes = [{"id": 4, "type": NodeType.COMP}, {"id": 7, "type": NodeType.COMM_COLL, "data": [4]}]
    >>> template = template_of(nodes)
    >>> template.nodes, template.data_id.tolist(), template.comm_size.tolist()
    (2, [4], [-1, -1])
    """
    ordered = sorted(rows, key=lambda row: int(row["id"]))
    columns = {name: np.array([row.get(name, MISSING[name]) for row in ordered], np.int64) for name in COLUMNS}
    kernels = list(dict.fromkeys(str(row["work"]) for row in ordered if "work" in row))
    for index, row in enumerate(ordered):
        if "work" in row:
            columns["kernel"][index] = kernels.index(str(row["work"]))
    for kind in ("data", "ctrl"):
        waits = [row.get(kind, ()) for row in ordered]
        columns[f"{kind}_start"] = np.cumsum([0, *map(len, waits)], dtype=np.int64)
        columns[f"{kind}_id"] = np.array([node for wait in waits for node in wait], np.int64)
    texts = {index: str(row["process_groups"]) for index, row in enumerate(ordered) if "process_groups" in row}
    names = [str(row.get("name", "")) for row in ordered]
    return Template(**columns, names=names, kernels=kernels, process_groups=texts)


# ---- Communicator groups, from files and from metadata nodes

ALL_RANKS = ("", "0")
"""Names of the group of all ranks; a node without a group means the first."""

GROUP_ID = re.compile(r"[1-9][0-9]*", re.ASCII)


def read_groups(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Return the groups in the JSON file at *path*: ``{"<id from 1>": [rank, ...], ...}``."""
    path, text = Path(path), read_text(path)
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except RecursionError:
        raise SpecError("file", str(path), "is nested too deeply") from None
    except ValueError as error:
        raise SpecError("file", str(path), f"is not JSON: {error}") from None
    require(isinstance(pairs, _Pairs), path.name, pairs, 'must be an object, such as {"1": [0, 1], "2": [2, 3]}')
    groups: dict[str, tuple[int, ...]] = {}
    for name, ranks in pairs:
        require(bool(GROUP_ID.fullmatch(name)), f"{path.name}: group", name, "is named by a whole number from 1 on")
        require(name not in groups, f"{path.name}: group", name, "is defined twice")
        groups[name] = _check_ranks(ranks, f"{path.name}: group {name}")
    return groups


def write_groups(groups: Mapping[str, Sequence[int]], path: str | Path) -> None:
    """Write *groups* in the format of `read_groups`."""
    write_text(path, groups_text(groups))


def groups_text(groups: Mapping[str, Sequence[int]]) -> str:
    """Return *groups* in the format of `read_groups`, one per line."""
    lines = [f"{json.dumps(name)}: {json.dumps(list(ranks))}" for name, ranks in groups.items()]
    return "{" + ",\n ".join(lines) + "}\n"


class _Pairs(list[tuple[str, Any]]):
    """The pairs of a JSON object, repeated keys included."""


def _check_ranks(ranks: Any, where: str) -> tuple[int, ...]:
    """Return *ranks* if they are distinct ranks."""
    require(type(ranks) is list, where, ranks, "must be a list of ranks")
    require(bool(ranks), where, ranks, "has no ranks")
    seen = set()
    for rank in ranks:
        require(type(rank) is int and rank >= 0, where, rank, "a rank is a whole number from 0 on")
        require(rank not in seen, where, rank, "the rank is listed twice")
        seen.add(rank)
    return tuple(ranks)


def known_groups(traces: TraceSet, groups: Mapping[str, Sequence[int]] | None = None) -> dict[str, tuple[int, ...]]:
    """Return all groups by name: that of all ranks, those of metadata nodes, and *groups*, which take precedence."""
    everyone = tuple(range(len(traces.ranks)))
    explicit = {name: tuple(ranks) for name, ranks in (groups or {}).items()}
    return {**dict.fromkeys(ALL_RANKS, everyone), **stated_groups(traces), **explicit}


def stated_groups(traces: TraceSet) -> dict[str, tuple[int, ...]]:
    """Return PyTorch's process groups from metadata nodes; one that lists no ranks has all."""
    everyone = tuple(range(len(traces.ranks)))
    texts = {text for template in traces.templates() for text in template.process_groups.values()}
    groups: dict[str, tuple[int, ...]] = {}
    for name, ranks in (group for text in sorted(texts) for group in _parse_process_groups(text, traces.where)):
        members = ranks or everyone
        require(
            groups.setdefault(name, members) == members,
            f"{traces.where}: process group {name}",
            list(members),
            f"another node says {list(groups[name])}",
        )
    return groups


def _parse_process_groups(text: str, where: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups of a metadata node's text: a JSON list of objects, within a list in Python's syntax."""
    start, stop = text.find("[{"), text.rfind("}]")
    if start < 0 or stop < start:
        return  # metadata of another kind
    where = f"{where}: process groups"
    try:
        entries = json.loads(text[start : stop + 2])
    except (ValueError, RecursionError):
        raise SpecError(where, text, "must be a JSON list of objects with pg_name and ranks") from None
    for entry in entries:
        valid = isinstance(entry, dict) and "pg_name" in entry and isinstance(entry.get("ranks", []), list)
        require(valid, where, entry, "must be an object with pg_name and a list of ranks")
        ranks = entry.get("ranks", [])
        yield str(entry["pg_name"]), _check_ranks(ranks, f"{where}: {entry['pg_name']}") if ranks else ()


def ranks_by_template(traces: TraceSet) -> list[tuple[Template, list[int]]]:
    """Return every distinct template with the ranks that run it."""
    by_template: dict[int, tuple[Template, list[int]]] = {}
    for number, rank in enumerate(traces.ranks):
        by_template.setdefault(id(rank.template), (rank.template, []))[1].append(number)
    return list(by_template.values())
