"""Direct: every NPU sends each other NPU its part at once, twice."""

from cosmic.design.collective import algorithms


@algorithms.register("direct")
class Direct:
    """Two steps, at the bandwidth bound; wants a link between every two NPUs."""

    @staticmethod
    def steps(npus: int) -> float:
        """Return 2 for two or more NPUs: scatter the parts to be summed, gather the sums."""
        return 2 if npus > 1 else 0

    @staticmethod
    def traffic(npus: int) -> float:
        """Return 2 (p - 1) / p for p NPUs: all parts but one's own, twice."""
        return 2 * (npus - 1) / npus
