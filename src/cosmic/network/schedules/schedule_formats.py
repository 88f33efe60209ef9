"""Read a schedule of any known format, and write it for Perfetto.

Formats that are read: our CSV, TACOS' two, and MSCCL-XML.

`schedule_timeline_text` has a track for each link, grouped by the node that sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.files import read_text
from cosmic.base.timelines import TimelineRows, TimelineSpan, Track, perfetto_text
from cosmic.network.link_graph import LinkGraph
from cosmic.network.schedules.collective_schedule import Kind, Schedule, check_groups
from cosmic.network.schedules.msccl_xml import is_msccl, parse_msccl, time_steps
from cosmic.network.schedules.schedule_replay import replay_schedule
from cosmic.network.schedules.schedule_tables import (
    StatedCollective,
    is_table,
    is_v1,
    link_finder,
    parse_table,
    parse_v1,
)

# ---- A schedule as a timeline: a track for each link, grouped by the node that sends


def schedule_timeline_text(schedule: Schedule) -> str:
    """Return the timeline of a schedule as Perfetto reads it."""
    graph, used = schedule.graph, np.unique(schedule.link).tolist()
    nodes = graph.sources.tolist()
    places = {link: place for place, link in enumerate(used)}
    columns = (schedule.link, schedule.chunk, schedule.start_s, schedule.end_s)
    rows = TimelineRows(
        about={"collective": schedule.kind, "size_bytes": schedule.size_bytes, "time_s": schedule.time_s},
        unit="ns",
        processes={
            node: f"{'NPU' if node < graph.npus else 'switch'} {graph.name(node)}"
            for node in sorted({nodes[link] for link in used})
        },
        tracks=[Track(nodes[link], graph.describe(link), link + 1) for link in used],
        spans=(
            TimelineSpan(places[link], f"chunk {chunk}", "transfer", start * 1e6, (end - start) * 1e6)
            for link, chunk, start, end in zip(*(column.tolist() for column in columns), strict=True)
        ),
    )
    return perfetto_text(rows)


# ---- Read a schedule of any known format: our CSV, TACOS' two, and MSCCL-XML

FORMATS = "our CSV (source,target,chunk,start_s,end_s,operation), TACOS' log (src,dst,chunk,arrival_us), TACOS 1.1 or MSCCL-XML"


@dataclass(frozen=True)
class ScheduleOptions:
    """What a user says about a schedule; None where its file or a default says it."""

    graph: LinkGraph | None = None
    kind: Kind | None = None
    size_bytes: float = 2.0**30
    chunks_per_npu: int | None = None
    groups: tuple[tuple[int, ...], ...] | None = None
    root: int = 0

    def network(self, where: str) -> LinkGraph:
        """Return the network, which most formats leave to the user to say."""
        if self.graph is None:
            raise SpecError("--network", "", f"say on which network {where} runs")
        return self.graph

    def members(self, graph: LinkGraph) -> tuple[tuple[int, ...], ...]:
        """Return the stated groups, or one of all NPUs."""
        groups = self.groups if self.groups is not None else (tuple(range(graph.npus)),)
        check_groups(graph, groups, self.root)
        return groups


def read_schedule(path: str | Path, options: ScheduleOptions) -> Schedule:
    """Return the schedule in the file at *path*; one without times gets those of its dependencies on the network."""
    name, text = Path(path).name, read_text(path, "schedule")
    require(bool(text.strip()), "schedule", str(path), "is empty")
    require(options.size_bytes > 0, "size", options.size_bytes, "must be positive")
    if is_msccl(text):
        return _read_msccl(text, options, name)
    if is_v1(text):
        return _read_v1(text, options, name)
    require(is_table(text), name, text.partition("\n")[0], f"is no schedule that is known: {FORMATS}")
    graph = options.network(name)
    groups = options.members(graph)
    about = StatedCollective(
        graph, options.kind or "all_gather", options.size_bytes, options.chunks_per_npu, groups, options.root
    )
    return parse_table(text, about, name)


def _read_msccl(text: str, options: ScheduleOptions, name: str) -> Schedule:
    program = parse_msccl(text, name)
    rule = f"the file is of an {program.kind.replace('_', '-')}"
    require(options.kind in (None, program.kind), "--collective", options.kind, rule)
    rule = f"the file has {program.chunks_per_npu} chunks for each NPU"
    require(options.chunks_per_npu in (None, program.chunks_per_npu), "--chunks", options.chunks_per_npu, rule)
    graph = options.network(name)
    groups = options.members(graph) if options.groups is not None else (None,)
    require(len(groups) == 1, "--group", len(groups), "MSCCL-XML describes one group")
    return time_steps(program, graph, options.size_bytes, groups[0])


def _read_v1(text: str, options: ScheduleOptions, name: str) -> Schedule:
    """Return the schedule of TACOS 1.1: an all-gather whose links send in the stated order, as early as they can."""
    orders = parse_v1(text, name)
    require(options.kind in (None, "all_gather"), "--collective", options.kind, "the file is of an all-gather")
    graph, npus = orders.graph, orders.graph.npus
    rule = f"must be a multiple of the {npus} NPUs"
    require(orders.chunks >= 1 and orders.chunks % npus == 0, f"{name}: chunks count", orders.chunks, rule)
    links = list(range(graph.links))
    if options.graph is not None:
        links = _same_links(graph, options.graph, name)
        graph = options.graph
    rows = [
        (links[link_index], chunk, turn)
        for link_index, order in enumerate(orders.orders)
        for turn, chunk in enumerate(order)
    ]
    link, chunk, turn = (np.array([row[column] for row in rows], np.int64) for column in range(3))
    for wrong in chunk[chunk >= orders.chunks][:1]:
        require(False, name, int(wrong), f"is no chunk: there are {orders.chunks}, from 0")
    size, k, start = orders.chunk_bytes * orders.chunks, orders.chunks // npus, turn.astype(np.float64)
    require(size > 0, f"{name}: chunk size", orders.chunk_bytes, "must be positive")
    everyone = (tuple(range(npus)),)
    return replay_schedule(Schedule(graph, "all_gather", size, k, everyone, link, chunk, start, start + 1.0))


def _same_links(own: LinkGraph, graph: LinkGraph, name: str) -> list[int]:
    """Return the links of the stated network that the links of the file are."""
    require(own.npus == graph.npus, "--network", f"{graph.npus} NPUs", f"{name} has {own.npus}")
    finder = link_finder(graph)
    links: list[int] = []
    for link in range(own.links):
        pair = (int(own.sources[link]), int(own.targets[link]))
        require(pair in finder, f"{name}: {own.describe(link)}", "", "is no link of the stated network")
        links.append(finder[pair][0])
    return links
