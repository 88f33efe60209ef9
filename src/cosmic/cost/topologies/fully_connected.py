"""Fully connected: every NPU has a link to every other."""

from cosmic.design.network import topologies


@topologies.register("fully_connected")
class FullyConnected:
    """As many links per NPU as there are others."""

    algorithm = "direct"

    @staticmethod
    def links(npus: int) -> int:
        """Return p - 1 for p NPUs."""
        return npus - 1

    @staticmethod
    def diameter(npus: int) -> int:
        """Return 1."""
        return 1

    @staticmethod
    def bisection(npus: int) -> int:
        """Return floor(p / 2) * ceil(p / 2): each NPU of one half reaches each of the other.

        >>> FullyConnected.bisection(8)
        16
        """
        return (npus // 2) * (npus - npus // 2)
