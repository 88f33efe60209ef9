"""Double binary tree: two trees, each reducing and broadcasting one half of the data."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.network.algorithm_terms import all_but_own, halving_distance, passes_of, tree_depth


@algorithms.register("double_binary_tree")
class DoubleBinaryTree:
    """Logarithmic steps; an NPU inside one tree is a leaf of the other (Sanders, Speck & Träff, 2009)."""

    @staticmethod
    def steps(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return ceil(log2 p) a pass: up the tree to reduce, down to broadcast.

        >>> float(DoubleBinaryTree.steps("all_reduce", 8)), float(DoubleBinaryTree.steps("all_reduce", 5))
        (6.0, 6.0)
        """
        return passes_of(kind) * tree_depth(p)

    @staticmethod
    def traffic(kind: CollectiveKind, p: Numeric) -> Numeric:
        """Return 1 a pass for three or more: half up in both trees, and two halves down in one of them.

        Two NPUs form trees of one edge each, which meet the bound. An all-to-all reduces nothing: it is direct.
        """
        if kind == "all_to_all":
            return all_but_own(p)
        return passes_of(kind) * np.where(np.asarray(p) > 2, 1.0, all_but_own(p))

    @staticmethod
    def peers(p: Numeric) -> Numeric:
        """Return 3: a parent and two children."""
        return np.minimum(3, p - 1)

    @staticmethod
    def distance(p: Numeric) -> Numeric:
        """Return the distance of halving: most edges are short, a few are long."""
        return halving_distance(p)
