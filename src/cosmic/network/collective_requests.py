"""What one asks of collectives on a network, in words: a network by name, sizes with units, groups as ranges of ranks.

`bound`, `synthesize` and `check` are the commands of the same names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.units import BYTES, format_quantity, read_quantity
from cosmic.network.link_graph import LinkGraph, require_connected
from cosmic.network.network_graphs import load_network
from cosmic.network.schedules.collective_schedule import KINDS, Kind, Schedule, check_groups, chunk_count
from cosmic.network.schedules.schedule_checking import ScheduleVerdict, check_schedule
from cosmic.network.schedules.schedule_formats import ScheduleOptions, read_schedule
from cosmic.network.synthesis.lower_bounds import Bounds, collective_bounds
from cosmic.network.synthesis.schedule_synthesis import synthesize as synthesize_schedule

COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "reduce")
AUTO = "auto"
MOST_CHUNKS, MOST_IN_ALL = 2**16, 2**22
"""Chunks that may be asked for: of one NPU, and of all."""
_RANKS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


@dataclass(frozen=True)
class CollectiveRequest:
    """A collective on a network, as the arguments of a command state it."""

    graph: LinkGraph
    kind: Kind
    size_bytes: float
    chunks: int | None
    groups: tuple[tuple[int, ...], ...]
    stated_groups: tuple[tuple[int, ...], ...] | None
    """None where all NPUs are one group."""
    root: int

    @property
    def in_words(self) -> str:
        """What is asked for, for a person to read."""
        members = sum(map(len, self.groups))
        among = f"{members:,} NPUs" if members == self.graph.npus else f"{members:,} of {self.graph.npus:,} NPUs"
        several = f" in {len(self.groups):,} groups" if len(self.groups) > 1 else ""
        return f"{self.kind.replace('_', '-')} of {bytes_in_words(self.size_bytes)} among {among}{several}"

    def as_json(self) -> dict[str, Any]:
        """Return what is asked for, for programs."""
        return {
            "collective": self.kind,
            "size_bytes": self.size_bytes,
            "npus": self.graph.npus,
            "switches": self.graph.switches,
            "links": self.graph.links,
            "groups": len(self.groups),
        }


def read_request(
    network: str | LinkGraph,
    collective: str,
    size: str | float,
    chunks: str | int,
    groups: Sequence[str],
    root: int,
    fail: Sequence[str],
) -> CollectiveRequest:
    """Return what the arguments of a command ask for; the NPUs that take part must reach each other."""
    kind, number, amount = kind_of(collective), chunks_of(chunks), size_of(size)
    if isinstance(network, LinkGraph):
        require(not fail, "fail", fail, "goes with the name of a network: leave the links out of the graph")
    graph = network if isinstance(network, LinkGraph) else load_network(network, fail)
    stated_groups = groups_of(groups, graph.npus)
    members = stated_groups or (tuple(range(graph.npus)),)
    check_groups(graph, members, root, "--group")
    require_connected(graph, members)
    total = sum(chunk_count(kind, len(group), number or 1) for group in members)
    rule = f"makes {total:,} chunks, more than the {MOST_IN_ALL:,} that are told apart"
    require(number is None or total <= MOST_IN_ALL, "--chunks", chunks, rule)
    return CollectiveRequest(graph, kind, amount, number, members, stated_groups, root)


def read_stated_request(
    network: str,
    collective: str,
    size: str | float,
    chunks: str | int,
    groups: Sequence[str],
    root: int,
    fail: Sequence[str],
) -> ScheduleOptions:
    """Return what the arguments of a command say about a schedule."""
    kind = kind_of(collective) if collective else None
    number, amount = chunks_of(chunks), size_of(size)
    graph = load_network(network, fail) if network else None
    if graph is None:
        for option, given in (("--group", groups), ("--fail", fail)):
            require(not given, option, given, "needs --network, too")
        return ScheduleOptions(None, kind, amount, number, None, root)
    return ScheduleOptions(graph, kind, amount, number, groups_of(groups, graph.npus), root)


def kind_of(text: str) -> Kind:
    """Return the collective that *text* names, however its words are joined.

    >>> kind_of("All-Gather"), kind_of("reduce_scatter"), kind_of("allreduce")
    ('all_gather', 'reduce_scatter', 'all_reduce')
    """
    plain = re.sub(r"[-_ ]", "", text.lower())
    for kind in KINDS:
        if kind.replace("_", "") == plain:
            return kind
    raise UnknownName.among("--collective", text, "collective", COLLECTIVES)


def chunks_of(text: str | int) -> int | None:
    """Return a number of chunks, None for ``auto``."""
    text = str(text).strip().lower()
    if text == AUTO:
        return None
    rule = f"must be auto, or a whole number from 1 to {MOST_CHUNKS:,}"
    require(bool(re.fullmatch(r"[0-9]{1,9}", text, re.ASCII)), "--chunks", text, rule)
    require(1 <= int(text) <= MOST_CHUNKS, "--chunks", text, rule)
    return int(text)


def size_of(text: str | float) -> float:
    """Return a size in bytes."""
    try:
        size = read_quantity(text, BYTES) if isinstance(text, str) else float(text)
    except SpecError as error:
        raise SpecError("--size", error.value, error.rule) from None
    require(size > 0, "--size", text, "must be positive")
    return size


def groups_of(texts: Sequence[str], npus: int) -> tuple[tuple[int, ...], ...] | None:
    """Return groups of ranks; None if none is stated.

    >>> groups_of(["0-2,7", "4,3"], 8)
    ((0, 1, 2, 7), (4, 3))
    """
    if not texts:
        return None
    return tuple(
        tuple(rank for part in text.split(",") for rank in _parse_ranks(part.strip(), text, npus)) for text in texts
    )


def _parse_ranks(part: str, text: str, npus: int) -> range:
    match = _RANKS.fullmatch(part)
    require(match is not None, "--group", text, "name ranks and ranges of ranks, such as 0-3,8")
    first, last = match.groups() if match else ("0", None)
    begin, end = int(first), int(last if last is not None else first)
    require(begin <= end, "--group", text, "a range goes from the lower to the higher rank")
    require(end < npus, "--group", text, f"has {end}, and there are {npus:,} NPUs, from 0")
    return range(begin, end + 1)


def bytes_in_words(size: float) -> str:
    """Return a size for a person to read.

    >>> bytes_in_words(2.0**30), bytes_in_words(1e9), bytes_in_words(1073741820.0)
    ('1 GiB', '1 GB', '1,073,741,820 bytes')
    """
    text = format_quantity(size, BYTES)
    return text if len(text) <= 10 else f"{size:,.10g} bytes"


def bound(
    network: str | LinkGraph,
    *,
    collective: str = "all-gather",
    size: str | float = "1 GiB",
    chunks: str | int = AUTO,
    groups: Sequence[str] = (),
    root: int = 0,
    fail: Sequence[str] = (),
) -> Bounds:
    """Return what no schedule of a collective can beat on a network, and the cut that binds.

    *network* is a file of links, a design, MODEL@SYSTEM:N, SYSTEM:N, or a `LinkGraph`. *size* is the buffer of one NPU, *groups* are
    ranks that take part, such as "0-3,8", *root* is a position in its group, and *fail* leaves out or slows links:
    "A-B", "A>B", "A-B*0.25".

    >>> import cosmic
    >>> limits = cosmic.network.bound("dgx-h100:8", collective="all-gather", size="8 GB")
    >>> limits.node_s  # each NPU receives 7 of 8 GB at 450 GB/s
    0.015555555555555555
    """
    request = read_request(network, collective, size, chunks, groups, root, fail)
    return collective_bounds(
        request.graph,
        request.kind,
        request.size_bytes,
        chunks=request.chunks,
        groups=request.stated_groups,
        root=root,
    )


def synthesize(
    network: str | LinkGraph,
    *,
    collective: str = "all-gather",
    size: str | float = "1 GiB",
    chunks: str | int = AUTO,
    groups: Sequence[str] = (),
    root: int = 0,
    seed: int = 0,
    fail: Sequence[str] = (),
) -> Schedule:
    """Return a schedule of a collective for one network that comes near its bound; arguments are those of `bound`.

    >>> import cosmic
    >>> schedule = cosmic.network.synthesize("dgx-h100:8", collective="broadcast", size="1 GB")
    >>> schedule.time_s >= cosmic.network.bound("dgx-h100:8", collective="broadcast", size="1 GB").seconds
    True
    """
    request = read_request(network, collective, size, chunks, groups, root, fail)
    return synthesize_schedule(
        request.graph,
        request.kind,
        request.size_bytes,
        chunks=request.chunks,
        groups=request.stated_groups,
        root=root,
        seed=seed,
    )


def open_schedule(
    schedule: str | Path | Schedule,
    *,
    network: str = "",
    collective: str = "",
    size: str | float = "1 GiB",
    chunks: str | int = AUTO,
    groups: Sequence[str] = (),
    root: int = 0,
    fail: Sequence[str] = (),
) -> Schedule:
    """Return the schedule in a file, with what is stated of it: its network, and the collective that it is for."""
    if isinstance(schedule, Schedule):
        return schedule
    return read_schedule(schedule, read_stated_request(network, collective, size, chunks, groups, root, fail))


def check(schedule: str | Path | Schedule, **stated: Any) -> ScheduleVerdict:
    """Return whether a schedule can run as it is, and does what it is for; else what is wrong, with examples.

    *schedule* is a file (CSV, a log of TACOS, or MSCCL-XML) or a `Schedule`; of a file, *stated* may say its network
    and collective, with the arguments of `bound`.

    >>> import cosmic
    >>> cosmic.network.check(cosmic.network.synthesize("dgx-h100:8", collective="all-to-all")).valid
    True
    """
    return check_schedule(open_schedule(schedule, **stated))
