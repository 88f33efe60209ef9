"""Double binary tree: two trees, each reducing and broadcasting one half of the data."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.collective_algorithms.direct import DirectAlgorithm
from cosmic.network.collective_rounds import (
    ByRounds,
    Ints,
    Round,
    Rounds,
    all_but_own,
    halving_distance,
    joined_rounds,
    passes_of,
    reversed_rounds,
    tree_depth,
)

NO_PARENT = -1


@algorithms.register("double_binary_tree")
class DoubleBinaryTree(ByRounds):
    """Logarithmic steps; an NPU inside one tree is a leaf of the other (Sanders, Speck & Träff, 2009).

    Chunks follow one another up the trees and down again, so that all links are busy. Trees add up and hand out whole
    buffers: a reduce-scatter or an all-gather by trees is the half of an all-reduce that a network dimension does in
    it, with the sums at the two roots in between. An all-to-all reduces nothing: it is direct.
    """

    @staticmethod
    def rounds(kind: CollectiveKind, members: int) -> Rounds:
        """Return one round a pass: half of the data up each tree, or down."""
        if kind == "all_to_all":
            return DirectAlgorithm.rounds(kind, members)
        down = reversed_rounds(_up_the_trees(members, whole=kind == "all_reduce"))
        if kind == "all_gather":
            return down
        up = _up_the_trees(members, whole=kind == "all_reduce")
        return joined_rounds(up, down) if kind == "all_reduce" else up

    @staticmethod
    def steps(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return ceil(log2 p) a pass: up the tree to reduce, down to broadcast; 1 of an all-to-all.

        >>> float(DoubleBinaryTree.steps("all_reduce", 8)), float(DoubleBinaryTree.steps("all_reduce", 5))
        (6.0, 6.0)
        """
        return DirectAlgorithm.steps(kind, p) if kind == "all_to_all" else passes_of(kind) * tree_depth(p)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return 1 a pass for three or more: half of the data to the parent in either tree.

        Two NPUs form trees of one edge each, which meet the bound.
        """
        if kind == "all_to_all":
            return all_but_own(p)
        return passes_of(kind) * np.where(np.asarray(p) > 2, 1.0, all_but_own(p))

    @staticmethod
    def peers(p: Numeric) -> Numeric:
        """Return 2: a parent in either tree, or two children in one of them."""
        return np.minimum(2, p - 1)

    @staticmethod
    def distance(p: Numeric) -> Numeric:
        """Return the distance of halving: most edges are short, a few are long."""
        return halving_distance(p)


def double_tree_parents(members: int) -> tuple[Ints, Ints]:
    """Return the parent of each member in two binary trees, `NO_PARENT` of the root; all leaves of one are odd.

    The second tree is the first turned round, or with an odd number of members moved on by one, so that inner nodes of
    one are leaves of the other (as NCCL does). Of three, too, it is turned round: moved on, both would share a link.

    >>> [parents.tolist() for parents in double_tree_parents(4)]
    [[-1, 2, 0, 2], [1, 3, 1, -1]]
    """
    first: Ints = np.full(members, NO_PARENT, np.int64)
    for member in range(1, members):
        lowest = member & -member
        above = (member ^ lowest) | (lowest << 1)
        first[member] = above if above < members else member ^ lowest
    own: Ints = np.arange(members, dtype=np.int64)
    turned = members % 2 == 0 or members == 3
    place = members - 1 - own if turned else (own + 1) % members
    second: Ints = np.full(members, NO_PARENT, np.int64)
    inner = own[1:]
    second[place[inner]] = place[first[inner]]
    return first, second


def tree_levels(parents: Ints) -> Ints:
    """Return how many levels lie below each member: 0 of a leaf.

    >>> tree_levels(double_tree_parents(4)[0]).tolist()
    [2, 0, 1, 0]
    """
    levels: Ints = np.zeros(len(parents), np.int64)
    while True:
        below = levels.copy()
        child = np.flatnonzero(parents != NO_PARENT)
        np.maximum.at(below, parents[child], levels[child] + 1)
        if (below == levels).all():
            return levels
        levels = below


def _up_the_trees(members: int, *, whole: bool) -> Rounds:
    """Return the round in which both halves are added up towards the roots; as chunks if it is of a *whole* buffer."""
    ends, levels = [], []
    chunks_per_npu = 1 if members % 2 == 0 else 2
    half = members * chunks_per_npu // 2
    for parents in double_tree_parents(members):
        child = np.flatnonzero(parents != NO_PARENT)
        ends.append((child, parents[child]))
        levels.append(tree_levels(parents)[child])
    source, target = (np.concatenate(parts) for parts in zip(*ends, strict=True))

    def halves(_: int) -> Ints:
        return np.repeat(np.arange(2 * half).reshape(2, half), members - 1, axis=0)

    one = Round(source, target, Fraction(1, 2), True, 1, np.concatenate(levels), halves if whole else None)
    return Rounds(members, (one,), chunks_per_npu)
