"""Where jobs go: pure functions over the free accelerators of a cluster, as sorted ranges that do not touch.

A job that fits into a node, or into another group below the outermost dimension, lies inside one. A larger one has
whole nodes: contiguous ones, or with `scattered` any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from cosmic.fleets.jobs import Placement
from cosmic.fleets.tiers import Range, Tier

Ranges = tuple[Range, ...]


def taken(free: Ranges, wanted: Sequence[Range]) -> Ranges:
    """Return what is free without *wanted*, all of which or parts of which may be taken already.

    >>> taken(((0, 16), (32, 64)), [(8, 16), (40, 48)])
    ((0, 8), (32, 40), (48, 64))
    """
    for first, end in wanted:
        found: list[Range] = []
        for low, high in free:
            found += [part for part in ((low, min(high, first)), (max(low, end), high)) if part[0] < part[1]]
        free = tuple(found)
    return free


def given_back(free: Ranges, ranges: Sequence[Range]) -> Ranges:
    """Return what is free after *ranges* were given back.

    >>> given_back(((0, 8), (16, 24)), [(8, 16), (32, 40)])
    ((0, 24), (32, 40))
    """
    return joined([*free, *ranges])


def joined(ranges: Sequence[Range]) -> Ranges:
    """Return *ranges* sorted, with neighbours joined."""
    found: list[Range] = []
    for first, end in sorted(ranges):
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return tuple(found)


def place(free: Ranges, npus: int, tier: Tier, placement: Placement) -> Ranges | None:
    """Return the accelerators for a job that holds *npus* of them; None where there is no place now.

    *packed* takes the fewest leaves, then the tightest gap; *first_fit* the first gap; *scattered* deals groups over
    the leaves in turn, whether they are contiguous or not.

    >>> tier = Tier(npus=64, blocks=(8,), leaf=32, bandwidth_bytes_per_s=1.0)
    >>> free = ((8, 40), (48, 64))
    >>> [place(free, 16, tier, how) for how in ("packed", "first_fit", "scattered")]
    [((48, 64),), ((8, 24),), ((8, 16), (32, 40))]
    """
    if placement == "scattered" and npus > tier.group:
        return _dealt(free, npus, tier)
    windows = [start for run in free if run[1] - run[0] >= npus for start in _windows(run, npus, tier)]
    if not windows:
        return None
    if placement != "packed":
        first = min(start for start, _ in windows)
    else:
        first = min(windows, key=lambda window: (_leaves(window[0], npus, tier.leaf), window[1], window[0]))[0]
    return ((first, first + npus),)


def _leaves(start: int, npus: int, leaf: int) -> int:
    return (start + npus - 1) // leaf - start // leaf + 1


def _windows(run: Range, npus: int, tier: Tier) -> Iterator[tuple[int, int]]:
    """Yield where in a free run a job may begin, each with the size of the gap that it would be cut out of.

    Of the blocks of a run, the first, the first whole one and the last are enough: whole ones are all alike.
    """
    block = next((size for size in tier.blocks if size >= npus), 0)
    unit = max((size for size in tier.blocks if size <= npus), default=npus if block else 1)
    edges = block or tier.leaf
    for low, high in _pieces(run, edges):
        start = -(-low // unit) * unit
        if start + npus <= high:
            yield start, high - low
    if not block:  # it may span leaves
        low, high = run
        last = high // edges * edges
        for start in (low, -(-low // edges) * edges, last - npus, high - npus):
            aligned = -(-max(start, low) // unit) * unit
            if aligned + npus <= high:
                yield aligned, high - low


def _pieces(run: Range, size: int) -> list[Range]:
    """Return the first, the first whole and the last part of a run that is cut at multiples of *size*.

    >>> _pieces((4, 30), 8), _pieces((4, 7), 8)
    ([(4, 8), (8, 16), (24, 30)], [(4, 7)])
    """
    low, high = run
    first = low // size * size
    parts = {first, -(-low // size) * size, (high - 1) // size * size}
    found = [(max(low, part), min(high, part + size)) for part in sorted(parts)]
    return [part for part in found if part[0] < part[1]]


def _dealt(free: Ranges, npus: int, tier: Tier) -> Ranges | None:
    """Return groups of accelerators, one of each leaf in turn; None where fewer are free."""
    unit = tier.group
    by_leaf: dict[int, list[int]] = {}
    for low, high in free:
        for start in range(-(-low // unit) * unit, high - unit + 1, unit):
            by_leaf.setdefault(start // tier.leaf, []).append(start)
    wanted = -(-npus // unit)
    if sum(map(len, by_leaf.values())) < wanted:
        return None
    rounds = zip_longest(*(by_leaf[leaf] for leaf in sorted(by_leaf)))
    starts = [start for turn in rounds for start in turn if start is not None][:wanted]
    return joined([(start, start + unit) for start in starts])
