"""Schedules as tables: our CSV, TACOS' log of transfers, and the CSV of its version 1.1.

    ours           source,target,chunk,start_s,end_s,operation; the operation is copy, or reduce where the receiver adds
                   what comes to what it has; a table without it leaves that to be inferred
    TACOS' log     src,dst,chunk,arrival_us; a transfer begins as long before its arrival as its link takes, and chunks
                   have whole bytes
    version 1.1    four lines of counts, then a line a link with its chunks in the order of sending, and no times

Nodes are numbers, switches after the accelerators, or names of the network's file.

Several links may join the same two nodes: `link_finder` says which one a transfer takes.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.files import csv_text
from cosmic.network.link_graph import Floats, Ints, LinkGraph, graph_of
from cosmic.network.network_files.named_nodes import check_size, node_of, read_number, read_whole_number
from cosmic.network.schedules.collective_schedule import Kind, Schedule, chunk_bytes, chunks_of
from cosmic.network.schedules.schedule_checking import reducing_transfers
from cosmic.network.schedules.schedule_transfers import Bools

# ---- Which link a transfer between two nodes takes; several may join the same two


def link_finder(graph: LinkGraph) -> dict[tuple[int, int], list[int]]:
    """Return the links between each two nodes, the fastest first."""
    links_between: dict[tuple[int, int], list[int]] = defaultdict(list)
    order = np.lexsort((graph.latency_s, -graph.bandwidth_bytes_per_s))
    for link in order.tolist():
        links_between[int(graph.sources[link]), int(graph.targets[link])].append(link)
    return dict(links_between)


def links_of_times(
    graph: LinkGraph, ends: tuple[Ints, Ints], sizes: Floats, times: Sequence[Floats], where: str
) -> Ints:
    """Return the link of each transfer; of parallel ones the first that is free then and takes as long.

    *times* are starts and ends in seconds, or arrivals alone, for which the fastest link is taken.
    """
    key = graph.sources * graph.nodes + graph.targets
    order = np.lexsort((graph.latency_s, -graph.bandwidth_bytes_per_s, key))
    keys, wanted = key[order], ends[0] * graph.nodes + ends[1]
    first = np.searchsorted(keys, wanted)
    count = np.searchsorted(keys, wanted, "right") - first
    for row in np.flatnonzero(count == 0)[:1].tolist():
        names = "→".join(graph.name(int(end[row])) for end in ends)
        require(False, f"{where}: transfer {row}", names, "no link of this network joins them")
    links: Ints = order[first]
    parallel = np.flatnonzero(count > 1) if len(times) == 2 else np.zeros(0, np.int64)
    free: dict[int, float] = defaultdict(float)
    for row in sorted(parallel.tolist(), key=lambda row: (float(times[0][row]), row)):
        start, end = float(times[0][row]), float(times[1][row])
        close = 1e-9 * abs(end) + 1e-12
        options = order[first[row] : first[row] + count[row]].tolist()
        takes = {link: graph.latency_s[link] + sizes[row] / graph.bandwidth_bytes_per_s[link] for link in options}
        # A table names nodes, not links: of parallel ones, the first that is idle and fast enough for the stated times.
        long = [link for link in options if takes[link] <= end - start + close]
        idle = [link for link in long if free[link] <= start + close]
        links[row] = (idle or long or options)[0]
        free[int(links[row])] = end
    return links


HEADER = ("source", "target", "chunk", "start_s", "end_s")
OPERATION = "operation"
COPY, REDUCE = "copy", "reduce"
LOG_HEADER = ("src", "dst", "chunk", "arrival_us")
V1_HEADER = ("srcid", "destid", "latency (ns)", "bandwidth (gb/s)")
V1_LINES = ("npus count", "links count", "chunks count", "chunk size")


@dataclass(frozen=True)
class StatedCollective:
    """What a schedule is of, which tables do not say."""

    graph: LinkGraph
    kind: Kind
    size_bytes: float
    chunks_per_npu: int | None
    """None: as many as the numbers of chunks say."""
    groups: tuple[tuple[int, ...], ...]
    root: int = 0

    def chunks(self, largest: int) -> int:
        """Return the chunks of an NPU, where the largest number of a chunk is *largest*."""
        if self.chunks_per_npu is not None:
            return self.chunks_per_npu
        per_k = sum(
            {"all_to_all": len(g) ** 2, "broadcast": 1, "reduce": 1}.get(self.kind, len(g)) for g in self.groups
        )
        return max(1, -(-(largest + 1) // per_k))


def schedule_csv(schedule: Schedule) -> str:
    """Return a schedule as CSV, with times that read back as they are."""
    graph = schedule.graph
    columns = (
        graph.sources[schedule.link].tolist(),
        graph.targets[schedule.link].tolist(),
        schedule.chunk.tolist(),
        schedule.start_s.tolist(),
        schedule.end_s.tolist(),
        [REDUCE if adds else COPY for adds in reducing_transfers(schedule).tolist()],
    )
    return csv_text((*HEADER, OPERATION), zip(*columns, strict=True))


def is_table(text: str) -> bool:
    """Return whether *text* has the header of our CSV or of TACOS' log."""
    return _read_header(text) in ((*HEADER, OPERATION), HEADER, LOG_HEADER)


