"""Schedules made to measure: for any network, kind, size and groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.schedule import Kind, Schedule, chunk_count
from cosmic.synthesis.engine import Transfers
from cosmic.synthesis.members import check_chunks, checked_groups
from cosmic.synthesis.orbits import OrbitSchedule
from cosmic.synthesis.searching import Found, Progress, Search, Work
from cosmic.synthesis.spreading import Spread
from cosmic.synthesis.symmetry import symmetry_of

WRITTEN_OUT = 2_000_000
"""Schedules of at most as many transfers are written out at once, symmetric or not."""
TURNED: dict[Kind, Kind] = {"reduce_scatter": "all_gather", "reduce": "broadcast"}
"""Collectives that are others with links and time turned round."""


def synthesize(  # noqa: PLR0913  what a collective is, by name
    graph: LinkGraph,
    kind: Kind,
    size_bytes: float,
    *,
    chunks: int | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    root: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Schedule:
    """Return a schedule of a collective of *size_bytes* per NPU that comes near its bound.

    Transfers hold their links alone, nodes send what has arrived in whole, and every chunk gets where it must. With
    *chunks* None, the number of chunks is chosen. Equal inputs and *seed* give equal schedules. *progress* is called
    with the share that is done.

    >>> from cosmic.graphs.graph import graph_of
    >>> ring = graph_of(4, [(i, (i + j) % 4, 1e9, 0.0) for i in range(4) for j in (1, 3)])
    >>> synthesize(ring, "all_gather", 4e9).time_s
    1.5
    """
    check_chunks(chunks)
    members = checked_groups(graph, kind, size_bytes, groups, root)
    work = Work(progress or (lambda _: None))
    if kind == "all_reduce":
        found = _all_reduce(Spread(graph, "all_gather", size_bytes, members, root), chunks, seed, work)
    elif kind in TURNED:
        spread = Spread(graph.transposed(), TURNED[kind], size_bytes, members, root)
        found = _turned(Search(spread, seed, work).best(chunks))
    else:
        found = Search(Spread(graph, kind, size_bytes, members, root), seed, work).best(chunks)
    work.finish()
    transfers = found.transfers
    if not found.orbit:
        return Schedule(
            graph,
            kind,
            size_bytes,
            found.chunks_per_npu,
            members,
            transfers.link,
            transfers.chunk,
            transfers.start_s,
            transfers.end_s,
            root,
        )
    return _written_out(graph, kind, size_bytes, found)


def _written_out(graph: LinkGraph, kind: Kind, size_bytes: float, found: Found) -> Schedule:
    """Return a schedule of the orbit that was found, with its transfers one by one if they are few enough."""
    symmetry = symmetry_of(graph)
    assert symmetry is not None  # noqa: S101  an orbit was found with it
    whole = OrbitSchedule(graph, kind, size_bytes, found.chunks_per_npu, found.transfers, symmetry)
    if whole.transfers > WRITTEN_OUT:
        return whole
    columns = whole.link, whole.chunk, whole.start_s, whole.end_s
    return Schedule(graph, kind, size_bytes, found.chunks_per_npu, whole.groups, *columns)


def _turned(found: Found) -> Found:
    """Return what was found with time turned round."""
    transfers, time_s = found.transfers, found.transfers.time_s
    start_s, end_s = time_s - transfers.end_s, time_s - transfers.start_s
    order = np.argsort(start_s, kind="stable")
    turned = Transfers(transfers.link[order], transfers.chunk[order], start_s[order], end_s[order])
    return Found(turned, found.chunks_per_npu, found.orbit)


def _all_reduce(gather: Spread, chunks: int | None, seed: int, work: Work) -> Found:
    """Return a reduce-scatter and the all-gather after it; or sums in switches where that is faster."""
    scatter = Spread(gather.graph.transposed(), "all_gather", gather.size_bytes, gather.groups, gather.root)
    scatters, gathers = Search(scatter, seed, work), Search(gather, seed, work)
    left, right = scatters.best(chunks), gathers.best(chunks)
    pairs = [(left, right)]
    if left.chunks_per_npu != right.chunks_per_npu:
        pairs = [(scatters.best(right.chunks_per_npu), right), (left, gathers.best(left.chunks_per_npu))]
    choices = [_in_turn(_turned(back), forth) for back, forth in pairs]
    if gather.graph.reducing:
        choices += _sums_in_switches(gather, scatter, chunks, seed, work)
    return min(choices, key=lambda found: found.transfers.time_s)


def _in_turn(first: Found, then: Found, *, after: bool = True) -> Found:
    """Return two findings as one: the second when the first has ended, or at its own times."""
    offset = first.transfers.time_s if after else 0.0
    left, right = first.transfers, then.transfers
    start_s = np.concatenate([left.start_s, right.start_s + offset])
    end_s = np.concatenate([left.end_s, right.end_s + offset])
    link, chunk = np.concatenate([left.link, right.link]), np.concatenate([left.chunk, right.chunk])
    order = np.argsort(start_s, kind="stable")
    return Found(Transfers(link[order], chunk[order], start_s[order], end_s[order]), first.chunks_per_npu, first.orbit)


def _sums_in_switches(gather: Spread, scatter: Spread, chunks: int | None, seed: int, work: Work) -> list[Found]:
    """Return all-reduces whose sums are complete in switches that add up, and spread from there at once."""
    hubs = tuple(sorted(gather.graph.reducing))
    back = Search(scatter.at(hubs), seed, work)
    if not back.feasible():
        return []
    first = back.best(chunks)
    choices = []
    for per_npu in {first.chunks_per_npu, 4 * first.chunks_per_npu} if chunks is None else {chunks}:
        sums = _turned(first if per_npu == first.chunks_per_npu else back.best(per_npu))
        total = sum(chunk_count("all_gather", len(group), per_npu) for group in gather.groups)
        ready_s = np.zeros(total)
        np.maximum.at(ready_s, sums.transfers.chunk, sums.transfers.end_s)
        spread = Search(gather.at(hubs), seed, work).best(per_npu, ready_s)
        apart = not np.isin(spread.transfers.link, sums.transfers.link).any()
        if apart:
            choices.append(_in_turn(sums, spread, after=False))
    return choices
