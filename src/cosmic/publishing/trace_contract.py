"""The types of the document that the page of a trace shows. `ui/src/trace/document.ts` explains every name."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from cosmic.publishing.contract import Fact, Packed


class Signed(TypedDict):
    """Whole numbers of either sign: 2 n for n, -2 n - 1 for negative ones; with *running*, differences of those."""

    numbers: Packed
    running: bool


class Edges(TypedDict):
    """Dependencies of one kind."""

    counts: Packed
    back: Signed


class Attribute(TypedDict):
    """What nodes state of one kind: either codes into values, or numbers."""

    name: str
    label: str
    unit: str
    values: NotRequired[list[str | int | float | None]]
    codes: NotRequired[Packed]
    numbers: NotRequired[Packed]
    worth: NotRequired[float]


class Track(TypedDict):
    """A row of the timeline."""

    process: int
    name: str


class Operator(TypedDict):
    """Nodes of one name, or of one kind of kernel."""

    name: str
    kind: str
    count: int
    total: float
    share: float


class Nodes(TypedDict):
    """The columns of all nodes, in ascending order of their ids."""

    count: int
    id: Signed
    type: Packed
    name: Packed
    track: Packed
    kind: Packed
    start: Signed
    duration: Packed
    depth: Packed
    critical: Packed
    data: Edges
    ctrl: Edges
    absent: dict[str, Packed]
    attributes: list[Attribute]


class View(TypedDict):
    """The nodes of ranks that run the same."""

    facts: list[Fact]
    reading: str
    problems: list[str]
    recorded: bool
    tick: float
    unit: str
    duration: float
    processes: list[str]
    tracks: list[Track]
    types: list[str]
    names: list[str]
    operators: list[Operator]
    operators_note: str
    kernels: list[Operator]
    nodes: Nodes


class Rank(TypedDict):
    """A rank: which view it has, and what differs from others that have it."""

    rank: int
    view: int
    groups: list[str]
    peers: list[int]


class TraceDocument(TypedDict):
    """The traces of a job."""

    format: int
    title: str
    facts: list[Fact]
    kinds: list[str]
    ranks: list[Rank]
    views: list[View]