def _read_header(text: str) -> tuple[str, ...]:
    first = text.removeprefix("\ufeff").partition("\n")[0]
    return tuple(cell.strip().lower() for cell in first.split(","))


def parse_table(text: str, about: StatedCollective, where: str) -> Schedule:
    """Return the schedule that our CSV or TACOS' log states."""
    head = _read_header(text)
    reduces = None
    if head == (*HEADER, OPERATION):
        head, (text, reduces) = HEADER, _split_operations(text, where)
    rule = f"the header must be {','.join((*HEADER, OPERATION))} or {','.join(LOG_HEADER)}"
    require(head in (HEADER, LOG_HEADER), where, ",".join(head), rule)
    source, target, chunk, times = _load_columns(text, len(head), about.graph.nodes) or _read_columns(
        text, head, about, where
    )
    k = about.chunks(int(chunk.max(initial=0)))
    about = about if head == HEADER else _round_to_bytes(about, k)
    sizes = _transfer_sizes(about, k, chunk, where)
    links = links_of_times(about.graph, (source, target), sizes, times, where)
    graph = about.graph
    end = times[-1] if head == HEADER else times[0] / 1e6
    takes = graph.latency_s[links] + sizes / graph.bandwidth_bytes_per_s[links]
    start = times[0] if head == HEADER else end - takes
    return sort_transfers(
        Schedule(graph, about.kind, about.size_bytes, k, about.groups, links, chunk, start, end, about.root, reduces)
    )


def _split_operations(text: str, where: str) -> tuple[str, Bools]:
    """Return a table without its last column, and which of its transfers reduce."""
    rest: list[str] = []
    operations: list[bool] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        before, _, operation = line.rpartition(",")
        operation = operation.strip().lower()
        rule = f"an operation is {COPY} or {REDUCE}"
        require(not rest or operation in (COPY, REDUCE), f"{where} line {number}", operation, rule)
        rest.append(before)
        operations.append(operation == REDUCE)
    return "\n".join(rest) + "\n", np.array(operations[1:], np.bool_)


def _load_columns(text: str, cells: int, nodes: int) -> tuple[Ints, Ints, Ints, list[Floats]] | None:
    """Return the columns of a table of nothing but numbers; None where they must be read cell by cell."""
    if not text.partition("\n")[2].strip():
        return None
    try:
        table = np.loadtxt(StringIO(text), delimiter=",", skiprows=1, ndmin=2, comments=None)
    except ValueError:
        return None
    if table.shape[1] != cells or not np.isfinite(table).all():
        return None
    numbers = table[:, :3].astype(np.int64)
    if (numbers != table[:, :3]).any() or (numbers < 0).any() or (numbers[:, :2] >= nodes).any():
        return None
    return numbers[:, 0], numbers[:, 1], numbers[:, 2], [table[:, column].copy() for column in range(3, cells)]


def _read_columns(
    text: str, head: tuple[str, ...], about: StatedCollective, where: str
) -> tuple[Ints, Ints, Ints, list[Floats]]:
    """Return the columns of a table, cell by cell: nodes may have names, and a mistake has a line."""
    rows = list(_read_rows(text, len(head), where))
    cells = list(zip(*(row for _, row in rows), strict=True)) if rows else [()] * len(head)
    locations = [f"{where} line {number}" for number, _ in rows]
    source, target = (_read_nodes(about.graph, column, locations) for column in cells[:2])
    chunk = np.array(
        [read_whole_number(cell, location) for cell, location in zip(cells[2], locations, strict=True)], np.int64
    )
    return source, target, chunk, [_read_numbers(column, locations) for column in cells[3:]]


