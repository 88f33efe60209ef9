"""What one asks of collectives on a network, in words: a network by name, sizes with units, groups as ranges of ranks.

`bound`, `synthesize` and `check` are the commands of the same names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.json_types import PositiveCount, json_keys, unit
from cosmic.base.units import BYTES, format_quantity, read_quantity
from cosmic.design.answer import Answer, Answered, Provenance
from cosmic.network.link_graph import LinkGraph, require_connected
from cosmic.network.network_graphs import load_network
from cosmic.network.schedules.baseline_algorithms import Baseline, make_baselines, textbook_schedule
from cosmic.network.schedules.collective_schedule import KINDS, Kind, Schedule, check_groups, chunk_count
from cosmic.network.schedules.schedule_checking import ScheduleVerdict, check_schedule
from cosmic.network.synthesis.lower_bounds import Bounds, collective_bounds

if TYPE_CHECKING:
    from cosmic.network.schedules.schedule_formats import ScheduleOptions

if TYPE_CHECKING:
    from cosmic.network.schedules.schedule_formats import ScheduleOptions

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
    """Which collective, such as all_gather."""
    size_bytes: float
    """Buffer of one NPU: the output of an all-gather, the input of other collectives."""
    chunks: PositiveCount | None
    """Chunks for each NPU that the ingress bound counts; None without a number."""
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

    @property
    def group_count(self) -> PositiveCount:
        """Groups of ranks that run the collective at once."""
        return len(self.groups)


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
    from cosmic.network.schedules.schedule_formats import ScheduleOptions  # noqa: PLC0415  only where one is read

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


# ---- What no schedule can beat, and a schedule that comes near

CHECKED = 3_000_000
"""Transfers up to which every synthesized schedule is also checked."""
_REQUEST_KEYS = {
    "collective": "request.kind",
    "size_bytes": "request.size_bytes",
    "npus": "request.graph.npus",
    "switches": "request.graph.switches",
    "links": "request.graph.links",
    "groups": "request.group_count",
}


def _times_over_bound(time_s: float | None, bound_s: float) -> float | None:
    return time_s / bound_s if time_s is not None and bound_s else None


def _provenance(request: CollectiveRequest, seed: int | None = None) -> Provenance:
    """Return what an answer about a collective follows from."""
    stated = {
        "network": request.graph.digest,
        "collective": request.kind,
        "size_bytes": request.size_bytes,
        "chunks": request.chunks,
        "groups": request.stated_groups,
        "root": request.root,
    }
    return Provenance(inputs={name: value for name, value in stated.items() if value is not None}, seed=seed)


@dataclass(frozen=True)
class TextbookTime(Baseline):
    """One algorithm."""

    over_bound: Annotated[float | None, unit("ratio")] = None
    """Its time over the bound; None where either is missing."""


@json_keys(
    "algorithms",
    "answer",
    own=False,
    **_REQUEST_KEYS,
    chunks_per_npu="request.chunks",
    bound_s="seconds",
    bounds="parts",
    cut="cut_names",
)
@dataclass(frozen=True, kw_only=True)
class CollectiveBound(Bounds, Answered):
    """What no schedule of a collective on a network can beat, and how far textbook algorithms are from it."""

    request: CollectiveRequest

    @property
    def parts(self) -> Bounds:
        """Each bound by itself."""
        return Bounds(self.node_s, self.cut_s, self.ingress_s, self.distance_s, self.cut, self.in_turn_s)

    @property
    def cut_names(self) -> list[str]:
        """Nodes on one side of the cut that binds, by name; empty if none does."""
        return [self.request.graph.name(node) for node in self.cut]

    @cached_property
    def algorithms(self) -> list[TextbookTime]:
        """Textbook algorithms on this network, with congestion on every link."""
        request = self.request
        baselines = make_baselines(request.graph, request.kind, request.size_bytes, request.groups, request.root)
        return [
            TextbookTime(each.algorithm, each.time_s, each.reason, _times_over_bound(each.time_s, self.seconds))
            for each in baselines
        ]

    @property
    def answer(self) -> Answer:
        """What every question is answered with."""
        return Answer(
            question="collective",
            verdict=f"{self.request.in_words}: no schedule takes less than {format_time(self.seconds)}",
            proof=f"no schedule takes less than {format_time(self.seconds)}",
            provenance=_provenance(self.request),
        )


@json_keys(
    "over_bound",
    "in_turn_bound_s",
    "algbw_bytes_per_s",
    "valid",
    "answer",
    own=False,
    **_REQUEST_KEYS,
    time_s="time_s",
    bound_s="limits.seconds",
    chunks_per_npu="chunks_per_npu",
    transfers="transfers",
    files="files",
)
@dataclass(frozen=True, eq=False, kw_only=True)
class SynthesizedSchedule(Schedule, Answered):
    """A schedule made for one network and collective. Exit code 1 if it fails its own check."""

    request: CollectiveRequest
    seed: int = 0
    files: tuple[str, ...] = ()
    """Files that were written; traces as PREFIX.<rank>.et."""

    @cached_property
    def limits(self) -> Bounds:
        """What no schedule can beat."""
        return _bounds_of(self.request)

    @cached_property
    def checked(self) -> ScheduleVerdict | None:
        """What the independent check says; None where there are too many transfers for it."""
        return check_schedule(self) if self.transfers <= CHECKED else None

    @property
    def valid(self) -> bool | None:
        """Whether the independent check found nothing wrong; None where there are too many transfers for it."""
        return None if self.checked is None else self.checked.valid

    @property
    def over_bound(self) -> Annotated[float | None, unit("ratio")]:
        """Time over the bound; None where the bound is 0."""
        return _times_over_bound(self.time_s, self.limits.seconds)

    @property
    def in_turn_bound_s(self) -> float | None:
        """Of an all-reduce, the bound of a reduce-scatter and then an all-gather; None for other collectives."""
        return self.limits.in_turn_s or None

    @property
    def algbw_bytes_per_s(self) -> float | None:
        """Size over time; None where the time is 0."""
        return self.request.size_bytes / self.time_s if self.time_s else None

    @property
    def answer(self) -> Answer:
        """What every question is answered with."""
        over = self.over_bound
        near = "" if over is None else f", {over:.3f}× the bound of {format_time(self.limits.seconds)}"
        return Answer(
            question="collective",
            verdict=f"{self.request.in_words}: {format_time(self.time_s)}{near}",
            reasons=() if self.valid is not False else ("the schedule fails its own check",),
            proof=f"no schedule takes less than {format_time(self.limits.seconds)}",
            gap=None if over is None else max(0.0, over - 1),
            provenance=_provenance(self.request, self.seed),
        )


def format_time(seconds: float) -> str:
    """Return a time for a person to read.

    >>> format_time(0.00750150), format_time(0.0)
    ('7.502 ms', '0 s')
    """
    for unit_name, worth in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= worth:
            return f"{seconds / worth:.4g} {unit_name}"
    return "0 s"


def _bounds_of(request: CollectiveRequest) -> Bounds:
    return collective_bounds(
        request.graph,
        request.kind,
        request.size_bytes,
        chunks=request.chunks,
        groups=request.stated_groups,
        root=request.root,
    )


def bound(
    network: str | LinkGraph,
    *,
    collective: str = "all-gather",
    size: str | float = "1 GiB",
    chunks: str | int = AUTO,
    groups: Sequence[str] = (),
    root: int = 0,
    fail: Sequence[str] = (),
) -> CollectiveBound:
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
    limits = _bounds_of(request)
    return CollectiveBound(**{each.name: getattr(limits, each.name) for each in fields(Bounds)}, request=request)


def synthesize(  # noqa: PLR0913  the options of the command
    network: str | LinkGraph,
    *,
    collective: str = "all-gather",
    size: str | float = "1 GiB",
    chunks: str | int = AUTO,
    groups: Sequence[str] = (),
    root: int = 0,
    seed: int = 0,
    fail: Sequence[str] = (),
    algorithm: str = "",
    progress: Callable[[float], None] | None = None,
) -> SynthesizedSchedule:
    """Return a schedule of a collective for one network that comes near its bound; arguments are those of `bound`.

    With the name of a textbook *algorithm* it is that algorithm's instead. *progress* is told the share that is done.

    >>> import cosmic
    >>> schedule = cosmic.network.synthesize("dgx-h100:8", collective="broadcast", size="1 GB")
    >>> schedule.time_s >= cosmic.network.bound("dgx-h100:8", collective="broadcast", size="1 GB").seconds
    True
    """
    request = read_request(network, collective, size, chunks, groups, root, fail)
    if algorithm:
        name = algorithm.replace("-", "_")
        stated = (request.graph, name, request.kind, request.size_bytes, request.groups, root, request.chunks)
        made = textbook_schedule(*stated)
    else:
        from cosmic.network.synthesis.schedule_synthesis import (  # noqa: PLC0415  bounds need none
            synthesize as synthesize_schedule,
        )

        made = synthesize_schedule(
            request.graph,
            request.kind,
            request.size_bytes,
            chunks=request.chunks,
            groups=request.stated_groups,
            root=root,
            seed=seed,
            **({} if progress is None else {"progress": progress}),
        )
    parts = {each.name: getattr(made, each.name) for each in fields(Schedule)}
    return SynthesizedSchedule(**parts, request=request, seed=seed)


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
    from cosmic.network.schedules.schedule_formats import read_schedule  # noqa: PLC0415  only where one is read

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
