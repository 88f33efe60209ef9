"""A switch: every NPU has one link to a switch that joins them all."""

from cosmic.design.network import topologies


@topologies.register("switch")
class Switch:
    """One link up from each NPU; the switch carries what it is sent (see `Dimension.oversubscription`)."""

    algorithm = "halving_doubling"

    @staticmethod
    def links(npus: int) -> int:
        """Return 1."""
        return 1

    @staticmethod
    def diameter(npus: int) -> int:
        """Return 2: up to the switch and down again."""
        return 2

    @staticmethod
    def bisection(npus: int) -> int:
        """Return floor(p / 2): the links of the smaller half."""
        return npus // 2
