"""Kineto traces (PyTorch's profiler): host operators, calls of the runtime, and what ran on the device, as columns.

Times are nanoseconds from the first event on. Flows, stacks of Python functions and overheads are skipped: who launched
what follows from correlation ids, and time is that of operators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cosmic.errors import require
from cosmic.profiles.json_stream import Document

KEY = "traceEvents"
LAUNCHED = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of what runs on a device."""
Ints = npt.NDArray[np.int64]
Text = bytes


def _none() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective, send or receive, as an event states it."""

    name: str
    """As PyTorch calls it: allreduce, _allgather_base, send ..."""
    sent: int
    """Elements that this rank puts in."""
    received: int
    dtype: str
    group: str
    group_size: int
    ranks: tuple[int, ...]
    """Of the group; empty where not stated."""
    source: int | None = None
    """Rank in the job, as is the target's."""
    target: int | None = None
    sequence: int = -1
    """The number of a collective in its group; -1 if it is not stated."""


@dataclass(slots=True)
class Host:
    """Operators, annotations and calls of the runtime, one entry each."""

    name: Ints = field(default_factory=_none)
    """Index into `Kineto.names`."""
    start: Ints = field(default_factory=_none)
    end: Ints = field(default_factory=_none)
    thread: Ints = field(default_factory=_none)
    """Index into `Kineto.threads`."""
    category: Ints = field(default_factory=_none)
    """`OPERATOR`, `ANNOTATION` or `CALL`."""
    function: Ints = field(default_factory=_none)
    """Id of PyTorch's record function: the link to an execution trace."""
    correlation: Ints = field(default_factory=_none)


OPERATOR, ANNOTATION, CALL = 0, 1, 2


@dataclass(slots=True)
class Device:
    """Kernels, copies and fills, one entry each."""

    name: Ints = field(default_factory=_none)
    start: Ints = field(default_factory=_none)
    end: Ints = field(default_factory=_none)
    stream: Ints = field(default_factory=_none)
    """As CUDA numbers it; of a second device, other numbers than those of the first."""
    category: Ints = field(default_factory=_none)
    """Index into `LAUNCHED`."""
    correlation: Ints = field(default_factory=_none)
    bytes: Ints = field(default_factory=_none)
    """Of copies and fills; -1 where not stated."""
    launch: list[Text] = field(default_factory=list)
    """Grid and block, as text."""


@dataclass(slots=True)
class Kineto:
    """One rank's trace."""

    where: str
    names: list[str] = field(default_factory=list)
    threads: list[tuple[str, str]] = field(default_factory=list)
    """Process and thread."""
    host: Host = field(default_factory=Host)
    device: Device = field(default_factory=Device)
    inputs: dict[int, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    """Shapes, types and values of an operator's inputs as texts, by its entry in `host`."""
    calls: dict[tuple[str, int], CollectiveCall] = field(default_factory=dict)
    """Collectives by "host" or "device" and the entry there."""
    waits: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Stream that waits and stream that it waits for (-1 if not stated), by the correlation id of the call."""
    syncs: dict[int, int] = field(default_factory=dict)
    """Stream that the host waited for (-1 for all), by the correlation id of the call; where events say it."""
    records: dict[int, int] = field(default_factory=dict)
    """Correlation id of the call that recorded an event, by that of the call that made a stream wait for it."""
    base_ns: int = 0
    """When the first event began, on the host's clock."""
    device_name: str = ""
    rank: int | None = None
    world_size: int | None = None
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)


def read_kineto(path: str | Path) -> Kineto:
    """Return the trace in the file at *path*, which may be compressed with gzip."""
    from cosmic.profiles.kineto_events import EventReader  # noqa: PLC0415  it makes what is defined here

    document = Document(Path(path), KEY)
    reader = EventReader(document)
    for batch in reader.batches():
        reader.take(batch)
    require(document.found, document.where, KEY, "is not there: this is no trace of Kineto")
    return reader.finish()
