"""Collective algorithms as lists of steps.

In each step of a ring or of halving and doubling, every member may send to one other and receive from one; a member's
next step begins when it has received. The same list is simulated message by message, or evaluated at once for all
members where no message delays another (`completion_ns`).

Sizes are ASTRA-sim's: the size of an all-gather is one member's shard, that of other collectives the whole buffer; a
reduction takes the time of the message that is sent next.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cosmic.arithmetic import is_power_of_two
from cosmic.errors import SpecError
from cosmic.traces.trace import CollectiveType, Ints

NO_MEMBER = -1
REDUCING = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER)


class Step(NamedTuple):
    """The sends and receives of one step, by position in the group."""

    to: Ints
    """The position to which each sends, or `NO_MEMBER`."""
    source: Ints
    """The position from which each receives, or `NO_MEMBER`."""
    size: int
    """Bytes of each message."""
    reduces: int
    """Bytes that are reduced once received; 0 if none."""


Runs = tuple[tuple[int, Step], ...]
"""Steps, and how often each is repeated before the next."""


@lru_cache(maxsize=4096)
def steps(algorithm: str, kind: CollectiveType, members: int, size: int, clockwise: bool = True) -> tuple[Step, ...]:
    """Return the steps of a collective of *size* bytes among *members*.

    >>> [(step.to.tolist(), step.size, step.reduces) for step in steps("ring", CollectiveType.REDUCE_SCATTER, 3, 30)]
    [([1, 2, 0], 10, 10), ([1, 2, 0], 10, 10)]
    """
    return tuple(step for times, step in runs(algorithm, kind, members, size, clockwise) for _ in range(times))


def runs(algorithm: str, kind: CollectiveType, members: int, size: int, clockwise: bool = True) -> Runs:
    """Return the steps of a collective, equal ones in a row as one.

    >>> [times for times, _ in runs("ring", CollectiveType.ALL_REDUCE, 8, 80)]
    [7, 7]
    """
    if algorithm == "ring":
        return _ring(kind, members, size, 1 if clockwise else -1)
    if kind == CollectiveType.ALL_TO_ALL:
        raise SpecError("all-to-all-implementation", algorithm, "has no all-to-all")
    return tuple((1, step) for step in _halving_doubling(kind, members, size))


def _ring(kind: CollectiveType, members: int, size: int, way: int) -> Runs:
    """Shards go round the ring; an all-to-all forwards every shard until it arrives."""
    position = np.arange(members)
    to, source = (position + way) % members, (position - way) % members
    part = size if kind == CollectiveType.ALL_GATHER else size // members
    plain, adding = Step(to, source, part, 0), Step(to, source, part, part)
    round_trip = members - 1
    if kind == CollectiveType.ALL_REDUCE:
        return (round_trip, adding), (round_trip, plain)
    if kind == CollectiveType.ALL_TO_ALL:
        return ((members * round_trip // 2, plain),)
    return ((round_trip, adding if kind in REDUCING else plain),)


def _halving_doubling(kind: CollectiveType, members: int, size: int) -> tuple[Step, ...]:
    """Pairs at distance 1, 2, 4 ... exchange halves; the all-gather goes back the same way.

    If the number of members is not a power of two, each of the first few gives its buffer to its neighbour first, and
    gets the result at the end.
    """
    core = 1 << (members.bit_length() - 1)
    if core == members:
        return _core(kind, np.arange(members), members, size)
    extra = members - core
    working = np.array([2 * place + 1 if place < extra else place + extra for place in range(core)])
    first, second = np.arange(0, 2 * extra, 2), np.arange(1, 2 * extra, 2)
    gathers = kind == CollectiveType.ALL_GATHER
    whole = size * members if gathers else size
    into = _handing(members, first, second, size, reduces=kind in REDUCING)
    middle = _core(kind, working, members, -(-whole // core) if gathers else size)
    back = size // members if kind == CollectiveType.REDUCE_SCATTER else whole
    return (into, *middle, _handing(members, second, first, back, reduces=False))


def _handing(members: int, givers: Ints, takers: Ints, size: int, *, reduces: bool) -> Step:
    to, source = np.full(members, NO_MEMBER), np.full(members, NO_MEMBER)
    to[givers], source[takers] = takers, givers
    return Step(to, source, size, size if reduces else 0)


def _core(kind: CollectiveType, working: Ints, members: int, size: int) -> tuple[Step, ...]:
    depth = len(working).bit_length() - 1
    scattering = [_exchange(working, members, 1 << i, size >> (i + 1)) for i in range(depth)]
    if kind == CollectiveType.ALL_GATHER:
        return tuple(_exchange(working, members, len(working) >> (i + 1), size << i) for i in range(depth))
    # A reduction has the size of the next message; after the last there is none.
    reducing = [step._replace(reduces=following.size) for step, following in pairwise(scattering)]
    scatter = (*reducing, scattering[-1])
    return scatter if kind == CollectiveType.REDUCE_SCATTER else (*scatter, *reversed(scattering))


def _exchange(working: Ints, members: int, distance: int, size: int) -> Step:
    """Return a step in which *working* members exchange messages with those at *distance*."""
    partner = np.full(members, NO_MEMBER)
    partner[working] = working[np.arange(len(working)) ^ distance]
    return Step(partner, partner, size, 0)


class Tree(NamedTuple):
    """A binary tree over positions."""

    parent: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=256)
def trees(members: int) -> tuple[Tree, Tree]:
    """Return the two trees of a double binary tree: a leaf of one is an inner node of the other, where possible.

    >>> [tree.parent for tree in trees(4)]
    [(1, 3, 1, -1), (-1, 2, 0, 2)]
    """
    if is_power_of_two(members) and members > 1:
        return _rooted(members, root_last=True), _rooted(members, root_last=False)
    balanced = _balanced(members)
    mirrored = tuple(NO_MEMBER if up == NO_MEMBER else members - 1 - up for up in reversed(balanced))
    return _tree(balanced), _tree(mirrored)


def _rooted(members: int, *, root_last: bool) -> Tree:
    """Return a complete in-order tree below a root that is the last position, or the first."""
    parent = [NO_MEMBER] * members
    shift, root = (0, members - 1) if root_last else (1, 0)
    top = _complete(parent, shift, shift + members - 1)
    parent[top] = root
    return _tree(tuple(parent))


def _complete(parent: list[int], begin: int, end: int) -> int:
    """Make the middle of a range the parent of its positions, and return it."""
    middle = (begin + end) // 2
    for low, high in ((begin, middle), (middle + 1, end)):
        if low < high:
            parent[_complete(parent, low, high)] = middle
    return middle


def _balanced(members: int) -> tuple[int, ...]:
    parent = [NO_MEMBER] * members
    _complete(parent, 0, members)
    return tuple(parent)


def _tree(parent: tuple[int, ...]) -> Tree:
    children: list[list[int]] = [[] for _ in parent]
    for child, up in enumerate(parent):
        if up != NO_MEMBER:
            children[up].append(child)
    return Tree(parent, tuple(map(tuple, children)))


def completion_ns(
    program: tuple[Step, ...], starts: Ints, delays: list[Ints], endpoint_ns: int, reductions: list[int]
) -> Ints:
    """Return when each member ends a collective that it begins at *starts*, if no message delays another.

        g_0 = start + d        g_k+1 = max(g_k, g_k of its source + L_k) + d + R_k        done = g after the last step

    d  endpoint delay    L_k  time of the message of step k to each member (*delays*)    R_k  *reductions*

    A member that neither sends nor receives in a step continues at once.
    """
    ready = starts + endpoint_ns
    for step, delay, reduction in zip(program, delays, reductions, strict=True):
        arrived = np.where(step.source == NO_MEMBER, ready, ready[step.source] + delay)
        after = np.maximum(arrived, ready) + endpoint_ns + np.where(step.source == NO_MEMBER, 0, reduction)
        idle = (step.source == NO_MEMBER) & (step.to == NO_MEMBER)
        ready = np.where(idle, ready, after)
    return ready
