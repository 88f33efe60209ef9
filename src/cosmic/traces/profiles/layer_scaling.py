"""A recorded step with more or fewer layers: blocks of nodes that repeat are repeated more or less often.

Layers show as runs of one sequence of kernels, one run forward and one backward. A block of a run is its kernels on the
main stream, what the host did between their launches, and whatever it launched meanwhile. Copies follow each other as
blocks did: what waited for the block before waits for the copy before. What grows with the weights of layers outside of
their blocks is scaled: the optimizer, and collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.traces.recorded_statistics import coarse_node_classes
from cosmic.traces.trace import ABSENT, COLUMNS, COMMUNICATION_TYPES, Ints, RankTrace, Template

FEWEST = 3
"""Repeats that make a run."""
LONGEST = 2_000
"""Kernels of a block at most."""
LEAST_COVERED = 0.4
"""Of the time of kernels: blocks that cover less are no layers."""
MOST_KERNELS = 60_000
"""Kernels of the main stream that are searched for runs."""
MOST_NODES = 2_000_000
"""Of a rank with other layers."""


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Equal blocks of kernels that follow each other, as indices into the sequence of a stream's kernels."""

    start: int
    period: int
    repeats: int

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.start + self.period * self.repeats


def find_layer_runs(codes: Ints) -> list[LayerRun]:
    """Return the runs in a sequence of kernels: the longest, then the longest in what is left.

    >>> find_layer_runs(np.array([9, 1, 2, 1, 2, 1, 2, 8, 3, 3, 3, 3]))
    [LayerRun(start=1, period=2, repeats=3), LayerRun(start=8, period=1, repeats=4)]
    """
    runs: list[LayerRun] = []
    parts = [(0, len(codes))]
    while parts:
        first, last = parts.pop()
        # The run that covers most; of those the one of the shortest block
        kernels_between = codes[first:last]
        best: LayerRun | None = None
        for period in range(1, min(LONGEST, len(kernels_between) // FEWEST) + 1):
            same = np.concatenate([[False], kernels_between[:-period] == kernels_between[period:], [False]])
            edges = np.flatnonzero(same[1:] != same[:-1])
            starts, ends = edges[::2], edges[1::2]
            if not len(starts):
                continue
            longest = int(np.argmax(ends - starts))
            repeats = (int(ends[longest] - starts[longest]) + period) // period
            if repeats >= FEWEST and (best is None or period * repeats > best.period * best.repeats):
                best = LayerRun(int(starts[longest]), period, repeats)
        if best is not None:
            runs.append(replace(best, start=best.start + first))
            parts += [(first, first + best.start), (first + best.start + best.period * best.repeats, last)]
    return sorted(runs, key=lambda run: run.start)


def scale_layers(rank: RankTrace, factor: float, where: str = "trace") -> tuple[RankTrace, str]:
    """Return the trace of a rank with *factor* times as many layers, and what was found; a replay gives its times."""
    template = rank.template
    kernels = _main_stream(template)
    # A number for each kernel, equal for equal names and works
    numbers: dict[tuple[str, int], int] = {}
    codes = np.array(
        [
            numbers.setdefault((template.names[row], int(template.kernel[row])), len(numbers))
            for row in kernels.tolist()
        ],
        np.int64,
    )
    runs = find_layer_runs(codes) if len(codes) <= MOST_KERNELS else []
    layers = _layers(runs)
    if not layers:
        raise SpecError("scale_layers", factor, f"{where} has no blocks of kernels that repeat {FEWEST} times or more")
    count = layers[0].repeats
    wanted = round(count * factor)
    if wanted < 1:
        raise SpecError("scale_layers", factor, f"{where} has {count} blocks that repeat: at least one must be left")
    repeated = sum(int(_block(template, kernels, run, 0, 1).sum()) for run in layers)
    rule = f"{where} would have more than the {MOST_NODES:,} nodes that a projection may have"
    require(template.nodes + (wanted - count) * repeated <= MOST_NODES, "scale_layers", factor, rule)
    # Layers' share of the step's operations: about their share of the weights
    work = np.maximum(template.num_ops[kernels], 0).astype(np.float64)
    layer_work = sum(float(work[run.start : run.stop].sum()) for run in layers)
    share = layer_work / float(work.sum()) if work.sum() else 1.0
    time = template.duration_ns[kernels]
    covered = sum(int(time[run.start : run.stop].sum()) for run in layers) / max(1, int(time.sum()))
    if covered < LEAST_COVERED:
        rule = f"blocks of kernels that repeat are only {100 * covered:.0f} % of {where}: its layers are not alike"
        raise SpecError("scale_layers", factor, rule)
    inside = np.zeros(template.nodes, bool)
    for run in layers:
        inside |= _block(template, kernels, run, 0, run.repeats)
    # The optimizer and collectives outside of layers work on all weights.
    scale = 1 + share * (wanted / count - 1)
    classes = np.array(coarse_node_classes(template), dtype=object)
    rows = (~inside) & ((classes == "optimizer") | (classes == "collectives"))
    columns: dict[str, Any] = {}
    for name in ("duration_ns", "duration_us", "comm_size", "tensor_size", "num_ops"):
        column: Ints = getattr(template, name)
        columns[name] = np.where(rows & (column != ABSENT), np.rint(column * scale), column).astype(np.int64)
    template = replace(template, **columns)
    for run in reversed(layers):  # from the end on, so that places of earlier ones stay
        template, moved = _resized(template, kernels, run, wanted - count)
        kernels = moved[kernels]
    blocks = " and ".join(f"{run.period:,}" for run in layers)
    note = f"{count} blocks of {blocks} kernels repeat, {100 * covered:.0f} % of kernel time: now there are {wanted}"
    return replace(rank, template=template), note


def _main_stream(template: Template) -> Ints:
    """Return the rows of the kernels of the stream that computes most, in their order."""
    computes = (template.on_cpu == 0) & ~np.isin(template.type, COMMUNICATION_TYPES)
    streams = np.unique(template.stream[computes])
    if not len(streams):
        return np.empty(0, np.int64)
    busy = [int(template.duration_ns[computes & (template.stream == stream)].sum()) for stream in streams]
    rows = np.flatnonzero(computes & (template.stream == streams[int(np.argmax(busy))]))
    return rows[np.argsort(template.start_ns[rows], kind="stable")]


def _layers(runs: Sequence[LayerRun]) -> list[LayerRun]:
    """Return the runs of layers: the one that covers most, and all others of as many repeats."""
    if not runs:
        return []
    longest = max(runs, key=lambda run: (run.stop - run.start, -run.period))
    return [run for run in runs if run.repeats == longest.repeats]


def _resized(template: Template, kernels: Ints, run: LayerRun, more: int) -> tuple[Template, Ints]:
    """Return a template with *more* blocks of a run, or fewer, and where its rows are now; -1 if they are gone."""
    if more == 0:
        return template, np.arange(template.nodes)
    if more > 0:
        middle = run.repeats // 2
        rows = _block(template, kernels, run, middle, middle + 1)
        return _with_copies(template, rows, more)
    first = (run.repeats + more) // 2 + (run.repeats + more) % 2
    return _without_rows(template, _block(template, kernels, run, first, first - more))


def _block(template: Template, kernels: Ints, run: LayerRun, first: int, last: int) -> npt.NDArray[np.bool_]:
    """Return which rows belong to the blocks from *first* to before *last* of a run."""
    own = kernels[run.start + run.period * first : run.start + run.period * last]
    before = kernels[run.start + run.period * first - 1] if run.start + run.period * first else None
    inside = np.zeros(template.nodes, bool)
    inside[own] = True
    # The row of the call that launched each kernel: the last node of the host that it waits for; -1 if none
    launches = np.full(template.nodes, -1, np.int64)
    dependents = np.repeat(np.arange(template.nodes), np.diff(template.data_start))
    rows = np.searchsorted(template.id, template.data_id)
    from_host = (template.on_cpu[rows] > 0) & (template.on_cpu[dependents] == 0)
    np.maximum.at(launches, dependents[from_host], rows[from_host])
    begins = launches[before] if before is not None else -1
    ends = launches[own[-1]]
    if ends < 0:  # of a CUDA graph, or without a host
        return inside
    thread = template.stream[ends]
    host = (template.on_cpu > 0) & (template.stream == thread)
    order = np.arange(template.nodes)
    after = -1 if before is None else ends - 1
    if begins >= 0 and template.stream[begins] == thread:
        after = begins
    inside |= host & (order > after) & (order <= ends)
    launched = launches >= 0
    inside |= (template.on_cpu == 0) & launched & inside[np.where(launched, launches, 0)]
    return inside


def _lanes(template: Template) -> list[tuple[int, int]]:
    """Return the thread or stream of each node."""
    return list(zip((template.on_cpu > 0).astype(int).tolist(), template.stream.tolist(), strict=True))


def _with_copies(template: Template, inside: npt.NDArray[np.bool_], copies: int) -> tuple[Template, Ints]:
    """Return a template in which the rows *inside* come *copies* more times, one after the other."""
    lanes = _lanes(template)
    rows = np.flatnonzero(inside).tolist()
    last_of = {lanes[row]: row for row in rows}
    nodes, size = template.nodes, len(rows)
    position = {row: index for index, row in enumerate(rows)}

    def copy(row: int, number: int) -> int:
        return row if number == 0 else nodes + (number - 1) * size + position[row]

    waits: list[list[int]] = []
    for row, waits_of_row in enumerate(_waits(template)):
        waits.append([copy(wait, copies) if inside[wait] and not inside[row] else wait for wait in waits_of_row])

    def waited(wait: int, number: int) -> int:
        if inside[wait]:
            return copy(wait, number)
        return copy(last_of[lanes[wait]], number - 1) if lanes[wait] in last_of else wait

    for number in range(1, copies + 1):
        waits += [[waited(wait, number) for wait in _wait_list(template, row)] for row in rows]
    picked = np.concatenate([np.arange(nodes), *[np.array(rows, np.int64)] * copies])
    keys = [(row, 0, 0) for row in range(nodes)]
    keys += [(rows[-1], number, row) for number in range(1, copies + 1) for row in rows]
    grown, order = _rebuilt(template, picked, waits, keys)
    moved = np.empty(len(order), np.int64)
    moved[order] = np.arange(len(order))
    return grown, moved[:nodes]


def _without_rows(template: Template, inside: npt.NDArray[np.bool_]) -> tuple[Template, Ints]:
    """Return a template without the rows *inside*; who waited for them waits for what came before them."""
    lanes = _lanes(template)
    before: dict[tuple[int, int], int] = {}
    instead = np.arange(template.nodes)
    for row in range(template.nodes):
        if inside[row]:
            instead[row] = before.get(lanes[row], -1)
        else:
            before[lanes[row]] = row
    remaining = np.flatnonzero(~inside)
    number = np.full(template.nodes + 1, -1, np.int64)
    number[remaining] = np.arange(len(remaining))
    all_waits = _waits(template)
    waits = [
        sorted({int(number[instead[wait]]) for wait in all_waits[row] if instead[wait] >= 0} - {-1})
        for row in remaining.tolist()
    ]
    shortened, order = _rebuilt(template, remaining, waits, [(row, 0, 0) for row in range(len(remaining))])
    moved = np.full(template.nodes, -1, np.int64)
    moved[remaining[order]] = np.arange(len(order))
    return shortened, moved


def _waits(template: Template) -> list[list[int]]:
    rows = np.searchsorted(template.id, template.data_id).tolist()
    starts = template.data_start.tolist()
    return [rows[first:last] for first, last in pairwise(starts)]


def _wait_list(template: Template, row: int) -> list[int]:
    ids = template.data_id[template.data_start[row] : template.data_start[row + 1]]
    rows: list[int] = np.searchsorted(template.id, ids).tolist()
    return rows


def _rebuilt(
    template: Template, picked: Ints, waits: Sequence[Sequence[int]], keys: Sequence[tuple[int, int, int]]
) -> tuple[Template, Ints]:
    """Return a template of the rows *picked*, in the order of *keys* as far as dependencies allow, and that order."""
    order = _topological(waits, keys)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    rows = picked[order]
    columns: dict[str, Ints] = {name: getattr(template, name)[rows] for name in COLUMNS}
    columns["id"] = np.arange(len(rows))
    lists = [sorted({int(number[wait]) for wait in waits[node]}) for node in order.tolist()]
    columns["data_start"] = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    columns["data_id"] = np.array([wait for waits_of_row in lists for wait in waits_of_row], np.int64)
    columns["ctrl_start"] = np.zeros(len(rows) + 1, np.int64)
    columns["ctrl_id"] = np.empty(0, np.int64)
    names = [template.names[row] for row in rows.tolist()]
    return Template(**columns, names=names, kernels=template.kernels, process_groups={}), order


def _topological(waits: Sequence[Sequence[int]], keys: Sequence[tuple[int, int, int]]) -> Ints:
    """Return the nodes by *keys*, but each after those that it waits for."""
    waiting = [len(set(waits_of_node)) for waits_of_node in waits]
    after: list[list[int]] = [[] for _ in waits]
    for node, waits_of_node in enumerate(waits):
        for wait in set(waits_of_node):
            after[wait].append(node)
    ready = [(keys[node], node) for node, count in enumerate(waiting) if not count]
    heapify(ready)
    order = []
    while ready:
        _, node = heappop(ready)
        order.append(node)
        for freed in after[node]:
            waiting[freed] -= 1
            if not waiting[freed]:
                heappush(ready, (keys[freed], freed))
    return np.array(order, np.int64)
