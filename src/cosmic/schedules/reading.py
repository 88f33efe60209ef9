"""Read a schedule of any known format: our CSV, TACOS' two, and MSCCL-XML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cosmic.errors import SpecError, require
from cosmic.files import read_text
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.schedule import Kind, Schedule
from cosmic.schedules.chunks import check_groups
from cosmic.schedules.links import link_finder
from cosmic.schedules.msccl_reading import is_msccl, parse_msccl
from cosmic.schedules.msccl_timing import timed
from cosmic.schedules.playing import played
from cosmic.schedules.tables import Collective, is_table, is_v1, parse_table, parse_v1

FORMATS = "our CSV (source,target,chunk,start_s,end_s), TACOS' log (src,dst,chunk,arrival_us), TACOS 1.1 or MSCCL-XML"


@dataclass(frozen=True)
class Stated:
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
        """Return the groups: those that are stated, or all NPUs."""
        groups = self.groups if self.groups is not None else (tuple(range(graph.npus)),)
        check_groups(graph, groups, self.root)
        return groups


def read_schedule(path: str | Path, stated: Stated) -> Schedule:
    """Return the schedule in the file at *path*; one without times gets those of its dependencies on the network."""
    name, text = Path(path).name, read_text(path, "schedule")
    require(bool(text.strip()), "schedule", str(path), "is empty")
    require(stated.size_bytes > 0, "size", stated.size_bytes, "must be positive")
    if is_msccl(text):
        return _msccl(text, stated, name)
    if is_v1(text):
        return _v1(text, stated, name)
    require(is_table(text), name, text.partition("\n")[0], f"is no schedule that is known: {FORMATS}")
    graph = stated.network(name)
    groups = stated.members(graph)
    about = Collective(
        graph, stated.kind or "all_gather", stated.size_bytes, stated.chunks_per_npu, groups, stated.root
    )
    return parse_table(text, about, name)


def _msccl(text: str, stated: Stated, name: str) -> Schedule:
    program = parse_msccl(text, name)
    rule = f"the file is of an {program.kind.replace('_', '-')}"
    require(stated.kind in (None, program.kind), "--collective", stated.kind, rule)
    rule = f"the file has {program.chunks_per_npu} chunks for each NPU"
    require(stated.chunks_per_npu in (None, program.chunks_per_npu), "--chunks", stated.chunks_per_npu, rule)
    graph = stated.network(name)
    groups = stated.members(graph) if stated.groups is not None else (None,)
    require(len(groups) == 1, "--group", len(groups), "MSCCL-XML describes one group")
    return timed(program, graph, stated.size_bytes, groups[0])


def _v1(text: str, stated: Stated, name: str) -> Schedule:
    """Return the schedule of TACOS 1.1: an all-gather whose links send in the stated order, as early as they can."""
    orders = parse_v1(text, name)
    require(stated.kind in (None, "all_gather"), "--collective", stated.kind, "the file is of an all-gather")
    graph, npus = orders.graph, orders.graph.npus
    rule = f"must be a multiple of the {npus} NPUs"
    require(orders.chunks >= 1 and orders.chunks % npus == 0, f"{name}: chunks count", orders.chunks, rule)
    links = list(range(graph.links))
    if stated.graph is not None:
        links = _same_links(graph, stated.graph, name)
        graph = stated.graph
    rows = [(links[at], chunk, turn) for at, order in enumerate(orders.orders) for turn, chunk in enumerate(order)]
    link, chunk, turn = (np.array([row[column] for row in rows], np.int64) for column in range(3))
    for wrong in chunk[chunk >= orders.chunks][:1]:
        require(False, name, int(wrong), f"is no chunk: there are {orders.chunks}, from 0")
    size, k, start = orders.chunk_bytes * orders.chunks, orders.chunks // npus, turn.astype(np.float64)
    require(size > 0, f"{name}: chunk size", orders.chunk_bytes, "must be positive")
    everyone = (tuple(range(npus)),)
    return played(Schedule(graph, "all_gather", size, k, everyone, link, chunk, start, start + 1.0))


def _same_links(own: LinkGraph, graph: LinkGraph, name: str) -> list[int]:
    """Return the links of the stated network that the links of the file are."""
    require(own.npus == graph.npus, "--network", f"{graph.npus} NPUs", f"{name} has {own.npus}")
    finder = link_finder(graph)
    found: list[int] = []
    for link in range(own.links):
        pair = (int(own.sources[link]), int(own.targets[link]))
        require(pair in finder, f"{name}: {own.describe(link)}", "", "is no link of the stated network")
        found.append(finder[pair][0])
    return found