def _round_to_bytes(about: StatedCollective, k: int) -> StatedCollective:
    """Return the collective of a log with TACOS' sizes: it rounds chunks down to whole bytes."""
    chunk_size = chunk_bytes(about.kind, about.size_bytes, len(about.groups[0]), k)
    return replace(
        about, size_bytes=about.size_bytes * (chunk_size // 1 / chunk_size) if chunk_size >= 1 else about.size_bytes
    )


def sort_transfers(schedule: Schedule) -> Schedule:
    """Return the schedule with its transfers in the order of their starts."""
    order = np.lexsort((schedule.link, schedule.chunk, schedule.end_s, schedule.start_s))
    return replace(
        schedule,
        link=schedule.link[order],
        chunk=schedule.chunk[order],
        start_s=schedule.start_s[order],
        end_s=schedule.end_s[order],
        reduces=None if schedule.reduces is None else schedule.reduces[order],
    )


def _read_rows(text: str, cells: int, where: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(StringIO(text.removeprefix("\ufeff")), strict=True)
    try:
        next(reader, None)
        for row in reader:
            if row:
                location = f"{where} line {reader.line_num}"
                require(len(row) == cells, location, ",".join(row), f"has other than {cells} cells")
                yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise SpecError(f"{where} line {reader.line_num}", "", f"is no valid CSV: {error}") from None


def _read_nodes(graph: LinkGraph, names: Iterable[str], locations: Sequence[str]) -> Ints:
    number_of: dict[str, int] = {}
    for name, location in zip(names, locations, strict=True):
        if name not in number_of:
            number_of[name] = node_of(graph, name, location)
    return np.array([number_of[name] for name in names], np.int64)


def _read_numbers(texts: Iterable[str], locations: Sequence[str]) -> Floats:
    return np.array([read_number(text, location) for text, location in zip(texts, locations, strict=True)], np.float64)


def _transfer_sizes(about: StatedCollective, k: int, chunk: Ints, where: str) -> Floats:
    """Return the bytes of each transfer."""
    if len({len(group) for group in about.groups}) == 1:
        size = chunk_bytes(about.kind, about.size_bytes, len(about.groups[0]), k)
        return np.full(len(chunk), size)
    none = np.zeros(0)
    empty = Schedule(
        about.graph, about.kind, about.size_bytes, k, about.groups, none.astype(int), none.astype(int), none, none
    )
    sizes = chunks_of(empty).size_bytes
    for row in np.flatnonzero(chunk >= len(sizes))[:1]:
        require(False, f"{where}: transfer {row}", int(chunk[row]), f"is no chunk: there are {len(sizes):,}, from 0")
    return sizes[chunk]


# ---- version 1.1: order, no times


@dataclass(frozen=True, eq=False)
class LinkOrders:
    """What each link carries in which order, without times."""

    graph: LinkGraph
    chunk_bytes: float
    chunks: int
    orders: tuple[tuple[int, ...], ...]
    """Chunks of each link, in the order of sending."""


def is_v1(text: str) -> bool:
    """Return whether *text* is the CSV of TACOS 1.1."""
    return _read_header(text)[0] == V1_LINES[0]


def parse_v1(text: str, where: str) -> LinkOrders:
    """Return the network and the orders of the CSV of TACOS 1.1: sizes in bytes, bandwidths in GiB/s, named GB/s."""
    lines = [line for line in csv.reader(StringIO(text)) if any(cell.strip() for cell in line)]
    require(len(lines) > len(V1_LINES), where, f"{len(lines)} lines", "is cut: four lines of counts and a header")
    counts: list[float] = []
    for line, name in zip(lines, V1_LINES, strict=False):
        fits = len(line) >= 2 and line[0].strip().lower() == name
        require(fits, where, ",".join(line), f"must state the {name}")
        counts.append(read_number(line[1].strip(), f"{where}: {name}"))
    npus = read_whole_number(str(int(counts[0])), f"{where}: npus", 1)
    check_size(npus, where)
    head = tuple(cell.strip().lower() for cell in lines[4])
    require(head[:4] == V1_HEADER, where, ",".join(lines[4]), f"the header begins with {','.join(V1_HEADER)}")
    links: list[tuple[int, int, float, float]] = []
    orders: list[tuple[int, ...]] = []
    for number, line in enumerate(lines[5:]):
        location = f"{where}: link {number}"
        require(len(line) >= 4, location, ",".join(line), "is cut")
        source, target = (read_whole_number(cell.strip(), location) for cell in line[:2])
        latency, rate = (read_number(cell.strip(), location) for cell in line[2:4])
        links.append((source, target, rate * 2**30, latency / 1e9))
        chunks = [cell.strip() for cell in line[4:] if cell.strip() and cell.strip().lower() != "none"]
        orders.append(tuple(read_whole_number(cell, location) for cell in chunks))
    return LinkOrders(graph_of(npus, links), counts[3], int(counts[2]), tuple(orders))
