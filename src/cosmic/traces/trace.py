"""Execution traces as columns, one row per node.

Ranks of a training job run nearly the same nodes, with different groups and peers. A `Template` holds the nodes, a
`RankTrace` binds one to a rank's communicator groups and peers, and a `TraceSet` is a whole job. A thousand ranks that
run the same nodes share one template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

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
    """What kernels compute, for cost models: `cosmic.traces.kernel_work`."""
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
