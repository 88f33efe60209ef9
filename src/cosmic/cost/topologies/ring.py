"""A ring: every NPU talks to its two neighbours."""

from cosmic.design.network import topologies


@topologies.register("ring")
class Ring:
    """Two links per NPU, one to each neighbour; two NPUs share a single one."""

    algorithm = "ring"

    @staticmethod
    def links(npus: int) -> int:
        """Return min(2, p - 1) for p NPUs.

        >>> Ring.links(8), Ring.links(2)
        (2, 1)
        """
        return min(2, npus - 1)

    @staticmethod
    def diameter(npus: int) -> int:
        """Return floor(p / 2): the NPU opposite is that far away either way round."""
        return npus // 2

    @staticmethod
    def bisection(npus: int) -> int:
        """Return 2: a ring is cut in two places (two NPUs in one)."""
        return min(2, npus - 1)
