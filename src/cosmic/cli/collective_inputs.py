"""What `cosmic collective` reads and writes: arguments as values, schedules as files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cosmic.cli.console import complain, doing
from cosmic.errors import SpecError, UnknownName, require
from cosmic.files import DASH, check_folder, check_writable, make_folder, write_text

if TYPE_CHECKING:
    from cosmic.graphs.graph import LinkGraph
    from cosmic.graphs.schedule import Kind, Schedule
    from cosmic.schedules.reading import Stated

COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "reduce")
TARGETS = ("msccl", "chakra", "perfetto", "svg", "csv")
RUN = ("msccl", "chakra")
"""Formats that somebody will run."""
AUTO = "auto"
MOST_CHUNKS, MOST_IN_ALL = 2**16, 2**22
"""Chunks that may be asked for: of one NPU, and of all."""
_RANKS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
MEANINGS = {
    "not_causal": "leave a node before their chunk is there",
    "overlapping": "begin while another is on their link",
    "too_short": "take less than latency + bytes / bandwidth",
    "duplicate": "bring what is there already, or go no further",
    "missing": "deliveries that never happen",
}


@dataclass(frozen=True)
class Asked:
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


def networks(incomplete: str) -> list[str]:
    """Return the systems of the catalog, for a shell."""
    from cosmic.catalog import names  # noqa: PLC0415  only where a network is completed

    return [name for name in names("systems") if name.startswith(incomplete)]


def asked(  # noqa: PLR0913, PLR0917  the arguments of a command
    network: str, collective: str, size: str, chunks: str, groups: list[str], root: int, fail: list[str]
) -> Asked:
    """Return what the arguments of a command ask for; the NPUs that take part must reach each other."""
    from cosmic.graphs.reaching import require_connected  # noqa: PLC0415  heavy
    from cosmic.graphs.schedule import chunk_count  # noqa: PLC0415  heavy
    from cosmic.loading.networks import load_network  # noqa: PLC0415  heavy
    from cosmic.schedules.chunks import check_groups  # noqa: PLC0415  heavy

    kind, number, amount = kind_of(collective), chunks_of(chunks), size_of(size)
    doing("reading the network")
    graph = load_network(network, fail)
    stated_groups = groups_of(groups, graph.npus)
    members = stated_groups or (tuple(range(graph.npus)),)
    check_groups(graph, members, root, "--group")
    require_connected(graph, members)
    total = sum(chunk_count(kind, len(group), number or 1) for group in members)
    rule = f"makes {total:,} chunks, more than the {MOST_IN_ALL:,} that are told apart"
    require(number is None or total <= MOST_IN_ALL, "--chunks", chunks, rule)
    return Asked(graph, kind, amount, number, members, stated_groups, root)


def stated(  # noqa: PLR0913, PLR0917  the arguments of a command
    network: str, collective: str, size: str, chunks: str, groups: list[str], root: int, fail: list[str]
) -> Stated:
    """Return what the arguments of a command say about a schedule."""
    from cosmic.loading.networks import load_network  # noqa: PLC0415  heavy
    from cosmic.schedules.reading import Stated  # noqa: PLC0415  heavy

    kind = kind_of(collective) if collective else None
    number, amount = chunks_of(chunks), size_of(size)
    graph = load_network(network, fail) if network else None
    if graph is None:
        for option, given in (("--group", groups), ("--fail", fail)):
            require(not given, option, given, "needs --network, too")
        return Stated(None, kind, amount, number, None, root)
    return Stated(graph, kind, amount, number, groups_of(groups, graph.npus), root)


def read(path: str, about: Stated) -> Schedule:
    """Return the schedule in a file."""
    from cosmic.schedules.reading import read_schedule  # noqa: PLC0415  heavy

    return read_schedule(path, about)


def kind_of(text: str) -> Kind:
    """Return the collective that *text* names, however its words are joined.

    >>> kind_of("All-Gather"), kind_of("reduce_scatter"), kind_of("allreduce")
    ('all_gather', 'reduce_scatter', 'all_reduce')
    """
    from cosmic.graphs.schedule import KINDS  # noqa: PLC0415  heavy

    plain = re.sub(r"[-_ ]", "", text.lower())
    for kind in KINDS:
        if kind.replace("_", "") == plain:
            return kind
    raise UnknownName.among("--collective", text, "collective", COLLECTIVES)


def chunks_of(text: str) -> int | None:
    """Return a number of chunks, None for ``auto``."""
    if text.strip().lower() == AUTO:
        return None
    rule = f"must be auto, or a whole number from 1 to {MOST_CHUNKS:,}"
    require(bool(re.fullmatch(r"[0-9]{1,9}", text.strip(), re.ASCII)), "--chunks", text, rule)
    require(1 <= int(text) <= MOST_CHUNKS, "--chunks", text, rule)
    return int(text)


def size_of(text: str) -> float:
    """Return a size in bytes."""
    from cosmic.units import BYTES  # noqa: PLC0415  heavy
    from cosmic.units import read as read_quantity  # noqa: PLC0415  heavy

    try:
        size = read_quantity(text, BYTES)
    except SpecError as error:
        raise SpecError("--size", error.value, error.rule) from None
    require(size > 0, "--size", text, "must be positive")
    return size


def groups_of(texts: list[str], npus: int) -> tuple[tuple[int, ...], ...] | None:
    """Return groups of ranks; None if none is stated.

    >>> groups_of(["0-2,7", "4,3"], 8)
    ((0, 1, 2, 7), (4, 3))
    """
    if not texts:
        return None
    return tuple(tuple(rank for part in text.split(",") for rank in _ranks(part.strip(), text, npus)) for text in texts)


def _ranks(part: str, text: str, npus: int) -> range:
    match = _RANKS.fullmatch(part)
    require(match is not None, "--group", text, "name ranks and ranges of ranks, such as 0-3,8")
    first, last = match.groups() if match else ("0", None)
    begin, end = int(first), int(last if last is not None else first)
    require(begin <= end, "--group", text, "a range goes from the lower to the higher rank")
    require(end < npus, "--group", text, f"has {end}, and there are {npus:,} NPUs, from 0")
    return range(begin, end + 1)


# ------------------------------------------------------------------------------------------------------------ writing


def target(to: str, out: str) -> str:
    """Return the format to write, empty for none; refuse what cannot be written before work begins."""
    name = to.strip().lower()
    if not name:
        require(not out, "--out", out, f"says where, and --to in which format: {', '.join(TARGETS)}")
        return ""
    if name not in TARGETS:
        raise UnknownName.among("--to", to, "format", TARGETS)
    require(bool(out), "--to", to, "needs --out, the file to write")
    require(out != DASH, "--out", out, "is no file; give one")
    if name == "chakra":
        from pathlib import Path  # noqa: PLC0415  rarely needed

        require(bool(Path(out).name) and not out.endswith("/"), "--out", out, "give a prefix of files, such as runs/ag")
        check_folder(Path(out).parent, "--out")
    else:
        check_writable(out, "--out")
    return name


MOST_STEPS = 256
"""Steps of a thread block that MSCCL's runtime takes (MSCCL_MAX_NUM_STEPS)."""


