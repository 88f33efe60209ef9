"""Recursive halving, then doubling: partners at distance 1, 2, 4, … exchange halves, quarters and so on."""

from cosmic.design.collective import algorithms


@algorithms.register("halving_doubling")
class HalvingDoubling:
    """At the bandwidth bound in logarithmic steps when p is a power of two.

    Otherwise the r = p - 2^floor(log2 p) NPUs too many first hand their data to a partner and get the
    result back at the end: two more steps, and the whole buffer sent once more by each of the two
    (Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005, section 4.5).
    """

    @staticmethod
    def steps(npus: int) -> float:
        """Return 2 log2 p, and 2 more unless p is a power of two.

        >>> HalvingDoubling.steps(8), HalvingDoubling.steps(9)
        (6, 8)
        """
        depth = npus.bit_length() - 1
        return 2 * depth + 2 * (npus != 1 << depth)

    @staticmethod
    def traffic(npus: int) -> float:
        """Return 2 (q - 1) / q with q the largest power of two up to p, and 1 more unless q = p."""
        paired = 1 << (npus.bit_length() - 1)
        return 2 * (paired - 1) / paired + (npus != paired)
