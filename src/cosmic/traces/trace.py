"""Execution traces as columns: what each rank does, node by node.

Ranks of a training job differ little: they run the same nodes and talk to different peers. A `Template` holds the
nodes, a `RankTrace` binds one to a rank's communicator groups and peers, and a `TraceSet` is a whole job. A thousand
ranks that do the same share one template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.errors import SpecError

Ints = npt.NDArray[np.int64]

ABSENT = -1
"""In a column: the node does not say."""


class NodeType(IntEnum):
    """What a node is, by its number in Chakra's schema."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


COMMUNICATION = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)
MEMORY = (NodeType.MEM_LOAD, NodeType.MEM_STORE)


class CollectiveType(IntEnum):
    """Which collective a node is, by its number in Chakra's schema."""

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

    A column holds `ABSENT` where the node does not say. Sizes are bytes.
    """

    id: Ints
    type: Ints
    """Values of `NodeType`."""
    names: Sequence[str]
    data_start: Ints
    """Row *r* waits for the nodes ``data_id[data_start[r]:data_start[r + 1]]``."""
    data_id: Ints
    ctrl_start: Ints
    ctrl_id: Ints
    duration_us: Ints
    """0 where the node does not say."""
    on_cpu: Ints
    """0 or 1."""
    num_ops: Ints
    tensor_size: Ints
    comm_type: Ints
    """Values of `CollectiveType`."""
    comm_size: Ints
    comm_priority: Ints
    """0 where the node does not say."""
    comm_tag: Ints
    group: Ints
    """Place in `RankTrace.groups`, for collectives; `ABSENT` stands for all ranks."""
    peer: Ints
    """Place in `RankTrace.peers`: where a send goes to, or a receive comes from."""
    involved_dims: Ints
    """Bit *d* is set if the collective runs in dimension *d*; `ABSENT` for all."""
    process_groups: Mapping[int, str]
    """By row: what a metadata node says of PyTorch's process groups."""

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.id)

    def row(self, node_id: int) -> int:
        """Return the row of the node with this id."""
        row = int(np.searchsorted(self.id, node_id))
        if row == self.nodes or self.id[row] != node_id:
            raise SpecError("node", node_id, "no such node")
        return row


COLUMNS = tuple(
    field.name
    for field in fields(Template)
    if field.name not in ("names", "data_start", "data_id", "ctrl_start", "ctrl_id", "process_groups")
)
"""The columns with one number a node."""


@dataclass(frozen=True, slots=True, eq=False)
class RankTrace:
    """A template, and with whom the rank talks in it."""

    template: Template
    groups: tuple[str, ...] = ()
    """Names of communicator groups (`pg_name`)."""
    peers: tuple[int, ...] = ()
    """Ranks."""
    own_rank: int | None = None
    """The rank that its sends and receives say is their own side; None where they do not say."""


@dataclass(frozen=True, slots=True, eq=False)
class TraceSet:
    """The traces of a job, rank by rank."""

    ranks: tuple[RankTrace, ...]
    where: str = "trace"
    """The prefix of the files, for messages."""

    @property
    def nodes(self) -> int:
        """How many nodes there are in all."""
        return sum(rank.template.nodes for rank in self.ranks)

    def templates(self) -> list[Template]:
        """Return every template once, in the order of its first rank."""
        return list({id(rank.template): rank.template for rank in self.ranks}.values())


def template_of(rows: Sequence[Mapping[str, Any]]) -> Template:
    """Return the template of *rows*: mappings from column names to values; also `name`, `data` and `ctrl` (ids).

    >>> nodes = [{"id": 4, "type": NodeType.COMP}, {"id": 7, "type": NodeType.COMM_COLL, "data": [4]}]
    >>> template = template_of(nodes)
    >>> template.nodes, template.data_id.tolist(), template.comm_size.tolist()
    (2, [4], [-1, -1])
    """
    ordered = sorted(rows, key=lambda row: int(row["id"]))
    missing = dict.fromkeys(COLUMNS, ABSENT) | {"duration_us": 0, "on_cpu": 0, "comm_priority": 0, "type": 0}
    columns = {name: np.array([row.get(name, missing[name]) for row in ordered], np.int64) for name in COLUMNS}
    for kind in ("data", "ctrl"):
        waits = [row.get(kind, ()) for row in ordered]
        columns[f"{kind}_start"] = np.cumsum([0, *map(len, waits)], dtype=np.int64)
        columns[f"{kind}_id"] = np.array([node for each in waits for node in each], np.int64)
    texts = {place: str(row["process_groups"]) for place, row in enumerate(ordered) if "process_groups" in row}
    return Template(**columns, names=[str(row.get("name", "")) for row in ordered], process_groups=texts)