def convert(schedule: Schedule, name: str, out: str) -> list[str]:
    """Write a schedule in a format; return the files, of Chakra their common pattern."""
    doing(f"writing {out}")
    if name == "chakra":
        return [_write_traces(schedule, out)]
    text = _text(schedule, name)
    write_text(out, text, "--out")
    if name == "msccl" and (steps := max(each.count("<step ") for each in text.split("<tb "))) > MOST_STEPS:
        rule = f"MSCCL's runtime takes {MOST_STEPS} at most, others fewer: use fewer --chunks"
        complain([f"note: a thread block of {out} has {steps:,} steps; {rule}"])
    return [out]


def _text(schedule: Schedule, name: str) -> str:
    if name == "msccl":
        from cosmic.schedules.msccl import msccl_text  # noqa: PLC0415  heavy

        return msccl_text(schedule)
    if name == "perfetto":
        from cosmic.schedules.perfetto import perfetto_text  # noqa: PLC0415  heavy

        return perfetto_text(schedule)
    if name == "svg":
        from cosmic.reporting.schedules import schedule_svg  # noqa: PLC0415  heavy

        return schedule_svg(schedule)
    from cosmic.schedules.tables import csv_text  # noqa: PLC0415  heavy

    return csv_text(schedule)


def _write_traces(schedule: Schedule, prefix: str) -> str:
    from pathlib import Path  # noqa: PLC0415  heavy

    from cosmic.schedules.chakra import traces_of  # noqa: PLC0415  heavy
    from cosmic.traces.writing import write_traces  # noqa: PLC0415  heavy

    traces = traces_of(schedule)
    make_folder(Path(prefix).parent, "--out")
    write_traces(traces, prefix, "--out")
    return f"{prefix}.<rank>.et"


def time(seconds: float) -> str:
    """Return a time for a person to read.

    >>> time(0.00750150), time(0.0)
    ('7.502 ms', '0 s')
    """
    for unit, worth in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= worth:
            return f"{seconds / worth:.4g} {unit}"
    return "0 s"


def bytes_in_words(size: float) -> str:
    """Return a size for a person to read.

    >>> bytes_in_words(2.0**30), bytes_in_words(1e9), bytes_in_words(1073741820.0)
    ('1 GiB', '1 GB', '1,073,741,820 bytes')
    """
    from cosmic.units import BYTES, show  # noqa: PLC0415  heavy

    text = show(size, BYTES)
    return text if len(text) <= 10 else f"{size:,.10g} bytes"
