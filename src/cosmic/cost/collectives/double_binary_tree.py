"""Double binary tree: two trees, each reducing and broadcasting one half of the data."""

from cosmic.design.collective import algorithms


@algorithms.register("double_binary_tree")
class DoubleBinaryTree:
    """Logarithmic steps; an NPU inside one tree is a leaf of the other (Sanders, Speck & Träff, 2009)."""

    @staticmethod
    def steps(npus: int) -> float:
        """Return 2 ceil(log2 p) for p NPUs: up the tree to reduce, down to broadcast.

        >>> DoubleBinaryTree.steps(8), DoubleBinaryTree.steps(5)
        (6, 6)
        """
        return 2 * (npus - 1).bit_length()

    @staticmethod
    def traffic(npus: int) -> float:
        """Return 2 for three or more NPUs: half up and two halves down in one tree, half up in the other.

        Two NPUs form trees of one edge each: half up in the one, half down in the other.
        """
        return {1: 0.0, 2: 1.0}.get(npus, 2.0)
